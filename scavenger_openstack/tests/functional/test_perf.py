# SPDX-License-Identifier: Apache-2.0


"""Counters per cgroup on this machine's kernel.

Events of the kernel's own (its CPU clock, page faults) play the hardware's:
a machine without a PMU has them, too, and all else is the same.  What only
hardware does is tested in a guest, see ``test_guest_pmu``.
"""

from __future__ import annotations

from collections.abc import Callable
import fcntl
import gc
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
import uuid

import fixtures

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import perf_event
from scavenger_openstack.drivers.perf import grade as perf_grade
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.played_counters import PLAYED
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

RUN_NS = 20_000_000
NOBODY = 65534
CPUS = len(parse_cpus(pathlib.Path(
    '/sys/devices/system/cpu/online').read_text()))
EACH = 1 + CPUS * len(PLAYED)
KEPT = 1 + CPUS
"""Descriptors that keep the kernel's clock of cgroups running."""

ALONE = '''
import os, resource
os.sched_setaffinity(0, {{{cpu}}})
resource.setrlimit(resource.RLIMIT_RTTIME, (2_000_000, 2_000_000))
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError:
    pass    # others may come between, and prove less
'''
"""Lets nothing else onto its CPU, for two seconds at most."""

RESET = 0x2403
"""PERF_EVENT_IOC_RESET of linux/perf_event.h."""


def descriptors() -> int:
    gc.collect()    # what other tests left
    return len(os.listdir('/proc/self/fd'))


def descriptors_by_stat() -> int:
    """The same without a descriptor to spare."""
    found = 0
    for number in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]):
        try:
            os.fstat(number)
        except OSError:
            continue
        found += 1
    return found


def visit_all_cpus() -> None:
    """So that each has changed tasks once, as all do before long."""
    allowed = os.sched_getaffinity(0)
    for cpu in allowed:
        os.sched_setaffinity(0, {cpu})
    os.sched_setaffinity(0, allowed)


