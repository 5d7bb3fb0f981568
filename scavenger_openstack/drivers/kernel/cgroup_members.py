# SPDX-License-Identifier: Apache-2.0

"""Which threads are in a cgroup, and which cgroups a thread is in."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import errno
import os
import posixpath

ABSENT = frozenset((errno.ENODEV, errno.ENOENT))
"""What the kernel answers about a cgroup that is gone."""

PROCESSES, THREADS, THREADS_V1 = 'cgroup.procs', 'cgroup.threads', 'tasks'

_READ_SIZE = 1 << 16

_NUMBER_BYTES = 11
"""A number of a process or thread, and the end of its line, at most."""


class TooMany(Exception):
    """More than the caller wanted to look at."""


def threads_file(version: int) -> str:
    """The file that lists threads, by the version of cgroups."""
    return THREADS_V1 if version == 1 else THREADS


def hierarchy(controller: str, version: int) -> str:
    """The key of :func:`paths` for where a controller is mounted."""
    return 'unified' if version == 2 else controller


def paths(text: str) -> dict[str, str]:
    """The cgroups in ``/proc/PID/cgroup``: by controller of version 1, and
    ``unified`` that of version 2."""
    by_controller: dict[str, str] = {}
    for line in text.split('\n'):      # a name may hold any other character
        number, _, rest = line.partition(':')
        names, _, path = rest.partition(':')
        for controller in names.split(','):
            by_controller['unified' if number == '0' else controller] = path
    return by_controller


def upward(path: str) -> Iterator[str]:
    """A cgroup and all that it lies in, but for the root."""
    while len(path) > 1:
        yield path
        path = posixpath.dirname(path)


def read(path: str, directory: int | None = None, *,
         size: int | None = None) -> bytes:
    """Return what one of the files above lists, a number per line.

    Nothing where the cgroup has no such list: the processes of a threaded
    cgroup of version 2 are listed in a cgroup above it.

    Opened again each time, and read to the end: over a kept descriptor
    version 1 answers with a list of up to a second ago, for as long as it is
    asked at least once a second, and one read returns no more than a page.

    :param path: relative to the open ``directory``, if that is given
    :param size: no more is read after so many bytes
    :raises OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    data = b''
    try:
        while part := os.read(fd, _READ_SIZE):
            data += part
            if size is not None and len(data) >= size:
                break
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP:
            raise
    finally:
        os.close(fd)
    return data


def nodes_of(top: str, most: int) -> list[tuple[str, int]]:
    """A cgroup and all below, with their link counts: 2 and one for each
    child, so that a change there shows.

    :raises TooMany: more than ``most``
    :raises OSError: ``top`` is gone
    """
    nodes = []
    waiting = [top]
    while waiting:
        path = waiting.pop()
        try:
            links = os.stat(path).st_nlink
            if links != 2:
                with os.scandir(path) as entries:
                    waiting += [entry.path for entry in entries
                                if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            if path == top:
                raise
            continue
        nodes.append((path, links))
        if len(nodes) + len(waiting) > most:
            raise TooMany
    return nodes


def members(nodes: Sequence[tuple[str, int]], file: str, most: int
            ) -> list[int]:
    """The tasks in some cgroups, the first of which holds the others; one of
    these that is gone meanwhile has none.

    :raises TooMany: more than ``most``
    :raises OSError: the first is gone, or one may not be read
    """
    tasks: list[int] = []
    size = _NUMBER_BYTES * most + 1
    for path, _ in nodes:
        try:
            data = read(f'{path}/{file}', size=size)
        except OSError as exc:
            if exc.errno not in ABSENT or path == nodes[0][0]:
                raise
            continue
        if len(data) >= size:
            raise TooMany
        tasks += map(int, data.split())
        if len(tasks) > most:
            raise TooMany
    return tasks


def some(path: str, most: int) -> list[int]:
    """The tasks in one of the files above, at most so many.

    :raises OSError: it cannot be read.
    """
    data = read(path, size=_NUMBER_BYTES * most)
    complete, _, _ = data.rpartition(b'\n')    # the last may be cut
    return list(map(int, complete.split()))[:most]
