# SPDX-License-Identifier: Apache-2.0

"""Profiles: the QoS, the curve of harm, the order of turns."""

from __future__ import annotations

from collections.abc import Callable
import os
import pathlib
import random
import statistics
import subprocess
import sys
import uuid

import fixtures
import testtools

from scavenger_openstack.algorithms import profiles
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import options
from scavenger_openstack.ibench.profile import curve
from scavenger_openstack.ibench.profile.curve import Point
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import qos as qos_
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile import wish as wish_
from scavenger_openstack.ibench.profile import workload
from scavenger_openstack.ibench.profile.workload import Unfit
from scavenger_openstack.wire import profile

LATENCY = qos_.parse_qos('p99_s<+5%')


class Host:
    """A workload whose latency rises with the intensity, and with time.

    :ivar turns: the intensities, None for turns alone
    """

    def __init__(self, harm: Callable[[float], float], *,
                 noise: float = 0.0, drift: float = 0.0) -> None:
        self._harm = harm
        self._noise = noise
        self._drift = drift
        self._dice = random.Random(4)
        self.turns: list[float | None] = []

    def take(self, percent: float | None) -> measure.Reading:
        harm = self._dice.gauss(self._drift * len(self.turns), self._noise)
        self.turns.append(percent)
        if percent is not None:
            harm += self._harm(percent / 100)
        return measure.Reading(1 + 0.05 * harm, None if percent is None
                               else 100 - percent / 2)

    def profile(self, *, repeats: int = 3, ramp: bool = True
                ) -> tuple[measure.Measured, profiles.Estimate]:
        alone = measure.begin(self.take, LATENCY)
        measured = measure.measure_soi(self.take, LATENCY, repeats=repeats,
                                       ramp=ramp, alone=alone)
        scale = measure.find_scale(LATENCY, [alone, measured.alone])
        return measured, measure.tolerated(measured, scale)


class QosTestCase(testtools.TestCase):

    def test_forms(self) -> None:
        for text, qos in (
                ('p99_s<0.002', qos_.Qos('p99_s', True, 0.002)),
                ('p99_s <= 2e-3', qos_.Qos('p99_s', True, 0.002)),
                ('rate>9000', qos_.Qos('rate', False, 9000.0)),
                ('duration_s<+10%', qos_.Qos('duration_s', True, share=0.1)),
                ('rate>-5%', qos_.Qos('rate', False, share=0.05))):
            self.assertEqual(qos, qos_.parse_qos(text))

    def test_what_is_none(self) -> None:
        for text in ('', 'p99', 'p99<', '<3', 'p99=3', 'p99<x', 'p99<-5%',
                     'rate>+5%', 'rate>-100%', 'p99<0%', 'p99<1e999'):
            self.assertRaises(errors.ConfigError, qos_.parse_qos, text)

    def test_bound(self) -> None:
        self.assertAlmostEqual(2.1, LATENCY.bound_of(2.0))
        self.assertAlmostEqual(
            1.9, qos_.parse_qos('rate>-5%').bound_of(2.0))
        self.assertEqual(3.0, qos_.parse_qos('rate>3').bound_of(2.0))
        self.assertFalse(qos_.parse_qos('rate>3').is_kept(2.0, 3.0))


