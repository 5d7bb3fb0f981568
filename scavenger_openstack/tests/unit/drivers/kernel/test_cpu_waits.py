# SPDX-License-Identifier: Apache-2.0

"""What the programs count of threads that wait for CPUs."""

from __future__ import annotations

import struct

import testtools

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel import watched_threads
from scavenger_openstack.tests.unit.drivers.kernel import bpf_machine

V, HOG, OTHER, MOMENT = 100, 200, 300, 400
MAPS = cpu_waits.Maps(*range(3, 11))
FOLLOWED = watched_threads.Maps(*MAPS[:3])
PID = bpf.Event(1, {'pid': 8, 'target_cpu': 16})
SWITCH = bpf.Event(2, {'prev_pid': 8, 'prev_state': 16, 'next_pid': 24})
RUNS, SLEEPS = 0, 1


class Cpus:
    """Threads on two CPUs; times in ms.  The id of a process is that of its
    first thread, and that of its cgroup 7."""

    def __init__(self, pairs: int = 16, cgroups: int = 4, ended: int = 8
                 ) -> None:
        table = bpf_machine.Table
        self.cpus = [table(4, cpu_waits.CPU_BYTES, 1, array=True)
                     for _ in range(2)]
        self.machine = bpf_machine.Machine({
            MAPS.watched: table(4, 8, 8), MAPS.since: table(4, 16, 8),
            MAPS.pairs: table(16, 8, pairs), MAPS.rest: table(16, 8, cgroups),
            MAPS.unknown: table(4, 8, 2, array=True),
            FOLLOWED.ended: table(4, 8, ended),
            FOLLOWED.missed: table(4, 8, 1, array=True)})
        self.machine.cgroup = 7
        self.running = [0, 0]
        self.watch(V)

    def watch(self, thread: int, victim: int = 0) -> None:
        self.machine.tables[MAPS.watched][struct.pack('=I', thread)] = (
            bytearray(struct.pack('=Q', victim)))

    def watched(self) -> set[int]:
        return {struct.unpack('=I', key)[0]
                for key in self.machine.tables[MAPS.watched]}

    def switch(self, ms: float, to: int, state: int = RUNS, cpu: int = 0,
               process: int | None = None) -> None:
        """Another thread gets the CPU; what had it ``state``."""
        previous, self.running[cpu] = self.running[cpu], to
        self.at(ms, cpu, process or previous)
        self.machine.tables[MAPS.cpus] = self.cpus[cpu]
        record = bytearray(32)
        struct.pack_into('=I4xQI', record, 8, previous, state, to)
        self.machine.run(cpu_waits.switch_program(SWITCH, MAPS),
                         bytes(record))

    def at(self, ms: float, cpu: int, process: int) -> None:
        self.machine.now_ns = round(1e6 * (ms + 1000))
        self.machine.cpu, self.machine.process = cpu, process

    def event(self, program: bytes, thread: int, cpu: int = 0) -> None:
        record = bytearray(24)
        struct.pack_into('=I4xI', record, 8, thread, cpu)
        self.machine.run(program, bytes(record))

    def wake(self, ms: float, thread: int, cpu: int = 0) -> None:
        self.at(ms, cpu, OTHER)
        self.event(cpu_waits.wakeup_program(PID, MAPS), thread, cpu)

    def pairs(self) -> dict[int, int]:
        """What ran while V waited, in ms."""
        return {process: struct.unpack('=Q', value)[0] // 1000000
                for table in (MAPS.pairs, MAPS.rest)
                for key, value in self.machine.tables[table].items()
                for _, process, victim in [struct.unpack('=QII', key)]
                if victim == 0}

    def unknown(self) -> int:
        return struct.unpack('=Q', self.machine.tables[MAPS.unknown][
            bytes(4)])[0] // 1000000


