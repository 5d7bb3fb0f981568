# SPDX-License-Identifier: Apache-2.0

"""Direct evidence for VMs, whose cgroups libvirt made."""

from __future__ import annotations

import os
import pathlib
import subprocess

import fixtures

from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Resource

IN_MACHINE = '''
import os, time
with open({procs!r}, 'w') as file:
    file.write('0')
os.sched_setaffinity(0, {{{cpu}}})
print('up')
while True:
    end_s = time.perf_counter() + 0.02
    while {busy} or time.perf_counter() < end_s: pass
    time.sleep(0.005)
'''
"""What plays a thread of a QEMU: guests that are due would take long."""


class TestVms(virtual_host.VirtualHostTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('it puts processes into cgroups of threads')
        try:
            cpu_waits.CpuWaits().close()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))

    def thread(self, bench: hypervisor.Hypervisor, name: str, part: str, *,
               busy: bool) -> subprocess.Popen[str]:
        machine, = bench.tree.path('cpu', '/machine').glob(
            f'qemu-*-{name}.libvirt-qemu')
        process = self.spawn(IN_MACHINE.format(
            procs=str(machine / part / 'cgroup.procs'), busy=busy,
            cpu=max(os.sched_getaffinity(0))))
        assert process.stdout is not None
        self.assertEqual('up\n', process.stdout.readline())
        return process

    def test_which_vm_ran_while_another_waited(self) -> None:
        bench = self.hypervisor()
        # Whatever else this machine does hardly counts beside this.
        bench.tree.put('weight', '', '262144')
        victim, hog = map(virtual_host.tiny, ('victim', 'hog'))
        bench.start_all([victim, hog])
        agent = virtual_host.HostAgent(bench, pathlib.Path(
            self.useFixture(fixtures.TempDir()).path))
        self.addCleanup(agent.close)
        driver = agent.driver
        self.wait_for('both', lambda: {victim.uuid, hog.uuid} <= {
            one.workload.id for one in driver.sample().workloads})
        waiting = self.thread(bench, 'victim', 'emulator', busy=False)
        for part in 'emulator', 'vcpu0', '':
            self.thread(bench, 'hog', part, busy=True)
        schedstat = pathlib.Path(f'/proc/{waiting.pid}/schedstat')
        before_ns = int(schedstat.read_text().split()[1])
        driver.ask([(victim.uuid, Resource.CPU)])
        self.wait_for('the victim waits', lambda: int(
            schedstat.read_text().split()[1]) - before_ns > 5e8)
        driver.ask(())
        answer, = driver.sample().direct
        self.assertEqual((victim.uuid, False),
                         (answer.workload, answer.shared))
        self.assertGreater(answer.waited_s, 0.4)
        self.assertGreater(answer.holders[hog.uuid], 0.6 * answer.waited_s,
                           answer)
