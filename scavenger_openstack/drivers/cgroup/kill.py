# SPDX-License-Identifier: Apache-2.0


"""Ending all processes of a cgroup: an action, never a limit."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import logging
import os
import signal
import time

from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

TIMEOUT_S = 1.0
"""How long to kill what keeps being made; the tick waits for it."""

_MEMBERS = ('memory', 'cpu', 'cpuacct', 'cpuset', 'blkio', 'freezer',
            'unified')


def kill(mounts: Mapping[str, Mount], workload: str) -> int:
    """Kill every process in a cgroup and below; return how many there were.

    Who was sent the signal may take a while to go: to end needs CPU time,
    and the next tick looks at the memory anyway.

    Who belongs to it is what the memory controller says (memory is what
    kills are for), else the first hierarchy there is.

    :raises WorkloadGone: there is no such cgroup.
    :raises Unsupported: it is threaded, so no process is in it alone.
    :raises DriverError: more appear than can be killed.
    :raises OSError: the kernel does not let us.
    """
    mount = next(mounts[name] for name in _MEMBERS if name in mounts)
    top = _open(mount, workload)
    _check_not_threaded(top)
    freezer = None
    if 'freezer' in mounts:
        with contextlib.suppress(errors.WorkloadGone):
            freezer = _open(mounts['freezer'], workload)
    deadline = time.monotonic() + TIMEOUT_S
    killed: set[int] = set()
    while True:
        members = {pid for pid in _members(top) if _lives(pid)}
        if not members - killed:
            return len(killed)
        if time.monotonic() > deadline:
            raise errors.DriverError(
                f'{top.path}: new processes appear as fast as they are '
                f'killed, {len(members)} now')
        killed |= _round(top, freezer, members, freeze=bool(killed))


def _open(mount: Mount, workload: str) -> CgroupDirectory:
    return CgroupDirectory(mount.path + workload, version=mount.version)


def _check_not_threaded(top: CgroupDirectory) -> None:
    try:
        kind = top.read('cgroup.type') if top.version == 2 else ''
    except errors.Unsupported:
        return      # kernels before 4.14
    if kind == 'threaded':
        raise errors.Unsupported(
            f'{top.path} is threaded: its threads are of processes in a '
            'cgroup above it; name the parent of that one in [cgroups] '
            'background_parents')


def _members(top: CgroupDirectory) -> set[int]:
    """The processes in a cgroup and below (0: in another PID namespace)."""
    pids: set[int] = set()
    for directory in _subtree(top):
        with contextlib.suppress(errors.WorkloadGone):
            pids |= directory.processes()
    return pids - {0}


def _lives(pid: int) -> bool:
    """Return whether any thread of a process is left: one that ended and that
    is not waited for stays a member."""
    try:
        with open(f'/proc/{pid}/stat', 'rb') as file:
            state, *rest = file.read().rpartition(b') ')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    threads = int(rest[16])
    return state not in (b'Z', b'X') or threads > 1


def _subtree(top: CgroupDirectory) -> Iterator[CgroupDirectory]:
    """A cgroup and those below, from the top down."""
    yield top
    waiting = [(top, name) for name in top.subdirectories()]
    while waiting:
        parent, name = waiting.pop()
        with contextlib.suppress(errors.WorkloadGone):
            child = parent.child(name)
            yield child
            waiting += [(child, name) for name in child.subdirectories()]


def _round(top: CgroupDirectory, freezer: CgroupDirectory | None,
           members: set[int], *, freeze: bool) -> set[int]:
    """Kill the members once; return who was sent the signal.

    :param freeze: have them make no children meanwhile, so that none slips
        through; they stay frozen if the agent ends then
    """
    if top.version == 2:
        try:
            top.write('cgroup.kill', '1')
            return members
        except (OSError, errors.Unsupported):
            pass  # kernels before 5.14
    if freezer is None:
        return _signal(top, members | _members(top))
    if freeze:
        _freeze(freezer, True)
    try:
        return _signal(top, members | _members(top))
    finally:
        # Also what froze part of itself: v1 lets that outlive the signal.
        for directory in _subtree(freezer):
            _freeze(directory, False)


def _freeze(directory: CgroupDirectory, freeze: bool) -> None:
    if directory.version == 1:
        file, text = 'freezer.state', 'FROZEN' if freeze else 'THAWED'
    else:
        file, text = 'cgroup.freeze', '1' if freeze else '0'
    try:
        directory.write(file, text)
    except (OSError, errors.DriverError) as exc:
        LOG.debug('%s/%s: %s', directory.path, file, exc)


def _signal(top: CgroupDirectory, members: set[int]) -> set[int]:
    """SIGKILL who is still a member, by pidfd: a PID that was given to
    another process meanwhile is not hit."""
    pidfds: dict[int, int] = {}
    try:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                pidfds[pid] = os.pidfd_open(pid)
        sent: set[int] = set()
        for pid in _members(top) & set(pidfds):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfds[pid], signal.SIGKILL)
                sent.add(pid)
        return sent
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)
