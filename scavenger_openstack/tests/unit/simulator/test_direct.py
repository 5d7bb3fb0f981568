# SPDX-License-Identifier: Apache-2.0

"""Direct evidence of the simulator: what the plant knows."""

from __future__ import annotations

import dataclasses

import testtools

from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource

WEB = Tenant(id='web', requests_per_s=100, cpu_s=0.004, tx_bytes=20000)
QUIET = Tenant(id='quiet', requests_per_s=100, cpu_s=0.004)
HOG = Tenant(id='hog', priority=Priority.BACKGROUND, vcpus=2, threads=2,
             tx_bytes_per_s=1.2e8, load_noise=0.0, accesses=0.05,
             footprint_bytes=1e8, miss_most=0.9, miss_least=0.5,
             pinned=frozenset((0, 1)))
ELSEWHERE = dataclasses.replace(
    HOG, id='elsewhere', tx_bytes_per_s=0.0, pinned=frozenset((2, 3)))


class Answers(testtools.TestCase):

    def answers(self, resource: Resource, *tenants: Tenant,
                machine: Machine | None = None) -> list[DirectEvidence]:
        simulator = Simulator(machine or Machine(cpus=4), tenants, seed=1)
        simulator.advance(5)
        simulator.ask([(tenant.id, resource) for tenant in tenants
                       if tenant.priority is Priority.FOREGROUND])
        simulator.advance(2)
        simulator.ask(())
        return list(simulator.sample().direct)

    def one(self, resource: Resource, *tenants: Tenant,
            machine: Machine | None = None) -> DirectEvidence:
        return next(answer for answer in self.answers(
            resource, *tenants, machine=machine) if answer.workload == 'web')

    def test_a_full_link(self) -> None:
        answer = self.one(Resource.NETWORK, WEB, HOG)
        self.assertEqual((2.0, 2.0, False), (
            answer.window_s, answer.waited_s, answer.shared))
        self.assertGreater(answer.holders['hog'], 1.8)
        self.assertLess(answer.holders['web'], 0.2)

    def test_a_link_with_room(self) -> None:
        answer = self.one(Resource.NETWORK, WEB, dataclasses.replace(
            HOG, tx_bytes_per_s=5e7))
        self.assertEqual((0.0, {}), (answer.waited_s, answer.holders))

    def test_what_sends_nothing_waits_for_no_link(self) -> None:
        self.assertEqual([0.0], [answer.waited_s for answer in self.answers(
            Resource.NETWORK, QUIET, HOG)])

    def test_misses(self) -> None:
        answer = self.one(Resource.CACHE, WEB, HOG)
        self.assertTrue(answer.shared)
        self.assertTrue(0.1 < answer.waited_s < 2.0, answer.waited_s)
        self.assertGreater(answer.holders['hog'], 0.9 * answer.waited_s)

    def test_misses_in_another_cache(self) -> None:
        answer = self.one(
            Resource.CACHE, dataclasses.replace(
                WEB, pinned=frozenset((0, 1))), HOG, ELSEWHERE,
            machine=Machine(cpus=4, llcs=2))
        self.assertEqual({'web', 'hog'}, set(answer.holders))

    def test_what_cannot_be_seen_has_no_answer(self) -> None:
        self.assertEqual([], self.answers(
            Resource.CACHE, WEB, HOG, machine=Machine(cpus=4, pmu=False)))
        self.assertEqual([], self.answers(Resource.MEMORY, WEB, HOG))
