# SPDX-License-Identifier: Apache-2.0


"""The state directory of an agent, as those who restore after it see it.

Standard library only, like all that ``scavenger-restore`` runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl
import json
import os
import pathlib
import select
import stat
import struct
from typing import NamedTuple

from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore.files import FILE
from scavenger_openstack.restore.records import boot_id
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore.records import open_or_make
from scavenger_openstack.restore.watcher import Publisher

MAX_AHEAD_S = 3600.0
"""A heartbeat that promises more than this is garbage."""
UNREADABLE_POLLS = 3
MAX_PID = 2 ** 22
CAP_DAC_OVERRIDE = 1

_FLOCK = struct.Struct('hhqqi4x')    # struct flock of 64-bit machines


class StateDir:
    """The state directory of an agent, as a restorer sees it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._above = os.path.dirname(os.path.abspath(path))
        self._beat, self._boot_id = b'', ''
        self.fd = self.watcher = -1
        self.publisher: Publisher | None = None
        self.id = (0, 0)
        self.pid = self.died = 0
        self.held = self.found = self.due = False
        """What the last pass saw: a living agent, leases, any to restore."""
        self.expires_s = self._expires_s = 0.0
        self.unreadable = 0

    def open(self) -> bool:
        """Follow the path, where the directory may be made, or made again.

        :raises OSError: it cannot be used; the message says why.
        """
        try:
            info = os.stat(self.path, follow_symlinks=False)
            if (info.st_dev, info.st_ino) != self.id:
                self.close()
                self.fd = os.open(self.path, DIRECTORY)
                info = os.fstat(self.fd)   # another one may be there by now
                self.id = (info.st_dev, info.st_ino)
        except FileNotFoundError:
            self.close()
            return False
        above = os.stat(self._above)
        if above.st_mode & 0o022 and info.st_uid != os.geteuid():
            raise OSError(f'user {info.st_uid} made it where everyone may '
                          'make one; use a directory in /run')
        if info.st_mode & 0o022:
            raise OSError(f'others may write there (mode {info.st_mode:o}): '
                          'chmod 700, and look at the leases in it')
        _check_above(self._above)
        return True

    def close(self) -> None:
        for fd in (self.fd, self.watcher):
            if fd >= 0:
                os.close(fd)
        if self.publisher is not None:
            self.publisher.close()
        self.publisher = None
        self.fd = self.watcher = -1
        self.id = (0, 0)

    def has_leases(self) -> bool:
        """Whether there is anything to restore, or to delete."""
        try:
            with os.scandir(os.path.join(self.path, 'leases')) as entries:
                return any(entry.name.endswith(('.json', '.tmp'))
                           for entry in entries)
        except FileNotFoundError:
            return False

    def count(self, end: str) -> int:
        """Return how many records have a name with this end."""
        try:
            return sum(name.endswith(end) for name in os.listdir(
                os.path.join(self.path, 'leases')))
        except FileNotFoundError:
            return 0

    def take(self, name: str) -> int:
        """``flock`` a file in the directory; -1: another process has it."""
        try:
            fd = open_or_make(name, self.fd)
        except OSError:
            fd = os.open(name, os.O_RDONLY | FILE, dir_fd=self.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink != 1:
                return fd   # some other file's second name: not ours to write
            files.write_all(fd, b'%d restorer\n' % os.getpid(), 0)
        except BlockingIOError:
            os.close(fd)
            return -1
        except OSError:
            pass            # the lock counts, its text is for people
        return fd

    def holder(self) -> int:
        """The process id in ``lock``, 0 when there is none to be read."""
        try:
            fd = os.open('lock', os.O_RDONLY | FILE, dir_fd=self.fd)
        except OSError:
            return 0
        try:
            text = os.read(fd, 32).partition(b'\n')[0]
        finally:
            os.close(fd)
        pid = int(text) if text.isdigit() else 0
        return pid if pid <= MAX_PID else 0

    def expired(self) -> bool:
        """Whether the leases have run out, by the heartbeat."""
        now = now_s()       # what is renewed while it is read has not
        try:
            fd = os.open('heartbeat', os.O_RDONLY | FILE,
                         dir_fd=self.fd)
        except FileNotFoundError:
            return True
        except OSError:
            self.unreadable += 1
            return self.unreadable >= UNREADABLE_POLLS
        try:
            data = os.read(fd, 4096)
            if data != self._beat:
                beat = json.loads(data)
                self._expires_s = float(beat['expires_s'])
                self._boot_id = str(beat['boot_id'])
                self._beat = data
            self.expires_s = self._expires_s
            other_boot = self._boot_id != boot_id()
            if not other_boot and not self.expires_s < now + MAX_AHEAD_S:
                raise ValueError('too far ahead')
            self.unreadable = 0
        except (OSError, ValueError, KeyError, TypeError, OverflowError,
                RecursionError):
            self.unreadable += 1
            self.expires_s = 0.0
            return self.unreadable >= UNREADABLE_POLLS
        finally:
            os.close(fd)
        return other_boot or now >= self.expires_s

    def wait(self, poll_s: float) -> None:
        """Wait until the agent dies, its leases run out, or ``poll_s``
        passed."""
        ahead_s = self.expires_s - now_s()
        if ahead_s > 0:
            poll_s = min(poll_s, ahead_s + 0.001)
        poller = select.poll()
        pidfd = -1
        if self.pid and self.pid != self.died:
            try:
                pidfd = os.pidfd_open(self.pid)
                poller.register(pidfd, select.POLLIN)
            except OSError:
                pass
        if poller.poll(poll_s * 1000):
            self.died = self.pid    # a zombie would wake us without end
        if pidfd >= 0:
            os.close(pidfd)


@contextlib.contextmanager
def restoring(leases: int) -> Iterator[None]:
    """Around the restoring of one limit beside an agent that may live: where
    its leases had run out, it sets none meanwhile.

    :param leases: the open directory of the records
    """
    with contextlib.suppress(OSError):      # it is restored all the same
        _lock(leases, fcntl.F_OFD_SETLK, fcntl.F_RDLCK)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _lock(leases, fcntl.F_OFD_SETLK, fcntl.F_UNLCK)


def is_restoring(leases: int) -> bool:
    """Whether a limit is being restored now; takes no lock, so that an agent
    that is stopped does not prevent it.

    :param leases: as of :func:`restoring`, opened once more
    :raises OSError: that cannot be found out.
    """
    return _lock(leases, fcntl.F_OFD_GETLK, fcntl.F_WRLCK) != fcntl.F_UNLCK


def _lock(fd: int, what: int, kind: int) -> int:
    """Lock an open file as a whole, or ask what keeps us from that."""
    lock: int = _FLOCK.unpack(fcntl.fcntl(
        fd, what, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)))[0]
    return lock


