# SPDX-License-Identifier: Apache-2.0


"""After its last limit the XML of a domain is what it was before the first,
here and wherever the domain went meanwhile."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import pathlib
from typing import Any

from scavenger_openstack.drivers.cgroup import cpuset_tree
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

PINNED: dict[Knob, Value] = {Knob.CPU_SET: '1'}
CAPS: dict[Knob, Value] = {**domain_life.CAPS, **PINNED,
                           Knob.IO_OPS_PER_S: 300}
FREE = ('emulator: CPUs 0-1', 'vcpu0: CPUs 0-1')


class XmlCase(domain_life.LifeCase):

    def two(self) -> tuple[hypervisor.Hypervisor, hypervisor.Hypervisor]:
        return (self.hypervisor(own_network=True),
                self.hypervisor(own_network=True))

    def move(self, name: str, source: hypervisor.Hypervisor,
             target: hypervisor.Hypervisor) -> None:
        """As Nova does it: the live definition becomes the persistent one."""
        path = source.directory / 'live.xml'
        path.write_text(source.virsh('dumpxml', name, '--migratable'))
        source.migrate(name, target, '--persistent-xml', str(path))

    def both(self, host: hypervisor.Hypervisor) -> list[str]:
        """As it runs, and as it is defined."""
        return [virtual_host.xml(host, 'one', *options)
                for options in ((), ('--inactive',))]

    def there(self, source: hypervisor.Hypervisor,
              target: hypervisor.Hypervisor) -> list[str]:
        """The XML of the domain after a move without limits; it is back."""
        self.move('one', source, target)
        found = self.both(target)
        self.move('one', target, source)
        return found

    def removed(self, agent: virtual_host.Agent,
                host: hypervisor.Hypervisor, before: list[str]) -> None:
        self.wait_for('no limit', lambda: (
            agent.tick(), self.limits(host, 'one') == before)[-1],
            timeout_s=40)

    def limited(self, agent: virtual_host.Agent, uuid: str) -> bool:
        agent.tick({uuid: CAPS})
        return len(agent.leases.held()) == len(CAPS)


class TestMoves(XmlCase):

    def test_there_and_back(self) -> None:
        """First without limits, then with: the same XML at each station."""
        hosts = self.two()
        guest = self.one(hosts[0])
        agents = [self.agent(host) for host in hosts]
        before = self.limits(hosts[0], 'one')
        rounds: list[list[str]] = []
        for limited in (False, True):
            stations = []
            for here, there in ((0, 1), (1, 0)):
                if limited:
                    self.wait_for('limits', functools.partial(
                        self.limited, agents[here], guest.uuid), timeout_s=40)
                self.move('one', hosts[here], hosts[there])
                self.nothing_held(agents[here])
                self.removed(agents[there], hosts[there], before)
                stations += self.both(hosts[there])
            rounds.append(stations)
        for without, limited_ in zip(*rounds, strict=True):
            self.assertEqual(without, limited_)

    @tiers.only_in_all('a VM moves there and back in the gate')
    def test_to_a_host_with_fewer_cpus(self) -> None:
        """A CPU set goes nowhere; a pin does, and is refused there."""
        source, target = self.two()
        guest, other = self.one(source), virtual_host.tiny(
            'two', machine='pc', paused=False)
        source.start_all([other])
        before = self.there(source, target)
        cpuset_tree.FastCpuSet(cgroup_files.CgroupDirectory(
            str(target.tree.path('cpuset')), version=1)).set(frozenset((0,)))
        source.virsh('emulatorpin two 1 --live')
        self.assertRaises(hypervisor.HypervisorError, self.move, 'two',
                          source, target)
        agent = self.agent(source)
        self.cap(agent, guest.uuid, PINNED)
        self.move('one', source, target)
        self.nothing_held(agent)
        self.assertIn('vcpu0: CPUs 0', self.limits(target, 'one'))
        self.assertEqual(before, self.both(target))

    def test_to_a_host_without_an_agent(self) -> None:
        """What libvirt carries stays, in both definitions; an agent that is
        started there later removes it."""
        source, target = self.two()
        guest = self.one(source)
        whole = self.there(source, target)
        before = self.limits(source, 'one')
        agent = self.agent(source)
        self.cap(agent, guest.uuid, CAPS)
        self.move('one', source, target)
        self.nothing_held(agent)
        left = self.limits(target, 'one')
        for one in FREE:
            self.assertIn(one, left)
        for xml in self.both(target):
            self.assertIn('<quota>20000</quota>', xml)
            self.assertIn('<total_bytes_sec>5000000</total_bytes_sec>', xml)
            self.assertIn('/lease/1/cpu_cores', xml)
            self.assertNotIn('cpu_set', xml)
            self.assertNotIn('pin', xml)
        self.removed(self.agent(target), target, before)
        self.assertEqual(whole, self.both(target))


class TestStays(XmlCase):

    def setUp(self) -> None:
        super().setUp()
        self.host = self.hypervisor()
        self.guest = self.one(self.host)
        self.agent_ = self.agent(self.host)

    def compare(self, turn: Callable[[Callable[[], None]], None]) -> None:
        """Play a turn twice, first without limits: it is handed what sets
        them.  In the end there are none, and the same XML."""
        found: list[list[str]] = []
        for limited in (False, True):
            def limit(limited: bool = limited) -> None:
                if limited:
                    self.wait_for('limits', functools.partial(
                        self.limited, self.agent_, self.guest.uuid),
                        timeout_s=40)
            turn(limit)
            self.nothing_held(self.agent_)
            if not found:
                before = self.limits(self.host, 'one')
            self.removed(self.agent_, self.host, before)
            found.append(self.both(self.host))
        self.assertEqual(found[0][0], found[1][0])
        self.assertEqual(found[0][1], found[1][1])

    def again(self, name: str, **changes: Any) -> pathlib.Path:
        """How it may start again; each XML of a guest has other UUIDs."""
        path = self.host.directory / f'{name}.xml'
        path.write_text(dataclasses.replace(self.guest, **changes).xml())
        return path

    def start(self, path: pathlib.Path) -> None:
        self.host.virsh('destroy one')
        self.host.virsh(f'define {path}')
        self.host.virsh('start one')

    def test_set_and_removed(self) -> None:
        self.compare(lambda limit: limit())

    def test_resized(self) -> None:
        """Larger, and smaller again, limited each time."""
        sizes = [self.again(f'size{times}', vcpus=times,
                            memory_bytes=times * self.guest.memory_bytes)
                 for times in (2, 1)]

        def resize(limit: Callable[[], None]) -> None:
            for path in sizes:
                limit()
                self.start(path)
            limit()
        self.compare(resize)

    @tiers.only_in_all('a VM is resized in the gate')
    def test_rescued_and_back(self) -> None:
        """While it is limited; Nova keeps the live XML for the way back."""
        rescued = self.again('rescue', disks=(domain_guest.Disk.make(
            self.host.disks / 'rescue'), *self.guest.disks))
        path = self.host.directory / 'unrescue.xml'

        def rescue(limit: Callable[[], None]) -> None:
            limit()
            path.write_text(self.host.virsh('dumpxml one'))
            self.start(rescued)
            limit()
            self.start(path)
            limit()
        self.compare(rescue)

    def test_pinned_by_another_meanwhile(self) -> None:
        """libvirt can do that, and that is what is restored."""
        host = self.hypervisor()
        guest = virtual_host.tiny('one', machine='pc', vcpus=2)
        host.start_all([guest])
        agent = self.agent(host)
        self.cap(agent, guest.uuid, PINNED)
        host.virsh('vcpupin one 0 0 --live')
        for _ in range(10):
            agent.tick({guest.uuid: PINNED})
        self.assertIn('vcpu0: CPUs 1', self.limits(host, 'one'))
        self.assertEqual(1, self.said('another program changed it'))
        self.nothing_held(agent)
        for one in ('vcpu0: CPUs 0', 'vcpu1: CPUs 0-1', FREE[0]):
            self.assertIn(one, self.limits(host, 'one'))

