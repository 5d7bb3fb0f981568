# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import pathlib
import sys
import threading
import time

import fixtures
from testtools import matchers

from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import bpf_programs


def kernel_mounts():
    """Mounts by which programs reach into the kernel; of the others, tests
    beside this one make some."""
    return [line for line in pathlib.Path('/proc/self/mountinfo').read_text(
        ).splitlines() if line.partition(' - ')[2].startswith(
            ('bpf ', 'tracefs ', 'debugfs '))]


class RunningTestCase(base.FunctionalTestCase):

    def setUp(self):
        super().setUp()
        self.cpus = sorted(os.sched_getaffinity(0))
        self.before = bpf_programs.loaded()

    def running(self):
        try:
            made = sched_switch.SchedSwitch()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.addCleanup(made.close)
        return made

    def spinner(self, cpu):
        process = self.spawn(f'import os\nos.sched_setaffinity(0, {{{cpu}}})'
                             '\nprint()\nwhile True:\n    pass')
        process.stdout.readline()
        return process

    def test_every_cpu_is_known_from_the_start(self):
        pids = self.running().pids()
        self.assertGreater(len(pids), max(self.cpus))
        for cpu in self.cpus:
            self.assertIsNotNone(pids[cpu], f'CPU {cpu}')

    def test_a_cpu_on_which_it_gets_no_turn(self):
        """A real-time guest has it: the start does not wait for ever."""
        ends, enter = threading.Event(), os.sched_setaffinity
        self.addCleanup(ends.set)

        def hang(thread, cpus):
            if threading.current_thread() is not threading.main_thread():
                ends.wait(60)
            enter(thread, cpus)

        start_s = time.monotonic()
        with fixtures.MonkeyPatch('os.sched_setaffinity', hang):
            self.running()
        self.assertLess(time.monotonic() - start_s, 45)

    def test_no_isolated_cpu_is_visited(self):
        seen, enter = set(), os.sched_setaffinity

        def note(thread, cpus):
            seen.update(cpus)
            enter(thread, cpus)

        with fixtures.MonkeyPatch('os.sched_setaffinity', note), \
                fixtures.MonkeyPatch(f'{online_cpus.__name__}.isolated',
                                     lambda: frozenset(self.cpus[-1:])):
            self.running()
        self.assertEqual(set(self.cpus[:-1]), seen & set(self.cpus))

    def test_who_runs(self):
        cpu = self.cpus[-1]
        if len(self.cpus) > 1:
            # Or, on a busy machine, what looks is what runs there.
            self.addCleanup(os.sched_setaffinity, 0, self.cpus)
            os.sched_setaffinity(0, self.cpus[:-1])
        spinner = self.spinner(cpu)
        reader = self.running()
        self.wait_for('the spinner is seen',
                      lambda: reader.pids()[cpu] == spinner.pid)
        self.assertNotIn(cpu, reader.idle([cpu]))
        self.assertEqual(0, reader.idle_count(frozenset([cpu])))
        spinner.kill()
        spinner.wait(30)
        reader.observe()  # or this test's own wake-ups are all that it sees
        self.wait_for_idle('the CPU is idle again',
                           lambda: cpu in reader.idle([cpu]))
        self.wait_for_idle('and counted', lambda: reader.idle_count(
            frozenset([cpu])) == 1)

    def test_an_observer_sees_whom_it_found(self):
        cpu = self.cpus[-1]
        spinner = self.spinner(cpu)
        reader = self.running()
        seen: list[set[object]] = []

        def look():
            own = set()
            os.sched_setaffinity(0, {cpu})
            for _ in range(100):
                time.sleep(0.001)
                own.add(reader.pids()[cpu])
            seen.append(own)

        def observe():
            reader.observe()
            look()
            seen.append({threading.get_native_id()})

        for target in (look, observe):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join(20)
        unaware, aware, own = seen
        self.assertNotIn(spinner.pid, unaware)
        self.assertIn(spinner.pid, aware)
        self.assertNotIn(own.pop(), aware)

    def test_observing_leaves_the_thread_where_it_may_run(self):
        reader = self.running()
        before = os.sched_getaffinity(0)
        reader.observe()
        self.assertEqual(before, os.sched_getaffinity(0))

    def test_nothing_is_left_behind(self):
        mounts = kernel_mounts()
        with descriptors.given_back() as opened:
            reader = self.running()
            self.assertNotEqual(set(), opened())
            self.assertNotEqual(self.before, bpf_programs.loaded())
            self.assertEqual(mounts, kernel_mounts())
            reader.close()
            reader.close()
        self.wait_for('the program leaves the kernel',
                      lambda: bpf_programs.loaded() <= self.before)
        for call in (reader.pids, lambda: reader.idle([0]), reader.observe,
                     lambda: reader.idle_count(frozenset([0]))):
            self.assertRaises(errors.DriverError, call)

    def test_gone_with_its_process(self):
        process = self.spawn(
            f'import sys, time\nsys.path[:0] = {sys.path!r}\n'
            'from scavenger_openstack.drivers.kernel import '
            'sched_switch as running\n'
            'reader = running.SchedSwitch()\nprint("ready")\ntime.sleep(60)')
        self.assertEqual('ready\n', process.stdout.readline())
        self.assertNotEqual(self.before, bpf_programs.loaded())
        process.kill()
        process.wait(30)
        self.wait_for('the program leaves the kernel',
                      lambda: bpf_programs.loaded() <= self.before)

    def test_without_the_right_to(self):
        process = self.spawn(
            f'import os, sys\nsys.path[:0] = {sys.path!r}\n'
            'from scavenger_openstack.drivers.kernel import '
            'sched_switch as running\n'
            'from scavenger_openstack import errors\n'
            'os.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n'
            'before = os.listdir("/proc/self/fd")\n'
            'try:\n    running.SchedSwitch()\n'
            'except errors.Unsupported as exc:\n    print(exc)\n'
            'print(before == os.listdir("/proc/self/fd"))')
        told = process.stdout.readline()
        self.assertIn('cannot tell what runs on each CPU', told)
        self.assertIn('CAP_BPF and CAP_PERFMON', told)
        self.assertEqual('True\n', process.stdout.readline())
        self.assertEqual(0, process.wait(30))

    def test_nothing_stays_open_wherever_it_fails(self):
        process = self.spawn(
            f'import os, resource, sys\nsys.path[:0] = {sys.path!r}\n'
            'from scavenger_openstack.drivers.kernel import '
            'sched_switch as running\n'
            'from scavenger_openstack import errors\n'
            'hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n'
            'def used():\n'
            '    return set(os.listdir("/proc/self/fd"))\n'
            'before = used()\n'
            'for spare in range(99):\n'
            '    # Listing the descriptors takes one, too.\n'
            '    limit = len(before) - 1 + spare\n'
            '    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))\n'
            '    try:\n        running.SchedSwitch().close()\n'
            '        told = "works"\n'
            '    except errors.Unsupported as exc:\n'
            '        told = str(exc)\n'
            '    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n'
            '    print(told, "|", used() == before)\n'
            '    if told == "works":\n        break\n')
        lines = process.stdout.read().splitlines()
        self.assertEqual(0, process.wait(30))
        self.assertEqual('works | True', lines.pop())
        steps = {line.split(': ')[1] for line in lines}
        self.assertIn('open sched:sched_switch by perf_event_open()', steps)
        self.assertIn('attach a BPF program to sched_switch', steps)
        for line in lines:
            self.assertIn('Too many open files', line)
            self.assertThat(line, matchers.EndsWith('| True'))