class CurveTestCase(testtools.TestCase):

    def test_crossing(self) -> None:
        line = [Point(percent, percent / 40) for percent in (20, 60, 100)]
        self.assertAlmostEqual(0.4, curve.crossing(line))
        self.assertAlmostEqual(0.8, curve.crossing(line, limit=2.0))
        self.assertEqual(1.0, curve.crossing(line, limit=3.0))
        self.assertEqual(1.0, curve.crossing([]))

    def test_before_the_first_level(self) -> None:
        self.assertAlmostEqual(0.01, curve.crossing([Point(5, 5.0)]))

    def test_noise_falls_back(self) -> None:
        """Harm that seems to shrink with intensity is pooled."""
        self.assertEqual(1.0, curve.crossing(
            [Point(20, 1.5), Point(40, 0.1), Point(100, 0.8)]))

    def test_repeats_are_the_interval(self) -> None:
        repeats = [[Point(100, harm)] for harm in (2.0, 4.0, 5.0)]
        self.assertEqual((0.25, 0.2, 0.5), curve.tolerated(repeats))

    def test_one_repeat_has_the_noise_as_interval(self) -> None:
        value, low, high = curve.tolerated([[Point(100, 2.0)]],
                                           noise=0.4)
        self.assertEqual(0.5, value)
        self.assertAlmostEqual(1 / 2.4, low)
        self.assertAlmostEqual(1 / 1.6, high)

    def test_noise_is_no_harm(self) -> None:
        measured = measure.Measured(repeats=[[
            measure.Beside(100, value=1.5, alone=0.0)]])
        for noise, value in ((0.5, 1 / 1.5), (1.0, 1.0)):
            self.assertAlmostEqual(value, measure.tolerated(
                measured, measure.Scale(0.0, 1.0, noise)).value)

    def test_caused(self) -> None:
        value, low, high = curve.caused([100.0, 90.0, 200.0],
                                        [60.0, 120.0, 50.0])
        self.assertAlmostEqual(0.4, value)
        self.assertEqual((0.0, 0.5), (low, high))

    def test_drift_is_no_noise(self) -> None:
        dice = random.Random(1)
        values = [0.01 * i + dice.gauss(0, 0.5) for i in range(2000)]
        self.assertAlmostEqual(0.5, curve.noise(values, -1.0), delta=0.04)


class MeasureTestCase(testtools.TestCase):

    def test_what_harms_nothing(self) -> None:
        host = Host(lambda x: 0.5 * x)
        measured, estimate = host.profile()
        self.assertEqual((1.0, 1.0, 1.0), estimate)
        self.assertEqual([100, None] * 3, host.turns[-6:])
        self.assertEqual([50.0] * 3, measured.rates)

    def test_the_ramp_ends_when_it_breaks(self) -> None:
        host = Host(lambda x: 4 * x)
        _, estimate = host.profile(repeats=1)
        self.assertAlmostEqual(0.25, estimate.value, delta=0.02)
        self.assertEqual([100, 5, 10, 20, 40, 60],
                         [turn for turn in host.turns if turn is not None])

    def test_short(self) -> None:
        host = Host(lambda x: 4 * x)
        _, estimate = host.profile(repeats=1, ramp=False)
        self.assertAlmostEqual(0.25, estimate.value)
        self.assertEqual(1, sum(turn is not None for turn in host.turns))

    def test_drift_is_no_harm(self) -> None:
        _, estimate = Host(lambda x: 0.0, drift=0.3).profile()
        self.assertEqual(1.0, estimate.value)

    def test_repeated(self) -> None:
        """At the noise that turns are made long enough for."""
        host = Host(lambda x: 2.5 * x, noise=measure.NOISE)
        values = [host.profile()[1].value for _ in range(40)]
        near = sum(abs(value - 0.4) <= 0.1 for value in values)
        self.assertAlmostEqual(0.4, statistics.median(values), delta=0.04)
        self.assertGreaterEqual(near, 36, values)

    def test_broken_alone(self) -> None:
        host = Host(lambda x: 0.0)
        exc = self.assertRaises(Unfit, measure.begin, host.take,
                                qos_.parse_qos('p99_s<0.9'))
        self.assertIn('without any interference', str(exc))
        measure.begin(host.take, qos_.parse_qos('p99_s<1.1'))

    def test_a_share_of_nothing(self) -> None:
        exc = self.assertRaises(
            Unfit, measure.begin, lambda percent: measure.Reading(0.0),
            qos_.parse_qos('run_delay<+5%'))
        self.assertIn('run_delay<BOUND', str(exc))

    def test_turns_become_longer(self) -> None:
        self.assertEqual(1.0, measure.longer(0.0))
        self.assertAlmostEqual(2.25, measure.longer(1.5 * measure.NOISE))
        self.assertEqual(measure.MOST_LONGER, measure.longer(9.0))


