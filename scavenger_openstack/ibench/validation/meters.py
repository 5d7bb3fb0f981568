# SPDX-License-Identifier: Apache-2.0

"""What the kernel of the host counts of a process: no SoI's own report."""

from __future__ import annotations

import os
import pathlib
import stat

from scavenger_openstack import errors

BLOCK_BYTES = 512


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
            total += what.st_blocks * BLOCK_BYTES
    return total


def storage_bytes(pid: int) -> int:
    """Return what a process had read from and written to storage until now,
    without what the page cache answered.

    :raises OSError: it is gone.
    """
    return sum(int(line.split()[1]) for line in pathlib.Path(
        f'/proc/{pid}/io').read_text().splitlines()
        if line.startswith(('read_bytes', 'write_bytes')))


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
