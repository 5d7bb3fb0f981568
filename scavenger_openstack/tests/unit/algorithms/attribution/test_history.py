# SPDX-License-Identifier: Apache-2.0

"""The rows of levels say what the samples say."""

from __future__ import annotations

import random

import testtools

from scavenger_openstack.algorithms.attribution import disturbance
from scavenger_openstack.algorithms.attribution import history
from scavenger_openstack.tests.unit.examples import SEED
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

NAMES = ('a', 'b', 'c')
SAMPLES = 5


class TestLevels(testtools.TestCase):

    def test_of_workloads_that_come_and_go(self) -> None:
        """Asked for now and then; some are made again under their names."""
        choose = random.Random(SEED)
        one = history.History(sample_s=1.0, samples=SAMPLES)
        born = dict.fromkeys(NAMES, 0.0)
        for tick in range(300):
            now = float(tick)
            name = choose.choice(NAMES)
            if choose.random() < 0.1:
                born[name] = now
                one.forget_before(name, now)
            if choose.random() < 0.02:
                one.clear()
            one.add(now, Rates(now, 1.0, tuple(
                WorkloadRates(
                    Workload(each, Priority.FOREGROUND, created_s=born[each]),
                    1.0, cpu_cores=1.0, cpi=choose.choice((None, 1.0, 2.0)),
                    run_delay=choose.random())
                for each in NAMES if choose.random() < 0.8)))
            for signal in history.ORDER:
                self.assertEqual(
                    [sample[name].level(signal) if name in sample else None
                     for sample in one.samples],
                    list(one.levels(name, signal)), f'{tick} {name}')


class TestOwnLoad(testtools.TestCase):

    def test_background_is_no_load_of_the_foreground(self) -> None:
        one = history.History(sample_s=1.0, samples=SAMPLES)
        for now in (1.0, 2.0):
            one.add(now, Rates(now, 1.0, tuple(
                WorkloadRates(Workload(name, priority), 1.0, cpu_cores=cores,
                              run_delay=0.1)
                for name, priority, cores in (
                    ('a', Priority.FOREGROUND, 1.0),
                    ('b', Priority.FOREGROUND, 3.0),
                    ('c', Priority.FOREGROUND, 5.0),
                    ('hog', Priority.BACKGROUND, 7.0)))))
        for signal, loads in (('cpi', [[2.0]]), ('run_delay', [[2.0], [9.0]])):
            self.assertEqual(loads, disturbance.own_load(
                signal, 'cores', ['a', 'b'], list(one.samples)[-1:]))
