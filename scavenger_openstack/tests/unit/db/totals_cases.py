# SPDX-License-Identifier: Apache-2.0

"""Totals of antagonists are the sums of the hours in their span, on any
database."""

from __future__ import annotations

import random
import time
from typing import Any
from typing import get_args

import fixtures
import sqlalchemy
from sqlalchemy import insert
from sqlalchemy import update

from scavenger_openstack.conductor import upkeep
from scavenger_openstack.db import claims
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.wire import report as wire

TURNS = 90
HOUR = reports.hour(NOW)
DAY_S = 86400

HOSTS = ('node-1', 'node-2', 'node-3')
VICTIMS = {'web': 'p1', 'db': 'p2'}
CULPRITS = {'/batch/a': '', '/batch/b': '', 'noisy': 'p2', 'loud': 'p3'}
WORKLOADS = [
    *(cloud.vm(name, project) for name, project in VICTIMS.items()),
    *(cloud.vm(name, project) if project else cloud.batch(name)
      for name, project in CULPRITS.items())]

ASKED: tuple[dict[str, str], ...] = (
    {}, {'project': 'p2'}, {'project': 'p3'}, {'project': 'p9'},
    {'victim_project': 'p1'}, {'victim_project': 'p2'})


class Agent:
    """A host that reports incidents, which last and change."""

    def __init__(self, name: str, choose: random.Random) -> None:
        self.name = name
        self.choose = choose
        self.sequence = 0
        self.open: dict[int, tuple[float, str]] = {}

    def report(self, now: float) -> wire.Report:
        return cloud.report(
            *(self.entry(now) for _ in range(self.choose.randrange(1, 4))),
            host=self.name, workloads=WORKLOADS, sent_s=now)

    def entry(self, now: float) -> wire.Incident:
        self.sequence += 1
        what = self.choose.choice(('began', 'changed', 'ended'))
        if what == 'began' or not self.open:
            what, number = 'began', self.choose.getrandbits(120)
            self.open[number] = (
                now - self.choose.choice((0.25, 30.0, 5000.0, 100_000.0)),
                self.choose.choice(sorted(VICTIMS)))
        else:
            number = self.choose.choice(sorted(self.open))
        begun_s, victim = self.open[number]
        if what == 'ended':
            del self.open[number]
        return cloud.incident(
            self.sequence, now, what, number=number, begun_s=begun_s,
            victim=victim, cause=self.choose.choice(('cpu', 'disk')),
            antagonists=self.choose.sample(
                sorted(CULPRITS), self.choose.randrange(4)),
            outcome=self.choose.choice(('open', 'confirmed', 'refuted')))


class Summed(cloud.Mixin):
    """Totals are what the hours sum up to."""

    def check_totals(self, where: str) -> None:
        """Each total is the sum of the hours that it should count."""
        ends = dict(self.rows(tables.hosts, 'id', 'totals_hour_s'))
        expected: dict[tuple[Any, ...], list[Any]] = {}
        for (host_id, hour_s, workload, project, victim, victim_project,
             incidents, seconds) in self.rows(
                 tables.antagonist_hours, 'host_id', 'hour_s', 'workload',
                 'project', 'victim', 'victim_project', 'incidents',
                 'interference_s'):
            scopes = ['', *[f'antagonist:{project}'] * bool(project),
                      *[f'victim:{victim_project}'] * bool(victim_project)]
            for span_s in (DAY_S, 7 * DAY_S, 30 * DAY_S):
                if not ends[host_id] or hour_s < ends[host_id] - span_s:
                    continue
                for scope in scopes:
                    sums = expected.setdefault(
                        (host_id, workload, span_s, scope), [0, 0.0, set()])
                    sums[0] += incidents
                    sums[1] += seconds
                    sums[2].add(victim)
        found = {tuple(key): (incidents, milliseconds, victims)
                 for *key, incidents, milliseconds, victims in self.rows(
                     tables.antagonist_totals, 'host_id', 'workload',
                     'span_s', 'scope', 'incidents', 'interference_ms',
                     'victims')}
        self.assertEqual(sorted(expected), sorted(found), where)
        for key, (incidents, seconds, victims) in expected.items():
            self.assertEqual((incidents, len(victims)),
                             (found[key][0], found[key][2]), f'{where} {key}')
            self.assertTrue(abs(1000 * seconds - found[key][1]) <= 1,
                            f'{where} {key} {seconds} {found[key]}')


