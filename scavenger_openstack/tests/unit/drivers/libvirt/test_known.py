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

import testtools

from scavenger_openstack.drivers.libvirt import known
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

VM = Workload('vm', Priority.FOREGROUND, instance='vm')


class AllowedTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.allowed = known.Allowed()

    def priority(self, workload: Workload = VM) -> Priority:
        return self.allowed.of(workload).priority

    def test_what_the_flavor_says_stays(self) -> None:
        self.allowed.ask(['vm'])
        for source in ('flavor', 'parent'):
            self.assertIs(Priority.FOREGROUND, self.priority(
                Workload('vm', Priority.FOREGROUND, source)))
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.assertEqual('override', self.allowed.of(VM).source)

    def test_until_it_ends(self) -> None:
        """A limit that it has must not hang when it is withdrawn."""
        self.assertIs(Priority.FOREGROUND, self.priority())
        self.assertEqual({'vm'}, self.allowed.ask(['vm']))
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.assertEqual(set(), self.allowed.ask(['vm']))
        self.allowed.ask([])
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.allowed.forget('vm')
        self.assertIs(Priority.FOREGROUND, self.priority())

    def test_many_that_are_not_here_leave_nothing(self) -> None:
        for number in range(100_000):
            self.allowed.ask([f'{number}', 'vm'])
        self.priority()
        self.assertGreater(5, len(self.allowed._asked)
                           + len(self.allowed._made))
