# SPDX-License-Identifier: Apache-2.0

"""The simulator where a driver stands."""

from __future__ import annotations

import dataclasses
import pickle

import testtools

from scavenger_openstack import errors
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack import types
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource

WEB = Tenant(id='web', requests_per_s=100, cpu_s=0.004, tx_bytes=2000,
             io_ops=1)
HOG = Tenant(id='hog', priority=Priority.BACKGROUND, vcpus=4, threads=4,
             queue_depth=4, tx_bytes_per_s=5e7, memory_bytes=4e9,
             memory_growth_bytes_per_s=1e8, load_noise=0.0)
LATE = Tenant(id='late', priority=Priority.BACKGROUND, threads=2,
              arrives_s=20, load_noise=0.0)


class Driver(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.simulator = Simulator(Machine(cpus=4), [WEB, HOG, LATE],
                                   seed=1, floors={Knob.CPU_CORES: 0.1})

    def used(self, name: str, seconds: float = 10) -> dict[str, float]:
        before, = [one for one in self.simulator.sample().workloads
                   if one.workload.id == name]
        self.simulator.advance(seconds)
        after, = [one for one in self.simulator.sample().workloads
                  if one.workload.id == name]
        return {field: (getattr(after, field) - getattr(before, field))
                / seconds for field in ('cpu_s', 'net_tx_bytes', 'io_ops',
                                        'io_bytes')}

    def test_limits_and_copies(self) -> None:
        """A copy goes on by itself, as the host would have."""
        self.write(Knob.CPU_CORES, 1.0)
        self.assertEqual((('hog', Knob.CPU_CORES),), self.simulator.limits)
        other = pickle.loads(pickle.dumps(self.simulator))
        other.remove(*other.limits[0])
        other.advance(30)
        self.assertEqual((), other.limits)
        self.assertEqual((30.0, 0.0), (other.now, self.simulator.now))
        self.simulator.remove('hog', Knob.CPU_CORES)
        self.simulator.advance(30)
        self.assertEqual(other.sample(), self.simulator.sample())

    def test_what_the_host_writes_for_another(self) -> None:
        """It is not counted, not limited, and named by its share."""
        for buffered in (False, True):
            self.simulator = Simulator(Machine(cpus=8), [
                WEB, dataclasses.replace(HOG, buffered=buffered)], seed=1)
            self.simulator.ask([('web', Resource.DISK)])
            counted = self.used('hog')
            self.assertEqual(not buffered, counted['io_ops'] > 0)
            self.simulator.ask(())
            answer, = self.simulator.sample().direct
            self.assertGreater(answer.holders['hog'],
                               0.5 * answer.waited_s)
            self.assertEqual(('hog',) * buffered, answer.by_share)
            hog, = [guest for guest in self.simulator.plant.guests
                    if guest.spec.id == 'hog']
            free = hog.io_rate
            self.write(Knob.IO_OPS_PER_S, 10.0)
            self.simulator.advance(5)
            self.assertEqual(buffered, hog.io_rate > 0.5 * free)

    def write(self, knob: Knob, value: float | str, name: str = 'hog',
              ) -> None:
        self.assertEqual(value, self.simulator.write(name, knob, value))
        self.assertEqual(value, self.simulator.read(name, knob))

    def test_the_clock_is_its_own(self) -> None:
        seen: list[float] = []
        self.simulator.advance(3, seen.append)
        self.assertEqual([1.0, 2.0, 3.0], seen)
        self.assertEqual(3.0, self.simulator.now)
        self.assertEqual(3.0, self.simulator.sample().time_s)

    def test_who_is_there(self) -> None:
        workloads = {one.workload.id: one.workload
                     for one in self.simulator.sample().workloads}
        self.assertEqual({'web', 'hog'}, set(workloads))
        self.assertEqual({Knob.CPU_CORES: 0.1}, workloads['hog'].floor)
        self.assertEqual({}, workloads['web'].floor)
        self.assertEqual(GROUP, workloads['hog'].group)
        self.assertEqual('', workloads['web'].group)

    def test_quota(self) -> None:
        self.write(Knob.CPU_CORES, 0.5)
        self.assertAlmostEqual(0.5, self.used('hog')['cpu_s'])
        self.simulator.remove('hog', Knob.CPU_CORES)
        self.assertIsNone(self.simulator.read('hog', Knob.CPU_CORES))
        self.assertGreater(self.used('hog')['cpu_s'], 3)

    def test_never_looser_than_the_own_quota(self) -> None:
        simulator = Simulator(Machine(cpus=4), [dataclasses.replace(
            HOG, quota_cores=1.0)], seed=1)
        self.assertEqual(1.0, simulator.read('hog', Knob.CPU_CORES))
        simulator.write('hog', Knob.CPU_CORES, 3.0)
        self.simulator = simulator
        self.assertAlmostEqual(1.0, self.used('hog')['cpu_s'])

    def test_cpu_set_of_the_group_holds_for_who_comes_later(self) -> None:
        self.write(Knob.CPU_SET, '3', GROUP)
        self.simulator.advance(20)
        both = self.simulator.plant.cpu_busy_s
        web = self.used('web', 10)['cpu_s']
        both = (self.simulator.plant.cpu_busy_s - both) / 10 - web
        self.assertAlmostEqual(1.0, both, 3)

    def test_idle_class_leaves_all_to_the_others(self) -> None:
        simulator = Simulator(Machine(cpus=2), [dataclasses.replace(
            WEB, requests_per_s=300, vcpus=2), dataclasses.replace(
                HOG, weight=1000)], seed=1)
        self.simulator = simulator
        self.assertLess(self.used('web')['cpu_s'], 0.5)
        self.write(Knob.CPU_IDLE, 1, GROUP)
        simulator.advance(30)
        busy_s = simulator.plant.cpu_busy_s
        web = self.used('web')['cpu_s']
        self.assertGreater(web, 1.0)
        self.assertLessEqual((simulator.plant.cpu_busy_s - busy_s) / 10,
                             2 + 1e-6)

    def test_egress_and_disk(self) -> None:
        self.write(Knob.EGRESS_BYTES_PER_S, 1e6)
        self.write(Knob.IO_OPS_PER_S, 100.0)
        found = self.used('hog')
        self.assertAlmostEqual(1e6, found['net_tx_bytes'], -2)
        self.assertAlmostEqual(100.0, found['io_ops'], 0)
        self.write(Knob.IO_BYTES_PER_S, 4096.0 * 50)
        self.assertAlmostEqual(50.0, self.used('hog')['io_ops'], 0)

    def test_memory(self) -> None:
        self.simulator.advance(10)
        exc = self.assertRaises(errors.Refused, self.simulator.write, 'hog',
                                Knob.MEMORY_BYTES, 6e8)
        self.assertEqual(400_000_000, exc.unmet_bytes)
        self.assertIsNone(self.simulator.read('hog', Knob.MEMORY_BYTES))
        self.write(Knob.MEMORY_BYTES, 2e9)
        self.simulator.advance(30)
        hog, = [one for one in self.simulator.sample().workloads
                if one.workload.id == 'hog']
        self.assertEqual(2_000_000_000, hog.memory_bytes)

    def test_a_memory_limit_takes_the_page_cache_first(self) -> None:
        simulator = Simulator(Machine(), [dataclasses.replace(
            HOG, memory_growth_bytes_per_s=0.0, file_bytes=8e9,
            io_bytes=1e6)], seed=1)
        simulator.advance(60)
        guest, = simulator.plant.guests
        self.assertEqual(8e9, guest.file_bytes)
        simulator.write('hog', Knob.MEMORY_BYTES, 5e9)
        simulator.advance(2)
        self.assertEqual((4e9, 1e9), (guest.memory_bytes, guest.file_bytes))

    def test_what_is_read_again(self) -> None:
        """A file server whose cache goes, beside one that streams."""
        def play(size: float) -> tuple[types.HostSample, list[int]]:
            simulator = Simulator(Machine(memory_bytes=32e9), [
                Tenant(id='files', requests_per_s=50, cpu_s=0.002,
                       file_ops=10, io_ops=1, file_bytes=8e9,
                       memory_bytes=1e9, io_bytes=65536),
                Tenant(id='stream', priority=Priority.BACKGROUND,
                       queue_depth=1, io_bytes=65536, file_bytes=1e12,
                       memory_bytes=1e9),
                Tenant(id='eater', priority=Priority.BACKGROUND,
                       memory_bytes=size, memory_growth_bytes_per_s=1e9)],
                seed=1)
            simulator.advance(60)
            sample = simulator.sample()
            again = {one.workload.id: one.refault_bytes or 0
                     for one in sample.workloads}
            return sample, [again['files'], again['stream']]

        sample, (files, stream) = play(1e9)
        self.assertEqual((0, 0, 0), (files, stream, sample.refault_bytes))
        held = sum((one.memory_bytes or 0) + (one.page_cache_bytes or 0)
                   for one in sample.workloads)
        assert sample.memory_free_bytes is not None
        self.assertAlmostEqual(32e9 - held, sample.memory_free_bytes, -1)
        sample, (files, stream) = play(22e9)
        # Half of its cache, of 50 x 10 operations a second.
        self.assertTrue(150 < files / 50 / 65536 < 300, files)
        self.assertEqual(0, stream)
        self.assertEqual(files, sample.refault_bytes)

    def test_no_memory_beyond_a_limit(self) -> None:
        """Nor by phases; what is held already is not taken away."""
        simulator = Simulator(Machine(), [dataclasses.replace(
            HOG, memory_growth_bytes_per_s=0.0, memory_phases=(
                Phase(for_s=10, level=0.5), Phase(for_s=1e9)))], seed=1)
        simulator.advance(5)
        simulator.write('hog', Knob.MEMORY_BYTES, 3e9)
        simulator.advance(20)
        self.assertEqual(3e9, simulator.plant.guests[0].memory_bytes)

    def test_what_waits_under_a_limit_is_not_lost(self) -> None:
        simulator = Simulator(Machine(), [dataclasses.replace(
            WEB, priority=Priority.BACKGROUND)], seed=1)
        simulator.write('web', Knob.EGRESS_BYTES_PER_S, 1e5)
        simulator.advance(30)
        guest, = simulator.plant.guests
        self.assertEqual(3e6, guest.tx_bytes)
        self.assertEqual(1e6, guest.tx_left)    # 10 s of it

    def test_paused(self) -> None:
        self.write(Knob.PAUSED, 1)
        self.simulator.advance(1)
        self.assertEqual({0.0}, set(self.used('hog').values()))

    def test_what_it_cannot(self) -> None:
        for knob in (Knob.LLC_WAYS, 'of_tomorrow'):
            self.assertRaises(errors.Unsupported, self.simulator.write,
                              'hog', knob, 3)
        self.assertRaises(errors.Unsupported, self.simulator.write, GROUP,
                          Knob.CPU_CORES, 1.0)
        self.assertRaises(errors.WorkloadGone, self.simulator.write, 'no',
                          Knob.CPU_CORES, 1.0)
        self.assertRaises(errors.WorkloadGone, self.simulator.read, 'no',
                          Knob.CPU_CORES)

    def test_kill(self) -> None:
        self.simulator.advance(2)
        self.assertEqual(1, self.simulator.kill('hog'))
        self.assertEqual([(2.0, 'hog')], self.simulator.kills)
        self.assertRaises(errors.WorkloadGone, self.simulator.kill, 'hog')
        self.simulator.remove('hog', Knob.CPU_CORES)

    def test_limits_that_do_not_bind_change_nothing(self) -> None:
        """The plant does not know what watches, or that anything does."""
        other = Simulator(Machine(cpus=4), [WEB, HOG, LATE], seed=1)
        other.write('hog', Knob.CPU_CORES, 99.0)
        other.write('hog', Knob.EGRESS_BYTES_PER_S, 1e12)
        other.write(GROUP, Knob.CPU_SET, '0-3')
        for _ in range(40):
            self.simulator.advance(1)
            self.simulator.sample()
        other.advance(40)
        self.assertEqual(self.simulator.sample().cpu_busy_s,
                         other.sample().cpu_busy_s)
        self.assertEqual(
            [guest.truth.result() for guest in self.simulator.plant.guests],
            [guest.truth.result() for guest in other.plant.guests])

    def test_no_pmu(self) -> None:
        simulator = Simulator(Machine(pmu=False), [WEB], seed=1)
        simulator.advance(2)
        found, = simulator.sample().workloads
        self.assertIsNone(found.cycles)
        self.assertIsNone(found.instructions)
        self.assertIsNone(found.llc_misses)
