# SPDX-License-Identifier: Apache-2.0


"""Which hardware counters are used, and when: what needs no hardware."""

from __future__ import annotations

import errno
import os
import pathlib
import platform

import fixtures
import testtools

from scavenger_openstack.agent import status
from scavenger_openstack.algorithms import sampling
from scavenger_openstack.algorithms import signals
from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import host as conf_host
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.perf import grade
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.drivers.resctrl import tree
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.unit import mount_files
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample


def fields(events: tuple[perf_event.Event, ...]) -> str:
    return ' '.join(event.field for event in events)


class TestChoice(testtools.TestCase):

    def test_what_fits_into_the_budget(self) -> None:
        for most, expected in (
                (4, 'cycles ref_cycles instructions llc_misses'),
                (3, 'ref_cycles instructions llc_misses'),
                (2, 'ref_cycles instructions')):
            chosen = grade.choose(grade.EVENTS, most)
            self.assertEqual(expected, fields(chosen))
            self.assertEqual('cpi', grade.signals(chosen)[0])

    def test_without_reference_cycles(self) -> None:
        """Core cycles take their place, and the signal's name says so."""
        there = [e for e in grade.EVENTS if e.field != 'ref_cycles']
        for most, expected in ((4, 'cycles instructions llc_misses'),
                               (2, 'cycles instructions')):
            chosen = grade.choose(there, most)
            self.assertEqual(expected, fields(chosen))
            self.assertIn('core cycles', grade.signals(chosen)[0])

    def test_without_a_ratio_there_is_nothing(self) -> None:
        for missing in ({'instructions'}, {'cycles', 'ref_cycles'}):
            self.assertEqual((), grade.choose(
                [event for event in grade.EVENTS
                 if event.field not in missing], 4))


class TestDuty(testtools.TestCase):

    def test_always(self) -> None:
        for sample_s, period_s in ((10, 0), (10, 10), (10, 5)):
            duty = perf.Duty(sample_s, period_s)
            self.assertTrue(all(duty.next_is_measured(now)
                                for now in range(100)))

    def measured(self, ticks: list[float]) -> list[float]:
        """The ticks whose whole interval was measured."""
        duty, found, on = perf.Duty(10, 60), [], False
        for tick in ticks:
            if on:
                found.append(tick)
            on = duty.next_is_measured(tick)
        return found

    def test_ten_seconds_of_each_minute(self) -> None:
        self.assertEqual(
            [*range(1051, 1061), *range(1111, 1121), *range(1171, 1181)],
            self.measured([float(s) for s in range(1000, 1182)]))

    def test_they_are_those_that_cpi2_looks_at(self) -> None:
        """For an hour, with ticks that are never quite in time."""
        ticks, now = [], 7.0
        for number in range(3600):
            ticks.append(now)
            now += 1 + (number * 7919 % 13 - 4) * 0.0005
        measured = set(self.measured(ticks))
        sampler = sampling.Sampler(signals.SIGNALS['cpi'], duration_s=10.0,
                                   interval_s=60.0)
        one = Workload(id='/a', priority=Priority.FOREGROUND)
        samples = 0
        for last, tick in zip(ticks, ticks[1:], strict=False):
            rates = Rates(tick, tick - last, (WorkloadRates(
                one, tick - last, cpu_cores=1.0,
                cpi=2.0 if tick in measured else None),))
            found = sampler.add(tick, rates)
            if found is not None:
                samples += 1
                self.assertEqual({'/a': 2.0}, found.values)
        self.assertGreater(samples, 57)

    def test_a_clock_that_jumps_begins_again(self) -> None:
        duty = perf.Duty(10, 60)
        duty.next_is_measured(1000.0)
        self.assertTrue(duty.next_is_measured(1055.0))
        for jump in (5000.0, 3.0):
            self.assertFalse(duty.next_is_measured(jump))
            self.assertTrue(duty.next_is_measured(jump + 55))


