# SPDX-License-Identifier: Apache-2.0

"""The token bucket of a device, on the kernel of the guest."""

from __future__ import annotations

from scavenger_openstack.drivers.network import limits
from scavenger_openstack import errors
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.types import Knob

KNOB = Knob.EGRESS_BYTES_PER_S


class Egress(tree.GuestTestCase):

    def test_egress_holds_the_rate_and_is_taken_away(self) -> None:
        wire = self.useFixture(namespaces.Wire())
        driver = limits.Network({}, {self.job: wire.device})
        self.addCleanup(driver.close)
        self.assertIsNone(driver.read(self.job, KNOB))
        before = self.qdisc(wire)
        lease = records.Lease(self.job, str(KNOB), records.boot_id(),
                              driver.restore_actions(self.job, KNOB))
        try:
            found = driver.write(self.job, KNOB, 150_000)
        except errors.Unsupported as exc:
            self.skipTest(str(exc))     # a kernel without sch_tbf
        self.assertEqual(150_000, found)
        self.assertHolds(0.125e6, lambda: wire.goodput(1.2, 0.3), 0.16e6)
        restoration.restore(lease)
        self.assertEqual(before, self.qdisc(wire))
        self.wait_for('it sends faster',
                      lambda: wire.goodput(0.3, 0.1) > 0.3e6)

    def qdisc(self, wire: namespaces.Wire) -> str:
        return namespaces.run('tc', '-n', wire.near, 'qdisc', 'show', 'dev',
                              'scv0')
