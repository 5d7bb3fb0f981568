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

"""What is nobody's common cause is told as it is; hangs of real libvirtds are
in the functional tests."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

import fixtures
import testtools

from scavenger_openstack.drivers import domain_contact
from scavenger_openstack.drivers import libvirt
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.types import Knob

KEY = (libvirtd.UUID, Knob.CPU_CORES)


class Words(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            f'{domain_contact.__name__}.LOOK_S', 0.01))
        self.machine = self.useFixture(libvirtd.Libvirtd()).machine
        self.contact = domain_contact.Contact(
            libvirt.Libvirt('qemu:///system'), 0.05)
        self.addCleanup(self.contact.close)

    def wait_for(self, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while not done():
            self.assertTrue(time.monotonic() < end_s, self.log.output)
            time.sleep(0.001)

    def test_a_failure_of_another_kind(self) -> None:
        self.contact.failed(KEY, 'something odd')
        self.wait_for(lambda: self.log.output)
        self.assertEqual('something odd\n', self.log.output)

    def test_a_failure_while_libvirt_is_gone(self) -> None:
        self.contact.lost('it is gone')
        self.contact.failed(KEY, 'something odd')
        self.contact.lost('still gone', 'another way')
        self.assertEqual('cannot be reached', self.contact.facts()['state'])
        self.contact.back('another way')
        self.contact.back()
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt cannot be reached (it is gone)', first)
        self.assertIn('1 limits were late', last)
        self.assertEqual('answers', self.contact.facts()['state'])

    def test_one_that_is_told_before_libvirt_is_known_to_be_gone(self
                                                                 ) -> None:
        self.machine.before['control'] = lambda: self.contact.lost('gone')
        self.contact.failed(KEY, 'something odd')
        self.wait_for(lambda: self.contact.down)
        self.contact.failed(KEY, 'something odd')
        self.contact.back()
        self.assertNotIn('odd', self.log.output)

    def test_libvirt_is_slow(self) -> None:
        done = threading.Event()
        self.assertTrue(self.contact.late([KEY], done))
        self.wait_for(lambda: self.log.output)
        self.assertEqual(('is slow', [f'{libvirtd.UUID} cpu_cores'], {}), (
            self.contact.facts()['state'], self.contact.facts()['waits'],
            self.contact.facts()['domains']))
        done.set()
        self.wait_for(lambda: 'again' in self.log.output)
        first, last = self.log.output.splitlines()
        self.assertIn('libvirt is slow', first)
        self.assertIn('1 limits were late', last)

    def test_late_by_a_little(self) -> None:
        done = threading.Event()
        self.contact.late([KEY], done)
        done.set()
        self.wait_for(lambda: not self.contact.facts()['waits'])
        self.assertEqual('', self.log.output)
