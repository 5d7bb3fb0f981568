# SPDX-License-Identifier: Apache-2.0


"""When the turns of a demo are enough."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import turns
from scavenger_openstack.demo import others
from scavenger_openstack.tests.unit.demo.records import other
from scavenger_openstack.tests.unit.demo.records import pairs

LIMIT = 1.10


class FinishedTest(testtools.TestCase):

    def first(self, found: list[dict[str, Any]]) -> int | None:
        """After how many of these pairs the turns end."""
        return next((count for count in range(1, len(found) + 1)
                     if turns.finished(found[:count], LIMIT)), None)

    def test_as_soon_as_it_can_tell(self) -> None:
        for slower in (1.0, 1.3):
            self.assertEqual(interval.LEAST,
                             self.first(pairs(30, slower=slower)))

    def test_never_while_the_interval_holds_the_bar(self) -> None:
        self.assertIsNone(self.first(pairs(30, slower=1.02, scatter=0.1)))

    def test_disturbed_pairs_do_not_count(self) -> None:
        found = pairs(5, disturbed=5) + pairs(20)
        self.assertEqual(5 + interval.LEAST, self.first(found))

    def test_a_machine_that_does_not_become_quiet(self) -> None:
        found = pairs(4) + pairs(20, slower=9.0, disturbed=20)
        self.assertEqual(4 + turns.GIVE_UP, self.first(found))


class JudgedTest(testtools.TestCase):
    """Whether the batch work did in a turn what it was to do."""

    def judged(self, name: str, late_s: float, cpus: float,
               busy: float = 0.0) -> tuple[bool, str]:
        found = turns.judged(name, {
            'late_s': late_s, 'background_cpu': cpus,
            'others': other(busy)})
        return found['disturbed'], others.said([found])

    def test_in_time(self) -> None:
        for name, cpus in (('alone', 0.0), ('scavenger', 1.5)):
            self.assertFalse(self.judged(name, 0.2, cpus)[0])
        self.assertTrue(self.judged('scavenger', 0.2, 1.5, busy=1.0)[0])

    def test_the_demo_is_late(self) -> None:
        for name in ('alone', 'scavenger'):
            self.assertEqual(
                (True, 'the demo stopped or continued the batch work up to '
                 '0.41 s late'), self.judged(name, 0.41, 0.0))

    def test_batch_work_that_was_to_stand_still(self) -> None:
        self.assertEqual(
            (True, 'batch work that was stopped used up to 0.30 CPUs'),
            self.judged('alone', 0.0, 0.3))


class LatenciesTest(testtools.TestCase):
    """Turns of 4 s; those with an odd number are beside the batch work."""

    def latencies(self, *requests: tuple[float, float],
                  now_s: float = 16.0) -> dict[int, list[float]]:
        return turns.latencies(
            [due_s for due_s, _ in requests],
            [latency_s for _, latency_s in requests], {1, 3}, now_s)

    def test_by_turn_without_its_first_quarter_second(self) -> None:
        self.assertEqual({0: [0.1, 0.2], 1: [0.3]}, self.latencies(
            (0.2, 0.9), (0.3, 0.1), (3.9, 0.2), (4.1, 0.1), (4.3, 0.3),
            (17.0, 0.0)))

    def test_what_still_waits(self) -> None:
        self.assertEqual({0: [15.0], 1: [0.5]},
                         self.latencies((1.0, 0.0), (5.0, 0.5)))

    def test_waits_that_batch_work_has_left_behind(self) -> None:
        """They are not those of the service alone."""
        self.assertEqual(
            {1: [2.0, 1.8], 2: [0.1], 3: [0.2]}, self.latencies(
                (7.0, 2.0), (7.8, 1.8), (8.5, 1.2), (9.5, 0.2), (9.7, 0.1),
                (12.5, 0.2)))

    def test_waits_of_its_own(self) -> None:
        self.assertEqual({0: [2.0], 1: [0.9]},
                         self.latencies((3.5, 2.0), (4.5, 0.9)))
