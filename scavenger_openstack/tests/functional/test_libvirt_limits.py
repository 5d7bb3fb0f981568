# SPDX-License-Identifier: Apache-2.0


"""Limits on real domains: they hold, and go without a trace."""

from __future__ import annotations

from collections.abc import Callable
import functools
import time

import fixtures
from testtools import content
from testtools import matchers

from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Value

TUNED = """
  <cputune><quota>150000</quota><period>100000</period></cputune>"""


class LimitsCase(virtual_host.VirtualHostTestCase):

    def timed(self, what: str, call: Callable[[], object]) -> None:
        began = time.monotonic()
        call()
        self.times = [*getattr(self, 'times', []),
                      f'{what}: {(time.monotonic() - began) * 1e3:.1f} ms']
        self.addDetail('times', content.text_content('\n'.join(self.times)))


class TestAllKnobs(LimitsCase):

    def test_each_is_set_and_removed(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', vcpus=2,
            disks=(domain_guest.Disk.make(host.disks / 'a'),))
        host.define_and_start(guest)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        live, inactive = (virtual_host.xml(host, 'one', *options)
                          for options in ((), ('--inactive',)))
        now = functools.partial(self.limits, host, 'one')
        for knob, value in virtual_host.ALL.items():
            self.timed(f'{knob} set', functools.partial(
                agent.tick, {guest.uuid: {knob: value}}))
            self.assertEqual([(guest.uuid, knob)],
                             list(agent.leases.held()), self.log.output)
            self.assertEqual(value, agent.read(guest.uuid, knob))
            self.assertNotEqual(before, now())
            if knob is Knob.CPU_SET:    # libvirt knows nothing of it
                self.assertEqual(live, virtual_host.xml(host, 'one'))
            self.timed(f'{knob} changed', functools.partial(
                agent.tick, {guest.uuid: {knob: tighter(knob, value)}}))
            self.timed(f'{knob} removed', agent.tick)
            self.assertEqual({}, dict(agent.leases.held()))
            if knob is Knob.MEMORY_BYTES:
                self.wait_for('balloon', functools.partial(
                    lambda now: now() == before, now), timeout_s=30)
            self.assertEqual(before, now(), knob)
            self.assertEqual(live, virtual_host.xml(host, 'one'), knob)
        self.assertEqual(inactive, virtual_host.xml(host, 'one',
                                                    '--inactive'))

    def test_cpu_idle_is_of_the_machine(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.tiny('one')
        host.start_all([guest])
        agent = self.agent(host)
        group, = host.tree.path('cpu', '/machine').glob('qemu-*')
        shares = (group / 'cpu.shares').read_text()
        agent.tick({guest.uuid: {Knob.CPU_IDLE: 1}})
        self.assertEqual('1', (group / 'cpu.idle').read_text().strip())
        agent.tick()
        self.assertEqual('0', (group / 'cpu.idle').read_text().strip())
        self.assertEqual(shares, (group / 'cpu.shares').read_text())

    def test_foreground_is_never_written(self) -> None:
        host = self.hypervisor()
        guest = domain_guest.tiny('one')
        host.start_all([guest])
        agent = self.agent(host)
        before = self.limits(host, 'one')
        agent.tick({guest.uuid: {Knob.CPU_CORES: 0.2}})
        self.assertEqual(before, self.limits(host, 'one'))
        # libvirt is asked first whether it, and not the domain, is at fault.
        self.wait_for('why', lambda: self.said('never limited'))
        for knob in (Knob.CPU_CORES, Knob.CPU_IDLE, Knob.PAUSED):
            self.assertRaises(errors.Unsupported, agent.driver.write,
                              guest.uuid, knob, 1)

    def test_what_the_control_plane_makes_background(self) -> None:
        """Only a VM whose flavor says nothing; it can then be limited, and
        is still what it was when the agent lets it go."""
        host = self.hypervisor()
        untagged, guarded = domain_guest.tiny('one'), domain_guest.tiny(
            'two', nova=domain_guest.Nova(
                extra_specs={'scavenger:priority': 'foreground'}))
        host.start_all([untagged, guarded])
        agent = self.agent(host)
        before = self.limits(host, 'one')
        agent.driver.allow({untagged.uuid: {}, guarded.uuid: {}})
        self.assertEqual(
            {untagged.uuid: (Priority.BACKGROUND, 'override'),
             guarded.uuid: (Priority.FOREGROUND, 'flavor')},
            {one.workload.id: (one.workload.priority, one.workload.source)
             for one in agent.sample().values()})
        wish = {one.uuid: {Knob.CPU_CORES: 0.2}
                for one in (untagged, guarded)}
        agent.tick(wish)
        self.assertEqual({(untagged.uuid, Knob.CPU_CORES)}, {
            key for key in agent.leases.held() if agent.read(
                *key) == 0.2})
        self.assertRaises(errors.Unsupported, agent.driver.write,
                          guarded.uuid, Knob.CPU_CORES, 0.2)
        agent.tick()
        self.assertEqual(before, self.limits(host, 'one'))

    def test_without_disks_and_balloon(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.tiny('one')
        host.start_all([guest])
        agent = self.agent(host)
        agent.tick({guest.uuid: virtual_host.ALL})
        held = {knob for _, knob in agent.leases.held()}
        self.assertEqual({Knob.CPU_CORES, Knob.CPU_SET}, held)
        for why in ('has no balloon', 'has no disks'):      # one in a tick
            self.wait_for(why, lambda why=why: (
                agent.tick({guest.uuid: virtual_host.ALL}),
                self.said(why))[-1])
        agent.tick()
        self.assertEqual({}, dict(agent.leases.held()))

    def test_the_operators_own_limits(self) -> None:
        """In force is the tighter one, in the family that there was."""
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', vcpus=2, extra=TUNED, cpuset='0',
            disks=tuple(domain_guest.Disk.make(host.disks / name)
                        for name in 'ab'))
        host.start_all([guest])
        for options in ('vda --total-bytes-sec 8000000',
                        'vdb --read-bytes-sec 3000000 '
                        '--read-bytes-sec-max 9000000 '
                        '--read-bytes-sec-max-length 3'):
            host.virsh(f'blkdeviotune one {options} --live')
        agent = self.agent(host)
        before = self.limits(host, 'one')
        caps: dict[Knob, Value] = {
            Knob.CPU_CORES: 0.001, Knob.IO_BYTES_PER_S: 5_000_000,
            Knob.CPU_SET: '1'}
        agent.tick({guest.uuid: caps})
        # libvirt's least, of two vCPUs.
        self.assertEqual(0.002, agent.read(
            guest.uuid, Knob.CPU_CORES))
        self.assertEqual('0', agent.read(guest.uuid, Knob.CPU_SET))
        found = bytes_sec(host)
        self.assertEqual(['5000000', '0', '0', '0', '3000000', '5000000'],
                         found)
        agent.tick({guest.uuid: {Knob.CPU_CORES: 2,
                                 Knob.IO_BYTES_PER_S: 20_000_000}})
        agent.tick()
        self.assertEqual(before, self.limits(host, 'one'))

    def test_somebody_else_sets_a_part(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background('one', disks=tuple(
            domain_guest.Disk.make(host.disks / name) for name in 'ab'))
        host.start_all([guest])
        agent = self.agent(host)
        caps = {guest.uuid: {Knob.IO_BYTES_PER_S: 5_000_000}}
        agent.tick(caps)
        host.virsh('blkdeviotune one vda --live --read-bytes-sec 9000000 '
                   '--write-bytes-sec 9000000')

        def again() -> bool:
            agent.tick(caps)
            return ('another program changed it' in self.log.output
                    and agent.read(
                        guest.uuid, Knob.IO_BYTES_PER_S) == 5_000_000)

        self.wait_for('it is limited again', again)
        agent.tick()
        # Both shared a group, whose limits are those of each.
        found = bytes_sec(host)
        self.assertEqual(['0', '9000000', '9000000'] * 2, found)
        self.assertEqual(0, grouped(host))

    def test_a_disk_that_is_plugged_in_shares_the_cap(self) -> None:
        host = self.hypervisor()
        disks = [domain_guest.Disk.make(host.disks / name) for name in 'ab']
        guest = virtual_host.background('one', disks=disks[:1])
        host.start_all([guest])
        agent = self.agent(host)
        before = self.limits(host, 'one')
        caps = {Knob.IO_BYTES_PER_S: 5_000_000}
        agent.tick({guest.uuid: caps})
        path = host.directory / 'b.xml'
        path.write_text(disks[1].xml(1))
        host.virsh(f'attach-device one {path} --live')

        def shared(disks: int) -> bool:
            agent.tick({guest.uuid: caps})
            return (grouped(host) == disks and bytes_sec(host)
                    == ['5000000', '0', '0'] * 2)

        self.wait_for('both have it', lambda: shared(2))
        # A limit of the other kind is of both; both are set again for three.
        caps = {**caps, Knob.IO_OPS_PER_S: 200}
        agent.tick({guest.uuid: caps})
        self.assertEqual(2, grouped(host))
        path.write_text(domain_guest.Disk.make(host.disks / 'c').xml(2))
        host.virsh(f'attach-device one {path} --live')
        self.wait_for('all three have it', lambda: shared(3))
        for knob, value in caps.items():
            self.assertEqual(value, agent.read(guest.uuid, knob))
        agent.tick()
        self.assertEqual(before, self.limits(host, 'one'))


class TestSeveralTexts(LimitsCase):
    """Another program writes one text of a limit that consists of several."""

    def then(self, host: hypervisor.Hypervisor, agent: virtual_host.Agent,
             caps: dict[str, dict[Knob, Value]], command: str) -> list[str]:
        """What the VM has after a limit under which that was done."""
        agent.tick(caps)
        said = self.said('another program changed it')
        host.virsh(command)
        self.wait_for('it is noticed', lambda: (
            agent.tick(caps),
            self.said('another program changed it') > said)[-1])
        for _ in range(5):
            self.assertEqual([], agent.tick(caps).problems)
        agent.tick()
        self.assertEqual({}, dict(agent.leases.held()), self.log.output)
        return self.limits(host, 'one')

    def test_quota_and_period(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.tiny('one', extra=TUNED)
        host.start_all([guest])
        agent = self.agent(host)
        before = self.limits(host, 'one')
        caps: dict[str, dict[Knob, Value]] = {
            guest.uuid: {Knob.CPU_CORES: 0.002}}    # takes a longer period
        self.assertEqual(before, self.then(
            host, agent, caps, 'schedinfo one --live vcpu_period=200000'))
        self.assertEqual(1, self.said('the limit is set again'))
        found = self.then(host, agent, caps,
                          'schedinfo one --live vcpu_quota=250000')
        for text in ('<quota>250000</quota>', '<period>500000</period>'):
            self.assertIn(text, found)
        self.assertEqual(1, self.said('which will be restored'))

    def test_limit_and_burst(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.tiny('one', machine='pc', disks=tuple(
            domain_guest.Disk.make(host.disks / name) for name in 'ab'))
        host.start_all([guest])
        host.virsh('blkdeviotune one vda --live --total-bytes-sec 9000000 '
                   '--total-bytes-sec-max 18000000')
        agent = self.agent(host)
        before = self.limits(host, 'one')
        caps: dict[str, dict[Knob, Value]] = {
            guest.uuid: {Knob.IO_BYTES_PER_S: 5_000_000}}
        for disk in ('vda', 'vdb'):
            self.assertEqual(before, self.then(
                host, agent, caps, f'blkdeviotune one {disk} --live '
                '--total-bytes-sec-max 8000000'))
        self.then(host, agent, caps,
                  'blkdeviotune one vdb --live --total-bytes-sec 7000000')
        self.assertEqual(['9000000', '0', '0', '7000000', '0', '0'],
                         bytes_sec(host))
        self.assertIn('18000000', ''.join(self.limits(host, 'one')))


class TestTheyHold(LimitsCase):

    def test_cpu_and_disk(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background(
            'one', vcpus=2,
            disks=(domain_guest.Disk.make(host.disks / 'a'),))
        console = host.define_and_start(guest)
        agent = self.agent(host)
        console.tell('cpu 2')
        agent.tick({guest.uuid: {Knob.CPU_CORES: 0.2}})
        time.sleep(1)
        began, first = time.monotonic(), agent.sample()[guest.uuid]
        time.sleep(5)
        last, took = agent.sample()[guest.uuid], time.monotonic() - began
        assert first.cpu_s is not None and last.cpu_s is not None
        cores = (last.cpu_s - first.cpu_s) / took
        throttled = (last.throttled_s or 0) - (first.throttled_s or 0)
        agent.tick()
        console.tell('disk seq kib=64')
        agent.tick({guest.uuid: {Knob.IO_BYTES_PER_S: 5_000_000}})
        console.measure(1)
        work = console.measure(5)
        agent.tick()
        free = console.measure(2)
        self.addDetail('measured', content.text_content(
            f'{cores:.4f} cores of 0.2, throttled '
            f'{throttled:.1f} s; {work.bytes_per_s / 1e6:.2f} MB/s of 5; '
            f'free {free.bytes_per_s / 1e6:.1f} MB/s'))
        # On a busy machine it may get less, but never more.
        self.assertThat(cores, matchers.MatchesAll(
            matchers.GreaterThan(0.16 if tiers.ALL else 0.0),
            matchers.LessThan(0.21)))
        self.assertThat(work.bytes_per_s / 1e6, matchers.MatchesAll(
            matchers.GreaterThan(4.0 if tiers.ALL else 0.0),
            matchers.LessThan(5.5)))
        self.assertThat(free.bytes_per_s, matchers.GreaterThan(
            1.5 * work.bytes_per_s))

    @tiers.only_in_all('a figure under load')
    def test_all_disks_and_directions_together(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background('one', disks=tuple(
            domain_guest.Disk.make(host.disks / name) for name in 'ab'))
        console = host.define_and_start(guest)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        measured = []
        for knob, cap, work in (
                (Knob.IO_BYTES_PER_S, 5_000_000,
                 'kib=64 bytes_per_s=25000000'),
                (Knob.IO_OPS_PER_S, 200, 'kib=4 bytes_per_s=4000000')):
            console.tell(f'disk mixed {work} threads=4 disks=2')
            agent.tick({guest.uuid: {knob: cap}})
            console.measure(2)
            done = console.measure(5)
            agent.tick()
            self.assertEqual(before, self.limits(host, 'one'))
            free = console.measure(2)
            rates = [one.bytes_per_s if knob is Knob.IO_BYTES_PER_S
                     else one.done / one.took_s for one in (done, free)]
            console.tell('rest')
            measured.append((knob, rates[0] / cap, rates[1] / cap))
        self.addDetail('measured', content.text_content(str(measured)))
        for knob, under_cap, without in measured:
            self.assertThat(under_cap, matchers.MatchesAll(
                matchers.GreaterThan(0.8), matchers.LessThan(1.1)), knob)
            self.assertThat(without, matchers.GreaterThan(1.5))

    def test_pause_and_balloon(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background('one')
        console = host.define_and_start(guest)
        agent = self.agent(host)
        console.tell('cpu 1')
        agent.tick({guest.uuid: {Knob.PAUSED: 1}})
        self.assertEqual('paused', host.virsh('domstate', 'one').strip())
        first = agent.sample()[guest.uuid].cpu_s
        time.sleep(1)
        last = agent.sample()[guest.uuid].cpu_s
        assert first is not None and last is not None
        self.assertThat(last - first, matchers.LessThan(0.1))
        agent.tick({guest.uuid: {Knob.MEMORY_BYTES: 64 * 2**20}})
        self.assertEqual('running', host.virsh('domstate', 'one').strip())
        self.wait_for('the balloon', lambda: '65536' in self.limits(
            host, 'one')[0] + self.limits(host, 'one')[-2], timeout_s=30)
        for _ in range(5):
            agent.tick({guest.uuid: {Knob.MEMORY_BYTES: 64 * 2**20}})
        self.assertNotIn('another program', self.log.output)

    @tiers.only_in_all('another balloon moves in the gate')
    def test_a_balloon_that_does_not_move(self) -> None:
        """First there is no driver yet, later it gives nothing back."""
        for name in ('SILENT_S', 'STILL_S'):
            self.useFixture(fixtures.MonkeyPatch(
                f'scavenger_openstack.drivers.libvirt.balloon.{name}', 2.0))
        host = self.hypervisor()
        guest = virtual_host.background('one', paused=True)
        host.start_all([guest])
        agent = self.agent(host)
        before = self.limits(host, 'one')
        cap = {guest.uuid: {Knob.MEMORY_BYTES: 64 * 2**20}}
        self.wait_for('the warning', lambda: agent.tick(cap).unmet == {}
                      and self.said('has not answered'), timeout_s=20)
        for _ in range(5):
            self.assertEqual({}, agent.tick(cap).unmet)
        self.assertEqual(1, self.said('has not answered'))
        self.assertEqual(64 * 2**20, agent.read(
            guest.uuid, Knob.MEMORY_BYTES))
        host.virsh('resume one')
        self.wait_for('the balloon', lambda: '65536' in self.limits(
            host, 'one')[0], timeout_s=60)
        self.wait_for('nothing missing', lambda: not agent.tick(cap).unmet,
                      timeout_s=20)
        host.virsh('suspend one')
        less = {guest.uuid: {Knob.MEMORY_BYTES: 48 * 2**20}}
        self.wait_for('what is missing', lambda: agent.tick(less).unmet
                      == {guest.uuid: 16 * 2**20}, timeout_s=20)
        self.assertEqual(1, self.said('has not moved'))
        host.virsh('resume one')
        self.wait_for('nothing missing', lambda: not agent.tick(less).unmet,
                      timeout_s=60)
        self.assertNotIn('another program', self.log.output)
        agent.tick()
        self.assertEqual({}, agent.tick().unmet)
        self.wait_for('all of it', lambda: self.limits(host, 'one')[:-1]
                      == before[:-1], timeout_s=30)

    @tiers.only_in_all('another balloon moves in the gate')
    def test_a_balloon_on_its_way_is_no_original(self) -> None:
        host = self.hypervisor()
        guest = virtual_host.background('one')
        host.define_and_start(guest)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        cap = {guest.uuid: {Knob.MEMORY_BYTES: 64 * 2**20}}
        agent.tick(cap)
        self.wait_for('the balloon', lambda: '65536' in self.limits(
            host, 'one')[0], timeout_s=30)
        # QEMU tells once a second: so it tells of the first step at once.
        time.sleep(1.5)
        agent.tick()
        self.wait_for('a step', lambda: '65536' not in self.limits(
            host, 'one')[0], timeout_s=30)
        agent.tick(cap)
        lease = agent.leases.held()[guest.uuid, Knob.MEMORY_BYTES]
        self.assertEqual({'balloon_kib': '98304'},
                         lease.original.actions[0]['values'])
        agent.tick()
        self.wait_for('all of it', lambda: self.limits(host, 'one')
                      == before, timeout_s=30)


def bytes_sec(host: hypervisor.Hypervisor) -> list[str]:
    """Total, read and write of each of two disks."""
    said = host.virsh('blkdeviotune one vda; blkdeviotune one vdb')
    return [line.split()[-1] for line in said.splitlines()
            if line.partition(':')[0].strip() in (
                'total_bytes_sec', 'read_bytes_sec', 'write_bytes_sec')]


def grouped(host: hypervisor.Hypervisor) -> int:
    """How many disks share the limits of our group."""
    return host.virsh('dumpxml one').count(f'>{knobs.GROUP}<')


def tighter(knob: Knob, value: Value) -> Value:
    return (value if isinstance(value, str) or knob is Knob.PAUSED
            else value * 0.8)
