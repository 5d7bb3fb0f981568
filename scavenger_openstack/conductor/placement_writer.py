# SPDX-License-Identifier: Apache-2.0

"""Keeps the inventories in Placement up to date with what agents report."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections import deque
import contextlib
import functools
import math
import queue
import time
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor.placement import HostReport
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor.placement_host import GONE
from scavenger_openstack.conductor.placement_host import Provider
from scavenger_openstack.conductor.placement_host import Urgency
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.drivers import calls
from scavenger_openstack import errors
from scavenger_openstack import host_names
from scavenger_openstack import log_once

LOG = log.getLogger(__name__)

CLAIM = 'placement'
EVERY_S = 10.0
"""What agents report is read again after that, also while a turn goes on:
what offers less by then is written next."""

WORKERS = 8
"""So many hosts are written at once."""
FEW = 2
"""So many of them are hosts that have failed before: those that hang must
not keep the others waiting."""

LIST_S = 600.0
"""All providers are listed again after that; 10,000 hosts are 20,000."""
FIND_S = 60.0
"""A host without a provider is looked for by its name after that."""
MOST_NAMES = 100
"""So many hosts are looked for by their names in one look at all hosts."""

MOST_FAULTS = 2 * WORKERS
"""After so many faults in a row, each of a host that had none before, a turn
ends."""
LOGGED_FAULTS = 3
"""A host that has failed so often in a row is logged."""
MOST_PAUSE_S = 160.0
"""The pause of a host that fails doubles, up to so much."""

WAIT_S = 1.0
STOP_S = 5.0
"""A turn that ends early waits so long for what is being written."""

REPEAT_S = 3600.0
"""What goes on is logged again after that."""
SHOWN = 5

BAD = 400


class Reported(NamedTuple):
    """The last report of a host: what its row says of it, when that changed
    here, and whether it is sure that this was then."""

    noted_s: float
    time_s: float
    sure: bool


class Writer:
    """Writes for all hosts, several at a time.  Its turns are for one thread.

    A host is silent when its row has not changed for so long, by the time
    that passed here: conductors note its reports by their clocks, which may
    be set.

    :param clock: UNIX time in seconds; counts at the first look at a host
    :param elapsed: seconds that only grow; ``None``: the clock is like that
    """

    def __init__(self, engine: connect.Engine, api: placement_api.Placement,
                 params: placement.Params, clock: Callable[[], float],
                 elapsed: Callable[[], float] | None = None) -> None:
        self._engine = engine
        self._api = api
        self._params = params
        self._clock = clock
        self._elapsed = elapsed or clock
        self._prepared = False
        self._missed: dict[str, tuple[float, float]] = {}
        self._logged = log_once.LogOnce()
        self._calls = calls.Executor('placement', math.inf, WORKERS, 0)
        self.distrust()

    def distrust(self) -> None:
        """Read all again: another conductor may have written meanwhile."""
        self._reports: dict[str, Reported] = {}
        self._providers: dict[str, Provider] = {}
        self._index = host_names.Index({})
        self._listed_s = -math.inf
        # What is being written yet is nothing that counts any more.
        self._pending: dict[str, Provider] = {}
        self._outcomes: queue.SimpleQueue[tuple[str, object]] = (
            queue.SimpleQueue())
        self._row = 0
        self._ended_early = False

    def turn(self, still: Callable[[], None]) -> int:
        """Look at all hosts; return how many were written.

        :param still: called before each host; may raise to end the turn
        :raises Unreachable: Placement does not answer.
        :raises DatabaseError: the database cannot be used.
        """
        jobs: deque[tuple[Urgency, Provider]] = deque()
        planned_s = -math.inf
        written = 0
        try:
            while True:
                still()
                if not self._prepared:
                    self._api.prepare()
                    self._prepared = True
                now = self._elapsed()
                if not 0 <= now - planned_s < EVERY_S:
                    if not 0 <= now - self._listed_s < LIST_S:
                        self._start(Provider(''), self._api.listed)
                    jobs, planned_s = self._jobs(now), now
                while jobs and self._has_room(jobs[0][0]):
                    _, provider = jobs.popleft()
                    self._start(provider, functools.partial(
                        provider.write, self._api, self._elapsed(),
                        self._params))
                if not self._pending:
                    return written
                for name, outcome in self._ready(WAIT_S):
                    written += self._finish(name, outcome)
                    if not name:
                        jobs = self._jobs(self._elapsed())
        except BaseException:
            self._drain()
            raise

    def background_vcpus(self) -> dict[str, float]:
        """Return what Placement has of all hosts, as far as it is known
        here: ``offered``, and ``reserved``.  From any thread."""
        written = [provider.state.written[placement.VCPU]
                   for provider in list(self._providers.values())
                   if placement.VCPU in provider.state.written]
        return {'offered': float(sum(state.offered for state in written)),
                'reserved': float(sum(state.reserved for state in written))}

    # --- what is to be written

    def _jobs(self, now: float) -> deque[tuple[Urgency, Provider]]:
        """The hosts that are to be written, the most urgent ones first."""
        with connect.reading(self._engine) as connection:
            rows = db_hosts.all_with_load(connection)
        self._reports = {row['name']: self._reported(row, now)
                         for row in rows}
        hosts = host_names.Index({row['name']: row['last_seen_s']
                                  for row in rows})
        jobs: list[tuple[Urgency, float, str, Provider]] = []

        def add(provider: Provider, report: HostReport | None) -> None:
            if provider.name in self._pending:
                return
            urgency = provider.urgency(report, now, self._params)
            if urgency is not None:
                # Of new ones those that offer little come first.
                offers = (report.offer.get(placement.VCPU, 0.0) if report
                          else 0.0)
                jobs.append((
                    urgency, offers if urgency is Urgency.NEW
                    else provider.state.written_s, provider.name, provider))

        present: dict[str, Mapping[str, Any]] = {}
        missing: dict[str, Mapping[str, Any]] = {}
        others: list[str] = []
        for row in rows:
            name = self._index.find(row['name'])
            if name is None:
                missing[row['name']] = row
            elif hosts.find(name) != row['name']:
                others.append(row['name'])
            else:
                present[name] = row
        for name, present_row in present.items():
            reported = self._reports[present_row['name']]
            # Else it may be silent, and Placement has what was written.
            if reported.sure or now - reported.time_s > self._params.silent_s:
                add(self._providers[name],
                    _last_report(present_row, reported.time_s))
        for name, provider in self._providers.items():
            if provider.child and name not in present:
                add(provider, None)     # no agent reports by this name
        for name in self._missing_hosts(list(missing), now):
            add(Provider(name), _last_report(missing[name],
                                             self._reports[name].time_s))
        self._log('others', others, 'an agent of another name reports for '
                  'the same host, too: this one is left out', now)
        failing = [provider for provider in self._providers.values()
                   if provider.faults >= LOGGED_FAULTS]
        self._log('failing', [provider.name for provider in failing],
                  'what Placement has of it stays as it is, its last answer '
                  f'was: {failing[0].fault if failing else ""}', now)
        return deque((urgency, provider)
                     for urgency, _, _, provider in sorted(
                         jobs, key=lambda job: job[:3]))

    def _reported(self, row: Mapping[str, Any], now: float) -> Reported:
        """When a host reported last, by the time that passes here."""
        noted_s, before = row['last_seen_s'], self._reports.get(row['name'])
        if before is None:
            ago_s = self._clock() - noted_s
            sure = abs(ago_s) <= self._params.silent_s
            return Reported(noted_s, now - max(0.0, ago_s) * sure, sure)
        return before if before.noted_s == noted_s else Reported(
            noted_s, now, True)

    def _missing_hosts(self, missing: Sequence[str], now: float) -> list[str]:
        """Return hosts without a provider, to be searched for by name."""
        if self._listed_s == -math.inf:
            return []
        # At first nova-compute may not have made it yet.
        self._missed = {name: self._missed.get(name, (now, self._listed_s))
                        for name in missing}
        self._log('missing', [
            name for name, (since_s, _) in self._missed.items()
            if self._listed_s - since_s >= FIND_S],
            'Placement has no provider of that name: its background is not '
            'offered; [agent] host has to be the name that "openstack '
            'compute service list" shows', now)
        names = sorted(
            (name for name, (_, asked_s) in self._missed.items()
             if now - asked_s >= FIND_S and name not in self._pending),
            key=lambda name: self._missed[name][1])[:MOST_NAMES]
        for name in names:
            self._missed[name] = self._missed[name][0], now
        return names

    def _has_room(self, urgency: Urgency) -> bool:
        """Whether one more host may be written now."""
        failing = sum(provider.faults > 0
                      for provider in self._pending.values())
        return len(self._pending) < WORKERS and (
            urgency is not Urgency.FAILS or failing < FEW)

    def _start(self, provider: Provider, do: Callable[[], object]) -> None:
        """Have a thread do this; its outcome is a result or an exception.

        :raises NoThread: there is none.
        """
        name, outcomes = provider.name, self._outcomes
        if name in self._pending:
            return

        def work() -> None:
            try:
                outcome: object = do()
            except Exception as exc:
                outcome = exc
            outcomes.put((name, outcome))

        call = self._calls.submit(name, work)
        if call.error is not None:
            raise call.error
        self._pending[name] = provider

    def _ready(self, timeout_s: float) -> Iterator[tuple[str, object]]:
        """Generate what threads have done, as soon as that is something."""
        with contextlib.suppress(queue.Empty):
            yield self._outcomes.get(timeout=timeout_s)
            while True:
                yield self._outcomes.get_nowait()

    def _drain(self) -> None:
        """Wait for what is being written, but not for long."""
        until_s = time.monotonic() + STOP_S
        while self._pending and time.monotonic() < until_s:
            for name, outcome in self._ready(until_s - time.monotonic()):
                with contextlib.suppress(errors.ScavengerError):
                    self._finish(name, outcome)

    def _finish(self, name: str, outcome: Any) -> int:
        """Note what came of a host, '' for the list of all; 1 if it was
        written.

        :raises Unreachable: Placement does not answer.
        """
        provider = self._pending.pop(name)
        is_fault = isinstance(outcome, Exception)
        if not name:
            if is_fault:
                raise outcome
            self._list(*outcome)
            return 0
        if provider.root and name not in self._providers:
            self._providers[name] = provider
            self._make_index()
        if is_fault:
            self._fault(provider, outcome)
            return 0
        if provider.faults or self._ended_early:
            # It works again: perhaps that was the fault of all.
            self._ended_early = False
            for each in self._providers.values():
                each.retry_s = -math.inf
        provider.faults, self._row = 0, 0
        return int(outcome)

    def _list(self, roots: Mapping[str, str], children: Mapping[str, str]
              ) -> None:
        """Note which providers there are."""
        providers = {}
        for name, root in roots.items():
            provider = self._providers.get(name)
            child = children.get(name, '')
            if provider is None or (
                    name not in self._pending
                    and (provider.root, provider.child)
                    != (root, child or provider.child)):
                provider = Provider(name, root, child)
            providers[name] = provider
        self._providers = providers
        self._make_index()
        self._listed_s = self._elapsed()

    def _make_index(self) -> None:
        self._index = host_names.Index(dict.fromkeys(self._providers, 0.0))

    def _fault(self, provider: Provider, fault: Exception) -> None:
        """Try again later; several in a row of other hosts end the turn.

        :raises Unreachable: Placement does not answer.
        """
        if isinstance(fault, placement_api.Refused):
            self._row = 0
            provider.reset()
            if fault.status == BAD:     # perhaps our classes or traits
                self._prepared = False
            if fault.status == GONE:
                if not provider.root and provider.name in self._providers:
                    del self._providers[provider.name]
                    self._make_index()
                provider.root = provider.child = ''
        elif isinstance(fault, placement_api.Failed):
            self._row += not provider.faults
        elif isinstance(fault, errors.ScavengerError):
            raise fault
        else:
            LOG.error('%s: please report this, with what follows',
                      provider.name, exc_info=fault)
        provider.until_s = -math.inf    # it may have been written
        provider.faults += 1
        provider.fault = f'{fault}'
        provider.retry_s = self._elapsed() + min(
            MOST_PAUSE_S, EVERY_S * 2.0 ** min(provider.faults - 1, 10))
        if self._row >= MOST_FAULTS:
            self._row, self._ended_early = 0, True
            raise fault

    def _log(self, problem: str, names: Sequence[str], text: str, now: float
             ) -> None:
        """Log which hosts have a problem, and again as long as they do."""
        if not names:
            self._logged.over(problem)
        elif self._logged.due(problem, now_s=now, every_s=REPEAT_S):
            more = f' and {len(names) - SHOWN} more' if (
                len(names) > SHOWN) else ''
            LOG.warning('%s%s: %s', ', '.join(names[:SHOWN]), more, text)


def _last_report(row: Mapping[str, Any], time_s: float) -> HostReport:
    """Return what the last report of a host says, which was then.

    One that sets no limits offers nothing: nothing would hold back what
    comes.
    """
    facts = row['facts'] or {}
    offer = placement.offer(facts.get('headroom', {}), facts.get('used', {})
                            ) if facts.get('enforcing') else {}
    return HostReport(time_s, offer, facts.get('grade', ''),
                      bool(row['incidents']))
