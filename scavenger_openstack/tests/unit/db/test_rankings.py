# SPDX-License-Identifier: Apache-2.0

"""Rankings that take long to sum are cached."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import fixtures
import sqlalchemy
import testtools

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.api import schemas
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources import rankings
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW

SPAN = antagonists.Span(NOW - 5 * HOUR_S, NOW)


class Clock:
    """A second hand that moves on by ``step_s`` whenever it is looked at."""

    def __init__(self) -> None:
        self.now_s, self.step_s = 0.0, 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class TestRankings(cloud.Mixin, testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        # A file: several threads read it.
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'db')
        self.engine = connect.engine(f'sqlite:///{file}')
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.clock = Clock()
        self.rankings = rankings.Rankings(self.clock)
        self.sync(cloud.report(), NOW)
        (self.host_id,) = self.rows(tables.hosts, 'id')
        self.add_hours(*(f'w{number}' for number in range(5)))

    def add_hours(self, *workloads: str, hours: int = 1, project: str = '',
                  cause: str = 'cpu') -> None:
        """Hourly sums of so many hours ago."""
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(tables.antagonist_hours), [
                {'host_id': self.host_id, 'workload': name, 'victim': 'web',
                 'hour_s': (NOW // HOUR_S - hours) * HOUR_S, 'cause': cause,
                 'project': project,
                 'incidents': 1, 'interference_s': 100.0 - number,
                 'confirmed': 0, 'refuted': 0}
                for number, name in enumerate(workloads)])

    def places(self, asked: antagonists.Span = SPAN, **more: Any
               ) -> list[antagonists.Place]:
        with self.engine.begin() as connection:
            return self.rankings.places(connection, asked, **{
                'sort': 'interference_s', 'limit': 1000, **more})

    def names(self, asked: antagonists.Span = SPAN, **more: Any
              ) -> list[str]:
        return [place.workload for place in self.places(asked, **more)]

    def test_what_is_quick_is_summed_each_time(self) -> None:
        self.clock.step_s = rankings.SLOW_S * 0.9
        self.assertEqual(5, len(self.names()))
        self.add_hours('new')
        self.assertEqual(6, len(self.names()))

    def test_what_is_slow_is_cached(self) -> None:
        """In proportion, up to a minute."""
        for took_s, kept_s in ((0.1, 10.0), (0.4, 40.0), (9.0, 50.0)):
            self.rankings = rankings.Rankings(self.clock)
            self.clock.step_s = took_s
            before = self.names()
            self.clock.step_s = 0.0
            self.add_hours(f'after {took_s}')
            self.clock.now_s += kept_s - 0.1
            self.assertEqual(before, self.names(), str(took_s))
            self.clock.now_s += 0.2
            self.assertEqual(len(before) + 1, len(self.names()), str(took_s))

    def test_each_question_has_its_own(self) -> None:
        self.add_hours(*'abcde', hours=2, project='p1', cause='disk')
        self.clock.step_s = 0.1
        hour = [NOW // HOUR_S * HOUR_S + second for second in (10, 3000)]
        asked: list[tuple[antagonists.Span, dict[str, Any]]] = [
            (SPAN, {}), (SPAN, {'sort': 'victims'}), (SPAN, {'host_id': 99}),
            (SPAN._replace(project='p1'), {}),
            (SPAN._replace(victim_project='p1'), {}),
            (SPAN._replace(since_s=hour[0] - HOUR_S), {}),
            (SPAN._replace(until_s=hour[0] - 2 * HOUR_S), {})]
        found = [self.names(span, **more) for span, more in asked]
        whole = [f'w{number}' for number in range(5)]
        self.assertEqual(
            [10, 10, 0, list('abcde'), 0, whole, list('abcde')],
            [len(found[0]), len(found[1]), len(found[2]), found[3],
             len(found[4]), found[5], found[6]])
        self.assertNotEqual(found[0], found[1])
        self.clock.step_s = 0.0
        self.add_hours('new', project='p1')
        self.add_hours('newer', hours=2, project='p1')
        self.assertEqual(found, [self.names(span, **more)
                                 for span, more in asked])
        # The same hours are the same question.
        self.assertEqual(found[5], self.names(
            SPAN._replace(since_s=hour[1] - HOUR_S)))
        self.assertEqual(found[6], self.names(
            SPAN._replace(until_s=hour[1] - 2 * HOUR_S)))

    def test_pages(self) -> None:
        """Within what is kept and beyond."""
        self.add_hours(*(f'more {number:04}' for number in range(1500)),
                       hours=2)
        with self.engine.begin() as connection:
            expected = antagonists.ranking(
                connection, SPAN, sort='interference_s', limit=9999)
        self.clock.step_s = 0.1
        for limit in (70, 600, 1001):
            found: list[antagonists.Place] = []
            while page := self.places(
                    limit=limit, after=found[-1] if found else None):
                found += page
            self.assertEqual(expected, found, str(limit))

    def test_a_marker_that_is_not_cached(self) -> None:
        self.clock.step_s = 0.1
        found = self.places()
        after = found[1]._replace(key=found[1].key - 1)
        self.assertEqual(found[2:], self.places(after=after))

    def test_a_page_without_the_first(self) -> None:
        """It is read from the database, and not cached."""
        found = self.places()
        self.clock.step_s = 0.1
        self.assertEqual(found[2:], self.places(after=found[1]))
        self.add_hours('new')
        self.assertEqual(6, len(self.places()))
        # Nor does it let the first be used for longer.
        self.add_hours('newer')
        self.clock.now_s += 11.0
        self.places(after=found[1])
        self.assertEqual(7, len(self.places()))

    def test_totals_are_read(self) -> None:
        self.clock.step_s = 0.1
        self.assertEqual([], self.names(SPAN._replace(total_s=86400)))

    def test_no_more_than_some_are_cached(self) -> None:
        """Those of the last requests; what is quick takes no place."""
        self.clock.step_s = 1.0
        self.names()
        self.clock.step_s = 0.0
        self.add_hours('new')
        for hours in range(2 * rankings.RESULTS):
            self.names(SPAN._replace(since_s=NOW - (9 + hours) * HOUR_S))
        self.assertEqual(5, len(self.names()))
        for turn, (count, expected) in enumerate((
                (rankings.RESULTS - 1, 5), (rankings.RESULTS - 1, 5),
                (rankings.RESULTS, 6))):
            for hours in range(count):
                self.clock.now_s -= 2.0     # no time passes
                self.clock.step_s = 1.0
                self.names(SPAN._replace(
                    since_s=NOW - (99 + 99 * turn + hours) * HOUR_S))
                self.clock.step_s = 0.0
            self.assertEqual(expected, len(self.names()), str(turn))

    def test_others_do_not_wait(self) -> None:
        """While it is summed again they have the one before, for a while."""
        self.clock.step_s = 0.1
        self.names()
        self.clock.step_s = 0.0
        self.clock.now_s += 10.5
        self.add_hours('new')
        summing, go_on = threading.Event(), threading.Event()

        @sqlalchemy.event.listens_for(self.engine, 'before_cursor_execute')
        def slow(_connection: Any, _cursor: Any, statement: str, *_: Any
                 ) -> None:
            if 'GROUP BY' in statement and not summing.is_set():
                summing.set()
                go_on.wait(30)

        one: list[str] = []
        thread = threading.Thread(target=lambda: one.extend(self.names()))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(go_on.set)
        self.assertTrue(summing.wait(30))
        self.assertEqual(5, len(self.names()))
        self.clock.now_s += 11.0
        self.assertEqual(6, len(self.names()))
        go_on.set()
        thread.join()
        self.assertEqual(6, len(one))

    def test_a_database_that_fails(self) -> None:
        """Nothing is cached of it."""
        self.clock.step_s = 0.1
        closed = self.engine.connect()
        closed.close()
        self.assertRaises(
            sqlalchemy.exc.ResourceClosedError, self.rankings.places,
            closed, SPAN, sort='interference_s', limit=9)
        self.assertEqual(5, len(self.names()))

    def test_the_longest_page_is_cached(self) -> None:
        self.assertEqual(schemas.LIMIT_MOST + 1, rankings.PLACES)
