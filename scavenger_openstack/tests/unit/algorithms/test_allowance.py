# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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

    def test_after_its_end(self) -> None:
        """What is left of it would come on top of the next minute's."""
        self.one.give(Budget(1, 60.0, 1.0))
        self.assertEqual(0, self.taken(60.0))
        self.assertEqual(0, self.taken(60.0 + allowance.GRACE_S - 1))
        self.assertEqual(10, self.taken(60.0 + allowance.GRACE_S))
