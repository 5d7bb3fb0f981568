# SPDX-License-Identifier: Apache-2.0

"""CPUs that come and go, in a file that is kept open."""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack.tests.unit import cpusets


class OnlineCpusTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(4, 2))
        self.root = str(self.host.root)
        self.online = online_cpus.OnlineCpus(self.root)
        self.addCleanup(self.online.close)

    def test_changes_are_told_once(self) -> None:
        self.assertEqual({0}, self.online.now)
        self.assertEqual([True, False], [self.online.refresh(),
                                         self.online.refresh()])
        self.assertEqual({0, 1, 2, 3}, self.online.now)
        self.host.take_offline(1, 3)
        self.assertEqual([True, False], [self.online.refresh(),
                                         self.online.refresh()])
        self.assertEqual({0, 2}, self.online.now)
        self.host.bring_online(3)
        self.assertTrue(self.online.refresh())
        self.assertEqual({0, 2, 3}, self.online.now)

    def test_what_cannot_be_read_changes_nothing(self) -> None:
        self.online.refresh()
        file = self.host.root / 'sys/devices/system/cpu/online'
        for damage in ('0-x', '\u0663'):
            file.write_text(damage)
            self.assertFalse(self.online.refresh(), damage)
            self.assertEqual(frozenset(), online_cpus.read(self.root))
        file.write_text('')
        self.assertFalse(self.online.refresh())
        self.assertEqual({0, 1, 2, 3}, self.online.now)
        self.assertEqual(1, self.log.output.count('cannot tell which CPUs'))

    def test_a_file_that_comes_later(self) -> None:
        file = self.host.root / 'sys/devices/system/cpu/online'
        text = file.read_text()
        file.unlink()
        self.assertFalse(self.online.refresh())
        self.assertEqual({0}, self.online.now)
        file.write_text(text)
        self.assertTrue(self.online.refresh())
        self.assertEqual({0, 1, 2, 3}, self.online.now)
        self.assertEqual({0, 1, 2, 3}, online_cpus.read(self.root))
