# SPDX-License-Identifier: Apache-2.0


"""Whose CPUs are whose."""

from __future__ import annotations

from collections.abc import Iterable

import testtools

from scavenger_openstack.algorithms.scavenger import pins
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates


def guest(name: str, allowed: Iterable[int] | None = None,
          dedicated: Iterable[int] | None = None,
          priority: Priority = Priority.FOREGROUND) -> WorkloadRates:
    return WorkloadRates(Workload(
        name, priority,
        allowed_cpus=None if allowed is None else frozenset(allowed),
        dedicated_cpus=None if dedicated is None else frozenset(dedicated)),
        1.0)


class TestPins(testtools.TestCase):

    def test_confined_workloads_cpu_by_cpu(self) -> None:
        for confined, wanted in (
                ((), {0, 1, 2, 3}), (({0},), {1, 2, 3}),
                (({0}, {1, 2}), {3}), (({0, 1, 2, 3},), {0, 1, 2, 3}),
                # 1 is shared by two, 0 and 2 are not.
                (({0, 1}, {1, 2}), {1, 3}),
                (({0, 1}, {0, 1}), {0, 1, 2, 3}),
                (({0, 1}, {1, 2}, {3}), {1}),
                (({9},), {0, 1, 2, 3}), (({0, 9},), {1, 2, 3}),
                ((set(),), {0, 1, 2, 3}), (({0, 1}, {2, 3}), set())):
            self.assertEqual(wanted, pins.allowed_cpus(range(4), confined))

    def test_a_dedicated_pin_counts_whatever_else_may_run_there(self) -> None:
        self.assertEqual({0, 3}, pins.allowed_cpus(
            range(4), [{1, 2}, {1, 2}], {1, 2, 9}))

    def test_mixed_guests_that_share(self) -> None:
        found = pins.of((guest('a', {0, 1, 2, 3, 4, 5}, {4, 5}),
                         guest('b', {0, 1, 2, 3, 6, 7}, {6, 7})), range(10))
        self.assertEqual(({0, 1, 2, 3, 8, 9}, {0, 1, 2, 3}, 2), found)
        # One alone gives nothing away either, nor takes what it shares.
        found = pins.of((guest('a', {0, 1, 2, 3, 4, 5}, {4, 5}),), range(10))
        self.assertEqual(({0, 1, 2, 3, 6, 7, 8, 9}, {0, 1, 2, 3}, 1), found)

    def test_what_foreground_without_pins_may_use(self) -> None:
        every = set(range(64))
        for foreground, shared in (
                ((), every),
                ((guest('a'),), every),
                ((guest('a', range(32), ()), guest('b', range(32), ())),
                 set(range(32))),
                ((guest('a', range(32)), guest('b', range(32))),
                 set(range(32))),
                ((guest('a', range(32), ()), guest('b')), every),
                # It has its CPUs to itself: the rest may be of any.
                ((guest('a', range(32)),), set(range(32, 64))),
                # All offline: the kernel lets it run anywhere.
                ((guest('a', {70, 71}, ()), guest('b', range(32), ())), every),
                ((guest('a', range(32), (), Priority.BACKGROUND),), every)):
            self.assertEqual(shared, pins.of(foreground, every).shared)

    def test_isolated_cpus(self) -> None:
        for isolated, wanted in (((), {0, 1, 2, 3}), ((2, 3), {0, 1}),
                                 (range(4), {0, 1, 2, 3})):
            self.assertEqual(wanted, pins.usable({
                cpu: Cpu(cpu, 0, 0, cpu in isolated or None)
                for cpu in range(4)}))
