# SPDX-License-Identifier: Apache-2.0

"""The restore action of limits of last-level caches; standard library only.

All background work is in one group of resctrl, which the agent makes.  The
kernel moves the tasks of a group that is removed to the default group, in
which they were before: so one removal restores everything, wherever between
the making of the group and the move of its last task the agent was killed.
The group has one name, and no other is ever removed.

Programs that change groups lock the directory of the mount, so that none reads
what another one has changed by half; no lock is waited for longer than
:data:`PATIENCE_S`.
Source: the kernel's Documentation/filesystems/resctrl.rst.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time

from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore.grammar import Gone
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError

GROUP = 'scavenger'
"""The name of the group, directly below the mount."""

PATIENCE_S = 0.1
"""Others hold the lock for some milliseconds; a tick waits."""

_HINTS = {
    errno.EROFS: 'mount resctrl read-write',
    errno.EACCES: 'run as root',
    errno.EPERM: 'run as root'}


def action(point: str) -> RestoreAction:
    """Return the action for the resctrl that is mounted at ``point``."""
    return {'do': 'resctrl', 'dir': point}


def mounts() -> list[cgroup.Mount]:
    """Return where resctrl is mounted."""
    return cgroup.mounts(kinds=('resctrl',))


def lock(top: int) -> bool:
    """Lock the directory of the mount until it is closed; return false if
    another program has not let go of it in time.

    Source: Locking between applications, in the kernel's document.
    """
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(0.005)


def validate(action: RestoreAction) -> None:
    """Hold an action against the closed set.

    :raises Refused: it is not in it.
    """
    grammar.only(action, {'do', 'dir'})
    grammar.text(action, 'dir', '(?:/[^/\0\n]+)+')
    if {'.', '..'} & set(action['dir'].split('/')):
        raise grammar.Refused(f'dir {action["dir"]!r:.99} is not a plain path')


def remove_group(action: RestoreAction) -> bool:
    """Carry out a valid action; return whether the group was there.

    :raises Gone: resctrl is no longer mounted there, and no group is left.
    :raises RestoreError: the group stays.
    """
    point = action['dir']
    device = next((mount[2] for mount in mounts() if mount[0] == point), None)
    if device is None:
        raise Gone(f'resctrl is not mounted at {point} any more: its groups '
                   'ended with it')
    top = None
    try:
        top = os.open(point, DIRECTORY)
        if os.fstat(top).st_dev != device:
            raise RestoreError(f'{point} is not the resctrl that is mounted '
                               'there: unmount what lies above it')
        # Without the lock if need be: a limit does not outlive its lease.
        with contextlib.suppress(OSError):
            lock(top)
        os.rmdir(GROUP, dir_fd=top)
        return True
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise RestoreError(
            f'{point}/{GROUP} cannot be removed ({exc.strerror}): '
            f'{_HINTS.get(exc.errno or 0, "see the kernel log")}') from exc
    finally:
        if top is not None:
            os.close(top)
