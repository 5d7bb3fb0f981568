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

"""The agents that run on this machine, whatever started them.

An agent keeps ``flock(lock)`` in its state directory; the kernel lists who
holds such locks.
"""

from __future__ import annotations

from collections.abc import Iterator
import os
import pathlib
from typing import NamedTuple


class Agent(NamedTuple):
    """One running agent.

    ``state_dir`` is the path as the agent sees it.  ``seen_at`` is where
    this process finds the same directory: elsewhere when the agent has
    another mount namespace.
    """

    pid: int
    state_dir: str
    seen_at: pathlib.Path


def agents(proc: pathlib.Path) -> list[Agent]:
    """All agents that this process may see; all of the machine, for root in
    its first PID namespace.

    :param proc: where /proc is
    :raises OSError: the kernel does not list locks there.
    """
    return [found for pid in sorted(_lock_holders(proc))
            for found in _of_process(proc, pid)]


def _lock_holders(proc: pathlib.Path) -> set[int]:
    """Processes that hold a lock of the kind that ``flock`` makes."""
    found = set()
    for line in (proc / 'locks').read_text().splitlines():
        _, kind, *rest = line.split()
        if kind == 'FLOCK' and rest[2].isdigit():
            found.add(int(rest[2]))
    return found


def _of_process(proc: pathlib.Path, pid: int) -> Iterator[Agent]:
    try:
        files = {os.readlink(link): link
                 for link in (proc / str(pid) / 'fd').iterdir()}
        for name, link in files.items():
            name = name.removesuffix(' (deleted)')
            directory = os.path.dirname(name)
            if (os.path.basename(name) == 'lock'
                    and any(other.startswith(f'{directory}/leases')
                            for other in files)
                    and 'restorer' not in _text(link)):
                yield Agent(pid, directory, _seen_at(proc, pid, directory,
                                                     link))
    except OSError:     # it has ended, or is not ours to look at
        return


def _text(link: pathlib.Path) -> str:
    with open(link, 'rb') as file:
        return file.read(64).decode(errors='replace')


def _seen_at(proc: pathlib.Path, pid: int, directory: str,
             lock: pathlib.Path) -> pathlib.Path:
    here = pathlib.Path(directory)
    try:
        if os.path.samefile(here / 'lock', lock):
            return here
    except OSError:
        pass
    return pathlib.Path(f'{proc}/{pid}/root{directory}')