class TestSwitch(testtools.TestCase):

    def test_longer_ago_than_is_remembered(self) -> None:
        cpus = Cpus()
        cpus.switch(0, HOG)
        cpus.wake(10, V)
        for number in range(200):
            cpus.switch(110 + 2 * number, MOMENT + number % 3)
        cpus.switch(510, V)
        self.assertLess(cpu_waits.SLICES, 200)
        known = sum(cpus.pairs().values())
        self.assertEqual({MOMENT, MOMENT + 1, MOMENT + 2},
                         cpus.pairs().keys())
        self.assertEqual((2 * cpu_waits.SLICES, 500 - known),
                         (known, cpus.unknown()))

    def test_what_ran_for_a_moment(self) -> None:
        """It takes no room, so that more is known of the others."""
        cpus = Cpus()
        cpus.switch(0, HOG)
        cpus.wake(0, V)
        for number in range(2 * cpu_waits.SLICES):
            cpus.switch(10 + 0.01 * number, MOMENT + number)
        cpus.switch(10 + 0.01 * number + 0.01, OTHER, SLEEPS)
        cpus.switch(20, V)
        # What is not known of 20 ms is 1.28.
        self.assertEqual(({HOG: 10, OTHER: 8}, 1),
                         (cpus.pairs(), cpus.unknown()))

    def test_on_another_cpu(self) -> None:
        cpus = Cpus()
        for cpu in range(2):
            cpus.switch(0, HOG + cpu, cpu=cpu)
            cpus.switch(5, OTHER + cpu, cpu=cpu)
        cpus.wake(10, V, cpu=0)
        cpus.switch(50, V, cpu=1)
        self.assertEqual(({}, 40), (cpus.pairs(), cpus.unknown()))
        cpus.switch(60, OTHER, cpu=1)
        cpus.switch(70, V, cpu=1)
        self.assertEqual(({OTHER: 10}, 40), (cpus.pairs(), cpus.unknown()))

    def test_idle(self) -> None:
        cpus = Cpus()
        cpus.switch(0, HOG)
        cpus.switch(10, 0, SLEEPS)
        cpus.wake(20, V)
        cpus.switch(24, V)
        self.assertEqual({cpu_waits.IDLE.process: 4}, cpus.pairs())
        key, = cpus.machine.tables[MAPS.pairs]
        self.assertEqual((*cpu_waits.IDLE[::-1], 0),
                         struct.unpack('=QII', key))

    def test_what_was_there_before(self) -> None:
        """It ran until the first switch."""
        cpus = Cpus()
        cpus.running[0] = HOG
        cpus.wake(10, V)
        cpus.switch(30, V)
        self.assertEqual(({HOG: 20}, 0), (cpus.pairs(), cpus.unknown()))

    def test_threads_of_a_process(self) -> None:
        cpus = Cpus()
        cpus.switch(0, HOG)
        cpus.wake(0, V)
        for number in range(1, 6):
            cpus.switch(10 * number, HOG + number, process=HOG)
        cpus.switch(60, V, process=HOG)
        self.assertEqual({HOG: 60}, cpus.pairs())

    def test_clock_of_another_cpu(self) -> None:
        cpus = Cpus()
        cpus.switch(0, HOG)
        cpus.wake(20, V)
        cpus.switch(19, V)
        self.assertEqual(({}, 0), (cpus.pairs(), cpus.unknown()))


class TestFollowed(testtools.TestCase):

    def exit(self, cpus: Cpus, thread: int, process: int) -> None:
        cpus.at(50, 0, process)
        cpus.event(watched_threads.exit_program(PID, FOLLOWED), thread)

    def test_another_thread_starts_a_program(self) -> None:
        """That ends the first thread, and has its id."""
        event = bpf.Event(1, {'pid': 8, 'old_pid': 16})
        for old in V, V + 1:
            cpus = Cpus()
            cpus.watch(V + 1)
            if old != V:
                self.exit(cpus, V, V)
            cpus.at(60, 0, V)
            cpus.event(watched_threads.exec_program(event, FOLLOWED), V, old)
            self.assertIn(V, cpus.watched())
            self.assertEqual(old == V, V + 1 in cpus.watched())
            self.assertEqual({}, cpus.machine.tables[FOLLOWED.ended])

    def test_what_is_started(self) -> None:
        """By a thread, which has the id after that of its process here, or
        by a process."""
        for by_thread, starter, program in (
                (True, V - 1, cpu_waits.new_program(PID, MAPS)),
                (False, V, watched_threads.new_program(
                    PID, FOLLOWED, by_thread=False))):
            cpus = Cpus()
            cpus.at(10, 0, OTHER)
            cpus.event(program, 500)
            self.assertEqual({V}, cpus.watched())
            cpus.at(10, 0, starter)
            cpus.event(program, 501)
            self.assertEqual({V, 501}, cpus.watched())
            self.assertEqual(by_thread, bool(
                cpus.machine.tables[MAPS.since]))
