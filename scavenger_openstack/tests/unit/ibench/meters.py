# SPDX-License-Identifier: Apache-2.0

"""Meters of what a process holds, independent of what it reports."""

from __future__ import annotations

import collections
from collections.abc import Iterator
import os
import pathlib
import re
import struct

LINE = 64
ALIGNED = 2 << 20
"""The kernels' areas begin at multiples of this."""


def anonymous_bytes(pid: int) -> int:
    """Resident memory that is of no file."""
    text = pathlib.Path(f'/proc/{pid}/smaps_rollup').read_text()
    match = re.search(r'^Anonymous: +(\d+) kB', text, re.M)
    assert match is not None
    return int(match[1]) * 1024


def areas(pid: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of each writable mapping of no file."""
    for row in pathlib.Path(f'/proc/{pid}/maps').read_text().splitlines():
        fields = row.split()
        if fields[1].startswith('rw') and len(fields) == 5:
            begin, end = (int(text, 16) for text in fields[0].split('-'))
            yield begin, end


def mapped_pages(pid: int) -> int:
    """Pages that have a translation, those of zeros among them."""
    page = os.sysconf('SC_PAGESIZE')
    pages = 0
    with open(f'/proc/{pid}/pagemap', 'rb', buffering=0) as pagemap:
        for begin, end in areas(pid):
            raw = os.pread(pagemap.fileno(), (end - begin) // page * 8,
                           begin // page * 8)
            pages += sum(entry >> 63 for entry, in struct.iter_unpack(
                '=Q', raw))
    return pages


def file_bytes(pid: int) -> int:
    """Blocks of the files without a name that it has open."""
    total = 0
    for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir():
        if os.readlink(fd).endswith('(deleted)'):
            total += fd.stat().st_blocks * 512
    return total


def chained_lines(pid: int, at_most: int) -> set[int]:
    """Lines that hold the address of another line, as numbers.

    :param at_most: lines of the area, which begins where most of them are
    """
    lines = set()
    with open(f'/proc/{pid}/mem', 'rb', buffering=0) as memory:
        for begin, end in areas(pid):
            raw = os.pread(memory.fileno(), end - begin, begin)
            for offset in range(0, len(raw), LINE):
                value, = struct.unpack_from('=Q', raw, offset)
                if begin <= value < end and value % LINE == 0:
                    lines.add(begin + offset)
    (first, _lines), = collections.Counter(
        address // ALIGNED * ALIGNED for address in lines).most_common(1)
    return {number for number in (
        (address - first) // LINE for address in lines)
        if 0 <= number < at_most}
