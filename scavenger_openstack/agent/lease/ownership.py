# SPDX-License-Identifier: Apache-2.0

"""The state directory of an agent, as the agent that owns it sees it.

What holds ``flock(lock)`` there is the one agent of this host, or tidies up
after a dead one.  The watcher sees the directory by
:mod:`.restore.state_directory`.
"""

from __future__ import annotations

from collections.abc import Mapping
import fcntl
import os
import pathlib
import time

from scavenger_openstack import errors
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore.files import FILE
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore import state_directory
from scavenger_openstack.restore import watcher

REFUSED = '.refused'
"""Ends the name of a record that a restorer did not trust."""

LOCK_TIMEOUT_S = 2.0
"""A restorer may be at work: so long it is waited for."""


class Ownership:
    """One state directory and the descriptors that make it ours."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.records = -1
        """The open directory of the lease records, -1 while not owned."""
        self._lock = -1
        self._reader = watcher.Reader(path / watcher.NAME)
        self._watched: Mapping[str, str] | None = None

    def check_free(self) -> None:
        """Wait for an agent that ends, as :meth:`take` does, and own nothing.

        :raises AlreadyRunning: another agent has the directory.
        :raises OSError: that cannot be found out.
        """
        if (self.path / 'lock').exists():
            os.close(_take_lock(self.path / 'lock'))

    def take(self) -> None:
        """Make the directory if need be, and own it from now on.

        :raises AlreadyRunning: another agent has it.
        :raises LeaseError: it belongs to another user; call :meth:`release`.
        :raises OSError: it cannot be used; call :meth:`release`.
        """
        for path in (self.path, self.path / 'leases'):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = path.stat(follow_symlinks=False)
            if info.st_uid != os.geteuid():
                raise errors.LeaseError(
                    f'{path} belongs to user {info.st_uid}, and this is '
                    f'user {os.geteuid()}: no limit is set without it; run '
                    'as that user, or give --state-dir')
            if info.st_mode & 0o077:
                path.chmod(0o700)
        self._lock = _take_lock(self.path / 'lock')
        self.records = os.open(self.path / 'leases', DIRECTORY)

    def moved(self, heartbeat: int) -> bool:
        """Whether the files that are kept open are no longer in place.

        :param heartbeat: the descriptor of the heartbeat in this directory
        """
        try:
            return any(os.fstat(fd).st_ino != os.stat(self.path / name).st_ino
                       for fd, name in ((self._lock, 'lock'),
                                        (heartbeat, 'heartbeat'),
                                        (self.records, 'leases')))
        except FileNotFoundError:
            return True

    def settled(self) -> bool:
        """Whether no limit of ours is being restored by another process.

        What is restored from now on is so by the heartbeat as it is now.

        :raises OSError: that cannot be found out.
        """
        return not state_directory.is_restoring(self.records)

    def watched(self, lease_s: float) -> Mapping[str, str] | None:
        """Return what ``scavenger-restore --watch`` on this directory can
        restore.

        Kind -> why not, '' for it can; ``None`` when none is there, or it
        has not turned lately.  Does not need :meth:`take`.
        """
        before, self._watched = self._watched, None
        try:
            fd = os.open(self.path / 'watcher.lock', os.O_RDONLY | FILE)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                self._watched = self._reader.read(
                    now_s(), watcher.stale_s(lease_s))
            finally:
                os.close(fd)
        except FileNotFoundError:
            pass
        except OSError:     # out of descriptors: not known is not "no"
            self._watched = before
        return self._watched

    def release(self, keep_lock: bool = False) -> None:
        """Own nothing any more.

        :param keep_lock: leave the lock to the kernel, which frees it when
            the last thread of this process is dead
        """
        for fd in (self.records, -1 if keep_lock else self._lock):
            if fd >= 0:
                os.close(fd)
        self.records = -1
        self._lock = self._lock if keep_lock else -1


def refused(path: pathlib.Path) -> list[str]:
    """Return the records of a state directory that could not be trusted."""
    where = path / 'leases'
    try:
        return sorted(str(where / name) for name in os.listdir(where)
                      if name.endswith(REFUSED))
    except OSError:
        return []


def _take_lock(path: pathlib.Path) -> int:
    deadline = now_s() + LOCK_TIMEOUT_S
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | FILE, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino == os.stat(path).st_ino:
                text = b'%d\n' % os.getpid()
                files.write_all(fd, text, 0)
                os.ftruncate(fd, len(text))
                return fd
        except BlockingIOError:
            if now_s() >= deadline:
                holder = os.pread(fd, 64, 0).decode(errors='replace')
                os.close(fd)
                raise errors.AlreadyRunning(
                    f'{path} is held by process {holder.strip()!r}: '
                    + ('it restores what an earlier agent left; see what it '
                       'says, then start again'
                       if 'restorer' in holder else
                       'one agent per host; stop that one first')
                ) from None
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        time.sleep(0.02)
