# SPDX-License-Identifier: Apache-2.0

"""The buffer of idle CPUs beside background VMs of a real libvirt."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import Any

import fixtures

from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode

LEASE_S = 3.0


class BufferCase(virtual_host.VirtualHostTestCase):
    """A hypervisor whose CPUs other processes keep busy: of the two
    background VMs all threads belong on one CPU."""

    def setUp(self) -> None:
        super().setUp()
        self.cpus = sorted(os.sched_getaffinity(0))
        if len(self.cpus) < 2:
            self.skipTest('needs two CPUs')
        try:
            sched_switch.SchedSwitch().close()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.bench = self.hypervisor()
        self.guests = {name: virtual_host.tiny(name, machine='pc', vcpus=2)
                       for name in ('one', 'two', 'three')}
        self.bench.start_all([self.guests['one'], self.guests['two']])
        self.before = {name: self.sets(name) for name in ('one', 'two')}
        for _ in self.cpus:
            self.busy()

    def busy(self) -> None:
        process = subprocess.Popen(
            ['nice', '-n', '19', sys.executable, '-c', 'while True: pass'],
            stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)

    def sets(self, name: str) -> dict[str, str]:
        """The CPU set of each part of a VM."""
        return dict(re.split(': CPUs ', line, maxsplit=1) for line
                    in virtual_host.cpu_sets(self.bench, name))

    def narrow(self, *names: str) -> bool:
        """Whether each part of these VMs has one CPU, the same, while the
        machine's own set is as before."""
        sets = [self.sets(name) for name in names]
        return ({one.pop('all', '') for one in sets}
                == {self.before['one']['all']}
                and len({cpus for one in sets for cpus in one.values()}) == 1
                and len(set(sets[0].values()) & {
                    str(cpu) for cpu in self.cpus}) == 1)


class BufferTest(BufferCase):

    def setUp(self) -> None:
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.host_agent = virtual_host.HostAgent(self.bench, directory)
        self.addCleanup(self.host_agent.close)
        self.isolation = blind_isolation.BlindIsolation(
            self.host_agent.driver, self.host_agent.leases,
            perfiso.Params(buffer_cores=1), Mode.ENFORCE)
        self.loop = loop_.Loop(
            self.host_agent.driver, [], self.host_agent.leases,
            self.host_agent.actuator, self.host_agent.state_dir / 'stop',
            False, self.isolation)
        self.addCleanup(self.isolation.stop)
        self.now = 1000.0

    def tick(self) -> None:
        self.now += 1.0
        self.loop.tick(self.now)

    def follow(self, *names: str) -> None:
        def is_narrow() -> bool:
            self.tick()
            return self.narrow(*names)
        self.wait_for(f'{names} are narrow', is_narrow, 30)

    def end(self) -> None:
        self.isolation.mode = self.loop._own_mode = Mode.OFF
        self.tick()
        self.assertEqual({}, dict(self.host_agent.leases.held()))

    def facts(self) -> dict[str, Any]:
        return self.isolation.facts()

    def test_they_come_and_go(self) -> None:
        self.follow('one', 'two')
        uuid = self.guests['three'].uuid
        self.bench.start_all([self.guests['three']])
        self.follow('one', 'two', 'three')
        self.assertIn(uuid, self.facts()['groups'])
        self.bench.virsh('destroy two')
        self.follow('one', 'three')
        self.assertEqual({self.guests['one'].uuid, uuid},
                         set(self.facts()['groups']))
        self.assertEqual(({}, ''), (self.facts()['left_out'],
                                    self.facts()['problem']))
        # It runs again, under its UUID.
        self.bench.virsh('start two --paused')
        self.follow('one', 'two', 'three')
        self.end()
        for name in ('one', 'two', 'three'):
            self.assertEqual(self.before['one'], self.sets(name), name)

    def test_a_vcpu_that_libvirt_pins(self) -> None:
        """Its pin stays, and is what comes back."""
        self.follow('one', 'two')
        now = self.sets('two')['vcpu1']
        pinned, = {format_cpus({cpu}) for cpu in self.cpus[:2]} - {now}
        self.bench.virsh(f'vcpupin two 1 {pinned} --live')
        self.assertEqual(pinned, self.sets('two')['vcpu1'])
        key = (self.guests['two'].uuid, Knob.CPU_SET)

        def is_original() -> bool:
            self.tick()
            state = self.host_agent.leases.held().get(key)
            return state is not None and pinned in {
                action['text'] for action in state.original.actions
                if action['dir'].endswith('/vcpu1')}
        self.wait_for('it is the original', is_original, 30)
        self.end()
        self.assertEqual({**self.before['two'], 'vcpu1': pinned},
                         self.sets('two'))
        self.assertEqual(self.before['one'], self.sets('one'))

    def test_a_vcpu_that_is_plugged_in(self) -> None:
        self.bench.virsh('destroy two; setvcpus two 4 --maximum --config; '
                         'start two --paused')
        self.follow('one', 'two')
        self.bench.virsh('setvcpus two 3 --live')
        self.wait_for('it has a cgroup',
                      lambda: 'vcpu2' in self.sets('two'), 30)
        self.follow('one', 'two')
        self.end()
        self.assertEqual({**self.before['two'],
                          'vcpu2': self.before['two']['vcpu1']},
                         self.sets('two'))

    def test_one_with_cpus_of_its_own(self) -> None:
        """It is named, and left alone."""
        pins = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>"
                       for vcpu, cpu in enumerate(self.cpus[:2]))
        guest = virtual_host.tiny('pinned', machine='pc', vcpus=2,
                                  extra=f'<cputune>{pins}</cputune>')
        self.bench.start_all([guest])
        before = self.sets('pinned')
        self.follow('one', 'two')

        def is_named() -> bool:
            self.tick()
            return guest.uuid in self.facts()['left_out']
        self.wait_for('it is named', is_named, 30)
        self.assertEqual(before, self.sets('pinned'))


class KilledTest(BufferCase):

    def test_kill_9(self) -> None:
        """The watcher restores each part of each VM."""
        agent = virtual_host.HostAgent(
            self.bench, pathlib.Path(self.useFixture(
                fixtures.TempDir()).path),
            '[agent]', 'interval_s = 0.2', f'lease_s = {LEASE_S}',
            '[perfiso]', 'mode = enforce', 'buffer_cores = 1',
            '[scavenger]', 'mode = off', '[conductor]', 'enabled = false')
        agent.close()
        state_dir = str(agent.state_dir)
        self.start('restore.program', '--watch', '--stop-file',
                   f'{state_dir}/stop', '--state-dir', state_dir)
        process = self.start('cmd.agent', 'run', '--config-file',
                             str(agent.config), '--state-dir', state_dir)
        self.wait_for('the VMs are narrow',
                      lambda: self.narrow('one', 'two'), 60)
        self.wait_for('the status says so', lambda: set(json.loads(
            (agent.state_dir / 'status.json').read_text())['isolation'].get(
                'groups', ())) == {self.guests[name].uuid
                                   for name in self.before}, 30)
        process.send_signal(signal.SIGKILL)
        self.wait_for('all is restored', lambda: self.before == {
            name: self.sets(name) for name in self.before}, 10 * LEASE_S)

    def start(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, '-m', f'scavenger_openstack.{module}', *words],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)
        return process
