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

"""Where nova-scheduler puts background servers, in a real OpenStack."""

from __future__ import annotations

import os

from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack import watching

BY_FILTER = 'Filter BackgroundFilter returned 0 hosts'
MORE_THAN_THERE_ARE = (os.cpu_count() or 1) + 1


class Scheduling(case.Case):

    def setUp(self) -> None:
        super().setUp()
        self.scheduler = self.stack.services['nova-scheduler']
        self.began = self.scheduler.log.stat().st_size

    def refused_by_filter(self) -> bool:
        """Whether that was so since the test began."""
        return BY_FILTER in watching.since(self.scheduler, self.began)

    def test_less_headroom_than_it_asks_for(self) -> None:
        """To Placement it is a server without CPUs."""
        flavor = self.flavor({'scavenger:priority': 'background',
                              'resources:VCPU': '0'}, MORE_THAN_THERE_ARE)
        self.assertIn('No valid host', self.refused(flavor))
        self.assertTrue(self.refused_by_filter())

    def test_hosts_that_set_no_limits(self) -> None:
        """They take the foreground only."""
        self.addCleanup(self.protect, True)
        self.protect(False)
        self.stack.wait_for_scheduler('no host sets limits', lambda host:
                                      not host['enforcing'])
        self.assertIn('No valid host', self.refused(self.flavor(BACKGROUND)))
        self.assertTrue(self.refused_by_filter())
        self.boot('web')
        self.protect(True)
        self.stack.wait_for_headroom()
        self.boot('batch', BACKGROUND)
