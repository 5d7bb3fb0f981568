# SPDX-License-Identifier: Apache-2.0

"""Disks by the numbers that cgroups know them by."""

from __future__ import annotations

from collections.abc import Sequence
import logging
import os

from scavenger_openstack.drivers.kernel import disk_places
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import errors
from scavenger_openstack import log_once

LOG = logging.getLogger(__name__)

_NO_DISKS = {1: 'RAM disk', 2: 'floppy', 7: 'loop', 11: 'CD'}
"""Major numbers that the kernel gives to other devices for good.  Source:
Documentation/admin-guide/devices.txt."""

_ZRAM = 'mm_stat'
"""Only compressed RAM disks, which have no major number for good, have this
file."""


def whole_disks(root_dir: str = '/') -> tuple[str, ...]:
    """``major:minor`` of the disks whose I/O is limited by default.

    What is built on other devices (dm, md, bcache, loop) is left out: what
    passes it arrives at the disks below, on behalf of the same cgroup.  But
    one with a queue of requests of its own (multipath) hands on requests,
    which are no cgroup's any more: there the devices below are left out.  So
    are RAM disks, CD and floppy drives, and drives without a medium.
    """
    top = f'{root_dir.rstrip("/")}/sys/block'
    numbers: dict[str, str] = {}
    below: set[str] = set()
    for name in proc.list_names(top):
        device = f'{top}/{name}'
        try:
            if int(proc.read_text(f'{device}/size')) == 0:
                continue
            number = _device_number(device)
            major = int(number.partition(':')[0])
        except (OSError, ValueError):
            continue  # hidden paths of a multipath disk have no number
        slaves, is_multipath = disk_places.slaves(device)
        if is_multipath:
            below.update(slaves)
        elif slaves:
            continue
        if major not in _NO_DISKS and not os.path.exists(
                f'{device}/{_ZRAM}'):
            numbers[name] = number
    return tuple(number for name, number in numbers.items()
                 if name not in below)


def device_number(device: str, root_dir: str = '/') -> str:
    """``major:minor`` of a disk given as that or by name (``vda``).

    :raises ConfigError: there is no such disk.
    """
    major, colon, minor = device.partition(':')
    if colon and major.isdigit() and minor.isdigit():
        return device
    name = device.removeprefix('/dev/').replace('/', '!')
    top = f'{root_dir.rstrip("/")}/sys/block/{name}'
    try:
        return _device_number(top)
    except OSError as exc:
        raise errors.ConfigError(
            f'io_devices: there is no disk {device!r} ({top}/dev: '
            f'{exc.strerror}); name whole disks such as vda or 8:0') from exc


class Disks:
    """The disks that limits and counters are about, as of the last look.

    :param configured: those, as numbers or names; empty: all whole disks
    :param logged: what was logged of this host
    :ivar counted: what :attr:`now` has, always the same list
    :raises ConfigError: one of ``configured`` is not there.
    """

    def __init__(self, configured: Sequence[str], root_dir: str,
                 logged: log_once.LogOnce) -> None:
        self._configured = configured
        self._root_dir = root_dir
        self._logged = logged
        self.counted: list[bytes] = []
        self.now: tuple[str, ...] = ()
        for device in configured:
            device_number(device, root_dir)
        self.refresh()

    def refresh(self) -> bool:
        """Look again; whether there are others now."""
        now = (tuple(filter(None, map(self._number, self._configured)))
               if self._configured else whole_disks(self._root_dir))
        if now == self.now:
            return False
        self.now = now
        self.counted[:] = [number.encode() for number in now]
        return True

    def _number(self, device: str) -> str:
        try:
            number = device_number(device, self._root_dir)
        except errors.ConfigError:
            if self._logged.due(('disk', device)):
                LOG.warning('io_devices: the disk %s was removed; it is left '
                            'out until it is back', device)
            return ''
        self._logged.over(('disk', device))
        return number


def _device_number(top: str) -> str:
    with open(f'{top}/dev') as file:
        return file.read().strip()
