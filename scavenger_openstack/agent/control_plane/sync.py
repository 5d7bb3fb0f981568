# SPDX-License-Identifier: Apache-2.0

"""Sends reports to the conductor, and follows its answers.

A thread of its own calls every ``sync_s`` seconds; the tick only leaves
references for it.  Without an answer everything goes on as before: unreported
entries stay on disk, the last directives hold.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import pathlib
import random
import threading
import time
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent import capacity
from scavenger_openstack.agent.control_plane.directives import Directives
from scavenger_openstack.agent.control_plane import head
from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.control_plane import sums
from scavenger_openstack.agent.events import steady_clock
from scavenger_openstack.agent.events.store import Store
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Instance
from scavenger_openstack.types import phase
from scavenger_openstack.types import printable
from scavenger_openstack.types import Rates
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

STATISTICS_S = 3600.0
"""Time of the statistics in one entry, from which specs are made: a kill loses
as much."""
BACKLOG_CALLS = 10
"""Most calls in a row while more entries wait than one report takes."""
MOST_WAIT = 4
"""The longest wait after calls that failed, in units of ``sync_s``.  After an
outage of a minute no host is silent for ``[api] silent_s``."""
SLOW_S = 15.0
"""A call that takes longer is a fault, though it has not failed yet: a broker
that hangs may hold it for a minute."""
MOST_SHOWN = 50
"""Most parameters, and most refused orders, in the status."""
MOST_WHY = 300
"""Most characters of an error that are logged: a broker may have sent it."""
UNEXPECTED = 'unexpected failure, see the log'
END_S = 3.0
"""Time that the end of the agent waits for the last call."""


class _Oldest(NamedTuple):
    """The oldest entry that waits, and since when it is the oldest one."""

    run_id: str
    sequence: int
    since_s: float


class Sync:
    """The agent's side of ``sync``.

    :param call: sends a report and returns the answer, both JSON; raises
        WireError if it is refused, another ScavengerError if it may work
        later
    :param store: has the entries for the reports
    :param clock: learns the conductor's time
    """

    def __init__(self, call: Callable[[bytes], bytes],
                 store: Store, directives: Directives, *,
                 host: str, boot_id: str, version: str, sync_s: float,
                 clock: steady_clock.SteadyClock | None = None) -> None:
        self._call = call
        self.store = store
        self.directives = directives
        self._host, self._boot_id = host, fit.id_(boot_id)
        self._version = version
        self._sync_s = sync_s
        self._last_tick: reports.LastTick | None = None
        self._sums = sums.Sums()
        self._summed_s = now_s()
        self._sample: HostSample | None = None
        self._rates: Rates | None = None
        self._idle_cores: float | None = None
        self._their_digest = ''
        self._clock = clock or steady_clock.SteadyClock(
            now_s(), time.time())
        self._head = head.Head()
        self._set_aside = 0
        self._oldest = _Oldest('', 0, now_s())
        self._waits = reports.Waits(0, 0, 0.0, 0)
        self._fault = ''
        self._answered_s = 0.0
        self._called_s: float | None = None
        self._stop = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name='sync',
                                        daemon=True)

    @property
    def orders(self) -> Orders:
        """Return the orders of operators, which :class:`.loop.Loop` reads in
        each tick."""
        return self.directives.orders

    def update(self, sample: HostSample | None, document: Mapping[str, Any],
               instances: Sequence[Instance], refused: Mapping[str, str]
               ) -> None:
        """Take references to the last tick, see :class:`.reports.LastTick`;
        called in the thread of the tick."""
        self._last_tick = reports.LastTick(sample, document, instances,
                                           refused)
        self.directives.ticked()

    def facts(self) -> dict[str, Any]:
        """Return the state for the status, as plain JSON.  ``answered_s`` and
        ``issued_s`` are UNIX times, 0 for never."""
        called_s, fault = self._called_s, self._fault
        if called_s is not None and time.monotonic() - called_s > SLOW_S:
            fault = fault or ('no answer for '
                              f'{time.monotonic() - called_s:.0f} s')
        return {'fault': fault, 'answered_s': self._answered_s,
                'issued_s': self.directives.issued_s,
                'notice': self.directives.notice,
                'parameters': dict(itertools.islice(
                    self.orders.parameters.items(), MOST_SHOWN)),
                'refused': dict(itertools.islice(itertools.chain(
                    self.directives.refused.items(), self._last_tick.refused
                    .items() if self._last_tick else ()), MOST_SHOWN)),
                'spool_bytes': self._waits.bytes,
                'dropped': self._waits.dropped,
                'waiting_s': self._waits.waiting_s,
                'set_aside': self._set_aside}

    def start(self) -> None:
        """Start the thread, unless it runs; where no thread can be had a
        later call tries again."""
        if self._thread.ident is None:
            with contextlib.suppress(calls.NoThread):
                calls.start(self._thread)

    def stop(self, failed: bool = False) -> None:
        """Report the rest, if the conductor answers; else it stays on disk.

        :param failed: the agent ends by itself
        """
        self._failed = failed
        self._stop.set()
        if self._thread.is_alive():     # the agent may end before its start
            self._thread.join(END_S)

    def load(self) -> None:
        """Follow the directives on disk, before the first tick."""
        self.directives.load(now_s(), time.time())

    def _run(self) -> None:
        """Wait and call until :meth:`stop`, longer after each failure."""
        due = time.monotonic() + self._sync_s * phase(self._host)
        failures = 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            failures = 0 if self.turn() else min(failures + 1, MOST_WAIT)
            if failures:
                due = time.monotonic() + self._sync_s * random.uniform(
                    0.75, 1.0) * min(2 ** failures, MOST_WAIT)
            else:
                due = max(due + self._sync_s,
                          time.monotonic() + self._sync_s / 2)
        if not failures:
            self.turn()
        self.take()
        if not self._failed:
            self.directives.end()

    def turn(self) -> bool:
        """Report all entries that wait; return whether the conductor answered.
        """
        try:
            self.directives.keep()
            for _ in range(BACKLOG_CALLS):
                self.take()
                if not self.exchange():
                    break
            self._measure(now_s(), time.time())
        except errors.ScavengerError as exc:
            self._set_fault(printable(str(exc))[:MOST_WHY])
        except Exception:
            if self._fault != UNEXPECTED:
                LOG.exception('unexpected failure')
            self._fault = UNEXPECTED
        else:
            self._set_fault('')
        return not self._fault

    def _set_fault(self, why: str) -> None:
        if why and why != self._fault:
            LOG.warning('reports do not reach the conductor: %s; '
                        'this host goes on by itself, and tries again', why)
        elif self._fault and not why:
            LOG.info('the conductor answers again')
        self._fault = why

    def take(self) -> None:
        """Take the sample of the last tick, and store statistics that are
        due."""
        tick, wall_s = self._last_tick, time.time()
        if tick is not None and tick.sample is not None:
            self._rate(tick.sample)
        now = now_s()
        if now - self._summed_s >= STATISTICS_S or self._stop.is_set():
            self._summed_s = now
            self.store.add_reports(self._sums.drain(
                wall_s + self._clock.behind_s(now, wall_s)))
        self._measure(now, wall_s)

    def _measure(self, now: float, wall_s: float) -> None:
        """Measure how much waits, and how long the oldest entry has waited.

        By the wall clock it waits since its time, and not less than since it
        has been the oldest, whatever that clock was set to.
        """
        run_id, entries = self.store.batch(1, 1)
        since_s = wall_s
        if entries:
            since_s, sequence = entries[0].time_s, entries[0].sequence
            if (run_id, sequence) != (self._oldest.run_id,
                                      self._oldest.sequence):
                self._oldest = _Oldest(run_id, sequence, now)
        elif not self.store.waiting_bytes:      # else the disk has a fault
            self._oldest = _Oldest('', 0, now)
        self._waits = reports.Waits(
            self.store.waiting_bytes, self.store.dropped,
            max(now - self._oldest.since_s, wall_s - since_s),
            self._set_aside)

    def _rate(self, sample: HostSample) -> None:
        """Take the sample of this report and compare it with the last one."""
        before = self._sample
        if before is not None and sample.time_s - before.time_s < (
                self._sync_s / 2):
            return
        self._sample = sample
        self._rates = self._idle_cores = None
        if before is None or sample.time_s - before.time_s > (
                MOST_WAIT * self._sync_s + SLOW_S):
            return
        rates = decision_rates.rates(before, sample)
        if not rates.complete:
            return
        self._rates = rates
        self._idle_cores = capacity.idle_cores(
            before.cpu_busy_s, sample.cpu_busy_s, rates.interval_s)
        self._sums.add(rates.workloads, sample.cpu_model or '',
                       sample.wall_time_s + self._clock.behind_s(
                           sample.time_s, sample.wall_time_s))

    def exchange(self) -> bool:
        """Call the conductor once; return whether more waits.

        :raises WireError: the report, or the answer, is refused.
        :raises ScavengerError: there is no answer.
        """
        run_id, entries = (
            self.store.batch(self._head.most, report.MAX_REPORT_BYTES // 2)
            if self._head.most else (self.store.run_id, []))
        data = self._report(run_id, entries)
        began_s, self._called_s = now_s(), time.monotonic()
        try:
            reply = self._call(data)
        except errors.ScavengerError as exc:
            if self._head.failed(run_id, entries, exc):
                self._leave_out(run_id, entries[0], str(exc))
            if not (isinstance(exc, errors.WireError) and entries):
                raise
            # Again with fewer of them: directives come with the answer.
            return True
        finally:
            self._called_s = None
        try:
            answer = codec.decode(reply, report.Answer,
                                  report.MAX_ANSWER_BYTES)
        except errors.WireError:
            sequence = head.acknowledged(reply)
            if sequence:    # without one the answer may be of anything
                self._acknowledge(run_id, entries, sequence)
            self.directives.follow_kill_switch(reply, now_s())
            raise
        self._clock.answered(answer.time_s, began_s, now_s())
        self._answered_s = time.time()
        self._their_digest = answer.workloads_digest
        more = self._acknowledge(run_id, entries, answer.acknowledged)
        self.directives.follow_answer(answer, reply, began_s)
        return more

    def _acknowledge(self, run_id: str, entries: list[report.AnyEntry],
                     sequence: int) -> bool:
        """Acknowledge the entries that the conductor has; return whether more
        wait.

        :param sequence: of the last of them; it counts up to those sent
        """
        if not entries:
            return self._head.answered()
        last = entries[-1].sequence
        if sequence >= entries[0].sequence:
            self.store.acknowledged(run_id, min(sequence, last))
            self._head.stored()
        elif self._head.ignored(run_id, entries):
            self._leave_out(run_id, entries[0], 'it is not acknowledged')
        return sequence >= last and bool(self.store.batch(1, 1)[1])

    def _leave_out(self, run_id: str, entry: report.AnyEntry, why: str
                   ) -> None:
        """Set aside an entry that the conductor does not accept; it is logged
        and counted."""
        LOG.warning('the conductor does not take entry %d of run %s, it is '
                    'left out: %s; please report this: %s', entry.sequence,
                    run_id, printable(why)[:MOST_WHY],
                    codec.encode(entry).decode()[:MOST_WHY])
        self.store.acknowledged(run_id, entry.sequence)
        self._set_aside += 1

    def _report(self, run_id: str, entries: list[report.AnyEntry]
                ) -> bytes:
        """Return a report, with all workloads if the conductor has others."""
        tick = self._last_tick or reports.LastTick(None, {})
        workloads = (reports.workloads(tick.sample, tick.instances)
                     if tick.sample is not None else None)
        digest = reports.digest(workloads) if workloads is not None else ''
        message = report.Report(
            schema=report.SCHEMA, host=self._host, boot_id=self._boot_id,
            run_id=run_id,
            sent_s=time.time(),
            facts=reports.facts(
                tick, self._rates, version=self._version,
                idle_cores=self._idle_cores, waits=self._waits,
                refused=self.directives.refused),
            workloads_digest=digest,
            workloads=None if digest == self._their_digest else workloads,
            entries=entries, directives_digest=self.directives.digest)
        return reports.encoded(message, self._their_digest)


def make(call: Callable[[bytes], bytes], directory: pathlib.Path,
         store: Store, *, allow_background: bool = False,
         **options: Any) -> Sync:
    """Return the agent's side with its directives in that directory.

    :param allow_background: see :class:`.directives.Directives`
    :param options: see :class:`Sync`
    """
    sync = Sync(call, store, Directives(
        directory, allow_background=allow_background), **options)
    sync.load()
    return sync
