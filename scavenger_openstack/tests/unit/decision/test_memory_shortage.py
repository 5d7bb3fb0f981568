# SPDX-License-Identifier: Apache-2.0

"""What a refused memory limit freezes, and what it may kill."""

from __future__ import annotations

import math
from typing import Any

import testtools

from scavenger_openstack.decision import memory_shortage
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

MIB = 2 ** 20


def use(name: str, created_s: float, mib: int | None,
        **rest: Any) -> WorkloadRates:
    rest.setdefault('killable', True)
    rest.setdefault('priority', Priority.BACKGROUND)
    return WorkloadRates(
        Workload(name, created_s=created_s, **rest), 1.0,
        memory_bytes=None if mib is None else mib * MIB)


class AnswerTest(testtools.TestCase):

    def test_refused_first_then_newest_until_covered(self) -> None:
        workloads = [use('old', 1.0, 500), use('new', 3.0, 100),
                     use('mid', 2.0, 300)]
        for mib, kill in ((50, ('old',)), (500, ('old',)),
                          (501, ('old', 'new')), (600, ('old', 'new')),
                          (601, ('old', 'new', 'mid')),
                          (9999, ('old', 'new', 'mid'))):
            self.assertEqual(((), kill), memory_shortage.pause_or_kill(
                {'old': 1 * MIB}, mib * MIB, workloads))

    def test_a_race_of_peers_kills_nothing(self) -> None:
        self.assertEqual((('a',), ()), memory_shortage.pause_or_kill(
            {'a': 4 * MIB}, 0.0, [use('a', 1.0, 500)]))

    def test_without_opt_in_everything_is_paused(self) -> None:
        workloads = [use('a', 1.0, 500, killable=False),
                     use('b', 2.0, 500, killable=False)]
        self.assertEqual((('a', 'b'), ()), memory_shortage.pause_or_kill(
            {'a': 1, 'b': 1}, 9999 * MIB, workloads))

    def test_unknown_use_and_unknown_names(self) -> None:
        workloads = [use('a', 1.0, None)]
        self.assertEqual((('a',), ()), memory_shortage.pause_or_kill(
            {'a': 1, 'gone': 5}, 9999.0, workloads))
        self.assertEqual(((), ()), memory_shortage.pause_or_kill(
            {'a': 0}, 1.0, workloads))
        self.assertEqual(((), ()), memory_shortage.pause_or_kill(
            {}, 1.0, workloads))

    def test_what_is_no_number_kills_nothing(self) -> None:
        bad: Any
        for bad in (math.nan, math.inf, -5 * MIB):
            workloads = [use('a', 2.0, 1)._replace(memory_bytes=bad),
                         use('b', 1.0, 500)]
            self.assertEqual((('a',), ('b',)), memory_shortage.pause_or_kill(
                {'a': 1, 'b': 1}, 50 * MIB, workloads))
        self.assertEqual((('b',), ()), memory_shortage.pause_or_kill(
            {'b': 1}, math.nan, workloads))