class WishTestCase(testtools.TestCase):

    def wish(self, qos: str | None = None, **more: str | bool
             ) -> wish_.Wish:
        return wish_.Wish(sois=catalogue.SOIS, repeats=1,
                          qos=qos and qos_.parse_qos(qos) or None,
                          **more)       # type: ignore[arg-type]

    def test_own_signals(self) -> None:
        self.assertEqual('duration_s', wish_.choose_qos(
            self.wish(command='true')).signal)
        qos = wish_.choose_qos(self.wish(cgroup='/a'))
        self.assertEqual(('progress', False, None), qos[:3])

    def test_what_does_not_fit(self) -> None:
        for wish, mention in (
                (self.wish(cgroup='/a', meter='true'), '--qos'),
                (self.wish('duration_s<5', cgroup='/a'), '--command'),
                (self.wish('p99_s<5', cgroup='/a'), '--meter'),
                (self.wish('progress<5', cgroup='/a'), 'progress>'),
                (self.wish('run_delay>5', cgroup='/a'), 'run_delay<'),
                (self.wish('p99_s<5', command='true', short=True),
                 '--short'),
                (self.wish(command=''), '--command'),
                (self.wish('p_s<5', command='a', meter='"'), '--meter'),
                (self.wish(cgroup='/a', workload_cpus='0'),
                 '--workload-cpus')):
            exc = self.assertRaises(errors.ConfigError, wish_.choose_qos,
                                    wish)
            self.assertIn(mention, str(exc))


    def test_command_lines(self) -> None:
        for words, mention in (
                ('', '--cgroup'), ('--command a --cgroup /a', '--cgroup'),
                ('--command a --sois 99', '99'),
                ('--command a --qos fast', 'fast'),
                ('--command a --repeats 0', '0'),
                ('--command a --seconds 0', '0'),
                ('--command a --parent-cgroup /b --no-cgroup',
                 '--no-cgroup')):
            exc = self.assertRaises(
                errors.ConfigError, command_line.parse, options.parser(),
                ['profile', *words.split()])
            self.assertIn(mention, str(exc))


class CountersTestCase(testtools.TestCase):

    def test_passed(self) -> None:
        """Threads that began count whole, those that ended not at all."""
        before = {1: workload.Times(100, 10, 5),
                  2: workload.Times(500, 500, 500)}
        after = {1: workload.Times(400, 20, 5), 3: workload.Times(7, 3, 1)}
        self.assertEqual((307, 13, 1), workload.passed(before, after))
        after[3] = workload.Times(7, 3, None)
        self.assertIsNone(workload.passed(before, after).io_wait)

    def test_signals(self) -> None:
        passed = workload.Times(600, 300, 100)
        values = {name: counted.of(passed, None)
                  for name, counted in signals.COUNTED.items()}
        self.assertEqual({'progress': 0.6, 'run_delay': 0.5,
                          'io_wait': 1 / 6}, values)
        self.assertEqual(2.0, signals.COUNTED['progress'].of(passed, 2000))

    def test_unknown_is_none(self) -> None:
        still = workload.Times(0, 0, None)
        for counted in signals.COUNTED.values():
            self.assertIsNone(counted.of(still, None))
        self.assertIsNone(signals.COUNTED['io_wait'].of(
            workload.Times(5, 5, None), None))

    def test_names_of_sois(self) -> None:
        self.assertEqual(profile.SOI_NAMES, tuple(
            soi.name for soi in catalogue.SOIS))


