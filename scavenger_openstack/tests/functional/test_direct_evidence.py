# SPDX-License-Identifier: Apache-2.0

"""Which workloads had the CPU while one waited, told by this machine's
kernel."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Any

import fixtures
from testtools import content

from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack.drivers.direct import cpu
from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.direct import thread_windows
from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import watched_threads
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import delays
from scavenger_openstack.tests.functional import evidence
from scavenger_openstack.tests.functional.loops import Wish
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

PINNED = 'import os\nos.sched_setaffinity(0, {{{cpu}}})\n'
AHEAD = 'os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))\n'
BUSY = 'print("up")\nwhile True: pass'
NAPS = '''
import time
print('up')
while True:
    end_s = time.perf_counter() + {busy_s}
    while time.perf_counter() < end_s: pass
    time.sleep({nap_s})
'''
VICTIM = NAPS.format(busy_s=0.02, nap_s=0.005)
INNOCENT = NAPS.format(busy_s=0.001, nap_s=0.05)
MOMENTS = '''
import time
asked, ask = os.pipe()
if not os.fork():
    os.close(ask)
    while os.read(asked, 1): pass
    os._exit(0)
print('up')
while True:
    os.write(ask, b'x')
    time.sleep(0.002)
'''
SHORT_LIVED = '''
import time
print('up')
while True:
    if not os.fork():
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s: pass
        os._exit(0)
    os.wait()
'''
NAMED = 'open("/proc/self/comm", "w").write({name!r})\n'
CROWD = '''
import ctypes, signal
libc = ctypes.CDLL(None)
attributes, thread = ctypes.create_string_buffer(64), ctypes.c_ulong()
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 16))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('up')
signal.sigwait([signal.SIGUSR1])
for _ in range({count}):
    # They run no Python: each waits for a CPU once, and then for ever.
    assert not libc.pthread_create(ctypes.byref(thread), attributes,
                                   libc.pause, None)
print('all')
signal.pause()
'''


class CpuCase(evidence.EvidenceCase):
    """All run on one CPU."""

    def setUp(self) -> None:
        super().setUp()
        self.cpu = max(os.sched_getaffinity(0))
        self.tree.put('weight', '',
                      '262144' if self.tree.version == 1 else '10000')

    def run_in(self, below: str, code: str) -> subprocess.Popen[str]:
        """Run it on the CPU, in a cgroup; '' for none of the tree.

        Either way it comes before what else runs on this machine.
        """
        pinned = PINNED.format(cpu=self.cpu)
        process = (self.spawn(pinned + code, self.tree, below) if below
                   else self.spawn(pinned + AHEAD + code))
        assert process.stdout is not None
        self.assertNotEqual('', process.stdout.readline())
        return process

    def hogs(self, count: int = 3) -> list[subprocess.Popen[str]]:
        return [self.run_in('/batch/a', BUSY) for _ in range(count)]

    def waited_s(self, pid: int) -> float:
        """For how long a process has waited for a CPU."""
        return int(pathlib.Path(
            f'/proc/{pid}/schedstat').read_text().split()[1]) / 1e9

    def wait_waiting(self, pid: int, seconds: float = 0.5) -> None:
        """Until a process has waited for so long for a CPU."""
        before_s = self.waited_s(pid)
        self.wait_for('the victim waits',
                      lambda: self.waited_s(pid) - before_s > seconds)

    def window(self, host: drivers_base.Driver, pid: int) -> DirectEvidence:
        """The answer of a window in which the victim waited for a second:
        it says for how long."""
        before_s = self.waited_s(pid)
        self.open(host)
        self.wait_waiting(pid, 1.0)
        host.ask(())
        most_s = self.waited_s(pid) - before_s
        answer = self.answer(host)
        self.assertGreater(answer.waited_s, 0.8, answer)
        self.assertLess(answer.waited_s, most_s + 0.2, answer)
        # It has one thread, which cannot wait for longer.
        self.assertLessEqual(answer.waited_s, answer.window_s)
        return answer


class TestEvidence(CpuCase):

    def test_what_was_there_first(self) -> None:
        self.hogs()
        self.run_in('/batch/b', INNOCENT)
        victim, host = self.run_in('/services/s', VICTIM), self.host()
        for _ in range(2):      # no window knows of another
            answer = self.window(host, victim.pid)
            shares = {name: seconds / answer.waited_s
                      for name, seconds in answer.holders.items()}
            self.assertGreater(shares[self.hog], 0.6, answer)
            self.assertLess(shares.get(self.innocent, 0.0), 0.2, answer)
            self.assertLessEqual(sum(shares.values()), 1.0001)

    def test_what_runs_for_a_moment_in_between(self) -> None:
        """Two that wake up 500 times a second, one after the other, come
        before all others: often one of them leaves the CPU to the victim."""
        host = self.host()
        self.hogs(1)
        self.run_in('', NAMED.format(name='scv-moment') + MOMENTS)
        victim = self.run_in('/services/s', VICTIM)
        answer = self.window(host, victim.pid)
        self.assertGreater(answer.holders[self.hog], 0.7 * answer.waited_s)
        self.assertLess(answer.threads.get('program scv-moment', 0.0),
                        0.2 * answer.waited_s)

    def test_threads_of_the_host(self) -> None:
        host = self.host()
        for number in range(2):
            self.run_in('', NAMED.format(name=f'scv-spin/{number}') + VICTIM)
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.wait_waiting(victim.pid)
        answer = self.answer(host)
        self.assertGreater(answer.holders[THE_HOST], 0.6 * answer.waited_s)
        self.assertGreater(answer.threads['program scv-spin'],
                           0.5 * answer.holders[THE_HOST])

    def test_all_victims_of_one_window(self) -> None:
        host = self.host()
        self.hogs()
        pids = {self.id(below): self.run_in(below, VICTIM).pid
                for below in ('/services/s', '/batch/b')}
        self.open(host, self.victim, self.innocent, '/no/such', 'no-vm')
        for pid in pids.values():
            self.wait_waiting(pid)
        answers = {one.workload: one for one in self.answers(host)}
        self.assertEqual({self.victim, self.innocent}, set(answers))
        for answer in answers.values():
            others = {self.hog, *pids} - {answer.workload}
            self.assertGreater(sum(answer.holders[one] for one in others),
                               0.7 * answer.waited_s, answers)

    def test_threads_that_ran_and_ended(self) -> None:
        """Whose they were cannot be told."""
        host = self.host()
        hogs = self.hogs()
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.wait_waiting(victim.pid)
        self.end(*hogs)
        answer = self.answer(host)
        self.assertNotIn(self.hog, answer.holders)
        self.assertGreater(answer.waited_s - sum(answer.holders.values()),
                           0.4, answer)

    def test_threads_that_waited_and_ended(self) -> None:
        host = self.host()
        self.hogs()
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.wait_waiting(victim.pid)
        self.end(victim)
        answer = self.answer(host)
        self.assertGreater(answer.waited_s, 0.4)
        self.assertGreater(answer.holders[self.hog], 0.5 * answer.waited_s)

    def test_an_id_that_another_thread_has_now(self) -> None:
        """It ran not, and it waited not."""
        host = self.host()
        for taken in 'hog', 'victim':
            hog, = self.hogs(1)
            victim = self.run_in('/services/s', VICTIM)
            began_s = time.monotonic()
            self.open(host)
            self.wait_waiting(victim.pid)
            ended = hog if taken == 'hog' else victim
            self.end(ended)
            passed_s = time.monotonic() - began_s
            self.take_id(ended.pid,
                         '/batch/b' if taken == 'hog' else '/services/s')
            answer = self.answer(host)
            if taken == 'hog':
                self.assertGreater(answer.waited_s, 0.4)
                self.assertNotIn(self.hog, answer.holders)
                self.assertLess(answer.holders.get(self.innocent, 0.0),
                                0.1 * answer.waited_s, answer)
            else:
                # What the victim waited, and not the new one.
                self.assertGreater(answer.waited_s, 0.35, answer)
                self.assertLess(answer.waited_s, passed_s, answer)
            self.end(hog, victim)

    def test_a_program_that_another_thread_started(self) -> None:
        """It ends the first thread, whose id it has then."""
        host = self.host()
        execs = ('import sys, threading, time\n'
                 'threading.Thread(target=os.execv, args=(sys.executable, ['
                 f'sys.executable, "-c", {BUSY!r}])).start()\n'
                 'time.sleep(60)')
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.run_in('/batch/a', execs)
        self.wait_waiting(victim.pid)
        answer = self.answer(host)
        self.assertGreater(answer.holders[self.hog], 0.6 * answer.waited_s,
                           answer)

    def test_a_victim_that_another_thread_started(self) -> None:
        host = self.host()
        self.hogs()
        self.open(host)
        victim = self.run_in('/services/s', (
            'import sys, threading, time\n'
            'threading.Thread(target=os.execv, args=(sys.executable, ['
            f'sys.executable, "-c", {VICTIM!r}])).start()\n'
            'time.sleep(60)'))
        host.ask([(self.victim, self.resource)])    # the next tick
        self.wait_waiting(victim.pid)
        answer = self.answer(host)
        self.assertGreater(answer.holders[self.hog], 0.3, answer)

    def test_a_hog_whose_first_thread_has_ended(self) -> None:
        host = self.host()
        self.run_in('/batch/a', (
            'import ctypes, threading\n'
            'def busy():\n    while True: pass\n'
            'threading.Thread(target=busy).start()\n'
            'print("up", flush=True)\n'
            'ctypes.CDLL(None).pthread_exit(None)'))
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.wait_waiting(victim.pid)
        answer = self.answer(host)
        self.assertGreater(answer.holders[self.hog], 0.6 * answer.waited_s,
                           answer)

    def test_processes_that_end_soon(self) -> None:
        """Whose they were tells the kernel, or the use of their cgroups."""
        host = self.host()
        self.useFixture(delays.DelayAccounting()).set('1')
        for _ in range(3):
            self.run_in('/batch/a', SHORT_LIVED)
        victim = self.run_in('/services/s', VICTIM)
        self.open(host)
        self.wait_waiting(victim.pid, 1.0)
        host.sample()
        answer, = self.answers(host)
        self.assertEqual(self.tree.version == 1, answer.shared,
                         repr(answer))
        self.assertEqual(self.hog, max(answer.holders,
                                       key=answer.holders.__getitem__))

    def test_what_waits_still(self) -> None:
        """It got no CPU since what comes before it has one."""
        self.run_in('/services/s', BUSY)
        host = self.host()
        self.open(host)
        self.run_in('', BUSY)
        # The kernel lets the others have a CPU after a second.
        until_s = time.monotonic() + 0.6
        self.wait_for('a while', lambda: time.monotonic() > until_s)
        self.assertGreater(self.answer(host).waited_s, 0.4)

    def test_ten_thousand_threads(self) -> None:
        count = 10000
        process = self.spawn(CROWD.format(count=count), self.tree,
                             '/services/s')
        assert process.stdout is not None
        self.assertEqual('up\n', process.stdout.readline())
        host = self.host()
        self.open(host)
        process.send_signal(10)
        self.assertEqual('all\n', process.stdout.readline())
        began_s, began = time.thread_time(), time.monotonic()
        host.ask(())
        cpu_s, took_s = (time.thread_time() - began_s,
                         time.monotonic() - began)
        answer, = host.sample().direct
        self.addDetail('took', content.text_content(
            f'{cpu_s:.3f} s of CPU, {took_s:.3f} s: {answer}'))
        self.assertGreater(answer.waited_s, 0.0)
        self.assertLess(cpu_s, base.pace())

    def test_more_threads_than_are_looked_at(self) -> None:
        """Those that ran for longest are."""
        host = self.host()
        self.hogs(2)
        self.run_in('/batch/b', INNOCENT)
        victim = self.run_in('/services/s', VICTIM)
        with fixtures.MonkeyPatch(
                f'{thread_windows.__name__}.MOST_LOOKED_UP', 1):
            self.open(host)
            self.wait_waiting(victim.pid)
            answer = self.answer(host)
        self.assertEqual({self.hog}, set(answer.holders) - {self.victim})
        self.assertLess(answer.holders[self.hog], 0.8 * answer.waited_s)

    def test_a_flood_of_processes(self) -> None:
        """More end than are noted: what was there before is known."""
        host = self.host()
        self.hogs()
        victim = self.run_in('/services/s', VICTIM)
        with fixtures.MonkeyPatch(
                f'{watched_threads.__name__}.MOST_ENDED', 1):
            self.open(host)
            for _ in range(4):
                self.end(self.run_in('/batch/b', INNOCENT))
            self.wait_waiting(victim.pid)
            answer = self.answer(host)
        self.assertGreater(answer.holders[self.hog], 0.6 * answer.waited_s)
        self.assertNotIn('is lost', self.log.output)

    def test_a_window_that_cannot_be_read(self) -> None:
        host = self.host()
        self.hogs()
        victim = self.run_in('/services/s', VICTIM)
        for _ in range(2):
            self.open(host)
            self.wait_waiting(victim.pid, 0.1)
            # The start of a process is no number.
            with fixtures.MonkeyPatch(f'{thread_owners.__name__}._START', 0):
                self.assertEqual((), self.answers(host))
        self.assertEqual(1, self.log.output.count('is lost'),
                         self.log.output)
        self.open(host)
        self.wait_waiting(victim.pid)
        self.assertIn(self.hog, self.answer(host).holders)

    def test_a_refusal_is_not_tried_in_each_tick(self) -> None:
        host, ticks = self.host(), 0
        asks = [(self.victim, Resource.CPU)]
        with fixtures.MonkeyPatch(
                f'{bpf.__name__}.INITIAL_PID_NAMESPACE', 0):
            host.sample()
            host.ask(asks)
        while not evidence.own_programs():
            ticks += 1
            self.assertLess(ticks, 2 * drivers_base.RESCAN_TICKS)
            host.ask(() if ticks % 2 else asks)
        self.assertLess(drivers_base.RESCAN_TICKS - 2, ticks)
        grade = host.facts().grade
        assert grade is not None
        self.assertEqual({'cpu': {'on': True, 'why': ''},
                          **dict.fromkeys(
                              ('disk', 'network', 'memory', 'cache'),
                              {'on': None, 'why': ''})}, grade['direct'])

    def test_what_takes_no_program(self) -> None:
        """Links, caches and memory: what is known of them here."""
        host = self.host()
        host.sample()
        resources = Resource.NETWORK, Resource.CACHE, Resource.MEMORY
        asks = [(self.victim, resource) for resource in resources]
        host.ask(asks)
        self.assertEqual(set(), evidence.own_programs())
        host.sample()
        host.ask(asks)
        host.sample()
        host.ask(())
        for answer in host.sample().direct:
            self.assertIn(answer.resource, resources)
        grade = host.facts().grade
        assert grade is not None
        found: Any = grade['direct']
        for resource, one in found.items():
            self.assertIs(one['on'] is None, resource not in resources)
            self.assertIs(one['on'] is False, bool(one['why']))
        self.assertNotIn('lost', self.log.output)

    def test_an_idle_host_loads_nothing(self) -> None:
        host = self.host()
        with descriptors.given_back():
            for _ in range(3):
                host.sample()
                host.ask(())
                host.ask([(self.victim, Resource.NETWORK)])
                self.assertEqual(set(), evidence.own_programs())
            self.open(host)
            host.close()


class TestVersion2(CpuCase):
    """There the kernel knows the cgroup of a thread that ended."""

    def test_threads_that_ran_and_ended(self) -> None:
        cpus, top = self.version_2(cpu.CpuEvidence)
        join = ('with open({!r}, "w") as file:\n'
                '    file.write("0")\n').format
        for _ in range(3):
            self.run_in('', join(f'{top}/hog/inner/cgroup.procs')
                        + SHORT_LIVED)
        victim = self.run_in('', join(f'{top}/victim/cgroup.procs')
                             + VICTIM)
        cpus.ask([self.victim], 1.0)
        self.wait_waiting(victim.pid)
        cpus.ask((), 2.0)
        answer, = cpus.answers(2.0)
        self.assertGreater(answer.waited_s, 0.4)
        self.assertGreater(answer.holders[self.hog], 0.6 * answer.waited_s,
                           answer)


class TestElsewhere(CpuCase, evidence.ElsewhereCase):
    """In a process of its own."""

    def test_in_another_pid_namespace(self) -> None:
        (state, _, answers) = self.report(self.alone(
            'unshare', '--pid', '--fork', '--mount-proc'))
        self.assertIs(False, state['on'])
        self.assertIn('PID namespace', state['why'])
        self.assertEqual([], [one for one in answers if not one['shared']])

    def test_without_the_right_to(self) -> None:
        """Shares of the CPU time have to do."""
        self.useFixture(delays.DelayAccounting()).set('1')
        self.hogs()
        self.run_in('/services/s', VICTIM)
        answer = self.refused()
        self.assertEqual(self.hog, max(answer.holders,
                                       key=answer.holders.__getitem__))


class TestLoop(CpuCase):
    """Whatever ends a window leaves nothing open."""

    def test_what_ends_a_window(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.OBSERVE), options=(
            '[libvirt]', 'uri =', '[perf]', 'enabled = off'))

        def tick() -> None:
            loop.tick(self.now)
            self.now += 1.0

        def opened() -> None:
            wish.asks = ((self.victim, Resource.CPU),
                         (self.victim, Resource.DISK))
            tick()
            self.assertNotEqual(set(), evidence.own_programs())

        tick()
        self.assertEqual(set(), evidence.own_programs())
        opened()
        wish.asks = ()
        tick()
        self.nothing_open()
        opened()
        self.driver.blind = True
        tick()
        self.nothing_open()
        self.driver.blind = False
        opened()
        stop = self.state_dir / 'stop'
        stop.touch()
        tick()
        self.nothing_open()
        stop.unlink()
        tick()
        opened()
        with fixtures.MonkeyPatch(
                f'{heartbeat.__name__}._clock',
                lambda clock: time.clock_gettime(clock) + 2000.0):
            loop.tick(self.now)
        self.assertIn('stood still', self.log.output)
        self.nothing_open()
        opened()
        loop.close()
        self.nothing_open()
