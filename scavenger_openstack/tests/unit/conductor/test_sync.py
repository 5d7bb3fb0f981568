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

"""Reports into tables."""

from __future__ import annotations

import datetime

import testtools

from scavenger_openstack.conductor import interference
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.sync_cases import HOUR
from scavenger_openstack.tests.unit.conductor.sync_cases import Sync


class OnSqlite(Sync, cloud.Sqlite):
    pass


class Hours(testtools.TestCase):

    def test_the_hour(self) -> None:
        when = datetime.datetime.fromtimestamp(HOUR, datetime.UTC)
        self.assertEqual((0, 0), (when.minute, when.second))

    def test_the_longest(self) -> None:
        """An incident does not fill the table."""
        sums = interference.of_incident({
            'victim': 'web', 'cause': '', 'outcome': 'open', 'begun_s': 0.0,
            'changed_s': NOW, 'suspects': [('/batch/a', 1.0, True)]})
        self.assertLess(len(sums), 200)
        self.assertAlmostEqual(interference.LONGEST_S, sum(
            one.interference_s for one in sums.values()), 3)
        self.assertEqual(1, sum(one.incidents for one in sums.values()))
