# SPDX-License-Identifier: Apache-2.0

"""One enforcing agent for what it limits, whatever its state directory.

The token is ``flock`` in each background parent, in each cgroup hierarchy, and
in the directory of libvirt's socket: on a file of :data:`ROOT_ONLY`, which no
user can lock to keep agents away; where there is none, on the directory
itself.  All mount, PID, network and cgroup namespaces see the same inodes
there, and the kernel lets go of it when the process is dead.  Each directory
above a parent is locked as shared, so that no other agent has it for a parent
of its own.
Agents with parents of their own beside one another are none of our business:
each takes the other's work for foreground, as it does all that it does not
know.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import fcntl
import os
import re
import time

from scavenger_openstack import errors
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import state_directory

LIBVIRT = '/run/libvirt'
"""Where libvirtd has its socket, if the URI does not say."""
ROOT_ONLY = (('cgroup.kill', os.O_WRONLY),          # v2 since Linux 5.14
             ('memory.reclaim', os.O_WRONLY),       # at its root, since 5.19
             ('common/system.token', os.O_RDONLY))  # libvirt since 7.2
"""Below a directory: what only root can open, and how."""


class Claims:
    """The cgroups and libvirt that one agent alone may limit.

    :param parents: cgroups below a mount, ``/batch``
    :param uris: of libvirt
    """

    def __init__(self, parents: Sequence[str], uris: Sequence[str]) -> None:
        self._parents = ['/' + path.strip('/') for path in parents]
        self._uris = uris
        self._locks: dict[tuple[int, int], int] = {}

    def take(self, patience_s: float = 0.0) -> None:
        """Claim what is there, and was not claimed already.

        Cheap enough to be called before each new limit: a parent may have
        been made meanwhile, or made again.

        :param patience_s: so long another process may take to end
        :raises AlreadyRunning: it does not.
        """
        until_s = time.monotonic() + patience_s
        locks = set()
        # Parents first: what is one of ours need not be shared.
        for path, how in sorted(self._wanted(), key=lambda entry: (
                entry[1] == fcntl.LOCK_SH, len(entry[0]))):
            while (lock := self._lock(path, how)) is None:
                if time.monotonic() >= until_s:
                    raise errors.AlreadyRunning(_already(path))
                time.sleep(0.05)
            locks.add(lock)
        for gone in set(self._locks) - locks:
            os.close(self._locks.pop(gone))

    def release(self) -> None:
        """Let go of all."""
        for fd in self._locks.values():
            os.close(fd)
        self._locks = {}

    def _wanted(self) -> Iterator[tuple[str, int]]:
        for uri in self._uris:
            socket = re.search('[?&]socket=([^&]*)', uri)
            yield (os.path.dirname(socket[1]) if socket else LIBVIRT,
                   fcntl.LOCK_EX)
        points = [mount[0].rstrip('/') for mount in cgroup.mounts()]
        for path in (point + parent
                     for point in points for parent in self._parents):
            if not os.path.isdir(path):
                continue
            yield path, fcntl.LOCK_EX
            while path not in points:
                path = os.path.dirname(path)
                yield path, fcntl.LOCK_SH

    def _lock(self, path: str, how: int) -> tuple[int, int] | None:
        """Lock a path; return which file it is, ``None`` if another process
        has locked it.

        A hierarchy may be mounted twice, so files are known by inode.
        """
        try:
            fd = _open(path)
        except FileNotFoundError:
            return 0, 0
        info = os.fstat(fd)
        file = info.st_dev, info.st_ino
        if file in self._locks:
            os.close(fd)
            return file
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        self._locks[file] = fd
        return file


def _open(path: str) -> int:
    """Open what is locked for a directory.

    :raises FileNotFoundError: there is no such directory.
    """
    for name, flags in ROOT_ONLY:
        with contextlib.suppress(OSError):
            return os.open(f'{path}/{name}',
                           flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _already(path: str) -> str:
    """Return which process has the lock, and what to do."""
    fd = _open(path)
    info = os.fstat(fd)
    os.close(fd)
    pid = state_directory.locked_by(info.st_dev, info.st_ino)
    state = next((agent.state_dir for agent in state_directory.agents()
                  if agent.pid == pid), '')
    reason = ('a process that is not seen from this PID namespace already '
              'enforces limits there')
    if state:
        reason = (f'process {pid} (state directory {state}) already enforces '
                  'limits there')
    elif pid:
        with contextlib.suppress(OSError):
            reason = (f'process {pid} of user '
                      f'{os.stat(f"/proc/{pid}").st_uid} has locked it, as an '
                      'agent does that enforces limits there')
    return (f'{path}: {reason}, and two agents would take each other\'s '
            'limits for originals: stop that one first, or set mode = '
            'observe, or other background_parents, for this one')
