# SPDX-License-Identifier: Apache-2.0

"""The limits of a domain, and a libvirt that is played."""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers.libvirt import domains
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.tests.unit.libvirtd import UUID
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

CORES = (UUID, Knob.CPU_CORES)
OPS = (UUID, Knob.IO_OPS_PER_S)
MEMORY = (UUID, Knob.MEMORY_BYTES)


def gone(driver: domains.Domains) -> bool:
    """Whether the driver knows that what was capped runs no more."""
    try:
        return driver.read(*CORES) is None
    except errors.WorkloadGone:
        return True
    except errors.DriverError:      # the new run is examined
        return False


class LimitsTestCase(testtools.TestCase):

    def start(self, vcpus: int = 1) -> None:
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.libvirtd = self.useFixture(libvirtd.Libvirtd(vcpus))
        self.machine = self.libvirtd.machine
        self.leases = leases.Leases(self.libvirtd.path / 'state', 600.0)
        self.leases.open()
        self.addCleanup(self.leases.close)
        self.addCleanup(self.machine.stop)      # or virsh would be asked
        self.actuator = actuator.Actuator(self.libvirtd.driver, self.leases,
                                          30.0)

    def tick(self, *wishes: tuple[tuple[str, Knob], Value],
             owner: str = 'owner') -> actuator.Outcome:
        caps = [Cap(*key, value, owner, 'reason') for key, value in wishes]
        seen = self.actuator.read(caps)
        return self.actuator.reconcile(
            arbitrate.arbitrate(caps, seen.originals, {}), seen)
