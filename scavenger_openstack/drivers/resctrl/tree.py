# SPDX-License-Identifier: Apache-2.0

"""The file system of resctrl: whether it can be used, and by which programs
it is."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import os

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import errors
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore import resctrl

MONITORING = 'scavenger-'
"""How the names of our monitoring groups begin."""

_GONE = frozenset((errno.ENOENT, errno.ESRCH, errno.EINVAL))
"""What the kernel answers about a thread that has ended, or that no group
below another control group than its own can have."""

_NO_GROUPS = frozenset(('info', 'mon_groups', 'mon_data'))


def has_resctrl(root_dir: str) -> bool:
    """Return whether the kernel offers resctrl: only where the CPU can monitor
    or allocate the cache."""
    return 'resctrl' in proc.read_text(
        f'{root_dir.rstrip("/")}/proc/filesystems').split()


def mount_point(root_dir: str) -> str:
    """Return where resctrl is mounted, if it is."""
    return f'{root_dir.rstrip("/")}/sys/fs/resctrl'


def check_usable(top: str, purpose: str, directory: str = '') -> None:
    """Check that groups can be made in a directory below ``top``.

    :param purpose: what cannot be done without, for people
    :raises Unsupported: they cannot, and what would help.
    """
    if not os.path.isdir(f'{top}/info'):
        raise errors.Unsupported(
            f'cannot {purpose}: this CPU can, but resctrl is not mounted; '
            f'mount it: mount -t resctrl resctrl {top}')
    if (not os.access(f'{top}/{directory}', os.W_OK)
            or os.statvfs(top).f_flag & os.ST_RDONLY):
        raise errors.Unsupported(
            f'cannot {purpose}: {top} is read-only for the agent')


@contextlib.contextmanager
def locked(top: str, purpose: str) -> Iterator[None]:
    """Keep other programs from changing groups meanwhile.

    :param purpose: what cannot be done without, for people
    :raises Denied: one of them has the lock, as any user may: so it is not
        waited for in each tick.
    """
    fd = os.open(top, DIRECTORY)
    try:
        if not resctrl.lock(fd):
            raise errors.Denied(
                f'cannot {purpose} now: another program has locked {top} for '
                f'more than {resctrl.PATIENCE_S:g} s')
        yield
    finally:
        os.close(fd)


def control_groups(top: str) -> list[str]:
    """Return the names of the control groups of other programs, sorted."""
    return sorted((name for name in os.listdir(top)
                   if name not in _NO_GROUPS and name != resctrl.GROUP
                   and os.path.isdir(f'{top}/{name}')), key=str)


def tasks(group: str) -> set[int]:
    """Return the threads in a group; none where there is no such group.

    :raises OSError: they cannot be read.
    """
    try:
        with open(f'{group}/tasks') as file:
            return set(map(int, file.read().split()))
    except FileNotFoundError:
        return set()


def move(group: str, threads: Iterable[int], purpose: str) -> None:
    """Put threads into a group; those that ended meanwhile are left out.

    :raises Unsupported: it is not allowed.
    :raises OSError: it failed.
    """
    fd = os.open(f'{group}/tasks', os.O_WRONLY | os.O_CLOEXEC)
    try:
        for thread in threads:
            try:
                files.write_once(fd, b'%d\n' % thread)
            except PermissionError as exc:
                raise only_root(purpose) from exc
            except OSError as exc:
                if exc.errno not in _GONE:
                    raise
    finally:
        os.close(fd)


def only_root(purpose: str) -> errors.Unsupported:
    """Return the error of an agent that is not root."""
    return errors.Unsupported(
        f'cannot {purpose}: the kernel lets only root put the threads of '
        'other users into a group of resctrl, whatever capabilities the '
        f'agent has; set User=root in its unit, {base.RESTART}')
