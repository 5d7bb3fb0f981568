# SPDX-License-Identifier: Apache-2.0

"""Which thread ran while another waited, told by this machine's kernel."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
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
OPENED = f'''import sys
sys.path[:0] = {sys.path!r}
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack import errors
'''
TRIED = '''
try:
    cpu_waits.CpuWaits()
except errors.Unsupported as exc:
    print(exc)
'''


class CpuWaitsTest(base.FunctionalTestCase):

    def setUp(self):
        super().setUp()
        self.before = bpf_programs.loaded()

    def waits(self):
        try:
            made = cpu_waits.CpuWaits()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.addCleanup(made.close)
        return made

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
        victim, other = (self.on_one_cpu(NAPS) for _ in range(2))
        reader = self.waits()
        reader.watch([victim])
        behind = collections.Counter()

        def long_enough():
            behind.clear()
            for (waiter, runner), seconds in reader.waits().behind.items():
                if waiter == victim:
                    behind[runner] += seconds
            return behind.total() > 0.5

        self.wait_for('the victim waits', long_enough)
        self.assertGreater(sum(behind[pid] for pid in busy),
                           0.5 * behind.total(), behind)
        # Only that is counted.
        self.assertFalse({*busy, other} & {
            waiter for waiter, _ in reader.waits().behind})

    def test_those_that_it_starts(self):
        self.on_one_cpu(BUSY)
        parent = self.on_one_cpu(STARTS)
        reader = self.waits()
        reader.watch([parent])
        os.kill(parent, signal.SIGUSR1)
        # The first is one, which starts all the others.
        self.wait_for('children wait', lambda: len({
            waiter for waiter, _ in reader.waits().behind}) > 4)

    def test_too_many_to_be_watched(self):
        with fixtures.MonkeyPatch(f'{cpu_waits.__name__}.MOST_WATCHED', 2):
            reader = self.waits()
            reader.watch([1, 2])
            reader.waits()
            reader.watch([3, 4])
            self.assertRaises(errors.DriverError, reader.waits)

    def test_who_waits_still(self):
        """It has got no CPU since it was woken up."""
        reader = self.waits()
        busy = [self.on_one_cpu(BUSY) for _ in range(3)]
        reader.watch(busy)
        self.wait_for('those that want to run wait', lambda: set(
            reader.waits().lasting) & set(busy))

    def test_no_room_for_pairs(self):
        with fixtures.MonkeyPatch(f'{cpu_waits.__name__}.MOST_PAIRS', 1):
            reader = self.waits()
            reader.watch([self.on_one_cpu(NAPS) for _ in range(3)])
            self.wait_for('more waits than there is room for',
                          lambda: reader.waits().lost_s > 0)
            self.assertLessEqual(len(reader.waits().behind), 1)

    def test_nothing_is_left_behind(self):
        with descriptors.given_back():
            reader = self.waits()
            self.assertLessEqual(3, len(bpf_programs.loaded()
                                        - self.before))
            reader.close()
            reader.close()
        self.wait_for('the programs leave the kernel',
                      lambda: bpf_programs.loaded() <= self.before)
        self.assertRaises(errors.DriverError, reader.waits)

    def test_gone_with_its_process(self):
        process = self.spawn(
            OPENED + 'reader = cpu_waits.CpuWaits()\nprint("ready")\n'
            'import time\ntime.sleep(60)')
        self.assertEqual('ready\n', process.stdout.readline())
        process.kill()
        process.wait(30)
        self.wait_for('the programs leave the kernel',
                      lambda: bpf_programs.loaded() <= self.before)

    def test_without_the_right_to(self):
        process = self.spawn(
            OPENED + 'import os\nos.setgroups([])\nos.setgid(65534)\n'
            'os.setuid(65534)\n' + TRIED)
        answer = process.stdout.readline()
        self.assertIn('cannot tell which thread runs', answer)
        self.assertIn('CAP_BPF', answer)
        self.assertEqual(0, process.wait(30))

    def test_in_another_pid_namespace(self):
        """Its ids would be taken for those of other threads."""
        done = subprocess.run(
            ['unshare', '--pid', '--fork', '--mount-proc', sys.executable,
             '-c', OPENED + TRIED], capture_output=True, text=True, timeout=60)
        self.assertIn('PID namespace', done.stdout, done.stderr)
