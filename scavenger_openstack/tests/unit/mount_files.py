# SPDX-License-Identifier: Apache-2.0

"""The kernel's table of mounts, of a host of plain files."""

from __future__ import annotations

import os
import pathlib

from scavenger_openstack.restore import mount_table


def mount(root: pathlib.Path, *mounts: str) -> None:
    """Replace the table of a host by these mounts, as if its directories were
    such.

    :param mounts: the place, escaped as the kernel does, the file system, its
        options, and what of it is mounted (``/`` if that is left out)
    """
    rows = []
    for row in mounts:
        point, kind, options, part = (*row.split(' '), '/')[:4]
        path = root / mount_table.unescape(point).lstrip('/')
        path.mkdir(parents=True, exist_ok=True)
        device = path.stat().st_dev
        rows.append(f'9 1 {os.major(device)}:{os.minor(device)} {part} '
                    f'{point} rw,nosuid shared:4 - {kind} {kind} {options}\n')
    table = root / 'proc/self/mountinfo'
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(''.join(rows))
