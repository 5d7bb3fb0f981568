# SPDX-License-Identifier: Apache-2.0

"""Which of the background the quota by IPC is for."""

from __future__ import annotations

import json
import math

import testtools

from scavenger_openstack.algorithms.scavenger.contenders import Contenders
from scavenger_openstack.algorithms.scavenger.contenders import share_cores
from scavenger_openstack import types

ALONE = {cpu: types.Cpu(cpu, 0, 0) for cpu in range(8)}
SMT = {cpu: types.Cpu(cpu % 4, 0, 0) for cpu in range(8)}


def rated(name: str, misses: float | None, cores: float | None = 1.0,
          vcpus: float = 1.0) -> types.WorkloadRates:
    return types.WorkloadRates(types.Workload(
        id=name, priority=types.Priority.BACKGROUND, source='',
        vcpus=vcpus), 1.0, cpu_cores=cores, llc_misses_per_s=misses)


class ContendersTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.contenders = Contenders()
        self.now = 0.0

    def names(self, *background: types.WorkloadRates,
              foreground: tuple[types.WorkloadRates, ...] = (),
              topology: dict[int, types.Cpu] = ALONE) -> list[str]:
        self.now += 1
        return [one[0].id for one in self.contenders.step(
            self.now, foreground, background, topology)]

    def test_what_hardly_misses_is_left_alone(self) -> None:
        self.assertEqual(['stream'], self.names(
            rated('quiet', 1e5), rated('stream', 2e7), rated('idle', 0.0)))

    def test_many_that_miss_little_count_together(self) -> None:
        self.assertEqual(['b'], self.names(
            rated('a', 4e5), rated('b', 9e5), rated('c', 3e5)))
        self.assertEqual([], Contenders().step(
            1.0, (), [rated(name, 3e5) for name in 'abc'], ALONE))

    def test_not_measurable_counts_as_many(self) -> None:
        for misses in (None, math.nan, math.inf, -1.0):
            self.assertEqual(1, len(Contenders().step(
                1.0, (), [rated('a', misses, 0.0)], ALONE)), str(misses))

    def test_the_foreground_that_misses_more_feels_less(self) -> None:
        search = rated('search', 1e8)
        self.assertEqual([], self.names(rated('a', 2e6),
                                        foreground=(search,)))
        self.assertEqual(['a'], self.names(rated('a', 6e6),
                                           foreground=(search,)))

    def test_what_is_held_back_is_judged_by_all_its_vcpus(self) -> None:
        self.names(rated('stream', 2e7, 4.0, 4.0))
        self.assertEqual(['stream'], self.names(
            rated('stream', 5e5, 0.1, 4.0)))
        self.assertEqual(['stream'], self.names(rated('stream', 0.0, 0.0)))

    def test_what_misses_no_more_is_released(self) -> None:
        self.names(rated('a', 2e7, 1.0))
        self.assertEqual([], self.names(rated('a', 1e5, 1.0)))

    def test_another_of_the_same_name_is_new(self) -> None:
        self.names(rated('a', 2e7, 1.0))
        new = rated('a', 0.0, 0.0)
        new = new._replace(workload=types.Workload(
            id='a', priority=types.Priority.BACKGROUND, source='',
            vcpus=1.0, created_s=5.0))
        self.assertEqual([], self.names(new))

    def test_threads_that_share_cores_disturb_without_a_miss(self) -> None:
        quiet = rated('quiet', 0.0, 3.0)
        service = rated('service', 0.0, 1.0)
        self.assertEqual([], self.names(quiet, foreground=(service,)))
        self.assertEqual(['quiet'], self.names(
            quiet, foreground=(service,), topology=SMT))
        # Held back, it is not free again at once.
        held = rated('quiet', 0.0, 0.1)
        for _ in range(59):
            self.assertEqual(['quiet'], self.names(
                held, foreground=(service,), topology=SMT))
        self.now += 60
        self.assertEqual([], self.names(held, foreground=(service,),
                                        topology=SMT))

    def test_goes_on_after_a_restart(self) -> None:
        self.names(rated('stream', 2e7, 4.0, 4.0))
        state = json.loads(json.dumps(self.contenders.state()))
        self.contenders = Contenders()
        self.contenders.load(state)
        self.assertEqual(['stream'], self.names(
            rated('stream', 5e5, 0.1, 4.0)))

    def test_no_topology(self) -> None:
        self.assertFalse(share_cores([rated('a', 0.0, 100.0)], {}))
