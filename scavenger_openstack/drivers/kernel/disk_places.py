# SPDX-License-Identifier: Apache-2.0

"""The disks of the host on which a file or device of a VM is.

No file is opened, and none examined on a network file system: one that does
not answer would never end.  The kernel's list of mounts tells where a path is.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import os
import re
import stat

from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.restore import mount_table

UNKNOWN = ''
"""A place that is not known, or is not on this host."""

_REMOTE = re.compile('/session[0-9]+/|/rport-|/nvme-fabrics/'
                     '|/rbd/|/block/(?:nbd|drbd)')
"""In the path of a device of iSCSI, Fibre Channel, NVMe over a network, or
Ceph: two of these may be one disk of the same server."""

_MOST_LINKS = 40
"""As many as the kernel follows in one path."""

_DEEPEST = 16
"""Devices on one another."""


def of(path: str, root_dir: str = '/') -> tuple[str, ...]:
    """Return ``major:minor`` of the disks below a file, or of a device in
    ``/dev`` (a partition, a logical volume, a RAID).

    :data:`UNKNOWN` stands for what is not known: a network file system, a
    volume on another host, a device without a number.
    """
    root = root_dir.rstrip('/')
    path = os.path.normpath(path)
    number = (_device(path, root) if path.startswith('/dev/')
              else _file_system(path, root))
    return tuple(dict.fromkeys(_whole_disks(number, root, _DEEPEST)))


def _device(path: str, root: str) -> str:
    try:
        status = os.stat(f'{root}{path}')
    except (OSError, ValueError):
        return UNKNOWN
    return (f'{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}'
            if stat.S_ISBLK(status.st_mode) else UNKNOWN)


def _file_system(path: str, root: str) -> str:
    """Return the device of the mount that holds a path, where that leads
    through symbolic links."""
    try:
        rows = list(mount_table.rows(f'{root}/proc/self/mountinfo'))
    except OSError:
        return UNKNOWN
    if not path.startswith('/'):
        return UNKNOWN
    here, number, links, is_local = '/', UNKNOWN, 0, True
    left = [*filter(None, path.split('/')), '.']
    while left and links <= _MOST_LINKS:
        above, here = here, os.path.normpath(f'{here.rstrip("/")}/{left[0]}')
        point, number = _mounted(here, rows, root)
        del left[0]
        # No network file system is asked, nor what is mounted below one.
        is_local = is_local and (bool(number) or point == '/')
        with contextlib.suppress(OSError, ValueError):
            if is_local:
                target = os.readlink(f'{root}{here}')
                links, left = links + 1, [*target.split('/'), *left]
                here = '/' if target.startswith('/') else above
    if here.startswith('/dev/'):
        return _device(here, root)
    return number


def _mounted(path: str, rows: Iterable[mount_table.Row], root: str
             ) -> tuple[str, str]:
    """Return the mount that holds a path without links, and its device; some
    file systems (btrfs) have a number of their own, but name the device."""
    best, number = '', UNKNOWN
    for device, _, point, _, source, _ in rows:
        if (path == point or path.startswith(f'{point.rstrip("/")}/')) and (
                len(point) >= len(best)):
            best, number = point, (
                device if not device.startswith('0:') else
                _device(source, root) if source.startswith('/dev/')
                else UNKNOWN)
    return best, number


def slaves(device: str) -> tuple[list[str], bool]:
    """Return the names of the devices that another one is built on, and
    whether it has a queue of requests of its own (multipath): then it is the
    disk, and they are ways to it.

    :param device: its directory in ``/sys``
    """
    names = proc.list_names(f'{device}/slaves')
    return names, bool(names) and os.path.isdir(f'{device}/mq')


def _whole_disks(number: str, root: str, deepest: int) -> Iterator[str]:
    """Return the disks that a device is a part of, or is made of."""
    device = os.path.realpath(f'{root}/sys/dev/block/{number}')
    if os.path.exists(f'{device}/partition'):
        device = os.path.dirname(device)
    disk = _text(f'{device}/dev') if number else UNKNOWN
    below = _text(f'{device}/loop/backing_file') if disk else ''
    names, is_multipath = slaves(device) if disk else ([], False)
    if not deepest or is_multipath or not (below or names):
        paths = [os.path.realpath(f'{device}/slaves/{name}')
                 for name in names]
        yield UNKNOWN if any(map(_REMOTE.search, (device, *paths))) else disk
    elif below:
        yield from _whole_disks(_file_system(below, root), root, deepest - 1)
    else:
        for name in names:
            yield from _whole_disks(_text(f'{device}/slaves/{name}/dev'),
                                    root, deepest - 1)


def _text(path: str) -> str:
    try:
        with open(path, errors='surrogateescape') as file:
            return file.read().strip()
    except OSError:
        return ''
