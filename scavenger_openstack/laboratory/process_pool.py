# SPDX-License-Identifier: Apache-2.0


"""Processes that share a list of tasks."""

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
import threading
from typing import TypeVar

from scavenger_openstack import errors

Task = TypeVar('Task')
Done = TypeVar('Done')

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AHEAD = 4
"""Tasks per worker that wait in line."""


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
