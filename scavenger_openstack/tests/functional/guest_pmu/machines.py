# SPDX-License-Identifier: Apache-2.0



"""Counters of virtual machines, in cgroups as libvirt makes them."""

from __future__ import annotations

from collections.abc import Callable
import os
import pathlib
import signal
import time

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel.perf_event import Place
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.drivers.perf import standstill
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.tests.functional.guest_pmu import counted
from scavenger_openstack.tests.functional.guest_pmu import kvm
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

UUID = '5f2a6c9e-0d1b-4c3f-8a7e-1b2c3d4e5f60'
SCOPE = r'/machine.slice/machine-qemu\x2d1\x2dinstance\x2d00000001.scope'
V1 = pathlib.Path('/perf_event')


def in_turns(work: tree.Work) -> tree.Work:
    """All that do so get the same time of one CPU."""
    def there(ready: Callable[[], object]) -> None:
        os.sched_setaffinity(0, {0})
        work(ready)
    return there


def now_and_then(ready: Callable[[], object]) -> None:
    """As QEMU does it while its guest is paused."""
    ready()
    while True:
        time.sleep(0.02)


class Machines(counted.PmuTestCase):
    """One VM: cgroups for its vCPU and for its emulator."""

    def setUp(self) -> None:
        super().setUp()
        self.age_s = 1.0
        self.places: dict[str, Place | None] = {}
        for part in ('vcpu0', 'emulator'):
            self.tree.make(f'{SCOPE}/libvirt/{part}')

    def start(self, vcpu: tree.Work, emulator: tree.Work, virt_type: str
              ) -> None:
        """Both run in turns; the driver is told as by libvirt."""
        pid = self.tree.run(f'{SCOPE}/libvirt/vcpu0', in_turns(vcpu))
        self.tree.run(f'{SCOPE}/libvirt/emulator', in_turns(emulator))
        self.follow(pid, virt_type)

    def follow(self, pid: int, virt_type: str) -> None:
        machine = domain_cgroup.machine(
            pathlib.Path(f'/proc/{pid}/cgroup').read_text(),
            cgroup_mounts.find_mounts())
        assert machine is not None
        self.places[UUID] = machine.place(virt_type)

    def look(self, counters: perf.Perf) -> HostSample:
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return HostSample(
            host='guest', boot_id='1', time_s=now, wall_time_s=now,
            workloads=counters.add((WorkloadSample(Workload(
                UUID, Priority.FOREGROUND, created_s=self.age_s)),), now,
                self.places.get))

    def shares(self, counters: perf.Perf) -> tuple[float, float]:
        """Cycles per instruction, and the share of the VM's CPU time in
        which cycles were counted, at 1 GHz."""
        self.look(counters)     # to open them takes a while
        first, last = self.looks(counters, 1.0)
        before, after = first.workloads[0], last.workloads[0]
        cpi = rates.rates(first, last).workloads[0].cpi
        assert cpi is not None
        return cpi, (counted.grown(before, after, 'cycles') / 1e9
                     / counted.grown(before, after, 'counter_enabled_s'))

    def test_a_guest_without_its_emulator(self) -> None:
        """Both run all the time, and half of that is the guest's."""
        self.start(kvm.run, tree.spin, 'kvm')
        cpi, share = self.shares(self.counting())
        self.assertNear(counted.cpi(), cpi)
        self.assertBetween(0.4, share, 0.6)

    def test_an_emulated_guest_is_all_of_its_emulator(self) -> None:
        self.start(tree.spin, tree.spin, 'qemu')
        cpi, share = self.shares(self.counting())
        self.assertNear(counted.cpi(), cpi)
        self.assertBetween(0.95, share, 1.01)

    def test_a_paused_guest_says_nothing_about_the_pmu(self) -> None:
        self.start(now_and_then, now_and_then, 'kvm')
        counters = self.counting()
        first = self.look(counters)
        for _ in range(standstill.TAKEN_TICKS + 2):
            _, last = self.looks(counters, 0.2)
        self.assertGreater(counted.grown(
            first.workloads[0], last.workloads[0], 'counter_enabled_s'), 0)
        self.assertEqual((0, 'B'), (last.workloads[0].instructions,
                                    counters.grade.letter))

    def test_an_emulated_guest_that_is_taken_for_a_real_one(self) -> None:
        """As it is when libvirt is not asked: that shows."""
        self.start(tree.spin, tree.spin, 'kvm')
        counters = self.counting()
        for _ in range(standstill.TAKEN_TICKS + 2):
            self.looks(counters, 0.2)
        self.assertEqual('C', counters.grade.letter)
        self.assertIn('all VMs are emulated', counters.grade.why)

    def test_version_1_and_a_new_start_under_the_same_name(self) -> None:
        V1.mkdir()
        self.addCleanup(V1.rmdir)
        self.assertEqual(0, kvm.libc.mount(
            b'cgroup', bytes(V1), b'cgroup', 0, b'perf_event'))
        self.addCleanup(kvm.libc.umount2, bytes(V1), 0)
        scope = pathlib.Path(f'{V1}{SCOPE}')
        counters = self.counting()
        self.assertEqual('B', counters.grade.letter)
        seen = []
        for _ in range(2):
            scope.mkdir(parents=True)
            pid = self.tree.run(f'{SCOPE}/libvirt/vcpu0', in_turns(kvm.run))
            (scope / 'cgroup.procs').write_text(str(pid))
            self.follow(pid, 'kvm')
            self.assertEqual(Place(str(scope), True), self.places[UUID])
            cpi, _ = self.shares(counters)
            self.assertNear(counted.cpi(), cpi)
            seen.append(self.look(counters))
            os.kill(pid, signal.SIGKILL)
            self.wait_for('it ends', lambda: not (
                scope / 'cgroup.procs').read_text())
            for path in (scope, scope.parent):
                path.rmdir()
            # Over the change nothing is known, and nothing is mixed.
            self.age_s += 1
        first, last = seen
        self.assertIsNone(rates.rates(first, last).workloads[0].cpi)
        self.assertEqual(1, counters.measured)
