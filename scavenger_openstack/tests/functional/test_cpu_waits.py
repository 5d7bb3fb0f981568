# SPDX-License-Identifier: Apache-2.0

"""Which thread ran while another waited, told by this machine's kernel."""

from __future__ import annotations

import collections
import os
import pathlib
import signal
import subprocess

import fixtures

from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel import watched_threads
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import bpf_programs

BUSY = 'print()\nwhile True:\n    pass'
NAPS = '''print()
import time
while True:
    end_s = time.perf_counter() + 0.002
    while time.perf_counter() < end_s:
        pass
    time.sleep(0.008)
'''
STARTS = '''import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print()
signal.sigwait([signal.SIGUSR1])
parent = os.getpid()
if os.fork():
    signal.pause()
while os.getppid() == parent:
    if not os.fork():
        end_s = time.thread_time() + 0.005
        while time.thread_time() < end_s:
            pass
        os._exit(0)
    os.wait()
'''


class CpuWaitsTest(bpf_programs.ReaderCase):

    kind = cpu_waits.CpuWaits
    programs = 5
    purpose = 'tell which thread runs'


    def on_one_cpu(self, code):
        cpu = max(os.sched_getaffinity(0))
        process = self.spawn(
            'import os\n'
            # What else runs on this machine does not get in between.
            'os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))\n'
            f'os.sched_setaffinity(0, {{{cpu}}})\n{code}')
        process.stdout.readline()
        return process.pid

    def test_who_was_there_first(self):
        """It needs no past: the one in the way never rested before."""
        busy = [self.on_one_cpu(BUSY) for _ in range(3)]
        victim, _ = (self.on_one_cpu(NAPS) for _ in range(2))

        def nearly_all_known():
            # Not while the kernel lets the others have the CPU: it does so
            # for some moments of each second, and they may be many.
            reader = self.waits(victim=[victim])
            self.wait_for('the victim waits', lambda: sum(
                reader.waits().behind.values()) > 0.5)
            waits, behind = reader.waits(), collections.Counter()
            reader.close()
            for (_, runner), seconds in waits.behind.items():
                behind[runner.process] += seconds
            self.assertGreater(sum(behind[pid] for pid in busy),
                               0.5 * behind.total(), behind)
            # It is on one CPU.
            return 9 * sum(waits.unknown.values()) < behind.total()

        self.wait_for('a window of which nearly all is known',
                      nearly_all_known)

    def test_a_signal_while_the_kernel_checks_a_program(self):
        """It ends the check, which is to be made again."""
        seen = []
        self.waits(victim=[os.getpid()]).close()
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(
            signal.SIGALRM, lambda *args: seen.append(args)))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        for ms in range(2, 22, 2):
            signal.setitimer(signal.ITIMER_REAL, ms / 1000)
            self.kind({'victim': [os.getpid()]}).close()
        self.assertGreater(len(seen), 2)

    def test_no_more_than_it_ran(self):
        """What is in the way at each wake-up, but for a moment."""
        moments = self.on_one_cpu(NAPS.replace('0.002', '0.0005'))
        busy = self.on_one_cpu(BUSY)
        victim = self.on_one_cpu(NAPS)
        reader = self.waits(victim=[victim], moments=[moments])

        def ran_s(pid):
            return int(pathlib.Path(
                f'/proc/{pid}/schedstat').read_text().split()[0]) / 1e9

        before_s = {pid: ran_s(pid) for pid in (moments, busy, victim)}
        self.wait_for('they wait', lambda: sum(
            reader.waits().behind.values()) > 1.0)
        for (name, runner), seconds in reader.waits().behind.items():
            if runner.process in before_s:
                self.assertLess(
                    seconds, ran_s(runner.process)
                    - before_s[runner.process] + 0.01, (name, runner))

    def test_those_that_it_starts(self):
        self.on_one_cpu(BUSY)
        parent = self.on_one_cpu(STARTS)
        reader = self.waits(victim=[parent])
        os.kill(parent, signal.SIGUSR1)
        # The first is one, which starts all the others; it only waits.
        self.wait_for('children wait', lambda: sum(
            reader.waits().behind.values()) > 0.1)

    def test_too_many_to_be_watched(self):
        with fixtures.MonkeyPatch(f'{cpu_waits.__name__}.MOST_WATCHED', 2):
            reader = self.waits(victim=[1, 2])
            self.assertRaises(errors.DriverError, reader.watch,
                              {'victim': [3, 4]})
            reader.waits()

    def test_who_waits_still(self):
        """It has got no CPU since it was woken up."""
        busy = [self.on_one_cpu(BUSY) for _ in range(3)]
        reader = self.waits(victim=busy)
        self.wait_for('those that want to run wait', lambda: set(
            reader.waits().lasting) & set(busy))

    def test_no_room_for_pairs(self):
        with fixtures.MonkeyPatch(f'{cpu_waits.__name__}.MOST_PAIRS', 1), \
                fixtures.MonkeyPatch(f'{cpu_waits.__name__}.MOST_CGROUPS', 1):
            reader = self.waits(
                **{f'v{number}': [self.on_one_cpu(NAPS)]
                   for number in range(3)})
            self.wait_for('more waits than there is room for',
                          lambda: sum(reader.waits().unknown.values()) > 0.01)
            self.assertLessEqual(len(reader.waits().behind), 2)

    def test_a_flood_of_processes(self):
        """What has no room is counted, and the rest is answered."""
        with fixtures.MonkeyPatch(
                f'{watched_threads.__name__}.MOST_ENDED', 4):
            reader = self.waits(victim=[os.getpid()])
            for _ in range(8):
                subprocess.run(['true'], check=True)
            ended = reader.ended()
            self.assertEqual((4, False), (len(ended.processes), ended.all))
            reader.waits()

    def test_what_ended_is_not_watched(self):
        process = self.spawn('print("up", flush=True)\nimport time\n'
                             'time.sleep(60)')
        process.stdout.readline()
        reader = self.waits(victim=[process.pid])
        process.kill()
        process.wait(30)
        self.assertIn(process.pid, reader.ended().processes)
        self.assertTrue(reader.ended().all)
