# SPDX-License-Identifier: Apache-2.0

"""What a disk operation took at its best, of the day."""

from __future__ import annotations

import json

import testtools

from scavenger_openstack.algorithms.attribution import harm
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms import best_waits
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

DB = Workload('db-1', Priority.FOREGROUND, application='db', project='p',
              disks=('sda',))
HOUR_S = best_waits.HOUR_S


class BestWaitsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.best = best_waits.BestWaits()

    def learn(self, wait_s: float | None, hour: float = 0.0,
              workload: Workload = DB, samples: int = 12) -> None:
        history = History(sample_s=1.0, samples=120)
        for number in range(samples):
            now = hour * HOUR_S + number
            history.add(now, Rates(now, 1.0, (WorkloadRates(
                workload, 1.0, io_ops_per_s=100.0,
                io_wait_s_per_op=wait_s),)))
        harm.learn_best_waits(hour * HOUR_S + samples, history, self.best)

    def test_of_the_day(self) -> None:
        self.assertIsNone(self.best.of(DB))
        for hour, wait_s, least in ((0, 0.003, 0.003), (1, 0.001, 0.001),
                                    (1.5, 0.002, 0.001), (24.5, 0.004, 0.001),
                                    (25, 0.005, 0.002), (60, 0.009, 0.009)):
            if hour == 25:      # of another hour than that of the best
                self.learn(0.002, 24.9)
            self.learn(wait_s, hour)
            self.assertAlmostEqual(least, self.best.of(DB) or 0.0)

    def test_by_application_and_disks(self) -> None:
        self.learn(0.001)
        self.assertEqual(self.best.of(DB),
                         self.best.of(replaced(id='db-2')))
        for other in ({'application': 'web'}, {'project': 'q'},
                      {'disks': ('sdb',)}, {'application': None}):
            self.assertIsNone(self.best.of(replaced(**other)), str(other))

    def test_too_little_to_tell(self) -> None:
        self.learn(0.001, samples=11)
        self.learn(None)
        self.learn(0.001, workload=replaced(priority=Priority.BACKGROUND))
        self.assertIsNone(self.best.of(DB))
        self.assertEqual({}, self.best.state())

    def test_over_a_restart(self) -> None:
        self.learn(0.001, 1)
        self.learn(0.002, 5)
        state = json.loads(json.dumps(self.best.state()))
        for hour, least in ((5, 0.001), (25, 0.002), (40, None), (0, None)):
            other = best_waits.BestWaits()
            other.load(state, hour * HOUR_S)
            self.assertEqual(least, other.of(DB), str(hour))

    def test_damaged(self) -> None:
        for value in (-1.0, 0.0, float('inf'), float('nan'), 'x', None):
            self.assertRaises((ValueError, TypeError), self.best.load,
                              {'db': {'0': value}}, 0.0)
        self.assertIsNone(self.best.of(DB))

    def test_many_come_and_go(self) -> None:
        for number in range(best_waits.MOST + 5):
            self.learn(0.001, workload=replaced(
                id=f'vm-{number}', application=None))
        self.learn(0.001)
        self.assertEqual(best_waits.MOST, len(self.best.state()))
        self.assertIsNotNone(self.best.of(DB))


def replaced(**fields: object) -> Workload:
    return Workload(**{**{
        name: getattr(DB, name) for name in (
            'id', 'priority', 'application', 'project', 'disks')}, **fields})
