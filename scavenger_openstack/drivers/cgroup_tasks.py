# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.



"""Who is in a cgroup: the ones below it, their tasks, when these began."""

from __future__ import annotations

from collections.abc import Sequence
import errno
import os

CLOCK_S = 1 / os.sysconf('SC_CLK_TCK')
"""The kernel tells the beginning of a process in steps of this, rounded
down."""

_READ_SIZE = 1 << 16


class TooMany(Exception):
    """More than the caller wanted to look at."""


def began_s(root: str, pid: int) -> float:
    """When a process began, CLOCK_BOOTTIME; 0: nobody knows (any more)."""
    try:
        with open(f'{root}/proc/{pid}/stat', 'rb') as file:
            data = file.read()
        # Its name comes in parentheses and may hold anything.
        return int(data[data.rindex(b')'):].split()[20]) * CLOCK_S
    except (OSError, ValueError, IndexError):
        return 0.0


def nodes(top: str, most: int) -> list[tuple[str, int]]:
    """A cgroup and all below, with their link counts: 2 and one for each
    child, so that a change there shows.

    :raises TooMany: more than ``most``
    :raises OSError: ``top`` is gone
    """
    found = []
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
        found.append((path, links))
        if len(found) + len(waiting) > most:
            raise TooMany
    return found


def members(nodes: Sequence[tuple[str, int]], file: str, most: int
             ) -> list[int]:
    """The tasks in some cgroups.

    Opened anew each time: over a kept descriptor version 1 answers with an
    old list for as long as it is asked at least once a second.

    :raises TooMany: more than ``most``
    :raises OSError: a cgroup is gone, or may not be read
    """
    found: list[int] = []
    for path, _ in nodes:
        fd = os.open(f'{path}/{file}', os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = b''
            while part := os.read(fd, _READ_SIZE):
                data += part
                if len(data) > 11 * most:
                    raise TooMany
        except OSError as exc:
            if exc.errno != errno.EOPNOTSUPP:   # threads of a cgroup above
                raise
        finally:
            os.close(fd)
        found += map(int, data.split())
        if len(found) > most:
            raise TooMany
    return found