def _check_above(path: str) -> None:
    """No directory above a state directory may be another user's: that user
    could put others in its place.  Who owns the root directory or this
    program can do as it likes anyway.

    :raises OSError: one is.
    """
    users = {0, os.geteuid(), os.stat('/').st_uid, os.stat(__file__).st_uid}
    for above in (path, *map(str, pathlib.PurePath(path).parents)):
        user = os.stat(above).st_uid
        if user not in users:
            raise OSError(f'{above} belongs to user {user}, who could put '
                          'another directory in its place; use one in /run')


def locked_by(device: int, inode: int) -> int:
    """The process that holds ``flock`` on a file, 0 when none is seen."""
    name = f'{os.major(device):02x}:{os.minor(device):02x}:{inode}'
    return next((pid for pid, file in _flocks() if file == name), 0)


class Agent(NamedTuple):
    """A running agent, as seen from here.

    ``state_dir`` is the path as the agent sees it, in a container inside of
    it; ``seen_at`` is where this process finds the same directory.
    """

    pid: int
    state_dir: str
    seen_at: str


def agents(proc: str = '/proc', owner: int = 0) -> list[Agent]:
    """Each agent that is seen from here and runs as root, as this user, as
    ``owner``, or with the right to write all cgroups.

    Any process can hold a lock and name its files as an agent does, so
    those of other users do not count, and nothing of theirs is opened.

    :param proc: where processes are looked for
    :param owner: user id, such as that of a state directory
    :raises OSError: the kernel does not list what holds which lock.
    """
    running = set()
    for pid in {pid for pid, _ in _flocks(proc)}:
        try:
            user = _user(f'{proc}/{pid}', {0, os.geteuid(), owner})
            files = os.listdir(f'{proc}/{pid}/fd') if user is not None else ()
        except (OSError, ValueError, KeyError):
            continue        # it has ended, or is not ours to look at
        for fd in files:
            try:
                agent = _agent(proc, pid, fd)
                if (agent and os.path.isdir(f'{agent.seen_at}/leases')
                        and os.stat(agent.seen_at).st_uid in (0, user)):
                    running.add(agent)
            except OSError:
                continue    # closed meanwhile
    return sorted(running)


def _user(process: str, users: set[int]) -> int | None:
    """The user of a process that may be an agent, ``None`` of any other."""
    with open(f'{process}/status', errors='replace') as file:
        fields = dict(line.split(':', 1) for line in file)
    user, effective = map(int, fields['Uid'].split()[:2])
    if user != effective:
        return None         # a program that any user starts as root
    if user not in users and not (
            int(fields['CapEff'], 16) & 1 << CAP_DAC_OVERRIDE
            and os.path.samefile(f'{process}/ns/user', '/proc/self/ns/user')):
        return None
    return user


def _agent(proc: str, pid: int, fd: str) -> Agent | None:
    """The agent that a process is by the lock on this open file, if it is.

    The kernel says with the open file which locks are on it; the device in
    ``/proc/locks`` is not that of the file on every file system.

    :raises OSError: it cannot be looked at.
    """
    name = f'{proc}/{pid}/fd/{fd}'
    path = os.readlink(name)
    if not path.endswith('/lock'):
        return None
    lock = os.stat(name)
    if not stat.S_ISREG(lock.st_mode):
        return None
    with open(f'{proc}/{pid}/fdinfo/{fd}') as file:
        lines = [line.split() for line in file]
    if not any(words[:1] == ['lock:'] and words[2] == 'FLOCK'
               and words[5] == str(pid) for words in lines):
        return None
    text = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if b'restorer' in os.read(text, 32):
            return None
    finally:
        os.close(text)
    reachable = own = os.path.dirname(path)
    if not _is(path, lock):
        # Another mount namespace, and perhaps a root in there.
        top = os.readlink(f'{proc}/{pid}/root').rstrip('/') + '/'
        own = '/' + own.removeprefix(top).lstrip('/')
        reachable = (own if _is(f'{own}/lock', lock)
                     else f'{proc}/{pid}/root{own}')
    return Agent(pid, own, reachable)


def _is(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False


def _flocks(proc: str = '/proc') -> list[tuple[int, str]]:
    """Process, and device with inode in the kernel's form, of each lock."""
    with open(f'{proc}/locks') as file:
        lines = [line.split() for line in file]
    return [(int(words[4]), words[5]) for words in lines
            if words[1:2] == ['FLOCK'] and len(words) > 5
            and words[4].isdecimal() and int(words[4])]
