# SPDX-License-Identifier: Apache-2.0

"""What code under test leaves open, told apart from what its process has.

A process runs many tests, one after the other.  While one runs, the garbage
of another is collected and its files close; a thread opens and closes its
own.  So what counts is what was opened since, not how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import gc
import os
import time

DEADLINE_S = 30.0
"""What opens a file for a moment has closed it by then."""

Opened = Callable[[], set[tuple[int, str]]]


def of_process() -> set[tuple[int, str]]:
    """Number and target of each descriptor, but that which lists them."""
    found = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            found.add((int(name), os.readlink(f'/proc/self/fd/{name}')))
        except FileNotFoundError:
            pass
    return found


@contextlib.contextmanager
def given_back() -> Iterator[Opened]:
    """Whatever is opened inside has to be closed at its end.

    Gives what tells those that were opened since and still are.

    :raises AssertionError: something was left open
    """
    gc.collect()
    before = of_process()

    def opened() -> set[tuple[int, str]]:
        return of_process() - before

    collected = gc.isenabled()
    gc.disable()    # or it would close what was forgotten
    try:
        yield opened
        deadline = time.monotonic() + DEADLINE_S
        while (left := opened()) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        if collected:
            gc.enable()
    if left:
        raise AssertionError(f'left open: {sorted(left)}')
