# SPDX-License-Identifier: Apache-2.0

"""Tells the conductor what happened here, and follows what it answers.

A thread of its own calls every ``sync_s`` seconds; the tick only leaves
references for it.  Without an answer everything goes on as before: what is to
be told waits in the spool, the last directives hold.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import itertools
import pathlib
import random
import threading
import time
from typing import Any

from oslo_log import log

from scavenger_openstack.agent.control_plane import directives as directives_
from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.control_plane import spool as spool_
from scavenger_openstack.agent.control_plane import sums
from scavenger_openstack.agent import transitions
from scavenger_openstack.decision import orders as orders_
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Instance
from scavenger_openstack.types import phase
from scavenger_openstack.types import printable
from scavenger_openstack.types import Rates
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

STATISTICS_S = 300.0
"""How often statistics become entries: so much is lost by a kill.  An
open incident is reported again as often; after a kill it may look that much
shorter."""
MOST_EVENTS = 20_000
"""Events that wait for the thread, should it hang."""
BACKLOG_CALLS = 10
"""So many calls follow each other while more waits than one report takes."""
MOST_WAIT = 4
"""Times ``sync_s``: the longest wait after calls that failed.  After an outage
of a minute no host is silent for ``[api] silent_s``."""
SLOW_S = 15.0
"""A call that takes longer is a fault, though it has not failed yet: a broker
that hangs may hold it for a minute."""
MOST_SHOWN = 50
"""So many parameters, and wishes that are not followed, are in the status."""
MOST_WHY = 300
"""So much of an error goes to the log: a broker may have sent it."""
UNEXPECTED = 'unexpected failure, see the log'
END_S = 3.0
"""How long the end of the agent waits for the last call."""


class Sync:
    """The agent's side of ``sync``.

    :param call: takes a report, returns an answer, both JSON; raises
        WireError when it is refused, another ScavengerError when it may work
        later
    :param evidence: the series of an incident that begins
    """

    def __init__(self, call: Callable[[bytes], bytes],
                 spool: spool_.Spool, directives: directives_.Directives, *,
                 host: str, boot_id: str, version: str, sync_s: float,
                 evidence: Callable[[str, Incident], reports.Evidence]
                 = lambda controller, incident: ()) -> None:
        self._call = call
        self.spool = spool
        self.directives = directives
        self._host, self._boot_id = fit.name(host), fit.name(boot_id)
        self._version = version
        self._sync_s = sync_s
        self._evidence = evidence
        self._seen: reports.SeenTick | None = None
        self._events: collections.deque[reports.Happened]
        self._events = collections.deque(maxlen=MOST_EVENTS)
        self._sums = sums.Sums()
        self._open: dict[str, transitions.IncidentEvent] = {}
        self._summed_s = now_s()
        self._sample: HostSample | None = None
        self._rates: Rates | None = None
        self._idle_cores: float | None = None
        self._their_digest = ''
        self._most = report.MAX_ENTRIES
        self._suspect: tuple[str, int, bool] | None = None
        self._waits = (0, 0)
        self._fault = ''
        self._answered_s = 0.0
        self._called_s: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name='sync',
                                        daemon=True)

    @property
    def orders(self) -> orders_.Orders:
        """What operators ask for; :class:`.loop.Loop` asks each tick."""
        return self.directives.orders

    def see(self, sample: HostSample | None, document: Mapping[str, Any],
            instances: Sequence[Instance], refused: Mapping[str, str]
            ) -> None:
        """What the last tick saw, as in :class:`.reports.SeenTick`; from the
        thread of the tick."""
        self._seen = reports.SeenTick(sample, document, instances, refused)

    def happened(self, events: Iterable[transitions.Event]) -> None:
        """What is to be told; from the thread of the tick."""
        for event in events:
            self._events.append(reports.Happened(event, self._evidence(
                event.controller, event.incident)
                if isinstance(event, transitions.IncidentEvent)
                and event.what == 'began' else ()))

    def facts(self) -> dict[str, Any]:
        """For the status: plain JSON.  ``answered_s`` and ``issued_s`` are
        UNIX times, 0 for never."""
        called_s, fault = self._called_s, self._fault
        if called_s is not None and time.monotonic() - called_s > SLOW_S:
            fault = fault or ('no answer for '
                              f'{time.monotonic() - called_s:.0f} s')
        return {'fault': fault, 'answered_s': self._answered_s,
                'issued_s': self.directives.issued_s,
                'parameters': dict(itertools.islice(
                    self.orders.parameters.items(), MOST_SHOWN)),
                'refused': dict(itertools.islice(itertools.chain(
                    self.directives.refused.items(), self._seen.refused
                    .items() if self._seen else ()), MOST_SHOWN)),
                'spool_bytes': self._waits[0], 'dropped': self._waits[1]}

    def start(self) -> None:
        """Begin to report, unless it has; without a thread a later call
        does."""
        if self._thread.ident is None:
            with contextlib.suppress(calls.NoThread):
                calls.start(self._thread)

    def stop(self) -> None:
        """Tell the rest, if that is possible now; else it waits on disk."""
        self._stop.set()
        if self._thread.is_alive():     # the agent may end before its start
            self._thread.join(END_S)

    def load(self) -> None:
        """Follow the directives that were kept, before the first tick."""
        self.directives.load(now_s(), time.time())

    def _run(self) -> None:
        """Until :meth:`stop`: wait, call, wait longer after each failure."""
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
        self.spool.close()

    def turn(self) -> bool:
        """Tell what there is; whether it was answered."""
        try:
            for _ in range(BACKLOG_CALLS):
                self.take()
                if not self.exchange():
                    break
        except errors.ScavengerError as exc:
            self._say(printable(str(exc))[:MOST_WHY])
        except Exception:
            if self._fault != UNEXPECTED:
                LOG.exception('unexpected failure')
            self._fault = UNEXPECTED
        else:
            self._say('')
        return not self._fault

    def _say(self, why: str) -> None:
        if why and why != self._fault:
            LOG.warning('reports do not reach the conductor: %s; '
                        'this host goes on by itself, and tries again', why)
        elif self._fault and not why:
            LOG.info('the conductor answers again')
        self._fault = why

    def take(self) -> None:
        """Put what the ticks left into the spool."""
        happened = []
        while self._events:
            happened.append(self._events.popleft())
        seen, wall_s = self._seen, time.time()
        if seen is not None and seen.sample is not None:
            self._look(seen.sample)
        entries = list(map(reports.entry, happened))
        for event, _ in happened:
            if isinstance(event, transitions.IncidentEvent):
                self._open[event.incident.id] = event
                if event.what == 'ended':
                    del self._open[event.incident.id]
        now = now_s()
        if now - self._summed_s >= STATISTICS_S or self._stop.is_set():
            self._summed_s = now
            entries += self._sums.drain(wall_s)
            entries += [reports.entry(reports.Happened(event._replace(
                wall_time_s=wall_s, what='changed')))
                for event in self._open.values()]
        if entries or self.spool.fault:
            self.spool.add(entries)
        self._waits = self.spool.bytes, self.spool.dropped

    def _look(self, sample: HostSample) -> None:
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
        rates = rates_.rates(before, sample)
        if not rates.complete:
            return
        self._rates = rates
        if sample.cpu_busy_s and before.cpu_busy_s:
            busy_s = sum(max(0.0, total - before.cpu_busy_s.get(cpu, total))
                         for cpu, total in sample.cpu_busy_s.items())
            self._idle_cores = max(
                0.0, len(sample.cpu_busy_s) - busy_s / rates.interval_s)
        self._sums.add(rates.workloads, sample.cpu_model or '',
                       sample.wall_time_s)

    def exchange(self) -> bool:
        """Call once; whether more waits.

        :raises WireError: the report, or the answer, is refused.
        :raises ScavengerError: there is no answer.
        """
        run_id, entries = (
            self.spool.batch(self._most, report.MAX_REPORT_BYTES // 2)
            if self._most else (self.spool.run_id, []))
        data = self._report(run_id, entries)
        began_s, self._called_s = now_s(), time.monotonic()
        try:
            found = self._call(data)
        except errors.WireError as exc:
            self._refused(run_id, entries, str(exc))
            if not entries:
                raise
            # Again with fewer of them: directives come with the answer.
            return True
        finally:
            self._called_s = None
        try:
            return self._answered(run_id, entries, codec.decode(
                found, report.Answer, report.MAX_ANSWER_BYTES), began_s)
        except errors.WireError:
            self.directives.follow_kill_switch(found, now_s())
            raise

    def _answered(self, run_id: str, entries: list[report.AnyEntry],
                  answer: report.Answer, began_s: float) -> bool:
        """Do as the conductor says; whether more waits.

        :param began_s: CLOCK_BOOTTIME when it was asked
        """
        self._answered_s = time.time()
        self._their_digest = answer.workloads_digest
        more = (self._acknowledge(run_id, entries[-1].sequence,
                                  answer.acknowledged)
                if entries else self._clear())
        if answer.directives is not None:
            self.directives.follow(answer.directives, began_s)
        return more

    def _acknowledge(self, run_id: str, last: int, sequence: int) -> bool:
        """Forget what the conductor has; whether more waits.

        :param last: a conductor cannot have what it was not sent
        """
        if sequence:
            self.spool.acknowledged(run_id, min(sequence, last))
        self._suspect, self._most = None, min(report.MAX_ENTRIES,
                                              2 * self._most)
        return sequence >= last and bool(self.spool.batch(1, 1)[1])

    def _refused(self, run_id: str, entries: list[report.AnyEntry],
                 why: str) -> None:
        """Find out whether it is an entry that is refused: the next report
        has fewer, in the end one, then none, and if that was taken the one
        again."""
        if len(entries) > 1:
            self._most = len(entries) // 2
        elif not entries:
            self._suspect, self._most = None, 1
        elif self._suspect == (run_id, entries[0].sequence, True):
            LOG.warning('the conductor refuses entry %d of run %s, it is '
                        'left out: %s; please report this',
                        entries[0].sequence, run_id,
                        printable(why)[:MOST_WHY])
            self.spool.acknowledged(run_id, entries[0].sequence)
            self._suspect = None
        else:
            self._suspect = run_id, entries[0].sequence, False
            self._most = 0

    def _clear(self) -> bool:
        """A report without entries was taken; whether one was left out."""
        if self._suspect is None:
            return False
        self._suspect, self._most = (*self._suspect[:2], True), 1
        return True

    def _report(self, run_id: str, entries: list[report.AnyEntry]
                ) -> bytes:
        """A report, with all workloads if the conductor does not have them.

        If it would be too long they wait for one without entries; where they
        alone are too many, some are told, under no digest.
        """
        seen = self._seen or reports.SeenTick(None, {})
        found = (reports.workloads(seen.sample, seen.instances)
                 if seen.sample is not None else None)
        digest = reports.digest(found) if found is not None else ''
        told = report.Report(
            schema=report.SCHEMA, host=self._host, boot_id=self._boot_id,
            run_id=run_id,
            sent_s=time.time(),
            facts=reports.facts(
                seen, self._rates, version=self._version,
                idle_cores=self._idle_cores, spool_bytes=self.spool.bytes,
                dropped=self.spool.dropped,
                refused=self.directives.refused),
            workloads_digest=digest,
            workloads=None if digest == self._their_digest else found,
            entries=entries, directives_digest=self.directives.digest)
        data = codec.encode(told)
        if len(data) > report.MAX_REPORT_BYTES and entries:
            told = codec.replace(told, workloads=None,
                                 workloads_digest=self._their_digest)
            data = codec.encode(told)
        while len(data) > report.MAX_REPORT_BYTES and told.workloads:
            told = codec.replace(
                told, workloads=told.workloads[:len(told.workloads) // 2],
                workloads_digest='')
            data = codec.encode(told)
        return data


def make(call: Callable[[bytes], bytes], directory: pathlib.Path, *,
         spool_bytes: int, allow_background: bool = False, **options: Any
         ) -> Sync:
    """The agent's side with its files in that directory.

    :param allow_background: see :class:`.directives.Directives`
    :param options: see :class:`Sync`
    """
    found = Sync(call, spool_.Spool(directory, spool_bytes),
                 directives_.Directives(
                     directory, allow_background=allow_background), **options)
    found.load()
    return found
