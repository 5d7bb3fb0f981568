# SPDX-License-Identifier: Apache-2.0

"""Disks by the numbers that cgroups know them by."""

from __future__ import annotations

import os

from scavenger_openstack import errors

_NOT_WHOLE_DISKS = ('loop', 'ram', 'zram', 'dm-', 'md', 'sr', 'fd')


def whole_disks(root_dir: str = '/') -> tuple[str, ...]:
    """``major:minor`` of the disks whose I/O is limited by default.

    Stacked devices (dm, md, loop) are left out: what passes them arrives at
    the disks below, on behalf of the same cgroup.  So are RAM disks, CD and
    floppy drives, and drives without a medium.
    """
    top = f'{root_dir.rstrip("/")}/sys/block'
    found = []
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return ()
    for name in names:
        if name.startswith(_NOT_WHOLE_DISKS):
            continue
        try:
            with open(f'{top}/{name}/size') as file:
                if int(file.read()) == 0:
                    continue
            found.append(_device_number(f'{top}/{name}'))
        except (OSError, ValueError):
            continue  # hidden paths of a multipath disk have no number
    return tuple(found)


def device_numbers(devices: tuple[str, ...],
                   root_dir: str = '/') -> tuple[str, ...]:
    """``major:minor`` of disks given as that or by name (``vda``).

    :raises ConfigError: there is no such disk.
    """
    found = []
    for device in devices:
        major, colon, minor = device.partition(':')
        if colon and major.isdigit() and minor.isdigit():
            found.append(device)
            continue
        name = device.removeprefix('/dev/').replace('/', '!')
        top = f'{root_dir.rstrip("/")}/sys/block/{name}'
        try:
            found.append(_device_number(top))
        except OSError as exc:
            raise errors.ConfigError(
                f'io_devices: there is no disk {device!r} ({top}/dev: '
                f'{exc.strerror}); name whole disks such as vda or 8:0'
            ) from exc
    return tuple(found)


def _device_number(top: str) -> str:
    with open(f'{top}/dev') as file:
        return file.read().strip()