class TestWithout(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.samples = (WorkloadSample(
            Workload(id='/a', priority=Priority.FOREGROUND), cpu_s=1.0),)

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def counting(self, **settings: object) -> perf.Perf:
        found = perf.Perf(
            perf.Settings(**settings),  # type: ignore[arg-type]
            str(self.root))
        self.addCleanup(found.close)
        return found

    def test_switched_off(self) -> None:
        counters = self.counting(enabled='off')
        self.assertIs(self.samples, counters.add(self.samples, 1.0))
        self.assertEqual('C', counters.grade.letter)
        self.assertIn('enabled is off', str(counters.grade))

    def test_no_hierarchy_to_count_by(self) -> None:
        mount_files.mount(self.root, '/sys/fs/cgroup/cpu cgroup rw,cpu')
        counters = self.counting()
        self.assertIs(self.samples, counters.add(self.samples, 1.0))
        self.assertIn('mount cgroup2', self.logs.output)
        exc = self.assertRaises(errors.ConfigError, self.counting,
                                enabled='on')
        self.assertIn('set it to auto', str(exc))

    def test_version_1_comes_first(self) -> None:
        """Where it has the controller, version 2 has not."""
        mount_files.mount(self.root, '/u cgroup2 rw',
                          '/p cgroup rw,net_cls,perf_event')
        self.put('u/cgroup.controllers', '')
        self.assertEqual(f'{self.root}/p',
                         perf_event.find_mount(str(self.root)))
        mount_files.mount(self.root, '/u cgroup2 rw')
        self.assertEqual(f'{self.root}/u',
                         perf_event.find_mount(str(self.root)))

    def test_mounts_that_cannot_be_read(self) -> None:
        self.assertRaises(errors.DriverError, self.counting)

    def test_what_is_in_the_way_may_be_gone_later(self) -> None:
        """Whatever the advice was, it is followed without a restart."""
        mount_files.mount(self.root, '/ tmpfs rw')
        counters = self.counting()
        counters.add(self.samples, 1.0)
        self.assertIn('mount cgroup2', counters.grade.why)
        refused = [errno.EACCES]

        def refuse(*args: object, **kwargs: object) -> int:
            raise OSError(refused[0], os.strerror(refused[0]))

        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.perf_event.open_event',
            refuse))
        mount_files.mount(self.root, '/u cgroup2 rw')
        now = 1.0
        for refused[0], expected in ((errno.EACCES, 'not permitted'),
                                     (errno.ENOENT, 'no hardware counters')):
            for _ in range(2):
                now += perf.RETRY_S / 2
                counters.add(self.samples, now)
            self.assertIn(expected, counters.grade.why)
        self.assertEqual(1, self.logs.output.count('cannot read'))

    def test_cache_monitoring_makes_it_an_a(self) -> None:
        for text, expected in (('nodev\tresctrl\n', True),
                               ('nodev\tcgroup2\n', False)):
            self.put('proc/filesystems', text)
            self.assertEqual(expected,
                             tree.has_resctrl(str(self.root)))

    def test_not_permitted(self) -> None:
        for level, expected in (('4', 'is 4, and above 2'), ('3', 'is 3'),
                                ('2', 'give the agent CAP_PERFMON'),
                                ('', 'give the agent CAP_PERFMON')):
            self.put('proc/sys/kernel/perf_event_paranoid', level)
            for number in errno.EPERM, errno.EACCES:
                text = grade.advice(number, str(self.root))
                self.assertIn(f'not permitted: {"kernel" * (level > "2")}',
                              text)
                self.assertIn(expected, text)
                self.assertEqual(level > '2', 'CAP_SYS_ADMIN' in text)
        self.assertNotIn('permitted', grade.advice(
            errno.EBUSY, str(self.root)))

    def test_another_machine(self) -> None:
        if platform.machine() not in ('x86_64', 'aarch64'):
            self.assertFalse(perf_event.supported())
        self.useFixture(fixtures.MonkeyPatch(
            'platform.machine', lambda: 'riscv64'))
        mount_files.mount(self.root, '/u cgroup2 rw')
        self.put('u/cgroup.controllers', '')
        self.assertIn('no perf_event_open', self.counting().grade.why)

    def test_the_status_shows_the_grade(self) -> None:
        document = {
            'host': 'h', 'pid': 1, 'time_s': 1.0, 'state': 'running',
            'workloads': {}, 'controllers': {}, 'cpu_share': 0.0,
            'peak_rss_bytes': 0, 'counters': {}, 'caps': [], 'would': [],
            'unmet_bytes': {}, 'actions': [], 'incidents': [],
            'problems': []}
        self.assertNotIn('grade', status.table(document, 1.0))
        document['grade'] = self.counting(enabled='off').facts()
        self.assertIn('\ngrade      C (no PMU): ',
                      status.table(document, 1.0))


class TestOptions(testtools.TestCase):

    def test_they_are_the_settings(self) -> None:
        """Each with its default."""
        self.assertEqual(
            perf.Settings()._asdict(),
            {option.dest: option.default for option in conf_host.PERF_OPTS})

    def test_what_is_refused(self) -> None:
        from oslo_config import cfg
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for line in ('enabled = yes', 'max_counters = 1',
                     'min_running_share = 0', 'period_s = -1'):
            (directory / 'c').write_text(f'[perf]\n{line}\n')
            conf = cfg.ConfigOpts()
            conf_.register(conf)
            self.assertRaises(errors.ConfigError, conf_.load, conf,
                              ['--config-file', str(directory / 'c')], 'x')


class TestSystemCall(testtools.TestCase):

    def test_a_group_is_all_or_nothing(self) -> None:
        """The second one does not exist: the first is closed again."""
        with descriptors.given_back():
            exc = self.assertRaises(
                OSError, perf_event.open_group,
                [perf_event.Event('cycles', perf_event.SOFTWARE, 0),
                 perf_event.Event('x', perf_event.SOFTWARE, 9999)],
                cpu=min(os.sched_getaffinity(0)))
        self.assertIsNotNone(exc.errno)
