# SPDX-License-Identifier: Apache-2.0

"""The quota that follows what is left over, on real cgroups and CPUs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import fixtures

from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import loops
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode

SPIN = "print('spins', flush=True)\nwhile True: pass"
TICK_S = 0.5
ONLY = scavenger.Params(use_memory=False, use_network=False, use_ipc=False)


class LeftoverTest(loops.LoopTestCase):

    def spin(self, below: str) -> subprocess.Popen[str]:
        process = self.spawn(SPIN, self.tree, below)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def others_s(self) -> float:
        """CPU time of all but the background, since boot."""
        with open('/proc/stat', 'rb') as file:
            busy_s = sum(proc.busy_s(file.read()).values())
        if base.version() == 1:
            return busy_s - int(self.tree.read('cpuacct', '/batch',
                                               'cpuacct.usage')) / 1e9
        return busy_s - int(self.tree.read('cpu', '/batch', 'cpu.stat')
                            .split()[1]) / 1e6

    def in_force(self, below: str = '/batch') -> float | None:
        quota = self.tree.get('quota', below).split()[0]
        return None if quota in ('-1', 'max') else int(quota) / 100_000

    def follow(self, loop: loop_.Loop) -> tuple[float, float]:
        """Turn as often as the least of some ticks takes: the quota of the
        group and what was left over, in cores."""
        cpus = os.cpu_count() or 1
        seen = []
        for _ in range(leftover.LEAST_OF + 1):
            began_s, before_s = time.monotonic(), self.others_s()
            time.sleep(TICK_S)
            tick = loop.tick(time.clock_gettime(time.CLOCK_BOOTTIME))
            self.assertEqual([], tick.outcome.problems)
            seen.append(cpus - (self.others_s() - before_s)
                        / (time.monotonic() - began_s))
        quota = self.in_force()
        assert quota is not None
        return quota, max(0.0, min(seen[1:]))

    def test_follows_a_foreground_that_comes_and_goes(self) -> None:
        loop = self.loop((scavenger.Controller(ONLY, interval_s=TICK_S),
                          Mode.ENFORCE))
        cpus = os.cpu_count() or 1
        for _ in range(cpus):
            self.spin('/batch/a')
        alone = self.follow(loop)
        services = [self.spin('/services/s') for _ in range(cpus)]
        beside = self.follow(loop)
        for process in services:
            process.kill()
            process.wait()
        after = self.follow(loop)
        self.assertLess(beside[0], 0.3 * cpus)
        # Whatever else uses this machine: the quota is what is left.
        for quota, left in (alone, beside, after):
            wanted = max(0.1, 0.97 * left)
            self.assertLess(abs(quota - wanted), 0.15 + 0.1 * wanted,
                            (alone, beside, after))

    def test_ends_without_a_trace_and_has_one_line(self) -> None:
        loop = self.loop((scavenger.Controller(ONLY, interval_s=TICK_S),
                          Mode.ENFORCE))
        self.spin('/batch/a')
        told = tick_events.new_tracker()
        lines: list[str] = []
        for number in range(8):
            if number == 4:
                self.spin('/services/s')
            tick = loop.tick(time.clock_gettime(time.CLOCK_BOOTTIME))
            assert tick.decided is not None
            wanted = tick.decided.wanted
            lines += [line for line in map(
                sentences.sentence, told.limits(
                    60.0 * number, 0.0, wanted,
                    dict.fromkeys(self.leases.held())))
                if ' cpu_cores ' in line]
            time.sleep(TICK_S / 2)
        self.assertEqual(leftover.OWNER, wanted[
            self.id('/batch'), Knob.CPU_CORES].owner)
        self.assertIsNotNone(self.in_force())
        self.assertEqual(1, len(lines), '\n'.join(lines))
        self.assertEqual([], loop.close())
        self.assertIsNone(self.in_force())
        self.assertEqual('0', self.tree.get('idle', '/batch'))

    def test_beside_a_quota_of_its_own_below(self) -> None:
        """Version 1 takes no lower one: that is said, the rest goes on."""
        self.tree.put('quota', '/batch/a', '150000')
        loop = self.loop((scavenger.Controller(ONLY, interval_s=TICK_S),
                          Mode.ENFORCE))
        for below in ('/batch/a', *('/services/s',) * (os.cpu_count() or 1)):
            self.spin(below)
        problems: set[str] = set()
        for _ in range(leftover.LEAST_OF + 1):
            time.sleep(TICK_S)
            tick = loop.tick(time.clock_gettime(time.CLOCK_BOOTTIME))
            problems.update(tick.outcome.problems)
        self.assertEqual('1', self.tree.get('idle', '/batch'))
        if base.version() == 1:
            problem, = {one.partition(' = ')[0] for one in problems}
            self.assertEqual(f'{self.id("/batch")} cpu_cores', problem)
            self.assertIn('the cgroup a inside it has a quota of 1.5 cores',
                          ''.join(problems))
        else:
            self.assertEqual(set(), problems)
            self.assertLess(self.in_force() or 9.0, 1.5)
        self.assertEqual([], loop.close())
        self.assertIsNone(self.in_force())
        self.assertEqual('150000', self.tree.get('quota', '/batch/a'))

    def test_a_looser_limit_inside_follows_the_group(self) -> None:
        """Version 1 takes no quota above that of the group."""
        wish = loops.Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        inner, group = self.id('/batch/a'), self.id('/batch')
        found = []
        for cores in (1.0, 0.5, 1.2, 1.8, 1.8, None, 0.9):
            wish.want(*[(group, Knob.CPU_CORES, cores)] if cores else [],
                      (inner, Knob.CPU_CORES, 1.5))
            tick = loop.tick(time.clock_gettime(time.CLOCK_BOOTTIME))
            self.assertEqual([], tick.outcome.problems)
            found.append((self.in_force(), self.in_force('/batch/a')))
        self.assertEqual([
            (1.0, 1.0), (0.5, 0.5), (1.2, 0.5), (1.8, 1.2), (1.8, 1.5),
            (None, 1.5), (0.9, 0.9)], found)
        self.assertEqual([], loop.close())
        self.assertEqual((None, None), (
            self.in_force(), self.in_force('/batch/a')))


@tiers.only_in_all('unit tests fill the host at once, and others limit VMs')
class VmTest(virtual_host.VirtualHostTestCase):

    def test_of_a_vm_only_the_vcpus_have_it(self) -> None:
        """On a full host they alone hold it back: QEMU is not idle."""
        host = self.hypervisor()
        host.define_and_start(virtual_host.background('back')).tell('cpu 1')
        agent = virtual_host.HostAgent(host, pathlib.Path(
            self.useFixture(fixtures.TempDir()).path))
        self.addCleanup(agent.close)
        loop = loop_.Loop(
            agent.driver, ((scavenger.Controller(ONLY, interval_s=TICK_S),
                            Mode.ENFORCE),), agent.leases, agent.actuator,
            agent.state_dir / 'stop', require_watcher=False)
        host.tree.make('/front')
        for _ in range(os.cpu_count() or 1):
            self.spawn(SPIN, host.tree, '/front')
        top, = host.tree.path('cpu', '/machine').glob('*-back.libvirt-qemu')

        def quotas() -> dict[str, bool]:
            """Which parts of the machine have one."""
            return {part: (top / part / 'cpu.cfs_quota_us').read_text()
                    .strip() != '-1' for part in ('', 'vcpu0', 'emulator')}

        def held_back() -> bool:
            time.sleep(TICK_S)
            tick = loop.tick(time.clock_gettime(time.CLOCK_BOOTTIME))
            self.assertEqual([], tick.outcome.problems)
            return (quotas() == {'': False, 'vcpu0': True, 'emulator': False}
                    and (top / 'cpu.idle').read_text().strip() == '0')

        # What it uses counts as left over, so it falls by 3 % in a tick.
        self.wait_for('the vCPU alone is limited', held_back, 120)
        self.assertEqual([], loop.close())
        self.assertFalse(any(quotas().values()))
