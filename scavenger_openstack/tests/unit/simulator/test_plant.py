# SPDX-License-Identifier: Apache-2.0

"""The plant as a whole: what must hold whatever happens on it."""

from __future__ import annotations

import dataclasses
from typing import Any

import testtools

from scavenger_openstack.simulator import cache
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.plant import Plant
from scavenger_openstack.types import Priority

BACKGROUND = Priority.BACKGROUND
COUNTERS = ('cpu_s', 'run_delay_s', 'throttled_s', 'cycles', 'instructions',
            'llc_misses', 'io_wait_s', 'io_ops', 'io_bytes', 'tx_bytes')

WEB = Tenant(id='web', vcpus=4, requests_per_s=200, cpu_s=0.005, io_ops=1,
             tx_bytes=20000, accesses=0.01, footprint_bytes=8e6,
             arrivals=4)
DB = Tenant(id='db', vcpus=2, requests_per_s=80, cpu_s=0.006, io_ops=3,
            quota_cores=1, file_ops=2, file_bytes=8e9, io_bytes=65536)
HOG = Tenant(id='hog', priority=BACKGROUND, vcpus=8, threads=6, weight=8,
             accesses=0.05, overlap=0.6, footprint_bytes=1e8,
             queue_depth=6, tx_bytes_per_s=2e8, file_bytes=2e10,
             memory_bytes=2e10, memory_growth_bytes_per_s=1e8,
             phases=(Phase(shape='bursts', period_s=20),))
SMT = Machine(cpus=8, threads_per_core=2, llcs=2, numa_nodes=2,
              llc_bytes=16e6, memory_bytes=24e9)


def play(tenants: list[Tenant], *, machine: Machine = SMT, seconds: float,
         step_s: float = 1.0, seed: int = 3) -> Plant:
    plant = Plant(machine, tenants, seed=seed, step_s=step_s)
    for _ in range(round(seconds / step_s)):
        plant.step()
    return plant


def counters(plant: Plant) -> dict[str, list[float]]:
    return {guest.spec.id: [getattr(guest, name) for name in COUNTERS]
            for guest in plant.guests}


class Conservation(testtools.TestCase):

    def check(self, step_s: float, seconds: float) -> None:
        plant = Plant(SMT, [WEB, DB, HOG], seed=1, step_s=step_s)
        before = counters(plant)
        link = 0.0
        for _ in range(round(seconds / step_s)):
            plant.step()
            self.assertLessEqual(sum(g.used for g in plant.guests),
                                 SMT.cpus + 1e-6)
            self.assertLessEqual((plant.link_tx_bytes - link) / step_s,
                                 SMT.link_bytes_per_s * (1 + 1e-9))
            link = plant.link_tx_bytes
            for one in range(SMT.llcs):
                self.assertLessEqual(sum(g.held[one] for g in plant.guests),
                                     SMT.llc_bytes * (1 + 1e-9))
            now = counters(plant)
            for name, values in now.items():
                for counter, old, new in zip(COUNTERS, before[name], values,
                                             strict=True):
                    self.assertGreaterEqual(new, old, (name, counter))
            before = now
        busy_s = sum(g.io_ops * (SMT.disk_service_s + g.spec.io_bytes
                                 / SMT.disk_bytes_per_s)
                     for g in plant.guests)
        self.assertLess(busy_s, 1.1 * seconds)
        self.assertAlmostEqual(plant.cpu_busy_s,
                               sum(g.cpu_s for g in plant.guests))
        misses = sum(g.llc_misses for g in plant.guests) / seconds
        self.assertLess(misses * cache.LINE_BYTES * cache.WRITE_BACK,
                        1.1 * SMT.numa_nodes * SMT.memory_bytes_per_s)

    def test_steps_of_a_second(self) -> None:
        self.check(1.0, 300)

    def test_steps_of_a_millisecond(self) -> None:
        self.check(0.001, 3)


