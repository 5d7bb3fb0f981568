# SPDX-License-Identifier: Apache-2.0

"""The kernel's table of mounts; standard library only.

Source: proc_pid_mountinfo(5).
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
import contextlib
import os
import re
from typing import NamedTuple

_MOUNT = re.compile(r'\d+ \d+ (\d+:\d+) ([^ ]+) ([^ ]+) .*? - ([^ ]+) '
                    r'([^ ]*) ([^ \n]*)')


class Row(NamedTuple):
    """A row of the kernel's table of mounts.

    :ivar device: ``major:minor``
    :ivar part: the directory of the file system that is mounted, ``/`` for
        all of it
    :ivar options: of the file system; of cgroups version 1 the controllers,
        too
    """

    device: str
    part: str
    point: str
    kind: str
    source: str
    options: str


def rows(table: str = '/proc/self/mountinfo',
         kinds: Collection[str] = ()) -> Iterator[Row]:
    """Return all mounts; a later one may hide others.

    :param kinds: of file systems, without which those of all; a host with
        containers has thousands, and each lease asks for those of cgroups
    :raises OSError: the table cannot be read.
    """
    with open(table, errors='surrogateescape', newline='\n') as file:
        for line in file:
            row = _MOUNT.match(line)
            if row and (not kinds or row[4] in kinds):
                yield Row(*map(unescape, row.groups()))


def visible(kinds: Collection[str], root: str = '') -> Iterator[Row]:
    """Return the mounts of some kinds of file systems that no other mount
    hides.

    :param root: where /proc is looked for, and what is mounted
    :raises OSError: the table cannot be read.
    """
    for row in rows(f'{root}/proc/self/mountinfo', kinds):
        with contextlib.suppress(OSError):
            device = os.stat(root + row.point).st_dev
            if row.device == f'{os.major(device)}:{os.minor(device)}':
                yield row


def unescape(path: str) -> str:
    """Return a path of the kernel's lists of mounts as it is."""
    return path if '\\' not in path else re.sub(
        r'\\([0-7]{3})', lambda m: chr(int(m[1], 8)), path)
