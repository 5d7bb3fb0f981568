# SPDX-License-Identifier: Apache-2.0


"""Processes that share a list of tasks, and a bar of how many are done."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import process
import contextlib
import itertools
import multiprocessing
from multiprocessing import connection
import os
import signal
import sys
import threading
import time
from typing import TextIO
from typing import TypeVar

from scavenger_openstack import errors
from scavenger_openstack import text

Task = TypeVar('Task')
Done = TypeVar('Done')

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AHEAD = 4
"""Tasks per worker that wait in line."""

REDRAW_S = 0.1


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def work(do: Callable[[Task], Done], tasks: Iterable[Task], *,
         jobs: int) -> Generator[Done, None, None]:
    """Do all tasks in ``jobs`` processes; results come as they are ready.

    Whatever ends this, an interrupt included, ends the processes at once.

    :raises ScavengerError: a worker was ended from outside
    """
    left = iter(tasks)
    before = set(multiprocessing.active_children())
    executor = futures.ProcessPoolExecutor(
        jobs, multiprocessing.get_context('fork'), _begin)
    try:
        with _later():
            waiting = {executor.submit(do, task)
                       for task in itertools.islice(left, jobs * AHEAD)}
        while waiting:
            done, waiting = futures.wait(
                waiting, return_when=futures.FIRST_COMPLETED)
            for task in itertools.islice(left, len(done)):
                waiting.add(executor.submit(do, task))
            for future in done:
                yield future.result()
    except process.BrokenProcessPool as exc:
        raise errors.ScavengerError(
            'a worker process was ended from outside, perhaps for lack of '
            'memory; take fewer with --jobs') from exc
    finally:
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _later() -> Iterator[None]:
    """Hold signals back while processes are made: a new one must not meet
    them before it knows what to do."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _begin() -> None:
    """First thing in a worker: Ctrl-C is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_follow, daemon=True,
                     name='follow-parent').start()


def _follow() -> None:
    """End with the parent, which may be killed and say nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
    os._exit(1)


class Progress:
    """A bar on a terminal, with the time that is left; nothing elsewhere."""

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = total
        self._stream = stream
        self._began_s = time.monotonic()
        self._drawn_s = 0.0
        self._done = 0

    def step(self, label: str) -> None:
        """Count one more task as done, and show it."""
        self._done += 1
        now = time.monotonic()
        if now - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = now
        share = self._done / self._total
        left_s = round((now - self._began_s) / share * (1 - share))
        text.over(self._stream, f'{text.bar(share)} {self._done}/'
                                f'{self._total}  {left_s // 60}:'
                                f'{left_s % 60:02} left  {label}')

    def end(self) -> None:
        text.over(self._stream)