class Seeds(testtools.TestCase):

    def test_same_seed_same_result(self) -> None:
        for step_s, seconds in ((1.0, 120), (0.001, 1)):
            one, two = (play([WEB, DB, HOG], seconds=seconds, step_s=step_s)
                        for _ in range(2))
            self.assertEqual(counters(one), counters(two))
            self.assertEqual([g.truth.result() for g in one.guests],
                             [g.truth.result() for g in two.guests])

    def test_a_warm_up_in_longer_steps(self) -> None:
        """Time goes on, and so do all loads."""
        plant = Plant(SMT, [WEB, DB, HOG], seed=1, step_s=0.01)
        asked = []
        for step_s, seconds in ((0.01, 40), (0.001, 2)):
            plant.change_step(step_s)
            came = 0.0
            for _ in range(round(seconds / step_s)):
                plant.step()
                came += sum(one.arrived for one in plant.guests)
            asked.append(came / seconds)
        self.assertAlmostEqual(42.0, plant.now, places=6)
        self.assertTrue(0.5 < asked[1] / asked[0] < 2, str(asked))

    def test_other_seed_other_result(self) -> None:
        one, two = (play([WEB], seconds=20, seed=seed) for seed in (1, 2))
        self.assertNotEqual(counters(one), counters(two))

    def arrivals(self, tenants: list[Tenant], step_s: float) -> list[Any]:
        plant = Plant(SMT, tenants, seed=5, step_s=step_s)
        found = []
        for _ in range(round(1 if step_s < 1 else 200) * round(1 / step_s)):
            plant.step()
            found.append([(g.level, g.arrived) for g in plant.guests
                          if g.spec.priority is Priority.FOREGROUND])
        return found

    def test_without_the_background_the_foreground_is_asked_the_same(
            self) -> None:
        for step_s in (1.0, 0.001):
            self.assertEqual(self.arrivals([WEB, DB], step_s),
                             self.arrivals([WEB, DB, HOG], step_s))