def in_child(what: Callable[[], str]) -> str:
    """What a fork of this process comes to, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(writer, what().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding='utf-8') as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


class TestPerf(base.FunctionalTestCase):
    """Cgroups ``a`` and ``b``, in the hierarchy that perf counts by."""

    def setUp(self) -> None:
        super().setUp()
        self.mount = perf_event.find_mount()
        if self.mount is None:
            self.skipTest('needs cgroup2, or perf_event of version 1, to be '
                          'mounted')
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.top = f'/scv-test-{uuid.uuid4().hex[:8]}'
        self.now = 100.0
        self.age = 0.0
        self.made: dict[str, Workload] = {}
        self.make('')
        for name in 'ab':
            self.make(f'/{name}')

    def make(self, below: str) -> None:
        path = pathlib.Path(f'{self.mount}{self.top}{below}')
        path.mkdir()
        self.addCleanup(base.remove_cgroup, path)
        self.age += 1
        if below:
            self.made[below[1:]] = Workload(
                id=f'{self.top}{below}', priority=Priority.BACKGROUND,
                created_s=self.age)

    def path(self, name: str) -> pathlib.Path:
        return pathlib.Path(f'{self.mount}{self.top}/{name}')

    def spin(self, name: str, first: str = '') -> subprocess.Popen[bytes]:
        """A process that always runs; it does ``first`` before."""
        process = subprocess.Popen(
            [sys.executable, '-c', f'open("{self.path(name)}/cgroup.procs", '
             f'"w").write("0")\n{first}\nprint(flush=True)\n'
             'while True: pass'], stdout=subprocess.PIPE)
        self.addCleanup(self.end, process)
        assert process.stdout
        process.stdout.readline()
        self.spinner = process.pid
        return process

    def let_it_run(self) -> None:
        """Until the last spinner has had some CPU time: others want the
        machine, too."""
        def ran_ns() -> int:
            return int(pathlib.Path(
                f'/proc/{self.spinner}/schedstat').read_text().split()[0])

        until_ns = ran_ns() + RUN_NS
        self.wait_for('it runs', lambda: ran_ns() >= until_ns)

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()

    def counting(self, **settings: object) -> perf.Perf:
        found = perf.Perf(perf.Settings(**settings),  # type: ignore[arg-type]
                          events=PLAYED)
        self.addCleanup(found.close)
        visit_all_cpus()
        return found

    def look(self, counters: perf.Perf, after_s: float = 1.0) -> HostSample:
        """A look, ``after_s`` later as far as the driver can tell."""
        self.now += after_s
        return HostSample(
            host='h', boot_id='1', time_s=self.now, wall_time_s=self.now,
            workloads=counters.add(tuple(
                WorkloadSample(one, cpu_s=1.0)
                for one in self.made.values()), self.now))

    def cpi(self, first: HostSample, last: HostSample
            ) -> dict[str, float | None]:
        return {one.workload.id[-1]: one.cpi
                for one in rates.rates(first, last).workloads}

    def looks(self, counters: perf.Perf) -> tuple[HostSample, HostSample]:
        first = self.look(counters)
        self.let_it_run()
        return first, self.look(counters)

    def said(self, text: str) -> int:
        return sum(text in line for line in self.logs.output.splitlines())

    def test_who_runs_is_counted(self) -> None:
        self.spin('a')
        counters = self.counting()
        first, last = self.looks(counters)
        found = self.cpi(first, last)
        assert found['a'] is not None
        self.assertTrue(0.99 < found['a'] < 1.01, str(found))
        self.assertIsNone(found['b'])
        a, b = last.workloads
        self.assertEqual((0, 0.0), (b.cycles, b.counter_enabled_s))
        assert a.cycles is not None and a.counter_running_s is not None
        self.assertTrue(0.5 < a.cycles / 1e9 / a.counter_running_s < 1.1,
                        str(a))
        self.assertEqual(1.0, a.cpu_s)  # what was in the sample stays

    def test_who_never_leaves_its_cpu_is_counted(self) -> None:
        """Nothing else runs there, so that CPU changes no cgroup."""
        allowed = os.sched_getaffinity(0)
        if len(allowed) < 2:
            self.skipTest('needs two CPUs')
        cpu = max(allowed)
        self.addCleanup(os.sched_setaffinity, 0, allowed)
        os.sched_setaffinity(0, allowed - {cpu})
        for number in range(3):    # what else happens there may hide a fault
            self.made.clear()
            self.make(f'/alone{number}')
            counters = perf.Perf(perf.Settings(), events=PLAYED)
            self.addCleanup(counters.close)
            process = self.spin(f'alone{number}', ALONE.format(cpu=cpu))
            time.sleep(0.02)
            first = self.look(counters)
            time.sleep(0.1)
            last = self.look(counters)
            self.end(process)
            counters.close()
            self.assertIsNotNone(self.cpi(first, last)[str(number)],
                                 str(last.workloads[0]))

    def test_counters_that_go_backward(self) -> None:
        """Over that tick nothing is known, and nothing becomes less."""
        process = self.spin('a')
        counters = self.counting()
        first, last = self.looks(counters)
        held = counters._measured[f'{self.top}/a'].counters
        assert held is not None
        self.let_it_run()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        for fds in held._groups.values():
            fcntl.ioctl(fds[0], RESET, perf_event.IOC_FLAG_GROUP)
        back = self.look(counters)
        self.assertEqual(last.workloads[0], back.workloads[0])
        self.assertIsNone(self.cpi(last, back)['a'])
        process.send_signal(signal.SIGCONT)
        self.let_it_run()
        again = self.look(counters)
        found = self.cpi(back, again)['a']
        assert found is not None
        self.assertTrue(0.99 < found < 1.01, str(found))
        for name in ('cycles', 'instructions', 'counter_running_s'):
            self.assertGreater(getattr(again.workloads[0], name),
                               getattr(back.workloads[0], name))

    def test_between_measurements_nothing_is_known(self) -> None:
        self.spin('a')
        counters = self.counting(sample_s=2.0, period_s=5.0)
        looks = [self.look(counters)]
        for _ in range(11):
            self.let_it_run()
            looks.append(self.look(counters))
        cpis = [self.cpi(*pair)['a'] is not None
                for pair in zip(looks, looks[1:], strict=False)]
        self.assertEqual([0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0], cpis)
        known = [look.workloads[0].cycles for look in looks
                 if look.workloads[0].cycles is not None]
        self.assertEqual(sorted(known), known)
        self.assertEqual(6, len(known))

    def test_one_that_vanishes(self) -> None:
        counters = self.counting()
        self.look(counters)
        self.assertEqual(2, counters.measured)
        before = descriptors()
        self.path('a').rmdir()
        self.look(counters)     # nothing has told yet
        del self.made['a']
        self.look(counters)
        self.assertEqual((1, before - EACH),
                         (counters.measured, descriptors()))

    def test_one_that_vanished_before_it_was_opened(self) -> None:
        self.path('a').rmdir()
        counters = self.counting()
        for _ in range(3):
            self.look(counters)
        self.assertEqual(1, counters.measured)
        self.assertEqual(1, self.said('there is no such cgroup'))

    def test_one_that_is_made_anew(self) -> None:
        """Its counters begin at zero: no rate over the change."""
        process = self.spin('a')
        counters = self.counting()
        first, last = self.looks(counters)
        self.end(process)
        self.wait_for('it is empty', lambda: not (
            self.path('a') / 'cgroup.procs').read_text())
        base.remove_cgroup(self.path('a'))
        self.make('/a')
        self.spin('a')
        made, later = self.looks(counters)
        self.assertLess(made.workloads[1].cycles or 0,
                        last.workloads[0].cycles or 0)
        self.assertIsNone(self.cpi(last, made)['a'])
        self.assertIsNotNone(self.cpi(made, later)['a'])

    def limit_files(self, soft: int) -> None:
        gc.collect()
        old = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, old)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, old[1]))

    def test_few_descriptors(self) -> None:
        """Half of them are not ours: one of two is measured."""
        counters = self.counting()
        few = 2 * (KEPT + 2 * EACH - 1)
        if descriptors() + 2 * EACH > few:
            self.skipTest('too many files are open here')
        self.limit_files(few)
        self.spin('a')
        self.look(counters)
        self.assertEqual(1, counters.measured)
        self.assertEqual(1, self.said('raise LimitNOFILE of the agent to'))
        enough = re.findall(r'raise LimitNOFILE of the agent to (\d+)',
                            self.logs.output)
        self.limit_files(int(enough[0]))
        self.look(counters, perf.RETRY_S)
        self.assertEqual(2, counters.measured)

    def test_no_descriptors(self) -> None:
        """Others have them all: nothing is left half open."""
        counters = self.counting()
        self.limit_files(512)
        taken = []
        try:
            while True:
                taken.append(os.open('/dev/null', os.O_RDONLY))
        except OSError:
            pass
        try:
            perf_event.close([taken.pop() for _ in range(EACH - 1)])
            before = descriptors_by_stat()
            self.look(counters)
            self.look(counters)
            self.assertEqual((0, before),
                             (counters.measured, descriptors_by_stat()))
        finally:
            perf_event.close(taken)
        self.assertEqual(1, self.said('raise LimitNOFILE of the agent to'))
        self.look(counters, perf.RETRY_S)
        self.assertEqual(2, counters.measured)

    def test_not_permitted(self) -> None:
        """As nobody, without CAP_PERFMON."""
        paranoid = pathlib.Path('/proc/sys/kernel/perf_event_paranoid')
        if int(paranoid.read_text()) < 1:
            self.skipTest('kernel.perf_event_paranoid lets everybody count '
                          'here; set it to 2')
        def as_nobody() -> str:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            return str(perf.Perf(perf.Settings(), events=PLAYED).grade)
        grade = in_child(as_nobody)
        self.assertIn('C (no PMU)', grade)
        self.assertIn('CAP_PERFMON', grade)

    def test_no_pmu(self) -> None:
        if perf_grade.grade('/', cpu=0, max_counters=4).events:
            self.skipTest('this machine has a PMU')
        counters = perf.Perf(perf.Settings())
        self.assertEqual('C', counters.grade.letter)
        for _ in range(3):
            self.assertIsNone(self.look(counters).workloads[0].cycles)
        self.assertEqual(1, self.said('no hardware counters'))
        exc = self.assertRaises(errors.ConfigError, perf.Perf,
                                perf.Settings(enabled='on'))
        self.assertIn('no hardware counters', str(exc))

    def test_the_commands_show_the_grade(self) -> None:
        state = self.useFixture(fixtures.TempDir()).path
        agent = [sys.executable, '-m', 'scavenger_openstack.cmd.agent',
                 '--state-dir', state]
        sampled = subprocess.run([*agent, 'sample'], capture_output=True,
                                 text=True, check=True)
        self.assertIn('grade ', sampled.stderr)
        running = subprocess.Popen([*agent, 'run'], stderr=subprocess.PIPE)
        self.addCleanup(self.end, running)
        status = pathlib.Path(state, 'status.json')
        self.wait_for('a tick', status.exists)
        grade = json.loads(status.read_text())['grade']
        self.assertIn(grade['letter'], 'ABC')
        shown = subprocess.run([*agent, 'status'], capture_output=True,
                               text=True)
        self.assertIn(f'\ngrade      {grade["text"]}\n', shown.stdout)
        running.terminate()
        _, said = running.communicate(timeout=60)
        self.assertIn(f'grade {grade["text"]}', said.decode())
