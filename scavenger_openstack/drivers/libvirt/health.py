# SPDX-License-Identifier: Apache-2.0


"""Whether libvirt, and the QEMU of each domain, answers: one line per cause.

Calls fail and hang, many of one cause.  While one does, a thread asks libvirtd
once a second for a connection and, over it, for the state of each domain in
question, which waits for no QEMU.  What that shows is logged when it begins
and when it is over; what failed for it has no line of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import logging
import threading
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import versions
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import KnobKey

LOG = logging.getLogger(__name__)

LIBVIRT, CALLS = 'libvirt', 'calls'
"""What may have a fault, beside domains, which go by their UUIDs."""

DISKS = 'disks 1', 'disks 2'
"""The targets of questions about the disks of all domains: where one hangs in
a QEMU, the other leaves that out."""

LOOK = 'look '
"""Before the UUID of a domain: the target of looks at it, which wait for no
QEMU, nor for a write to it that hangs."""

EVENTS, PROBE = 'events', 'probe'
"""What has shown a fault: a connection, or the questions of this module."""

PROBE_S = 1.0
"""From one question about what has a fault to the next."""

QUIET_S = 60.0
"""So often at most a fault of a domain is logged; what begins in between only
if it lasts until then: a QEMU may be late with each answer."""


class Problem(NamedTuple):
    """What the status and the log say of a fault; '': nothing is logged."""

    state: str
    text: str


LOST = Problem(
    'cannot be reached',
    'libvirt cannot be reached (%s); VMs are measured, and keep the limits '
    'that they have: none is set or removed until it answers; it is tried '
    'again')
HANGS = Problem(
    'does not answer',
    'libvirt does not answer (%s); VMs are measured, and keep the limits '
    'that they have: none is set or removed until it does; see its log; VMs '
    'go on when it is restarted')
SLOW = Problem(
    'is slow', 'libvirt is slow (%s): limits of VMs take more than %g s; '
    'see what else it does')
FULL = Problem(
    'is slow', '%d calls to libvirt hang (%s), and no more are made: limits '
    'of other VMs, or the numbers of their disks, wait until one ends; see '
    'which QEMU does not answer (virsh domcontrol), and its storage')
SILENT = Problem(
    'does not answer',
    'domain %s: its QEMU does not answer, or a job holds it%s; its disks have '
    'no numbers, and its limits stay as they are until it does; see virsh '
    'domcontrol, virsh domjobinfo, and its storage')
BUSY = Problem('has a job', '')
"""It migrates or is being saved, and is not written to meanwhile."""
GONE = Problem('does not run', '')
UNKNOWN = Problem('is not known', '')
"""The connection broke."""

IDLE = ('; our own limit cpu_idle may be the cause, since QEMU waits with its '
        'vCPUs on a busy host: exempt the VM first')

OVER = {LIBVIRT: 'libvirt answers', CALLS: 'libvirt answers in time'}

Problems = Mapping[str, Problem | None]
"""By domain, as libvirt sees it; ``None``: it answers."""


class Failure(NamedTuple):
    """What failed, the cause of which is not known yet.

    ``reset`` is called when the message is dropped.
    """

    key: KnobKey
    message: str
    reset: Callable[[], object]


class Fault:
    """What does not work in libvirt or a domain, for whatever reasons."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.args: tuple[object, ...] = ()
        self.since_s = time.monotonic()
        self.reasons: set[str] = set()
        self.keys: set[KnobKey] = set()
        """The limits that wait for its end, or did."""
        self.logged = False


