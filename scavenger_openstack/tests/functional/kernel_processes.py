# SPDX-License-Identifier: Apache-2.0

"""Kernels of iBench that run, and what a run of them has on the host."""

from __future__ import annotations

import contextlib
import glob
import pathlib

PLACES = ('/sys/fs/cgroup/scavenger-ibench-*',
          '/sys/fs/cgroup/*/scavenger-ibench-*',
          '/run/netns/scavenger-ibench-*', '/var/tmp/scavenger-ibench-*')


def traces(pid: int) -> list[str]:
    """What a run of this process has on the host."""
    return [path for place in PLACES for path in glob.glob(place)
            if f'-{pid}' in path]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text()
    return list(map(int, text.split()))


def kernels_of(pid: int) -> list[int]:
    """Those of them that run the program of the kernels by now."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            if b'scavenger-soi' in pathlib.Path(
                    f'/proc/{child}/cmdline').read_bytes().split(b'\0')[0]:
                found.append(child)
    return found