class InstanceTestCase(testtools.TestCase):
    """A process with the words on its command line that QEMU has."""

    def setUp(self) -> None:
        super().setUp()
        self.uuid = str(uuid.uuid4())
        self.qemu = subprocess.Popen(
            [sys.executable, '-c', 'import time; time.sleep(600)', '-uuid',
             self.uuid])
        self.addCleanup(self.qemu.wait)
        self.addCleanup(self.qemu.kill)
        # Popen may be back before the kernel shows the command line.
        command_line = pathlib.Path(f'/proc/{self.qemu.pid}/cmdline')
        while self.uuid not in command_line.read_text():
            self.assertIsNone(self.qemu.poll())
        self.run_dir = self.useFixture(fixtures.TempDir()).path
        for name, pid in (('instance-00000001', self.qemu.pid),
                          ('instance-00000000', os.getpid()),
                          ('instance-00000002', 0)):
            pathlib.Path(self.run_dir, f'{name}.pid').write_text(str(pid))

    def test_by_uuid_and_by_name(self) -> None:
        os.sched_setaffinity(self.qemu.pid, [0])
        for word in (self.uuid, 'instance-00000001'):
            instance = workload.of_instance(word, self.run_dir)
            self.assertEqual([self.qemu.pid], instance.processes())
            self.assertEqual({0}, instance.cpus())
        self.qemu.kill()
        self.qemu.wait()
        exc = self.assertRaises(Unfit, instance.threads)
        self.assertIn(self.uuid, str(exc))

    def test_what_is_not_there(self) -> None:
        for word in ('instance-00000000', 'instance-00000002', '', 'x'):
            self.assertRaises(Unfit, workload.of_instance, word,
                              self.run_dir)


class CpusTestCase(testtools.TestCase):

    def cpus(self, *, used: set[int] | None = None, **more: str
             ) -> wish_.Cpus:
        pinned = workload.Workload('it', lambda: [self.process.pid])
        if used is not None:
            os.sched_setaffinity(self.process.pid, used)
        return wish_.choose_cpus(
            wish_.Wish(sois=(), repeats=1, **more),     # type: ignore
            None if used is None else pinned)

    def setUp(self) -> None:
        super().setUp()
        self.mine = sorted(os.sched_getaffinity(0))
        if len(self.mine) < 2:
            self.skipTest('one CPU: none is beside another')
        self.process = subprocess.Popen(
            [sys.executable, '-c', 'import time; time.sleep(600)'])
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)

    def test_a_pinned_workload(self) -> None:
        """Nothing is run where other workloads may be."""
        first, last = self.mine[0], self.mine[-1]
        self.assertEqual(((first,), (first,), (first,)),
                         self.cpus(used={first}))
        self.assertEqual(((first,), (last,), (first,)), self.cpus(
            used={first}, beside_cpus=str(last)))
        self.assertEqual(((last,), (last,), (first,)), self.cpus(
            used={first}, cpus=str(last)))

    def test_a_workload_that_is_not_pinned(self) -> None:
        core, beside, _ = self.cpus(used=set(self.mine))
        self.assertEqual(((self.mine[-1],),) * 2, (core, beside))

    def test_a_command(self) -> None:
        *most, last = self.mine
        core, beside, where = self.cpus()
        self.assertEqual((tuple(most), tuple(most)), (core, where))
        self.assertEqual((last,), beside)
        core, beside, where = self.cpus(workload_cpus=str(last))
        self.assertEqual(((last,), (last,)), (core, where))
        self.assertNotIn(last, beside)

    def test_cpus_that_may_not_be_used(self) -> None:
        for option in ('cpus', 'beside_cpus', 'workload_cpus'):
            exc = self.assertRaises(errors.ConfigError, self.cpus,
                                    **{option: '4095'})
            self.assertIn('4095', str(exc))
        self.addCleanup(os.sched_setaffinity, 0, self.mine)
        os.sched_setaffinity(0, self.mine[:1])
        self.assertRaises(errors.ConfigError, self.cpus,
                          used=set(self.mine[1:]))
        self.assertRaises(errors.ConfigError, self.cpus,
                          cpus=str(self.mine[-1]))
