# SPDX-License-Identifier: Apache-2.0

"""Direct evidence for VMs, whose cgroups libvirt made."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import fixtures

from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import loop_device
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Resource

IN_MACHINE = '''
with open({procs!r}, 'w') as file:
    file.write('0')
'''
"""What plays a thread of a QEMU: guests that are due would take long."""

BUSY = '''
import os, time
os.sched_setaffinity(0, {{{cpu}}})
print('up')
while True:
    end_s = time.perf_counter() + 0.02
    while {busy} or time.perf_counter() < end_s: pass
    time.sleep(0.005)
'''


class TestVms(virtual_host.VirtualHostTestCase,
              loop_device.LoopDeviceTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('it puts processes into cgroups of threads')
        try:
            cpu_waits.CpuWaits({}).close()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))

    def thread(self, bench: hypervisor.Hypervisor, name: str, part: str,
               code: str) -> subprocess.Popen[str]:
        machine, = bench.tree.path('cpu', '/machine').glob(
            f'qemu-*-{name}.libvirt-qemu')
        process = self.spawn(IN_MACHINE.format(
            procs=str(machine / part / 'cgroup.procs')) + code)
        assert process.stdout is not None
        self.assertNotEqual('', process.stdout.readline())
        return process

    def busy(self, bench: hypervisor.Hypervisor, name: str, part: str, *,
             always: bool) -> subprocess.Popen[str]:
        return self.thread(bench, name, part, BUSY.format(
            busy=always, cpu=max(os.sched_getaffinity(0))))

    def host(self) -> tuple[hypervisor.Hypervisor, drivers_base.Driver]:
        """With the VMs ``victim`` and ``hog``."""
        bench = self.hypervisor()
        # Whatever else this machine does hardly counts beside this.
        bench.tree.put('weight', '', '262144')
        self.victim, self.hog = map(virtual_host.tiny, ('victim', 'hog'))
        bench.start_all([self.victim, self.hog])
        agent = virtual_host.HostAgent(bench, pathlib.Path(
            self.useFixture(fixtures.TempDir()).path))
        self.addCleanup(agent.close)
        driver = agent.driver
        self.wait_for('both', lambda: {
            self.victim.uuid, self.hog.uuid} <= {
            one.workload.id for one in driver.sample().workloads})
        return bench, driver

    def test_which_vm_ran_while_another_waited(self) -> None:
        bench, driver = self.host()
        waiting = self.busy(bench, 'victim', 'emulator', always=False)
        for part in 'emulator', 'vcpu0', '':
            self.busy(bench, 'hog', part, always=True)
        schedstat = pathlib.Path(f'/proc/{waiting.pid}/schedstat')
        driver.ask([(self.victim.uuid, Resource.CPU)])
        before_ns = int(schedstat.read_text().split()[1])
        self.wait_for('the victim waits', lambda: int(
            schedstat.read_text().split()[1]) - before_ns > 5e8)
        driver.ask(())
        answer, = driver.sample().direct
        self.assertEqual((self.victim.uuid, False),
                         (answer.workload, answer.shared))
        self.assertGreater(answer.waited_s, 0.4)
        self.assertGreater(answer.holders[self.hog.uuid],
                           0.6 * answer.waited_s, answer)

    def test_which_vm_a_disk_served_while_another_waited(self) -> None:
        bench, driver = self.host()
        self.thread(bench, 'hog', 'emulator', self.deep())
        self.thread(bench, 'victim', 'emulator', loop_device.READS.format(
            path=self.path, size=4096, threads=1, pause_s=0.005, period_s=0,
            turn=0))
        driver.ask([(self.victim.uuid, Resource.DISK)])
        until_s = time.monotonic() + 1.5
        self.wait_for('a while', lambda: time.monotonic() > until_s)
        driver.ask(())
        answer, = driver.sample().direct
        self.assertEqual((self.victim.uuid, Resource.DISK, False),
                         (answer.workload, answer.resource, answer.shared))
        self.assertGreater(answer.waited_s, 0.05)
        # .8 where this machine leaves so little to the disk that it serves
        # one request of each in turn: 64 KiB, 4 KiB, and 16 KiB for each.
        self.assertGreater(answer.holders[self.hog.uuid],
                           0.6 * answer.waited_s, answer)
        self.assertGreater(answer.holders[self.victim.uuid], 0.0)
