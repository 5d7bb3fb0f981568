# SPDX-License-Identifier: Apache-2.0


"""Calls that may hang, in few threads that nothing waits for without an end.

The kernel reclaims before it takes a memory limit, libvirtd waits for a QEMU
that does not answer, and none of it can be called off once it has begun.  So
such a call is made in a thread, and keeps its slot until it comes back:

* Each target has one call at a time; its next ones wait in a queue.
* All targets together have :data:`MOST` slots, however many QEMUs hang.  One
  is for *brief* calls only, which wait for no QEMU: so it can always be found
  out whether libvirt answers.
* A target whose call lasts longer than the patience is not called until that
  has come back (the circuit breaker), and a call without a slot in time is not
  made: both fail with :class:`NotCalled`, and their callers try again later.

Whether a QEMU answers is known only once it is asked.  So QEMUs that hang may
take all slots but the brief one, and all others fail until a call comes back.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
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

PATIENCE_S = 2.0
"""A call that takes longer hangs, unless its executor knows better."""

EVERY_S = 300.0
"""That no thread can be started is logged once in so long."""

LOGGED = log_once.LogOnce()
"""Of the process, in which any part may have none left."""


class NoThread(errors.DriverError):
    """The system has no thread left."""


class NotCalled(errors.DriverError):
    """A call was not made, since others hang."""


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
    with an ``error`` of this project, :class:`NoThread` or
    :class:`NotCalled` if it was never made; any other is logged."""

    def __init__(self, target: str, do: Callable[[], Any], *,
                 brief: bool = False) -> None:
        self.target = target
        self.do = do
        self.brief = brief
        self.done = threading.Event()
        self.result: Any = None
        self.error: errors.ScavengerError | None = None
        self.began_s: float | None = None

    def fail(self, error: errors.ScavengerError) -> None:
        self.error = error
        self.done.set()


class Executor:
    """Makes the calls for each target one after the other, in threads.

    There is a thread for each slot in use.  It ends when nothing is to be
    done, and dies with the process: it cannot be joined while its call hangs,
    and that must not keep the process from ending.

    :param name: of the threads, before what they call
    :param patience_s: a call that takes longer hangs
    :param most: slots of all targets together
    :param reserved: those of them that are for brief calls only
    :param own: targets that have a slot of their own beside these
    """

    def __init__(self, name: str = 'call', patience_s: float = PATIENCE_S,
                 most: int = MOST, reserved: int = 1,
                 own: Collection[str] = ()) -> None:
        self._name = name
        self.patience_s = patience_s
        self._most = most
        self._for_any = most - reserved
        self._own = frozenset(own)
        self._mutex = threading.Lock()
        # In the order in which they are served.
        self._queues: dict[str, collections.deque[Call]] = {}
        self._running: dict[str, Call] = {}

    def submit(self, target: str, do: Callable[[], Any], *,
               brief: bool = False) -> Call:
        """Make a call as soon as there is a slot and all others for this
        target came back.

        :param brief: it does not wait for what other targets may hang on
        """
        call = Call(target, do, brief=brief)
        with self._mutex:
            if target in self._hanging():
                call.fail(self._not_called(target))
                return call
            self._queues.setdefault(target, collections.deque()).append(call)
            begun = self._next()
            if begun is not None:
                try:
                    start(threading.Thread(target=self._run, args=(begun,),
                                           daemon=True))
                except NoThread as exc:
                    del self._running[begun.target]
                    for waiting in self._queues.pop(begun.target):
                        waiting.fail(exc)
        return call

    def wait(self, call: Call, timeout_s: float) -> bool:
        """Wait for a call; return whether it is done.

        It is, with the error :class:`NotCalled`, when it has no slot by
        then.  One that waits for another of its own target goes on waiting.
        """
        if call.done.wait(timeout_s):
            return True
        with self._mutex:
            if call.began_s is None and call.target not in self._running:
                queue = self._queues[call.target]
                queue.remove(call)
                if not queue:
                    del self._queues[call.target]
                call.fail(self._not_called())
        return call.done.is_set()

    @property
    def busy(self) -> frozenset[str]:
        """The targets with calls that did not come back yet."""
        with self._mutex:
            return frozenset(self._queues)

    @property
    def hanging(self) -> Mapping[str, float]:
        """The targets whose calls hang, and for how many seconds, but those
        with slots of their own."""
        with self._mutex:
            return {target: hangs_s for target, hangs_s
                    in self._hanging().items() if target not in self._own}

    @property
    def is_full(self) -> bool:
        """Whether calls hang in all slots that are not for brief ones."""
        with self._mutex:
            return sum(not self._running[target].brief
                       for target in self._hanging().keys() - self._own
                       ) >= self._for_any

    def _hanging(self) -> dict[str, float]:
        now_s = time.monotonic()
        return {target: now_s - call.began_s
                for target, call in self._running.items()
                if call.began_s is not None
                and now_s - call.began_s > self.patience_s}

    def _not_called(self, target: str | None = None) -> NotCalled:
        if target is not None:
            return NotCalled(f'not called: the last call to {target} hangs, '
                             f'since {self._hanging()[target]:.0f} s')
        names = sorted(self._running.keys() - self._own)
        return NotCalled(f'not called: {len(names)} others have not come back '
                         f'({", ".join(names)})')

    def _next(self) -> Call | None:
        """Choose a call that may begin now, and give it its slot."""
        used = self._running.keys() - self._own
        waits_long = sum(not self._running[target].brief for target in used)
        for target, queue in self._queues.items():
            call = queue[0]
            if target not in self._running and (target in self._own or (
                    len(used) < self._most
                    and (call.brief or waits_long < self._for_any))):
                self._running[target] = call
                call.began_s = time.monotonic()
                return call
        return None

    def _run(self, call: Call | None) -> None:
        while call is not None:
            target = call.target
            threading.current_thread().name = f'{self._name} {target}'
            try:
                call.result = call.do()
            except errors.ScavengerError as exc:
                call.error = exc
            except Exception:
                LOG.exception('%s: unexpected failure', target)
            with self._mutex:
                del self._running[target]
                queue = self._queues.pop(target)
                queue.popleft()
                if queue:       # after all others that wait
                    self._queues[target] = queue
                call.done.set()
                call = self._next()
