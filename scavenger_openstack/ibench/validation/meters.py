# SPDX-License-Identifier: Apache-2.0

"""What the kernel of the host counts of a process: no SoI's own report."""

from __future__ import annotations

import os
import pathlib
import stat

from scavenger_openstack import errors

SECTOR_BYTES = 512


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is present.

    :raises OSError: it is gone.
    """
    pages = pathlib.Path(f'/proc/{pid}/statm').read_text().split()[1]
    return int(pages) * os.sysconf('SC_PAGE_SIZE')


def file_bytes(pid: int, directory: str) -> int:
    """Return the blocks of the files without a name that a process has open
    on the file system of a directory.

    :raises OSError: the process is gone.
    """
    device = os.stat(directory).st_dev
    total = 0
    for name in os.listdir(f'/proc/{pid}/fd'):
        try:
            what = os.stat(f'/proc/{pid}/fd/{name}')
        except FileNotFoundError:
            continue        # closed meanwhile
        if stat.S_ISREG(what.st_mode) and what.st_dev == device \
                and not what.st_nlink:
            total += what.st_blocks * SECTOR_BYTES
    return total


def device_bytes(device: str) -> int:
    """Return what was read from and written to a block device until now.

    :raises DriverError: the kernel does not list it.
    """
    name = pathlib.Path(device).resolve().name
    for line in pathlib.Path('/proc/diskstats').read_text().splitlines():
        fields = line.split()
        if fields[2] == name:
            return (int(fields[5]) + int(fields[9])) * SECTOR_BYTES
    raise errors.DriverError(f'/proc/diskstats does not list {device}')


def link_bytes(pid: int, device: str) -> int:
    """Return what went over a device, both ways, in the namespace of a
    process.

    :raises OSError: the process is gone.
    :raises DriverError: there is no such device.
    """
    for line in pathlib.Path(f'/proc/{pid}/net/dev').read_text(
            ).splitlines():
        name, _, rest = line.partition(':')
        if name.strip() == device:
            fields = rest.split()
            return int(fields[0]) + int(fields[8])
    raise errors.DriverError(f'process {pid} has no device {device}')
