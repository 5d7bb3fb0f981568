# SPDX-License-Identifier: Apache-2.0

"""A domain with limits, which lives on, changes, or ends."""

from __future__ import annotations

from collections.abc import Mapping
import time

from testtools import content

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

CAPS: dict[Knob, Value] = {Knob.CPU_CORES: 0.2,
                           Knob.IO_BYTES_PER_S: 5_000_000}


class LifeCase(virtual_host.VirtualHostTestCase):

    def one(self, host: hypervisor.Hypervisor) -> domain_guest.DomainGuest:
        """A guest that runs, with two disks, which share their caps."""
        guest = virtual_host.tiny(
            'one', machine='pc', paused=False, disks=tuple(
                domain_guest.Disk.make(host.disks / name) for name in 'ab'))
        host.start_all([guest])
        return guest

    def cap(self, agent: virtual_host.Agent, uuid: str,
            caps: Mapping[Knob, Value] = CAPS) -> None:
        agent.tick({uuid: caps})
        self.assertEqual({(uuid, knob) for knob in caps},
                         set(agent.leases.held()), self.log.output)

    def nothing_held(self, agent: virtual_host.Agent) -> None:
        def done() -> bool:
            agent.tick()
            return not agent.leases.held()
        self.wait_for('no leases', done, timeout_s=40)


TICK_S = 0.2
SOON_S = 30.0
"""Four ticks do on a quiet machine: for libvirt to tell, to remove the old
limits, to set them again, and one more."""


class ChangesCase(LifeCase):

    def cores(self, host: hypervisor.Hypervisor) -> float | None:
        """What all vCPUs of the only domain may use; ``None``: no limit."""
        group, = host.tree.path('cpu', '/machine').glob('qemu-*')
        found = 0.0
        for vcpu in group.glob('**/vcpu*'):
            if not (vcpu / 'tasks').read_text():
                continue        # of one that was unplugged
            quota, period = (int((vcpu / f'cpu.cfs_{file}_us').read_text())
                             for file in ('quota', 'period'))
            if quota < 0:
                return None
            found += quota / period
        return round(found, 3)

    def ticks(self, agent: virtual_host.Agent, uuid: str,
              caps: Mapping[Knob, Value], host: hypervisor.Hypervisor,
              wanted: object) -> None:
        """Tick until the limits are ``wanted``."""
        seen = []
        until_s = time.monotonic() + SOON_S
        while time.monotonic() < until_s:
            agent.tick({uuid: caps})
            seen.append(self.found(host))
            if seen[-1] == wanted:
                break
            time.sleep(TICK_S)
        self.addDetail('ticks', content.text_content('\n'.join(
            map(str, seen))))
        self.assertEqual(wanted, seen[-1], str(seen))
        self.assertEqual({(uuid, knob) for knob in caps},
                         set(agent.leases.held()))

    def found(self, host: hypervisor.Hypervisor) -> tuple[object, list[str]]:
        """CPU cores, and bytes per second of each disk."""
        return self.cores(host), [
            line for line in self.limits(host, 'one') if 'iotune' in line]

    def removed(self, agent: virtual_host.Agent, host: hypervisor.Hypervisor,
               name: str, before: list[str]) -> None:
        self.nothing_held(agent)
        self.assertEqual(before, self.limits(host, name))
        self.warned_of()
