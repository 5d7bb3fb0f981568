# SPDX-License-Identifier: Apache-2.0


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
