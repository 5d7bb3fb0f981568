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


"""When the turns of a demo are enough."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.demo import interval
from scavenger_openstack.demo import turns
from scavenger_openstack.tests.unit.demo.test_result import pairs

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
