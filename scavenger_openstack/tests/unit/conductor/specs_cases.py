# SPDX-License-Identifier: Apache-2.0

"""What hosts learn from each other, on any database."""

from __future__ import annotations

import math
from typing import Any

import fixtures
import sqlalchemy

from scavenger_openstack.conductor import specs
from scavenger_openstack.db import claims
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import statistics
from scavenger_openstack.wire import codec

DAY = specs.DAY_S
TODAY = NOW // DAY * DAY


class Specs(cloud.Mixin):

    def refresh(self, now: float = NOW) -> int:
        with self.engine.begin() as connection:
            return specs.refresh(connection, now)

    def test_days_weigh_by_age(self) -> None:
        """CPI2, section 3.1: 0.9 a day."""
        self.sync(report(statistics(1, TODAY, 100, 2.0, 4.0),
                         statistics(2, TODAY - 2 * DAY, 200, 1.0, 8.0)))
        self.assertEqual(1, self.refresh())
        n = 100 + 0.81 * 200
        mean = (100 * 2.0 + 0.81 * 200 * 1.0) / n
        m2 = (4.0 + 0.81 * 8.0 + 100 * (2.0 - mean) ** 2
              + 162 * (1.0 - mean) ** 2)
        [(project, application, model, signal, got, stddev, count, day_s)] = (
            self.rows(tables.specs, 'project', 'application', 'cpu_model',
                      'signal', 'mean', 'stddev', 'n', 'day_s'))
        self.assertEqual(('p1', 'shop', 'epyc', 'run_delay', 262, TODAY),
                         (project, application, model, signal, count, day_s))
        self.assertAlmostEqual(mean, got, 12)
        self.assertAlmostEqual(math.sqrt(m2 / (n - 1)), stddev, 12)

    def test_rows_of_a_day_become_one(self) -> None:
        for number in range(3):
            self.sync(report(*(
                statistics(one, TODAY - one * 3600, 10, float(one), 1.0)
                for one in range(1, 9)), host=f'node-{number}'))
        self.refresh()
        before = self.rows(tables.specs, 'mean', 'stddev', 'n')
        self.assertEqual([(TODAY - DAY, 240)], self.rows(
            tables.statistics, 'hour_s', 'n'))
        self.assertEqual(0, self.refresh())
        self.assertEqual(before, self.rows(tables.specs, 'mean', 'stddev',
                                           'n'))

    def test_more_rows_than_one_statement_reads(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.db.statistics.PAGE', 7))
        self.sync(report(*(statistics(one, TODAY, 10, float(one), 1.0)
                           for one in range(1, 22))))
        read: list[int] = []

        def after(connection: Any, cursor: Any, statement: str,
                  *more: Any) -> None:
            if 'FROM statistics' in statement and 'SELECT' in statement:
                read.append(1)

        sqlalchemy.event.listen(self.engine, 'after_cursor_execute', after)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'after_cursor_execute', after)
        self.assertEqual(1, self.refresh())
        self.assertEqual(4, len(read))
        self.assertEqual([(11.0, 210)], self.rows(tables.specs, 'mean', 'n'))
        self.assertEqual([210], self.rows(tables.statistics, 'n'))

    def test_the_cpu_model(self) -> None:
        entry = statistics(1, TODAY, 10, 1.0, 0.0)
        self.sync(report(entry, codec.replace(entry, sequence=2,
                                              cpu_model='xeon')))
        self.refresh()
        self.assertEqual(['epyc', 'xeon'], self.rows(tables.specs,
                                                     'cpu_model'))

    def test_what_comes_late(self) -> None:
        self.sync(report(statistics(1, TODAY - DAY, 10, 1.0, 0.0)))
        self.refresh()
        self.sync(report(statistics(2, TODAY - DAY, 30, 2.0, 0.0)))
        self.assertEqual(1, self.refresh())
        [mean] = self.rows(tables.specs, 'mean')
        self.assertAlmostEqual(1.75, mean, 12)

    def test_what_is_too_old(self) -> None:
        self.sync(report(statistics(1, TODAY, 10, 1.0, 0.0)))
        self.refresh()
        later = NOW + (specs.DAYS + 1) * DAY
        self.assertEqual(1, self.refresh(later))
        self.assertEqual([], self.rows(tables.specs))

    def test_numbers_that_cannot_be(self) -> None:
        """Those of one host do not end the specs of all."""
        entry = statistics(1, TODAY, 10, 1.0, 0.0)
        entries = [entry, *(codec.replace(entry, **more) for more in (
            {'mean': 1e200}, {'mean': -1e200}, {'least': -1e200},
            {'most': 1e300}, {'m2': 1e300}, {'n': 2 ** 53},
            {'signal': 'invented'}))]
        entries = [codec.replace(one, sequence=number)
                   for number, one in enumerate(entries, 1)]
        for name in ('node-1', 'node-2'):
            self.assertEqual(8, self.sync(report(*entries, host=name)
                                          ).acknowledged)
        self.assertEqual(1, self.refresh())
        self.assertEqual([(1.0, 0.0, 20)], self.rows(
            tables.specs, 'mean', 'stddev', 'n'))

    def test_a_change_is_audited(self) -> None:
        self.sync(report(statistics(1, TODAY, 10, 1.0, 0.0)))
        self.refresh()
        self.refresh()
        self.assertEqual(
            [('conductor', 'specs', 'specs: 1 new, 0 changed, 0 ended')],
            self.rows(tables.audit, 'actor', 'action', 'reason'))

    def test_a_claim(self) -> None:
        def take(holder: str, now: float) -> bool:
            with self.engine.begin() as connection:
                return claims.take(connection, 'work', holder, now, now + 60)

        self.assertTrue(take('a', NOW))
        self.assertFalse(take('b', NOW + 59))
        self.assertTrue(take('b', NOW + 60))
        with self.engine.begin() as connection:
            self.assertFalse(claims.extend(connection, 'work', 'a', NOW))
            self.assertTrue(claims.extend(connection, 'work', 'b',
                                          NOW + 500))
        self.assertFalse(take('a', NOW + 499))