class Health:
    """Knows whether libvirt, and each QEMU, answers.

    :param executor: makes all calls to libvirt that may hang
    :param timeout_s: how long an answer may take
    :param idle: whether a domain is idle for the scheduler
    """

    def __init__(self, connection: client.Libvirt, executor: calls.Executor,
                 timeout_s: float, idle: Callable[[str], bool]) -> None:
        self._libvirt = connection
        self._executor = executor
        self._timeout_s = timeout_s
        self._idle = idle
        self._turn = threading.Condition(threading.RLock())
        self._faults: dict[str, Fault] = {}
        self._logged = log_once.LogOnce()
        self._doubted: set[str] = set()
        self._late: list[tuple[Sequence[KnobKey], threading.Event]] = []
        self._failures: list[Failure] = []
        self._hung: set[str] = set()
        self._answering: set[str] = set()
        self._suspected = self._closed = False
        self._is_sure = True
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Log nothing more."""
        with self._turn:
            self._closed = True
            self._turn.notify()

    # --- what others notice

    @property
    def down(self) -> bool:
        """Return whether nothing can be had of libvirt, which was logged."""
        return LIBVIRT in self._faults

    @property
    def is_sure(self) -> bool:
        """Return whether libvirt answers, although some call may hang."""
        return self._is_sure and not self.down

    def lost(self, why: str) -> None:
        """Note that the connection for events is gone."""
        self._begin(LIBVIRT, EVENTS, LOST, why)

    def silent(self) -> None:
        """Note that nothing answers over the connection for events."""
        self._begin(LIBVIRT, EVENTS, HANGS, self._libvirt.uri)
        self.suspect()

    def back(self) -> None:
        """Note that there is a connection for events."""
        self._end(LIBVIRT, EVENTS)

    def suspect(self) -> None:
        """Find out what hangs, as some call does; without a thread later."""
        with self._turn:
            self._suspected, self._is_sure = True, False
            self._turn.notify()
            if self._thread is None and not self._closed:
                thread = threading.Thread(target=self._run, daemon=True,
                                          name='libvirt-health')
                with contextlib.suppress(calls.NoThread):
                    calls.start(thread)
                    self._thread = thread

    def check(self, uuids: Collection[str]) -> None:
        """Find out whether these QEMUs answer, as something is missing."""
        with self._turn:
            self._doubted.update(uuids)
        self.suspect()

    @contextlib.contextmanager
    def domain(self, uuid: str) -> Iterator[domain_handle.Handle]:
        """Return a handle of a domain that can be written to now.

        A job would keep us waiting, and make it seem to be paused.

        :raises Unreachable: there is no connection, or libvirt hangs:
            what we ask for would be carried out at any time later.
        :raises WorkloadGone: there is no such domain.
        :raises Busy: it has a job, or its QEMU does not answer.
        """
        fault = self._faults.get(LIBVIRT)
        if fault is not None and fault.problem is HANGS:
            raise client.Unreachable(f'{self._libvirt.uri}: libvirt does '
                                     'not answer')
        fault = self._faults.get(uuid)
        if fault is not None and fault.problem is SILENT:
            raise domain_handle.Busy(f'domain {uuid}: its QEMU does not '
                                     'answer')
        with self._libvirt.domain(uuid) as handle:
            try:
                handle.check_idle()
            except domain_handle.Busy:
                self._begin(uuid, PROBE, BUSY)
                self.suspect()
                raise
            yield handle

    def gone(self, uuid: str) -> None:
        """Forget the faults of a run of a domain that has ended."""
        with self._turn:
            self._faults.pop(uuid, None)
            self._logged.forget(uuid)

    def timed_out(self, keys: Sequence[KnobKey], done: threading.Event
                  ) -> None:
        with self._turn:
            self._late.append((keys, done))
            for key in keys:
                self._add_key(key)
        self.suspect()

    def failed(self, key: KnobKey, message: str, reset: Callable[[], object]
               ) -> None:
        """See :class:`scavenger_openstack.drivers.base.Failed`.

        :param message: '' when another part logs it
        """
        with self._turn:
            if self._add_key(key) or not message:
                LOG.debug('%s', message)
                reset()
                return
            self._failures = [failure for failure in self._failures
                              if failure.key != key]
            self._failures.append(Failure(key, message, reset))
        self.suspect()

    def facts(self) -> dict[str, Any]:
        """Return for the status the state of libvirt, why it cannot be reached
        ('' if it can), and for how many seconds; domains that do not answer
        and for how many; what waits; the versions."""
        now_s = time.monotonic()
        with self._turn:
            since = {what: round(now_s - fault.since_s)
                     for what, fault in self._faults.items()}
            worst = self._faults.get(LIBVIRT) or self._faults.get(CALLS)
            waits = sorted({' '.join(key) for keys, done in self._late
                            if not done.is_set() for key in keys})
            why = str(worst.args[0]) if worst and worst.problem is LOST else ''
        slow_s, down_s = since.pop(CALLS, None), since.pop(LIBVIRT, None)
        return {'state': worst.problem.state if worst else 'answers',
                'why': why, 'since_s': slow_s if down_s is None else down_s,
                'domains': since, 'waits': waits,
                'versions': versions.texts(self._libvirt.versions)}

    # --- faults

    def _add_key(self, key: KnobKey) -> bool:
        """Count a limit that waits; return whether its cause is known."""
        faults = [self._faults[what] for what in (LIBVIRT, key[0])
                  if what in self._faults]
        for fault in faults:
            fault.keys.add(key)
        return bool(faults)

    def _begin(self, what: str, reason: str, problem: Problem, *args: object
               ) -> None:
        with self._turn:
            if self._closed or (what != LIBVIRT and self.down):
                return
            fault = self._faults.get(what)
            if fault is None:
                fault = self._faults[what] = Fault(problem)
                fault.keys.update(
                    key for keys, done in self._late if not done.is_set()
                    for key in keys if what in (*OVER, key[0]))
                if what == LIBVIRT:
                    self._drop_failures(fault)
            elif fault.problem in (BUSY, SLOW) and problem != fault.problem:
                fault.problem, fault.logged = problem, False
            fault.reasons.add(reason)
            if fault.problem is problem:
                fault.args = args       # why, by now
            self._log_due(what, fault)

    def _drop_failures(self, fault: Fault) -> None:
        """Drop what failed for this, and is old when it is over."""
        for failure in self._failures:
            fault.keys.add(failure.key)
            failure.reset()
        self._failures = []

    def _log_due(self, what: str, fault: Fault) -> None:
        """Log a fault, unless it is one of many short ones."""
        if fault.problem.text and not fault.logged and (
                what in OVER or self._logged.due(
                    what, now_s=time.monotonic(), every_s=QUIET_S)):
            LOG.warning(fault.problem.text, *fault.args)
            fault.logged = True

    def _end(self, what: str, reason: str) -> None:
        with self._turn:
            fault = self._faults.get(what)
            if fault is None or self._closed:
                return
            fault.reasons.discard(reason)
            if fault.reasons:
                return
            del self._faults[what]
            if fault.logged:
                LOG.info('%s again after %.1f s; limits that were late: %d',
                         OVER.get(what, f'domain {what}: its QEMU answers'),
                         time.monotonic() - fault.since_s, len(fault.keys))

    # --- the thread

    def _run(self) -> None:
        while not self._closed:
            with self._turn:
                self._suspected = False
            try:
                goes_on = self._examine()
            except Exception:
                LOG.exception('libvirt: unexpected failure')
                goes_on = True
            with self._turn:
                if not (goes_on or self._suspected):
                    self._thread = None
                    return
                self._turn.wait_for(
                    lambda: self._closed or self._suspected, PROBE_S)

    def _examine(self) -> bool:
        """Find the causes of what fails and hangs; return whether there is
        more to find out."""
        with self._turn:
            self._late = [(keys, done) for keys, done in self._late
                          if not done.is_set()]
            failures = list(self._failures)
            doubted, self._doubted = self._doubted, set()
            uuids = {*self._hanging(), *self._faults, *doubted,
                     *(failure.key[0] for failure in failures)
                     } - {*OVER, *DISKS}
        states = self._query(uuids)
        if states is None:
            self._hung, self._answering = set(), set()
            return True
        self._is_sure = not self._suspected
        hanging = self._hanging()
        # Those that will come back now, since what held them up is over, do
        # not count.
        before, self._answering = self._answering, {
            target for target in hanging if not states.get(target, SILENT)}
        is_full = hanging <= self._hung and (
            self._executor.is_full or hanging >= {*DISKS})
        self._hung = hanging
        for uuid, problem in states.items():
            if problem is GONE:
                self.gone(uuid)
            elif problem is SILENT:
                self._begin(uuid, PROBE, SILENT, uuid,
                            IDLE * self._idle(uuid))
            elif problem is not None:
                self._begin(uuid, PROBE, problem)
            else:
                self._end(uuid, PROBE)
        if is_full:
            self._begin(CALLS, PROBE, FULL, len(hanging),
                        ', '.join(sorted(hanging)))
        elif before & self._answering:
            self._begin(CALLS, PROBE, SLOW, self._libvirt.uri,
                        self._timeout_s)
        else:
            self._end(CALLS, PROBE)
        with self._turn:
            self._log_failures(failures, states)
            for what, fault in self._faults.items():
                self._log_due(what, fault)
            return bool(self._late or self._failures or any(
                PROBE in fault.reasons or not fault.logged
                for fault in self._faults.values()))

    def _hanging(self) -> set[str]:
        """Return the domains in which calls hang, or what else they call."""
        return {target.removeprefix(LOOK) for target in self._executor.hanging}

    def _log_failures(self, failures: Sequence[Failure],
                      states: Problems) -> None:
        """Log what failed for no other cause: one line for each domain."""
        by_uuid: dict[str, list[Failure]] = {}
        for failure in failures:
            if failure.key[0] in states and failure in self._failures:
                self._failures.remove(failure)
                if states[failure.key[0]] or self._add_key(failure.key):
                    failure.reset()
                else:
                    by_uuid.setdefault(failure.key[0], []).append(failure)
        for first, *others in by_uuid.values():
            LOG.warning('%s%s', first.message, f'; {len(others)} more of its '
                        'limits failed' if others else '')
            for failure in others:
                failure.reset()

    def _query(self, uuids: Collection[str]) -> Problems | None:
        """Return what libvirt says of domains; ``None`` without an answer,
        which is a fault of libvirt; an answer ends that."""
        call = self._executor.submit(LIBVIRT, lambda: self._answers(uuids),
                                     brief=True)
        if not self._executor.wait(call, self._timeout_s):
            self._begin(LIBVIRT, PROBE, HANGS, self._libvirt.uri)
            call.done.wait()
        if isinstance(call.error, client.Unreachable):
            self._begin(LIBVIRT, PROBE, LOST, str(call.error))
        elif isinstance(call.error, calls.NotCalled):
            # Calls hang that wait for no QEMU.
            self._begin(LIBVIRT, PROBE, HANGS, self._libvirt.uri)
        elif call.error is None:
            self._end(LIBVIRT, PROBE)
        return None if self.down else call.result

    def _answers(self, uuids: Iterable[str]) -> Problems:
        states = {uuid: self._answer(uuid) for uuid in uuids}
        if self.down or UNKNOWN in states.values() or not states:
            self._libvirt.end(self._libvirt.open())
        return {uuid: problem for uuid, problem in states.items()
                if problem is not UNKNOWN}

    def _answer(self, uuid: str) -> Problem | None:
        try:
            with self._libvirt.domain(uuid) as handle:
                if handle.occupied():
                    return SILENT
                handle.check_idle()
        except domain_handle.Busy:
            return BUSY
        except errors.WorkloadGone:
            return GONE
        except client.Unreachable:
            return UNKNOWN
        except errors.DriverError as exc:
            LOG.debug('domain %s: %s', uuid, exc)       # it answers
        return None
