# SPDX-License-Identifier: Apache-2.0

"""What operators want, in the directives of the hosts that it concerns."""

from __future__ import annotations

import testtools

from scavenger_openstack.conductor import governor
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import directives_cases
from scavenger_openstack.tests.unit.conductor import governor_cases


class OnSqlite(directives_cases.Directives, cloud.Sqlite):
    pass


class GovernorOnSqlite(governor_cases.Governor, cloud.Sqlite):
    pass


class Part(testtools.TestCase):

    def test_parts_add_up(self) -> None:
        for total in range(25):
            for hosts in range(1, 12):
                for minute in (0, 1, 29_166_666):
                    self.assertEqual(total, sum(
                        governor.part(total, place, hosts, minute)
                        for place in range(hosts)))

    def test_each_host_has_its_turn(self) -> None:
        """With fewer limits than hosts."""
        for place in range(10):
            self.assertEqual(9, sum(
                governor.part(3, place, 10, minute) for minute in range(30)))
