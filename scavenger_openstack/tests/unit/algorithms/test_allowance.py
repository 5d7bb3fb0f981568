# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms import allowance
from scavenger_openstack.algorithms.allowance import Budget


class AllowanceTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.one = allowance.Allowance()

    def taken(self, now: float) -> int:
        """How many of ten limits may be set."""
        return [self.one.take(now) for _ in range(10)].count(True)

    def test_without_a_governor(self) -> None:
        self.assertEqual(10, self.taken(0.0))
        self.one.give(Budget(2, 60.0, 1.0))
        self.one.give(None)
        self.assertEqual(10, self.taken(0.0))

    def test_a_lease_counts_once(self) -> None:
        self.one.give(Budget(3, 60.0, 1.0))
        self.assertTrue(self.one.take(0.0))
        # The same, as it comes with the next answer.
        self.one.give(Budget(3, 60.2, 1.0))
        self.assertEqual(2, self.taken(10.0))
        self.one.give(Budget(3, 120.0, 2.0))
        self.assertEqual(3, self.taken(60.0))

    def test_two_leases_by_turns(self) -> None:
        """The clock of one of two conductors is 20 s ahead."""
        for minute in range(3):
            begin = 60.0 * minute
            this, next_ = (Budget(3, begin + end, minute + number)
                           for number, end in ((1, 60.0), (2, 100.0)))
            if not minute:
                self.one.give(this)
                self.assertEqual(3, self.taken(begin))
            taken = 0
            for turn in range(10):
                self.one.give((next_, this)[turn % 2])
                taken += self.taken(begin + 41 + turn)
            self.assertEqual(3, taken)

    def test_a_clock_that_was_set_back(self) -> None:
        self.one.give(Budget(2, 60.0, 9e9))
        self.assertEqual(2, self.taken(0.0))
        self.one.give(Budget(2, 110.0, 1.0))
        self.assertEqual(2, self.taken(61.0))

    def test_after_its_end(self) -> None:
        """What is left of it would come on top of the next minute's."""
        self.one.give(Budget(1, 60.0, 1.0))
        self.assertEqual(0, self.taken(60.0))
        self.assertEqual(0, self.taken(60.0 + allowance.GRACE_S - 1))
        self.assertEqual(10, self.taken(60.0 + allowance.GRACE_S))
