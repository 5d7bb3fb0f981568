# SPDX-License-Identifier: Apache-2.0

"""A profile that is measured on a host with tenants, with a real kernel in a
real cgroup: whatever ends it leaves no process and no cgroup."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import fixtures

from scavenger_openstack.agent.profiling import process
from scavenger_openstack.agent.profiling import profiling
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.decision import orders
from scavenger_openstack.ibench import build
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import injection
from scavenger_openstack.tests.functional import kernel_processes
from scavenger_openstack.tests.unit.ibench import kernels
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.wire import profile
from scavenger_openstack.wire import report

END_S = 60.0
LEASE_S = 2.0
COMMAND = (sys.executable, '-m',
           'scavenger_openstack.tests.functional.injection')

WEB = Workload(id='/services/web', priority=Priority.FOREGROUND, vcpus=1.0)
QUIET = profiling.Situation(workloads={WEB.id: WEB})

DOCUMENT = {'state': 'running', 'isolation': {}, 'incidents': [],
            'controllers': {}}

WHOLE = (sys.executable, '-c', process.COMMAND[2].replace(
    'raise', 'import functools, os;'
    'from scavenger_openstack.ibench.host import lock;'
    f'lock.locked = functools.partial(lock.locked, '
    f'path=os.environ["{injection.LOCK}"]);raise'))

AGENT = '''
import pathlib, sys, time
from scavenger_openstack.agent.profiling import process
from scavenger_openstack.agent.profiling import profiling
from scavenger_openstack.tests.functional import test_profiling as test
process.COMMAND = test.COMMAND
agent = profiling.Profiling(60.0, sys.argv[1], test.LEASE_S,
                            path=pathlib.Path(sys.argv[2]))
while True:
    now = time.monotonic()
    agent.tick(now, now, test.order(now), test.QUIET)
    time.sleep(0.1)
'''


def order(now: float, number: int = 1, seconds: float = 60.0
          ) -> orders.ProfilingOrder:
    return orders.ProfilingOrder(f'order-{number}', WEB.id, '', 'short',
                                 seconds, now + 60)


class ProfilingTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.stop_file, self.used = directory / 'stop', directory / 'used'
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.profiling.process.COMMAND', COMMAND))
        self.useFixture(fixtures.EnvironmentVariable(
            'XDG_CACHE_HOME', str(kernels.directory())))
        build.build()       # once, which may take a minute on a busy host
        self.useFixture(fixtures.EnvironmentVariable(
            injection.LOCK, str(directory / 'lock')))
        self.agent = profiling.Profiling(60.0, str(self.stop_file), LEASE_S)
        self.addCleanup(lambda: self.agent.close(time.monotonic()))
        self.events: list[report.Profiling] = []
        self.pids: list[int] = []

    def tick(self, situation: profiling.Situation = QUIET,
             wanted: orders.ProfilingOrder | None = None) -> None:
        now = time.monotonic()
        self.events += self.agent.tick(now, now, wanted or order(now),
                                       situation)

    def injecting(self, parent: int = 0) -> int:
        """Wait until a kernel runs; the process that measures."""
        running: list[int] = []

        def runs() -> bool:
            if not parent:
                self.tick()
                self.assertEqual(1, len(self.events), str(self.events))
            running[:] = [
                child for child in kernel_processes.children(
                    parent or os.getpid())
                if kernel_processes.kernels_of(child)]
            return bool(running)

        self.wait_for('a kernel runs', runs, END_S * base.pace())
        self.pids += [*running, *kernel_processes.kernels_of(running[0])]
        self.assertNotEqual([], kernel_processes.traces(running[0]))
        return running[0]

    def assert_nothing_left(self) -> None:
        for pid in self.pids:
            self.assertFalse(self.lives(pid), pid)
        self.assertEqual([], [trace for pid in self.pids
                              for trace in kernel_processes.traces(pid)])

    def lives(self, pid: int) -> bool:
        try:
            return ') Z ' not in pathlib.Path(
                f'/proc/{pid}/stat').read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def gone(self, what: str, seconds: float = END_S) -> None:
        self.wait_for(what, lambda: not any(map(self.lives, self.pids)),
                      seconds * base.pace())

    def ended(self, situation: profiling.Situation = QUIET,
              wanted: orders.ProfilingOrder | None = None,
              seconds: float = END_S) -> report.Profiling:
        def done() -> bool:
            self.tick(situation, wanted)
            return len(self.events) > 1

        self.wait_for('the profile ends', done, seconds * base.pace())
        self.assert_nothing_left()
        self.assertEqual('began', self.events[0].what)
        return self.events[1]

    def test_measured(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable(injection.SECONDS,
                                                     '0.3'))
        self.tick()
        event = self.ended()
        self.assertEqual('measured', event.what, event.detail)
        self.assertEqual(injection.PROFILE, json.loads(event.profile))
        self.tick()
        self.assertEqual(2, len(self.events))

    def test_whole_profile_of_a_cgroup(self) -> None:
        """By the program that an agent starts."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.profiling.process.COMMAND', WHOLE))
        self.agent = profiling.Profiling(1e4, str(self.stop_file), LEASE_S)
        tree = self.cgroups()

        def join() -> None:
            for controller in tree.mounts:
                (tree.path(controller) / 'cgroup.procs').write_text('0')

        spinner = subprocess.Popen(
            [sys.executable, '-c', 'while True: pass'], preexec_fn=join)
        self.addCleanup(spinner.wait)
        self.addCleanup(spinner.kill)
        batch = Workload(id=tree.name, priority=Priority.BACKGROUND,
                         vcpus=1.0)
        here = QUIET._replace(workloads={batch.id: batch})
        now = time.monotonic()
        wanted = orders.ProfilingOrder('whole', batch.id, '', 'short', 1e4,
                                       now + 60)
        self.tick(here, wanted)
        event = self.ended(here, wanted, 5 * END_S)
        self.assertEqual('measured', event.what, event.detail)
        document = profile.of_json({
            **json.loads(event.profile), 'kind': 'application',
            'target': 'batch'})
        self.assertIn('integer', document.caused)
        self.assertEqual(('measured', 'short'),
                         (document.source, document.form))

    def test_kill_switch(self) -> None:
        """It ends also while the agent does nothing."""
        self.injecting()
        self.stop_file.touch()
        self.gone('the injection ends')
        self.assertEqual(('ended', 'the stop file is there'),
                         (self.ended().what, self.events[1].detail))

    def test_what_ends_it(self) -> None:
        """Each at the next tick, and with its reason."""
        for situation, word in (
                (QUIET._replace(why_not='the control plane: drill'),
                 'drill'),
                (QUIET._replace(incidents=['db']), 'db'),
                (QUIET._replace(suffering=['db', WEB.id]), 'db'),
                (QUIET._replace(enforcing=False), 'observes'),
                (QUIET._replace(workloads={}), 'workload')):
            with self.subTest(word):
                self.agent = profiling.Profiling(
                    60.0, str(self.stop_file), LEASE_S)
                self.events = []
                self.injecting()
                event = self.ended(situation)
                self.assertEqual('ended', event.what)
                self.assertIn(word, event.detail)
                self.assertEqual('', event.profile)

    def test_not_asked_for_any_more(self) -> None:
        self.injecting()
        now = time.monotonic()
        event = self.ended(wanted=order(now, number=2))
        self.assertEqual(('ended', 'order-1'), (event.what, event.id))

    def test_budget(self) -> None:
        """Of the order; what was used counts for the day."""
        began_s = time.monotonic()
        self.tick(wanted=order(began_s, seconds=0.5))
        event = self.ended(wanted=order(began_s, seconds=0.5))
        self.assertEqual('ended', event.what)
        [event] = self.agent.tick(began_s, 0.0, order(began_s, 2), QUIET)
        self.assertEqual('began', event.what)
        # The clock of the agent is moved, that of the process is not.
        [event] = self.until_event(began_s + 100)
        self.assertLessEqual(event.seconds, 100)
        [event] = self.agent.tick(began_s + 101, 0.0, order(
            began_s + 101, 3), QUIET)
        self.assertIn('profile_seconds_per_day', event.detail)
        [event] = self.agent.tick(began_s + DAY_S + 101, 0.0,
                                  order(began_s + DAY_S, 4)
                                  ._replace(until_s=1e9), QUIET)
        self.assertEqual('began', event.what)

    def until_event(self, now: float) -> Sequence[report.Profiling]:
        events: list[report.Profiling] = []

        def done() -> bool:
            events.extend(self.agent.tick(now, 0.0, order(now, 2), QUIET))
            return bool(events)

        self.wait_for('it ends', done, END_S * base.pace())
        return events

    def agent_process(self) -> subprocess.Popen[bytes]:
        agent = subprocess.Popen([sys.executable, '-c', AGENT,
                                  str(self.stop_file), str(self.used)])
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def test_agent_killed(self) -> None:
        agent = self.agent_process()
        self.injecting(agent.pid)
        agent.kill()
        self.gone('the injection ends')
        self.assert_nothing_left()

    def test_agent_stands_still(self) -> None:
        """For longer than a lease."""
        agent = self.agent_process()
        self.injecting(agent.pid)
        agent.send_signal(signal.SIGSTOP)
        self.gone('the injection ends', LEASE_S + END_S)
        self.assert_nothing_left()

    def test_agent_and_what_measures_are_killed(self) -> None:
        """The next agent removes what they left, and has no new day."""
        agent = self.agent_process()
        pid = self.injecting(agent.pid)
        os.kill(pid, signal.SIGSTOP)
        for each in (agent.pid, pid):
            os.kill(each, signal.SIGKILL)
        agent.wait()
        self.gone('the kernel ends')
        self.assertNotEqual([], kernel_processes.traces(pid))
        self.agent = profiling.Profiling(60.0, str(self.stop_file), LEASE_S,
                                         path=self.used)

        def clean() -> bool:
            self.assertEqual([], self.agent.follow(
                time.monotonic(), None, DOCUMENT, None))
            return not kernel_processes.traces(pid)

        self.wait_for('its cgroup is removed', clean, END_S * base.pace())

        def refused() -> bool:
            self.tick(wanted=order(time.monotonic(), 2))
            return bool(self.events)

        self.wait_for('an order is refused', refused)
        self.assertIn('profile_seconds_per_day', self.events[0].detail)

    def test_what_measures_is_killed(self) -> None:
        """The kernel is killed with it; what it made is removed."""
        pid = self.injecting()
        os.kill(pid, signal.SIGKILL)
        self.gone('the kernel ends')

        def clean() -> bool:
            self.tick()
            return len(self.events) > 1

        self.wait_for('its cgroup is removed', clean, END_S * base.pace())
        self.assert_nothing_left()
        self.assertEqual('ended', self.events[1].what)
        self.assertIn('SIGKILL', self.events[1].detail)

    def test_agent_ends(self) -> None:
        self.injecting()
        [event] = self.agent.close(time.monotonic())
        self.assertEqual('ended', event.what)
        self.assert_nothing_left()
