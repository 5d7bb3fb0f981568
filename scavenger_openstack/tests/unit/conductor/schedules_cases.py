# SPDX-License-Identifier: Apache-2.0

"""Random schedules of reports, on any database."""

from __future__ import annotations

import collections
from collections.abc import Iterable
import math
import random
from typing import Any
import uuid

import fixtures

from scavenger_openstack.conductor import specs
from scavenger_openstack.db import directives
from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack import errors
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.db import totals_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

TURNS = 60
"""Reports of a schedule in which something happens."""

BATCH = ('/batch/a', '/batch/b', '/batch/c')
WORKLOADS = [*map(cloud.batch, BATCH), *(
    codec.replace(cloud.vm(name, 'p1', application), instance=str(
        uuid.UUID(int=number))) for number, (name, application) in enumerate(
            (('web', 'shop'), ('db', 'bank'))))]

Audit = tuple[float, str, str, str]
"""Time, action, target and actor of an audit row."""


def specs_changed(now: float) -> Audit:
    return now, directives.SPECS, '', 'conductor'


class Host:
    """An agent: what happened, and what of it was not yet acknowledged."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = random.Random(f'{name} {seed}')
        self.run = 0
        self.sequence = 0
        self.waiting: list[wire.AnyEntry] = []
        self.open: dict[str, wire.Incident] = {}
        self.incidents: dict[str, list[wire.Incident]] = {}
        self.limits: list[tuple[float, float | None]] = []
        self.audit: list[Audit] = []
        self.samples: dict[tuple[str, int], list[float]] = (
            collections.defaultdict(list))

    def next(self) -> int:
        self.sequence += 1
        return self.sequence

    def happens(self, now: float) -> None:
        """Some entries more."""
        for _ in range(self.random.randrange(4)):
            what = self.random.choice(
                ('begin', 'change', 'end', 'limit', 'kill', 'statistics'))
            if what == 'begin':
                number = self.random.getrandbits(120)
                self.tell(cloud.incident(
                    self.next(), now, number=number, begun_s=now - 30,
                    antagonists=self.some(),
                    victim=self.random.choice(['web', 'db'])))
            elif what in ('change', 'end') and self.open:
                one = self.random.choice(sorted(self.open))
                before = self.open[one]
                self.tell(cloud.incident(
                    self.next(), now, what + ('ed' if what == 'end'
                                              else 'd'),
                    number=int(one, 16), begun_s=before.begun_s,
                    victim=before.victim, antagonists=self.some(),
                    outcome=self.random.choice(
                        ['open', 'confirmed', 'refuted'])))
            elif what == 'limit':
                if self.limits and self.limits[-1][1] is None:
                    since_s = self.limits[-1][0]
                    self.limits[-1] = since_s, now
                    self.waiting.append(cloud.limit(
                        self.next(), now, 'removed', since_s=since_s))
                elif not self.limits or self.limits[-1][0] < now:
                    # A knob has no two limits of one time.
                    self.limits.append((now, None))
                    self.waiting.append(cloud.limit(
                        self.next(), now, since_s=now))
            elif what == 'kill':
                self.audit.append((now, 'kill', '/batch/a',
                                   f'agent {self.name}'))
                self.waiting.append(wire.Kill(
                    sequence=self.next(), time_s=now, workload='/batch/a',
                    processes=1, owner='scavenger'))
            elif what == 'statistics':
                self.statistics(now)

    def some(self) -> list[str]:
        return self.random.sample(BATCH, self.random.randrange(4))

    def tell(self, entry: wire.Incident) -> None:
        self.incidents.setdefault(entry.id, []).append(entry)
        self.open[entry.id] = entry
        if entry.what == 'ended':
            del self.open[entry.id]
        self.waiting.append(entry)

    def statistics(self, now: float) -> None:
        hour_s = now // 3600 * 3600
        values = [self.random.gauss(1e3, 0.01)
                  for _ in range(self.random.randrange(1, 20))]
        application = self.random.choice(['shop', 'bank'])
        self.samples[application, int(hour_s // 86400)] += values
        mean = math.fsum(values) / len(values)
        self.waiting.append(codec.replace(cloud.statistics(
            self.next(), hour_s, len(values), mean,
            math.fsum((value - mean) ** 2 for value in values),
            application), time_s=now, least=min(values), most=max(values)))

    def report(self, now: float) -> wire.Report:
        return cloud.report(*self.waiting[:6], host=self.name,
                            run=f'run-{self.run}', sent_s=now,
                            workloads=WORKLOADS, digest='those')

    def answered(self, run: str, answer: wire.Answer) -> None:
        if run == f'run-{self.run}':
            self.waiting = [entry for entry in self.waiting
                            if entry.sequence > answer.acknowledged]

    def restart(self) -> None:
        """A new run, once the old one is told."""
        if not self.waiting:
            self.run, self.sequence = self.run + 1, 0


class Stored(totals_cases.Summed):
    """What is stored is what happened on the hosts."""

    def check(self, hosts: list[Host], now: float, where: str, *,
              audit: Iterable[Audit], perhaps: Iterable[Audit] = (),
              since_s: float = 0.0) -> None:
        """
        :param audit: of what did not happen on a host
        :param perhaps: rows of the audit of which it is not known
        :param since_s: the first second of a day; what has ended before was
            deleted
        """
        last = [entry for host in hosts for *_, entry in
                host.incidents.values()
                if entry.what != 'ended' or entry.time_s >= since_s]
        self.assertEqual(
            sorted((entry.id, 'ended' if entry.what == 'ended' and
                    entry.outcome == 'open' else entry.outcome, entry.time_s,
                    entry.time_s if entry.what == 'ended' else None)
                   for entry in last),
            sorted(self.rows(tables.incidents, 'uuid', 'outcome',
                             'changed_s', 'ended_s')), where)
        self.assertEqual(
            sorted((one.workload, one.antagonist) for entry in last
                   for one in entry.suspects),
            sorted(self.rows(tables.suspects, 'workload', 'antagonist')),
            where)
        self.assertEqual(
            sorted(limit for host in hosts for limit in host.limits
                   if limit[1] is None or limit[1] >= since_s),
            sorted(self.rows(tables.caps, 'set_s', 'removed_s')), where)
        self.check_audit([*audit, *(row for host in hosts
                                    for row in host.audit)],
                         perhaps, where, since_s)
        self.check_hours(hosts, where, since_s)
        self.check_totals(where)
        self.check_specs(hosts, now, where)

    def check_audit(self, audit: Iterable[Audit], perhaps: Iterable[Audit],
                    where: str, since_s: float) -> None:
        """Each row is there once, and none besides."""
        expected = collections.Counter(
            row for row in audit if row[0] >= since_s)
        found = collections.Counter(self.rows(
            tables.audit, 'time_s', 'action', 'target', 'actor'))
        more = found - expected - collections.Counter(perhaps)
        self.assertEqual(([], []), (sorted(expected - found), sorted(more)),
                         f'{where}: audit rows missing, and too many')

    def check_hours(self, hosts: list[Host], where: str, since_s: float
                    ) -> None:
        """As counted from the last entry of each incident, by hour."""
        expected: dict[tuple[Any, ...], list[float]] = (
            collections.defaultdict(lambda: [0, 0.0, 0, 0]))
        for host in hosts:
            for entries in host.incidents.values():
                one = entries[-1]
                for name in (each.workload for each in one.suspects
                             if each.antagonist):
                    key = host.name, name, one.victim
                    first = expected[*key, one.begun_s // 3600]
                    first[0] += 1
                    first[2] += one.outcome == 'confirmed'
                    first[3] += one.outcome == 'refuted'
                    hour = one.begun_s // 3600
                    while hour * 3600 < one.time_s:
                        part = (min(one.time_s, hour * 3600 + 3600)
                                - max(one.begun_s, hour * 3600))
                        expected[*key, hour][1] += part
                        hour += 1
        ids = dict(self.rows(tables.hosts, 'id', 'name'))
        found: dict[tuple[Any, ...], Any] = {
            (ids[host_id], workload, victim, hour_s / 3600): sums
            for host_id, workload, victim, hour_s, *sums in self.rows(
                tables.antagonist_hours, 'host_id', 'workload', 'victim',
                'hour_s', 'incidents', 'interference_s', 'confirmed',
                'refuted')}
        expected = {key: sums for key, sums in expected.items()
                    if any(sums) and key[-1] * 3600 >= since_s}
        self.assertEqual(expected.keys(), found.keys(), where)
        for key, sums in expected.items():
            self.assertEqual([sums[0], *sums[2:]],
                             [found[key][0], *found[key][2:]], where)
            self.assertAlmostEqual(sums[1], found[key][1], 4, where)

    def check_specs(self, hosts: list[Host], now: float, where: str
                    ) -> None:
        """As of all samples at once: none is lost or twice.  Values beyond
        those of other hosts in a batch count less, so mean and deviation are
        about these."""
        list(specs.refresh(self.engine, now))
        weighted: dict[str, list[tuple[float, float]]] = (
            collections.defaultdict(list))
        newest: dict[str, int] = collections.defaultdict(int)
        for application, day in (key for host in hosts
                                 for key in host.samples):
            newest[application] = max(newest[application], day)
        for host in hosts:
            for (application, day), values in host.samples.items():
                weight = 0.9 ** (newest[application] - day)
                weighted[application] += [(weight, value)
                                          for value in values]
        found = {application: (mean, stddev, n)
                 for application, mean, stddev, n in self.rows(
                     tables.specs, 'application', 'mean', 'stddev', 'n')}
        self.assertEqual(weighted.keys(), found.keys(), where)
        for application, samples in weighted.items():
            n = math.fsum(weight for weight, _ in samples)
            mean = math.fsum(weight * value
                             for weight, value in samples) / n
            m2 = math.fsum(weight * (value - mean) ** 2
                           for weight, value in samples)
            got = found[application]
            stddev = math.sqrt(m2 / (n - 1)) if n > 1 else 0.0
            self.assertLessEqual(abs(got[0] - mean), stddev, where)
            self.assertLessEqual(abs(got[1] - stddev), stddev / 2, where)
            self.assertAlmostEqual(1.0, got[2] / n, 9, where)


class Schedules(Stored):
    """Reports are lost, doubled, late and torn; so are answers."""

    seeds = tiers.seeds(10, 3)

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())

    def test_random_schedules(self) -> None:
        for seed in self.seeds:
            self.schedule(seed)
            self.clear()

    def schedule(self, seed: int) -> None:
        choose = random.Random(seed)
        hosts = [Host(f'node-{number}', seed) for number in range(3)]
        now = NOW
        on_the_way: list[wire.Report] = []
        audit: list[Audit] = []
        turns = 0
        while turns < TURNS or any(host.waiting for host in hosts):
            turns += 1
            now += choose.choice([0.5, 10.0, 900.0, 30000.0])
            host = choose.choice(hosts)
            if turns < TURNS and len(host.waiting) < 40:
                host.happens(now)
            report = host.report(now)
            on_the_way.append(report)
            fate = choose.random()
            if fate < 0.2:
                self.torn(report, choose)
            elif fate < 0.7:
                host.answered(report.run_id, self.sync(report, now))
            elif fate < 0.8:
                self.sync(report, now)      # the answer is lost
            for _ in range(choose.randrange(3)):    # some of long ago
                old = choose.choice(on_the_way[-8:])
                answer = self.sync(old, now)
                for one in hosts:
                    if one.name == old.host and choose.random() < 0.5:
                        one.answered(old.run_id, answer)
            if choose.random() < 0.1:
                host.restart()
            if choose.random() < 0.05:
                if sum(specs.refresh(self.engine, now)):
                    audit.append(specs_changed(now))
                with self.engine.begin() as connection:
                    totals.advance(connection, reports.hour(now))
        self.check(hosts, now, f'seed {seed}', audit=audit)

    def torn(self, report: wire.Report, choose: random.Random) -> None:
        data = codec.encode(report)
        self.assertRaises(errors.WireError, codec.decode,
                          data[:choose.randrange(len(data))], wire.Report,
                          wire.MAX_REPORT_BYTES)

    def clear(self) -> None:
        for table in reversed(tables.METADATA.sorted_tables):
            self.delete(table)
