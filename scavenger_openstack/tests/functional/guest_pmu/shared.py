# SPDX-License-Identifier: Apache-2.0


"""Counters that others use, too, and workloads and CPUs that come and go."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pathlib
import struct
import time

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional.guest_pmu import counted
from scavenger_openstack.tests.functional.guest_v2 import tree

CPUS = range(2)
GENERIC = 6
"""Counters of this PMU for instructions; one more counts cycles only."""

BOTH = 0.1
"""QEMU runs its CPUs in turns, and the counters of one hold a few per cent
of the other's when both are busy."""

PINNED = 1 << 2
CPU1 = pathlib.Path('/sys/devices/system/cpu/cpu1/online')


def pinned(event: perf_event.Event, cpu: int) -> int:
    """A counter of one CPU that no other gets; ours never are."""
    attr = ctypes.create_string_buffer(perf_event.ATTR.pack(
        event.type, perf_event.ATTR.size, event.config, 0, 0, 0, PINNED,
        0, 0, 0), perf_event.ATTR.size)
    fd: int = perf_event.libc.syscall(
        ctypes.c_long(perf_event.SYSCALLS[os.uname().machine]), attr,
        ctypes.c_long(-1), ctypes.c_long(cpu), ctypes.c_long(-1),
        ctypes.c_long(8))
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


