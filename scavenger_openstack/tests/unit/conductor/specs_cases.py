# SPDX-License-Identifier: Apache-2.0

"""What hosts learn from each other, on any database."""

from __future__ import annotations

from collections.abc import Callable
import functools
import math
from typing import Any

import fixtures
import sqlalchemy

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor import specs
from scavenger_openstack.db import claims
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import of_shop
from scavenger_openstack.tests.unit.conductor.cloud import statistics
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import codec

TODAY = NOW // DAY_S * DAY_S


class Specs(cloud.Mixin):

    passed_s = 0.0

    def refresh(self, now: float = NOW) -> int:
        return sum(specs.refresh(self.engine, now))

    def test_days_weigh_by_age(self) -> None:
        """CPI2, section 3.1: 0.9 a day."""
        self.sync(of_shop(statistics(1, TODAY, 100, 2.0, 4.0),
                          statistics(2, TODAY - 2 * DAY_S, 200, 1.0, 8.0)))
        self.assertEqual(1, self.refresh())
        n = 100 + 0.81 * 200
        mean = (100 * 2.0 + 0.81 * 200 * 1.0) / n
        m2 = (4.0 + 0.81 * 8.0 + 100 * (2.0 - mean) ** 2
              + 162 * (1.0 - mean) ** 2)
        [(project, application, model, signal, got, stddev, count, day_s)] = (
            self.rows(tables.specs, 'project', 'application', 'cpu_model',
                      'signal', 'mean', 'stddev', 'n', 'day_s'))
        self.assertEqual(('p1', 'shop', 'epyc', 'run_delay', TODAY),
                         (project, application, model, signal, day_s))
        self.assertAlmostEqual(n, count, 9)
        self.assertAlmostEqual(mean, got, 12)
        self.assertAlmostEqual(math.sqrt(m2 / (n - 1)), stddev, 12)

    def test_the_mean_use_of_cpus(self) -> None:
        """``cpu_usage_mean`` of CPI2, section 3.1, with the same weights."""
        self.sync(of_shop(
            statistics(1, TODAY, 100, 2.0, 4.0, cpu_cores=0.5),
            statistics(2, TODAY - 2 * DAY_S, 200, 1.0, 8.0, cpu_cores=2.0),
            statistics(3, TODAY, 60, 2.0, 4.0)))
        self.refresh()
        [cores] = self.rows(tables.specs, 'cpu_cores')
        # Samples beside which it is not known do not count.
        self.assertAlmostEqual(
            (100 * 0.5 + 0.81 * 200 * 2.0) / (100 + 0.81 * 200), cores, 12)

    def test_rows_become_one_spec(self) -> None:
        for number in range(3):
            self.sync(of_shop(*(
                statistics(one, TODAY - one * 3600, 10, float(one), 1.0)
                for one in range(1, 9)), host=f'node-{number}'))
        self.refresh()
        before = self.rows(tables.specs, 'mean', 'stddev', 'n', 'day_s')
        self.assertEqual([], self.rows(tables.statistics))
        [(mean, _, n, day_s)] = before
        self.assertEqual((4.5, 240, TODAY - DAY_S),
                         (round(mean, 9), n, day_s))
        self.assertEqual(0, self.refresh())
        self.assertEqual(before, self.rows(tables.specs, 'mean', 'stddev',
                                           'n', 'day_s'))

    def test_some_rows_in_each_transaction(self) -> None:
        """And what was merged is neither read nor merged again, also when it
        ends between two transactions."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.specs.BATCH', 7))
        whole = [statistics(one, TODAY - one % 3 * DAY_S, 10, 100.0 + one, 1.0)
                 for one in range(1, 22)]
        self.sync(of_shop(*whole))
        read: list[int] = []

        def after(connection: Any, cursor: Any, statement: str,
                  *more: Any) -> None:
            if 'FROM statistics' in statement and 'hour_s' in statement:
                read.append(1)

        sqlalchemy.event.listen(self.engine, 'after_cursor_execute', after)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'after_cursor_execute', after)
        steps = specs.refresh(self.engine, NOW)
        self.assertEqual(1, next(steps))
        self.assertEqual(14, len(self.rows(tables.statistics, 'id')))
        steps.close()
        self.assertEqual(1, len(self.rows(tables.audit)))
        self.assertEqual(2, self.refresh())
        self.assertEqual(3, len(read))
        n = 70 * (1 + 0.9 + 0.81)
        mean = sum(10 * 0.9 ** (one % 3) * (100 + one)
                   for one in range(1, 22)) / n
        [got] = self.rows(tables.specs, 'mean', 'n')
        self.assertEqual((round(mean, 9), round(n, 9)),
                         (round(got[0], 9), round(got[1], 9)))

    def test_two_conductors_at_once(self) -> None:
        """One whose claim is another's by now: nothing is merged twice."""
        self.sync(of_shop(statistics(1, TODAY, 10, 1.0, 1.0)))

        def before(connection: Any, cursor: Any, statement: str, *more: Any
                   ) -> None:
            if statement.startswith('DELETE FROM statistics') and once:
                once.clear()
                connection.exec_driver_sql('DELETE FROM statistics')

        once = [True]
        sqlalchemy.event.listen(self.engine, 'before_cursor_execute', before)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'before_cursor_execute', before)
        self.assertRaises(errors.DatabaseError, self.refresh)
        self.assertEqual([], self.rows(tables.specs))
        self.assertEqual(1, self.refresh())

    def test_the_cpu_model(self) -> None:
        entry = statistics(1, TODAY, 10, 1.0, 0.0)
        self.sync(of_shop(entry, codec.replace(entry, sequence=2,
                                               cpu_model='xeon')))
        self.refresh()
        self.assertEqual(['epyc', 'xeon'], self.rows(tables.specs,
                                                     'cpu_model'))

    def test_what_comes_late(self) -> None:
        self.sync(of_shop(statistics(1, TODAY - DAY_S, 10, 1.0, 0.0)))
        self.refresh()
        self.sync(of_shop(statistics(2, TODAY - DAY_S, 30, 1.2, 0.0)))
        self.assertEqual(1, self.refresh())
        [mean] = self.rows(tables.specs, 'mean')
        self.assertAlmostEqual(1.15, mean, 12)

    def test_what_is_too_old(self) -> None:
        self.sync(of_shop(statistics(1, TODAY, 10, 1.0, 0.0)))
        self.refresh()
        later = NOW + (specs.DAYS + 1) * DAY_S
        self.assertEqual(1, self.refresh(later))
        self.assertEqual([], self.rows(tables.specs))

    def test_numbers_that_cannot_be(self) -> None:
        """Those of one host do not end the specs of all."""
        entry = statistics(1, TODAY, 10, 1.0, 0.0)
        entries = [entry, *(codec.replace(entry, **more) for more in (
            {'mean': 1e200}, {'mean': -1e200}, {'least': -1e200},
            {'most': 1e300}, {'m2': 1e300}, {'n': 2 ** 53},
            {'cpu_cores': 1e300},
            {'signal': 'invented'}))]
        entries = [codec.replace(one, sequence=number)
                   for number, one in enumerate(entries, 1)]
        for name in ('node-1', 'node-2'):
            self.assertEqual(9, self.sync(of_shop(*entries, host=name)
                                          ).acknowledged)
        self.assertEqual(1, self.refresh())
        self.assertEqual([(1.0, 0.0, 20)], self.rows(
            tables.specs, 'mean', 'stddev', 'n'))

    def honest(self, hours: int) -> None:
        """Four hosts that have the application, for some hours."""
        self.passed_s += 1.0
        for number in range(4):
            self.sync(of_shop(*(codec.replace(statistics(
                hour, TODAY - 3600 * hour, 360, 1.2 + 0.01 * number, 3.6),
                least=0.9, most=1.5) for hour in range(1, hours + 1)),
                host=f'node-{number}', run=f'run-{self.passed_s}'))
        self.refresh()

    def spec(self) -> tuple[float, float]:
        [spec] = self.rows(tables.specs, 'mean', 'stddev')
        return round(spec[0], 6), round(spec[1], 6)

    def test_a_host_without_the_application(self) -> None:
        """Nothing that it says moves the spec."""
        self.honest(3)
        before = self.spec()
        for n in (1, 100, 2 ** 40):
            for workloads in ([], [vm('web', 'p2', 'shop')],
                              [vm('web', 'p1', 'bank')]):
                self.sync(cloud.report(
                    *(statistics(number, TODAY, n, 0.0, 0.0)
                      for number in range(1, 9)), host='evil',
                    workloads=workloads, digest=f'{workloads}'[:64],
                    run=f'{n} {workloads}'[:64]))
        self.assertEqual([], self.rows(tables.statistics))
        self.refresh()
        self.assertEqual(before, self.spec())

    def test_a_host_with_the_application(self) -> None:
        """It counts as one host, with values as others have them, whatever
        it says; whether they are merged with those of others or alone."""
        for alone in (True, False):
            self.delete(tables.specs)
            self.honest(24)
            mean, stddev = self.spec()
            for number, (value, m2) in enumerate((
                    (1e30, 0.0), (0.1, 0.0), (1.2, 1e70), (-1e30, 1e80)), 1):
                self.sync(of_shop(*(
                    codec.replace(statistics(
                        hour, TODAY - 3600 * hour, 3600, value, m2),
                        least=-1e30, most=1e30) for hour in range(1, 5)),
                    host='evil', run=f'run-{alone}-{number}'))
                if alone:
                    self.refresh()
            if not alone:
                self.honest(23)
            self.refresh()
            after = self.spec()
            self.assertLess(abs(after[0] - mean), 0.3 * mean, alone)
            self.assertLess(after[1], 5 * stddev, alone)

    def hours(self, accounts_: accounts.Accounts, sender: accounts.Sender,
              hours: float) -> bool:
        """Whether a report of so many hours is taken, which is stored at the
        second try."""
        has_hours = accounts_.has_hours(sender)
        for taken in False, has_hours:
            accounts_.end(sender, taken, {accounts.HOURS: hours})
        return has_hours

    def test_a_host_that_reports_an_hour_again_and_again(self) -> None:
        """Of each application so many hours as have passed, and a day."""
        accounts_ = accounts.Accounts(lambda: self.passed_s)
        sender = accounts.Sender('evil')
        accounts_.know(sender)
        for number in range(240):
            self.passed_s += 60.0
            self.sync(of_shop(*(
                statistics(one, TODAY, 3600, 0.1, 0.0)
                for one in range(1, 9)), host='evil', run=f'run-{number}'),
                take_hours=functools.partial(self.hours, accounts_, sender))
        self.assertLessEqual(len(self.rows(tables.statistics)), 48 + 8 + 8)

    def test_an_honest_host_for_a_week(self) -> None:
        accounts_ = accounts.Accounts(lambda: self.passed_s)
        sender = accounts.Sender('honest')
        accounts_.know(sender)
        for number in range(168):
            self.passed_s = 3600.0 * number
            for _ in range(2):      # in two reports
                self.assertTrue(self.hours(accounts_, sender, 1.0))
        # And after a day without a conductor.
        self.passed_s += 86_400.0
        for _ in range(24):
            self.assertTrue(self.hours(accounts_, sender, 2.0))

    def test_a_change_is_audited(self) -> None:
        self.sync(of_shop(statistics(1, TODAY, 10, 1.0, 0.0)))
        self.refresh()
        self.refresh()
        self.assertEqual(
            [('conductor', 'specs', 'specs changed: 1')],
            self.rows(tables.audit, 'actor', 'action', 'reason'))

    def test_who_leads_whatever_the_clocks_say(self) -> None:
        passed_s = [0.0]
        one, two = (claims.Claim('lead', name, lambda: passed_s[0])
                    for name in ('one', 'two'))

        def did(what: Callable[..., bool], now: float) -> bool:
            with self.engine.begin() as connection:
                return what(connection, now=now, hold_s=60.0)

        self.assertTrue(did(one.take, NOW))
        for step_s in (0, 60, -60, 3600, -3600, 32 * 86400, -32 * 86400):
            # By the other one's clock it has long expired, or never will.
            self.assertFalse(did(two.take, NOW + step_s))
            passed_s[0] += 59.0
            self.assertFalse(did(two.take, NOW - step_s))
            self.assertTrue(did(one.extend, NOW + step_s))
        # It is gone, after its clock was set ahead.
        self.assertFalse(did(two.take, NOW))
        passed_s[0] += 60.0
        self.assertTrue(did(two.take, NOW))
        self.assertFalse(did(one.extend, NOW))
        # One that ends leaves it at once.
        with self.engine.begin() as connection:
            self.assertTrue(two.extend(connection, NOW, 0.0))
        self.assertTrue(did(one.take, NOW - 3600))