class Interference(testtools.TestCase):

    def latency(self, *tenants: Tenant, machine: Machine = SMT) -> float:
        plant = play(list(tenants), machine=machine, seconds=200)
        (web,) = [g for g in plant.guests if g.spec.id == 'web']
        mean = web.truth.result().mean_s
        assert mean is not None
        return mean

    def worse(self, victim: dict[str, Any], antagonist: dict[str, Any],
              ) -> float:
        web = Tenant(id='web', **{
            'vcpus': 2, 'requests_per_s': 60, 'cpu_s': 0.005, **victim})
        other = Tenant(id='other', priority=BACKGROUND, **antagonist)
        machine = Machine(cpus=8)
        return (self.latency(web, other, machine=machine)
                / self.latency(web, machine=machine))

    def test_each_resource_disturbs_who_uses_it(self) -> None:
        cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
            ({}, {'threads': 8, 'vcpus': 8, 'weight': 100}),
            ({'accesses': 0.02, 'footprint_bytes': 2e7},
             {'threads': 3, 'vcpus': 3, 'accesses': 0.05,
              'footprint_bytes': 1e9}),
            ({'io_ops': 3}, {'queue_depth': 8}),
            ({'tx_bytes': 1e5}, {'tx_bytes_per_s': 2e8}),
            ({'file_ops': 10, 'file_bytes': 6e10},
             {'memory_bytes': 5.5e10}),
        ]
        for victim, antagonist in cases:
            self.assertGreater(self.worse(victim, antagonist), 1.15,
                               (victim, antagonist))

    def test_nothing_else_is_disturbed(self) -> None:
        for antagonist in ({'queue_depth': 8}, {'tx_bytes_per_s': 2e8},
                           {'memory_bytes': 5e10},
                           {'threads': 2, 'accesses': 0.0001}):
            self.assertLess(self.worse({'accesses': 0.0}, antagonist), 1.02,
                            antagonist)

    def test_only_a_busy_sibling_slows_down(self) -> None:
        """On four cores of two hyper-threads; 0 and 4 are siblings."""
        def speed(*pins: frozenset[int]) -> float:
            plant = play([Tenant(id=f'{n}', vcpus=8, threads=len(cpus),
                                 pinned=cpus, accesses=0.0, cpi_noise=0.0,
                                 load_noise=0.0)
                          for n, cpus in enumerate(pins)], seconds=5)
            return plant.guests[0].speed

        one, half = frozenset({0}), frozenset(range(4))
        self.assertAlmostEqual(1.0, speed(one))
        self.assertAlmostEqual(1.0, speed(half))
        self.assertAlmostEqual(1.0, speed(one, frozenset({1})))
        for both in ((one, frozenset({4})), (half, frozenset(range(4, 8))),
                     (frozenset({0, 4}),)):
            self.assertAlmostEqual(SMT.smt_yield, speed(*both))

    def test_run_delay_of_an_own_quota_is_told(self) -> None:
        busy = dataclasses.replace(DB, requests_per_s=300)
        (guest,) = play([busy], seconds=60).guests
        self.assertGreater(guest.throttled_s, 10)
        self.assertGreaterEqual(guest.run_delay_s, guest.throttled_s * 0.99)

    def test_a_quota_in_short_steps(self) -> None:
        """As wide as it likes, until the period's part is used up."""
        hog = dataclasses.replace(HOG, quota_cores=2, load_noise=0.0,
                                  phases=(Phase(),))
        plant = Plant(Machine(cpus=8), [hog], seed=1, step_s=0.001)
        used = []
        for _ in range(400):
            plant.step()
            used.append(plant.guests[0].used)
        self.assertEqual(6.0, used[0])
        self.assertEqual(0.0, used[90])
        self.assertAlmostEqual(2.0, sum(used) / 400, 2)

    def test_memory_that_is_missing_slows_all(self) -> None:
        eater = Tenant(id='eater', priority=BACKGROUND, memory_bytes=2.5e10)
        plant = play([dataclasses.replace(WEB, memory_bytes=1e9), eater],
                     seconds=30)
        self.assertEqual(1, plant.violations)
        self.assertEqual(30.0, plant.violation_s)
        self.assertLess(plant.guests[0].speed, 0.5)

    def test_too_much_for_disk_and_link(self) -> None:
        much = Tenant(id='much', vcpus=8, requests_per_s=1000, cpu_s=0.001,
                      io_ops=10, tx_bytes=5e5, load_noise=0.0)
        plant = play([much], seconds=60)
        guest, = plant.guests
        each_s = SMT.disk_service_s + 4096 / SMT.disk_bytes_per_s
        self.assertLess(guest.io_ops * each_s, 60)
        self.assertAlmostEqual(60 * SMT.link_bytes_per_s, guest.tx_bytes, -6)
        mean_s = guest.truth.result().mean_s
        assert mean_s is not None
        self.assertGreater(mean_s, 5.0)

    def test_each_request_is_counted_once(self) -> None:
        """Requests that are given up, too."""
        busy = dataclasses.replace(DB, requests_per_s=400)
        plant = Plant(SMT, [busy], seed=1)
        came = 0.0
        for _ in range(60):
            plant.step()
            came += sum(one.arrived for one in plant.guests)
        self.assertAlmostEqual(came, plant.guests[0].truth.requests)

    def test_what_waits_for_the_link_gives_up(self) -> None:
        sender = Tenant(id='sender', vcpus=8, requests_per_s=500,
                        cpu_s=0.001, tx_bytes=5e5, load_noise=0.0)
        (guest,) = play([sender], seconds=60).guests
        self.assertAlmostEqual(10 * SMT.link_bytes_per_s, guest.tx_left)

    def test_large_and_small_operations_on_one_disk(self) -> None:
        """No more than it can, in no step, whatever comes and goes."""
        scan = Tenant(id='scan', queue_depth=9, io_bytes=262144, phases=(
            Phase(shape='bursts', period_s=10, low=0.02),))
        plant = Plant(SMT, [WEB, scan], seed=1)
        for _ in range(40):
            plant.step()
            self.assertLess(sum(
                g.io_rate * (SMT.disk_service_s + g.spec.io_bytes
                             / SMT.disk_bytes_per_s)
                for g in plant.guests), 1.01)

    def test_own_phases_of_cpi(self) -> None:
        plant = Plant(Machine(), [dataclasses.replace(
            WEB, cpi_noise=0.0, cpi_phases=(
                Phase(for_s=50), Phase(for_s=50, level=3.0)))], seed=1)
        cpi = []
        for _ in range(100):
            plant.step()
            cpi.append(plant.guests[0].cpi)
        self.assertAlmostEqual(3.0, cpi[80] / cpi[30], 1)


class Coming(testtools.TestCase):

    def test_arrive_and_leave(self) -> None:
        late = dataclasses.replace(DB, arrives_s=10, leaves_s=20)
        plant = Plant(SMT, [WEB, late], seed=1)
        there = []
        for _ in range(30):
            plant.step()
            there.append(len(plant.guests))
        self.assertEqual([1] * 10 + [2] * 10 + [1] * 10, there)
        self.assertEqual(['db'], [g.spec.id for g in plant.gone])