class Shared(counted.PmuTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.fds: list[int] = []
        self.addCleanup(self.give_up)

    def give_up(self) -> None:
        perf_event.close(self.fds)
        self.fds.clear()

    def next_cpi(self, counters: perf.Perf) -> float:
        """The first that is measured well: the kernel may take a while to
        give others what one gave back."""
        for _ in range(10):
            before, after = self.looks(counters)
            found = rates.rates(before, after).workloads[0].cpi
            if found is not None:
                return found
        self.fail(f'not measured: {before} {after}')

    def compete(self, groups: int) -> None:
        """Another session: so many groups on each CPU, of which only one
        is on the PMU at a time, and ours not beside it."""
        for cpu in CPUS:
            for _ in range(groups):
                fds = perf_event.open_group(
                    [counted.PLAYED[2]] * (GENERIC - 1), cpu=cpu)
                fcntl.ioctl(fds[0], perf_event.IOC_ENABLE,
                            perf_event.IOC_FLAG_GROUP)
                self.fds += reversed(fds)

    def test_turns_are_scaled(self) -> None:
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting()
        self.look(counters)
        self.compete(1)
        first, last = self.looks(counters, 1.0)
        before, after = self.sample_of(first), self.sample_of(last)
        enabled_s = counted.grown(before, after, 'counter_enabled_s')
        self.assertBetween(
            0.3, counted.grown(before, after, 'counter_running_s')
            / enabled_s, 0.7)
        found = rates.rates(first, last).workloads[0]
        assert found.llc_misses_per_s
        self.assertNear(counted.cpi(), found.cpi)
        # What ran all the time did so many, at 1 GHz.
        self.assertNear(
            1e9 / counted.cpi() * enabled_s,
            found.llc_misses_per_s * found.interval_s, 0.02)
        self.assertEqual('B', counters.grade.letter)

    def test_a_small_share_is_no_measurement(self) -> None:
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting(min_running_share=0.9)
        self.assertNear(counted.cpi(), self.rate_of(counters).cpi)
        self.compete(1)
        self.look(counters)     # of this tick, a part was without them
        first, last = self.looks(counters)
        found = rates.rates(first, last).workloads[0]
        self.assertEqual((None, None), (found.cpi, found.llc_misses_per_s))
        self.assertEqual(self.sample_of(first).instructions,
                         self.sample_of(last).instructions)
        self.give_up()
        self.assertNear(counted.cpi(), self.next_cpi(counters))

    def test_all_counters_are_taken(self) -> None:
        """Enabled, but they never run: the grade goes, and comes back."""
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting()
        self.assertNear(counted.cpi(), self.rate_of(counters).cpi)
        for cpu in CPUS:
            self.fds.append(pinned(counted.PLAYED[0], cpu))
            self.fds += [pinned(counted.PLAYED[2], cpu)
                         for _ in range(GENERIC)]
        self.look(counters)
        for _ in range(3):
            found = self.rate_of(counters)
            self.assertEqual((None, None),
                             (found.cpi, found.llc_misses_per_s))
        self.assertEqual('C', counters.grade.letter)
        self.assertIn('counters ran for 0 % of the time', self.logs.output)
        self.give_up()
        self.assertNear(counted.cpi(), self.next_cpi(counters))
        self.assertEqual('B', counters.grade.letter)

    def test_between_measurements_others_have_them(self) -> None:
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting(sample_s=1.0, period_s=3.0)
        for now, known in ((0.0, False), (2.0, True), (3.0, True)):
            [found] = counters.add(self.cgroups.sample(), now)
            self.assertEqual(known, found.cycles is not None)
        self.compete(1)
        time.sleep(counted.LOOK_S)
        for leader in self.fds[GENERIC - 2::GENERIC - 1]:
            _, enabled_ns, running_ns, *_ = struct.unpack(
                f'{GENERIC + 2}Q', os.read(leader, 8 * (GENERIC + 2)))
            self.assertGreater(enabled_ns, 1e8)
            self.assertEqual(enabled_ns, running_ns)

    def test_at_rest_is_not_taken(self) -> None:
        counters = self.counting()
        for _ in range(4):
            self.assertIsNone(self.rate_of(counters, 0.05).cpi)
        self.assertEqual('B', counters.grade.letter)

    def test_a_guest_is_counted_without_its_host(self) -> None:
        """A cgroup named as libvirt names those of VMs opens, too."""
        name = '/batch/qemu-1-instance-00000001.libvirt-qemu'
        who = self.tree.make(name)
        self.tree.run(name, tree.spin)
        counters = self.counting()
        self.looks(counters, 0.05)
        self.assertEqual(2, counters.measured)
        self.assertIsNotNone(self.sample_of(self.look(counters),
                                            who).cycles)

    def test_made_anew(self) -> None:
        self.tree.run('/batch/a', tree.spin)
        counters = self.counting()
        before = self.sample_of(self.looks(counters)[1])
        self.tree.write('/batch/a', 'cgroup.kill', '1')
        self.wait_for('it is gone', self.removed)
        self.tree.make('/batch/a')
        self.tree.run('/batch/a', tree.spin)
        self.look(counters)     # the driver of cgroups sees it is another
        first, last = self.looks(counters)
        assert before.cycles
        self.assertLess(self.sample_of(first).cycles or 0, before.cycles)
        self.assertNear(counted.cpi(),
                        rates.rates(first, last).workloads[0].cpi)

    def removed(self) -> bool:
        try:
            self.tree.path('/batch/a').rmdir()
        except OSError:
            return False
        return True

    def test_a_cpu_goes_and_comes_back(self) -> None:
        """Their groups go with them, and are opened again."""
        self.tree.run('/batch/a', tree.spin_on(0))
        self.cgroups.sample()
        before = descriptors.of_process()
        counters = self.counting()
        self.look(counters)
        both = len(descriptors.of_process() - before)
        self.addCleanup(CPU1.write_text, '1')
        CPU1.write_text('0')
        first, last = self.looks(counters)
        one = len(descriptors.of_process() - before)
        # A directory and four counters a CPU; the same with one for the
        # kernel's clock; the list of CPUs that are online.
        self.assertEqual((9 + 3 + 1, 5 + 2 + 1), (both, one))
        self.assertNear(counted.cpi(),
                        rates.rates(first, last).workloads[0].cpi)
        CPU1.write_text('1')
        self.look(counters)
        self.tree.run('/batch/a', tree.spin_on(1))
        self.assertNear(counted.cpi(), self.rate_of(counters).cpi, BOTH)
        # Away and back between two ticks: the group there is in pieces.
        self.tree.write('/batch/a', 'cgroup.kill', '1')
        self.wait_for('they end', lambda: not self.tree.pids('/batch/a'))
        CPU1.write_text('0')
        CPU1.write_text('1')
        self.look(counters)
        self.look(counters)
        self.tree.run('/batch/a', tree.spin_on(1))
        self.assertNear(counted.cpi(), self.next_cpi(counters), BOTH)
        self.assertEqual('B', counters.grade.letter)
