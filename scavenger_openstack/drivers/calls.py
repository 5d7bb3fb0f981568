# SPDX-License-Identifier: Apache-2.0


"""Calls that may hang, in threads that nothing waits for without an end.

The kernel reclaims before it takes a memory limit, libvirtd waits for a QEMU
that does not answer, and none of it can be called off once it has begun.  So
such a call is made in a thread of its own: one at a time for each target, and
few targets at once.

Where the system has no thread left, what needs one fails, and is tried again
by its owner: see :func:`start`.
"""

from __future__ import annotations

from collections.abc import Callable
import logging
import threading
import time
from typing import Any

from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.restore import grammar

LOG = logging.getLogger(__name__)

MOST = 4
"""So many calls at once: each one to libvirt uses one of the few threads of
libvirtd, which Nova needs, too."""


EVERY_S = 300.0
"""That no thread can be started is logged once in so long."""

LOGGED = log_once.LogOnce()
"""Of the process, in which any part may have none left."""


class NoThread(errors.DriverError):
    """The system has no thread left."""


def start(thread: threading.Thread) -> None:
    """Start a thread; one that was refused may be started later.

    :raises NoThread: the system has none left; that was logged.
    """
    try:
        thread.start()
    except RuntimeError as exc:
        if LOGGED.due('thread', now_s=time.monotonic(), every_s=EVERY_S):
            LOG.warning('no thread can be started (%s): what needs one waits '
                        'until there is; %s', exc, grammar.MORE_TASKS)
        raise NoThread(f'no thread can be started: {exc}') from None


class Call:
    """One call.  When ``done`` is set it came back: with a ``result``, or
    with an ``error`` of this project, :class:`NoThread` if it was never made;
    any other is logged."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do
        self.done = threading.Event()
        self.result: Any = None
        self.error: errors.ScavengerError | None = None
        self.has_turn = self.timed_out = False


class Executor:
    """Makes the calls for each target one after the other, in a thread.

    The thread of a target ends when it has nothing to do, and dies with the
    process: a call that hangs must not keep the process from ending.

    :param name: of the threads
    :param patience_s: so long a call waits while ``most`` are made, and
        then goes without its turn
    """

    def __init__(self, name: str, patience_s: float, most: int = MOST
                 ) -> None:
        self._name = name
        self._patience_s = patience_s
        self._mutex = threading.Lock()
        self._turns = threading.Semaphore(most)
        self._queues: dict[str, list[Call]] = {}

    def submit(self, target: str, do: Callable[[], Any]) -> Call:
        """Make a call as soon as all others for this target came back."""
        call = Call(do)
        with self._mutex:
            if target in self._queues:
                self._queues[target].append(call)
                return call
            self._queues[target] = [call]
            try:
                start(threading.Thread(
                    target=self._run, args=(target,), daemon=True,
                    name=self._name.format(target)))
            except NoThread as exc:
                del self._queues[target]
                call.error = exc
                call.done.set()
        return call

    @property
    def busy(self) -> frozenset[str]:
        """The targets with calls that did not come back yet."""
        with self._mutex:
            return frozenset(self._queues)

    def give_up(self, call: Call) -> None:
        """Let another call have the turn of one that is late."""
        call.timed_out = True
        with self._mutex:
            had, call.has_turn = call.has_turn, False
        if had:
            self._turns.release()

    def _run(self, target: str) -> None:
        more = True
        while more:
            with self._mutex:
                call = self._queues[target][0]
            call.has_turn = self._turns.acquire(timeout=self._patience_s)
            if call.timed_out:
                self.give_up(call)
            try:
                call.result = call.do()
            except errors.ScavengerError as exc:
                call.error = exc
            except Exception:
                LOG.exception('%s: unexpected failure', target)
            self.give_up(call)
            with self._mutex:
                waiting = self._queues[target]
                waiting.remove(call)
                more = bool(waiting)
                if not more:
                    del self._queues[target]
            call.done.set()
