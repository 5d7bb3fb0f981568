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

from scavenger_openstack.algorithms import sharing
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload


class Disks(testtools.TestCase):

    def share(self, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        victim, suspect = (
            Workload(name, Priority.FOREGROUND, disks=disks)
            for name, disks in (('a', one), ('b', other)))
        return sharing.share('io_wait', victim, suspect, {})

    def test_known(self) -> None:
        self.assertTrue(self.share(('sda', 'sdb'), ('sdb',)))
        self.assertFalse(self.share(('sda',), ('sdb',)))

    def test_what_is_not_known_may_be_anywhere(self) -> None:
        for one in ((), ('',), ('sda',), ('sda', '')):
            for unknown in ((), ('',), ('sdb', '')):
                self.assertTrue(self.share(one, unknown))
                self.assertTrue(self.share(unknown, one))
