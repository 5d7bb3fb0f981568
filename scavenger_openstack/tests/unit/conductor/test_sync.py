# SPDX-License-Identifier: Apache-2.0

"""Reports into tables."""

from __future__ import annotations

import datetime

import testtools

from scavenger_openstack.conductor import interference
from scavenger_openstack.db import reports
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
            'changed_s': NOW, 'suspects': [
                reports.Suspect('/batch/a', 1.0, True)]})
        self.assertLess(len(sums), 200)
        self.assertAlmostEqual(interference.LONGEST_S, sum(
            one.interference_s for one in sums.values()), 3)
        self.assertEqual(1, sum(one.incidents for one in sums.values()))