class Totals(Summed):

    seeds = tiers.seeds(2)

    def test_random_reports(self) -> None:
        """Doubled, late and reordered ones, while time passes, hours leave
        and old ones are purged."""
        for seed in self.seeds:
            self.play(seed)
            for table in reversed(tables.METADATA.sorted_tables):
                self.delete(table)

    def play(self, seed: int) -> None:
        choose = random.Random(seed)
        agents = [Agent(name, choose) for name in HOSTS]
        now, sent = NOW, []
        for turn in range(TURNS):
            where = f'seed {seed}, turn {turn}'
            now += choose.choice((0.5, 10.0, 900.0, 3600.0, 30_000.0,
                                  DAY_S * choose.random() * 4))
            sent.append(choose.choice(agents).report(now))
            if choose.random() < 0.9:       # the others come late, or never
                self.sync(sent[-1], now)
            if choose.random() < 0.3:
                self.sync(choose.choice(sent[-6:]), now)
            if choose.random() < 0.4:
                self.advance(now)
            if choose.random() < 0.07:
                purge.run(self.engine, now_s=now, progress=lambda *_: None,
                          audit_older_than_s=0,
                          older_than_s=choose.choice((2, 8, 35)) * DAY_S,
                          batch=choose.choice((30, 1000)))
            if choose.random() < 0.05:
                list(purge.trim(self.engine, now_s=now, rows=100))
            self.check_totals(where)
        self.advance(now)
        self.check_totals(f'seed {seed}')
        hosts = self.rows(tables.hosts, 'id')
        self.compare_rankings(now, f'seed {seed}', hosts[seed % len(hosts)])

    def test_what_is_reported_is_there_at_once(self) -> None:
        """Of a host that has never reported before, too."""
        self.sync(cloud.report(cloud.incident(1), workloads=WORKLOADS), NOW)
        asked = self.asked(NOW, DAY_S)
        self.assertEqual(DAY_S, asked.total_s)
        with self.engine.begin() as connection:
            places = antagonists.ranking(connection, asked,
                                         sort='interference_s', limit=10)
            (row,) = antagonists.sums(connection, places, asked)
        self.assertEqual([(60_000, '/batch/a')],
                         [(place.key, place.workload) for place in places])
        self.assertEqual(
            (cloud.HOST, '/batch/a', 1, 1, 60.0, ['cpu']),
            tuple(row[name] for name in (
                'host', 'workload', 'incidents', 'victims', 'interference_s',
                'causes')))

    def test_hours_from_before(self) -> None:
        """Of a host whose totals were never made, or long ago."""
        for hour_s in (0, HOUR - 40 * DAY_S, HOUR - 2 * DAY_S):
            self.sync(cloud.report(cloud.incident(1), workloads=WORKLOADS),
                      NOW)
            with self.engine.begin() as connection:
                host_id = connection.execute(sqlalchemy.select(
                    tables.hosts.c.id)).scalar_one()
                connection.execute(insert(tables.antagonist_hours), [
                    {'host_id': host_id, 'hour_s': HOUR - days * DAY_S,
                     'workload': 'noisy', 'victim': 'web', 'cause': 'disk',
                     'victim_project': 'p1', 'project': 'p2',
                     'incidents': 1, 'interference_s': days + 0.25,
                     'confirmed': 0, 'refuted': 0}
                    for days in (0, 1, 2, 7, 8, 30, 31)])
                connection.execute(sqlalchemy.delete(
                    tables.antagonist_totals))
                connection.execute(update(tables.hosts).values(
                    totals_hour_s=hour_s))
            self.assertEqual(None, self.asked(NOW, DAY_S).total_s)
            self.advance(NOW)
            self.check_totals(str(hour_s))
            self.compare_rankings(NOW, str(hour_s), host_id)
            self.assertEqual(
                {DAY_S: 2, 7 * DAY_S: 4, 30 * DAY_S: 6},
                {span_s: incidents
                 for workload, scope, span_s, incidents in self.rows(
                     tables.antagonist_totals, 'workload', 'scope', 'span_s',
                     'incidents')
                 if (workload, scope) == ('noisy', totals.ALL)})
            for table in reversed(tables.METADATA.sorted_tables):
                self.delete(table)

    def test_totals_of_another_hour_are_not_used(self) -> None:
        self.sync(cloud.report(workloads=WORKLOADS), NOW)
        for hours, used in ((-2, False), (-1, True), (1, True), (2, False),
                            (0, True)):
            with self.engine.begin() as connection:
                connection.execute(update(tables.hosts).values(
                    totals_hour_s=HOUR + 3600 * hours))
            self.assertEqual(used, self.asked(NOW, DAY_S).total_s is not None,
                             str(hours))
        # Of another span, or not up to now.
        for since_s, until_s, used in (
                (NOW - 7 * DAY_S, NOW, True), (NOW - 30 * DAY_S, NOW, True),
                (NOW - 3 * DAY_S, NOW, False), (NOW - 3600, NOW, False),
                (HOUR - DAY_S, NOW, True), (HOUR - DAY_S - 1, NOW, False),
                (NOW - DAY_S, NOW + 9, True), (NOW - DAY_S, NOW - 9, False)):
            with self.engine.begin() as connection:
                asked = antagonists.span(connection, now_s=NOW,
                                         since_s=since_s, until_s=until_s)
            self.assertEqual(used, asked.total_s is not None,
                             str(since_s))

    def test_one_conductor_advances(self) -> None:
        for host in HOSTS:
            self.sync(cloud.report(cloud.incident(1), host=host), NOW)
        another = claims.Claim(upkeep.TOTALS, 'another', time.monotonic)
        with self.engine.begin() as connection:
            self.assertTrue(another.take(connection, NOW, 60.0))
        mine, early = (upkeep.make_advancing(
            self.engine, name, clock, bool) for name, clock in (
                ('mine', lambda: NOW + 7200), ('early', lambda: NOW + 5)))
        self.assertEqual((None, None), (early.turn(), mine.turn()))
        with self.engine.begin() as connection:
            self.assertTrue(another.extend(connection, NOW, 0.0))
        self.assertEqual((3, 0), (mine.turn(), mine.turn()))
        self.assertIsNone(early.turn())
        mine.release()
        self.assertEqual({HOUR + 7200}, set(self.rows(
            tables.hosts, 'totals_hour_s')))
        # A clock that is behind changes nothing.
        self.assertIn(early.turn(), (0, None))
        self.assertEqual({HOUR + 7200}, set(self.rows(
            tables.hosts, 'totals_hour_s')))

    def test_a_conductor_that_ends(self) -> None:
        """It leaves the hosts that it has not advanced to another one."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.totals.HOSTS', 1))
        for host in HOSTS:
            self.sync(cloud.report(cloud.incident(1), host=host), NOW)
        ends, other = (upkeep.make_advancing(
            self.engine, name, lambda: NOW + 7200, stopped)
            for name, stopped in (('ends', lambda: True), ('other', bool)))
        self.assertEqual((1, 2), (ends.turn(), other.turn()))

    def test_a_total_does_not_grow_for_ever(self) -> None:
        self.sync(cloud.report(workloads=WORKLOADS), NOW)
        with self.engine.begin() as connection:
            host_id = connection.execute(sqlalchemy.select(
                tables.hosts.c.id)).scalar_one()
            rows: list[dict[str, Any]] = [
                {'host_id': host_id, 'hour_s': HOUR, 'workload': 'loud',
                 'instance': '', 'project': '', 'application': '',
                 'victim': f'v{number}', 'victim_project': '', 'cause': 'cpu',
                 'incidents': 1, 'interference_s': 1.0, 'confirmed': 0,
                 'refuted': 0} for number in range(totals.MOST_PARTS + 5)]
            totals.change(connection, host_id, [(None, row) for row in rows])
            totals.change(connection, host_id, [(row, None)
                                                for row in rows[-50:]])
        self.assertEqual(3 * [totals.MOST_PARTS - 45], self.rows(
            tables.antagonist_totals, 'victims'))

    def test_totals_made_while_hours_are_deleted(self) -> None:
        """By another process, until the host is locked."""
        self.sync(cloud.report(cloud.incident(1), workloads=WORKLOADS), NOW)
        waiting = [True]

        def make(connection: Any, *more: Any) -> None:
            if waiting:
                waiting.clear()
                totals.advance(connection, HOUR)

        def before(connection: Any, cursor: Any, statement: str, *more: Any
                   ) -> None:
            if statement.startswith('SELECT hosts.id'):
                make(connection)

        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.delete(tables.antagonist_totals))
            connection.execute(update(tables.hosts).values(totals_hour_s=0))
            sqlalchemy.event.listen(connection, 'before_cursor_execute',
                                    before)
            hours = tables.antagonist_hours
            ids = totals.remove(connection, connection.scalars(
                sqlalchemy.select(hours.c.id)).all())
            make(connection)
            connection.execute(sqlalchemy.delete(hours).where(
                hours.c.id.in_(ids)))
        self.assertEqual([], self.rows(hours))
        self.check_totals('made')

    def test_hours_of_many_hosts_are_deleted(self) -> None:
        """Not too many wait for one transaction."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.totals.HOSTS', 2))
        for number, host in enumerate(HOSTS, 1):
            self.sync(cloud.report(cloud.incident(1, number=number),
                                   host=host), NOW)
        with self.engine.connect() as connection:
            ids = connection.scalars(sqlalchemy.select(
                tables.antagonist_hours.c.id)).all()
            self.assertEqual(2, len(totals.remove(connection, ids)))
        self.assertEqual(3, purge.run(
            self.engine, now_s=NOW + 9 * DAY_S, older_than_s=2 * DAY_S,
            audit_older_than_s=0,
            progress=lambda *_: None)['antagonist_hours'])
        self.check_totals('purged')

    def advance(self, now: float) -> None:
        while True:
            with self.engine.begin() as connection:
                if not totals.advance(connection, reports.hour(now)):
                    break

    def asked(self, now: float, span_s: float, **more: str
              ) -> antagonists.Span:
        with self.engine.begin() as connection:
            return antagonists.span(connection, now_s=now, until_s=now,
                                    since_s=now - span_s, **more)

    def compare_rankings(self, now: float, where: str, one_host: int
                         ) -> None:
        """What is read out of totals is what the hours sum up to."""
        for span_s in totals.SPANS_S:
            for more in ASKED:
                asked = self.asked(now, span_s, **more)
                self.assertEqual(span_s, asked.total_s, where)
                summed = asked._replace(total_s=None)
                for sort in get_args(antagonists.Sort):
                    for host_id in (None, one_host):
                        what = f'{where} {asked} {sort} {host_id}'
                        found = self.ranked(asked, sort, host_id, 1000)
                        self.assertEqual(
                            self.ranked(summed, sort, host_id, 1000), found,
                            what)
                        self.assertEqual(
                            found, self.ranked(asked, sort, host_id, 2), what)

    def ranked(self, asked: antagonists.Span, sort: antagonists.Sort,
               host_id: int | None, limit: int) -> list[Any]:
        """All rows, page by page, by place; seconds without the last
        digits."""
        found: list[Any] = []
        after = None
        with self.engine.begin() as connection:
            while places := antagonists.ranking(
                    connection, asked, sort=sort, host_id=host_id,
                    after=after, limit=limit):
                after = places[-1]
                found += zip(places, antagonists.sums(
                    connection, places, asked), strict=True)
        keys = [place.key for place, _ in found]
        self.assertEqual(sorted(keys, reverse=True), keys)
        return sorted((place[1:], sorted({
            **row, 'interference_s': round(row['interference_s'], 2)}.items()
        )) for place, row in found)
