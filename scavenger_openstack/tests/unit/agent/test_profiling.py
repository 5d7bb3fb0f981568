# SPDX-License-Identifier: Apache-2.0

"""When a profile may be measured beside tenants; what measures is in
functional tests."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent import names
from scavenger_openstack.agent.profiling import budget
from scavenger_openstack.agent.profiling import process
from scavenger_openstack.agent.profiling import profiling
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import tags
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import report

WEB = Workload(id='web', priority=Priority.FOREGROUND, vcpus=1.0,
               instance='u-web')
QUIET = profiling.Situation(workloads={'web': WEB})
ORDER = orders.ProfilingOrder('id', 'web', 'u-web', 'short', 60.0, 100.0)


def document(**more: Any) -> dict[str, Any]:
    return {'state': 'running', 'isolation': {'mode': 'off'},
            'incidents': [], 'controllers': {
                'scavenger': {'mode': 'observe', 'facts': {}},
                'attribution': {'mode': 'enforce', 'facts': {}}}, **more}


SAMPLE = HostSample('h', 'b', 1.0, 1.0, (WorkloadSample(WEB),))


class WhyNot(testtools.TestCase):

    def refused(self, order: orders.ProfilingOrder = ORDER,
                situation: profiling.Situation = QUIET, now: float = 50.0,
                left_s: float = 10.0) -> str:
        return profiling.why_not(now, order, situation, left_s)

    def test_quiet(self) -> None:
        self.assertEqual('', self.refused())
        self.assertEqual('', self.refused(situation=QUIET._replace(
            suffering=['web'], detectors=[Mode.OFF, Mode.OBSERVE])))

    def test_refused(self) -> None:
        reasons = {
            self.refused(now=100.0), self.refused(left_s=0.0),
            self.refused(ORDER._replace(form='other')),
            self.refused(ORDER._replace(workload='db')),
            self.refused(ORDER._replace(instance='u-other')),
            self.refused(situation=QUIET._replace(why_not='stopped')),
            self.refused(situation=QUIET._replace(enforcing=False)),
            self.refused(situation=QUIET._replace(detectors=[Mode.OFF])),
            self.refused(situation=QUIET._replace(detectors=[])),
            self.refused(situation=QUIET._replace(incidents=['web'])),
            self.refused(situation=QUIET._replace(suffering=['db']))}
        self.assertNotIn('', reasons)
        # No such workload, and no detector, each for two reasons.
        self.assertEqual(9, len(reasons))

    def test_a_refusal_is_said_once(self) -> None:
        agent = profiling.Profiling(60.0, '/nonexistent', 15.0)
        busy = QUIET._replace(incidents=['db'])
        [event] = agent.tick(50.0, 1e9, ORDER, busy)
        self.assertEqual(('ended', 'id', 'web', 0.0), (
            event.what, event.id, event.workload, event.seconds))
        self.assertIn('db', event.detail)
        self.assertEqual([], agent.tick(51.0, 1e9, ORDER, QUIET))
        self.assertEqual([], agent.close(52.0))

    def test_no_budget_on_this_host(self) -> None:
        agent = profiling.Profiling(0.0, '/nonexistent', 15.0)
        [event] = agent.tick(50.0, 1e9, ORDER, QUIET)
        self.assertIn('profile_seconds_per_day', event.detail)


class SituationOf(testtools.TestCase):

    def of(self, sample: HostSample | None = SAMPLE, **more: Any
           ) -> profiling.Situation:
        return profiling.situation_of(document(**more), sample,
                                      ['attribution', 'cpi2'])

    def test_running(self) -> None:
        self.assertEqual(QUIET._replace(detectors=[Mode.ENFORCE], incidents=[],
                                        suffering=[]), self.of())

    def test_states(self) -> None:
        for state in ('stopped: a drill', 'holding back: no watcher',
                      'cannot read the host'):
            self.assertIn(state, self.of(state=state).why_not)

    def test_nothing_is_enforced(self) -> None:
        observing = {'attribution': {'mode': 'observe', 'facts': {}}}
        self.assertFalse(self.of(controllers=observing).enforcing)
        self.assertTrue(self.of(controllers=observing, isolation={
            'mode': 'enforce'}).enforcing)

    def test_who_is_disturbed(self) -> None:
        found = self.of(incidents=[{'victim': 'db'}], controllers={
            'attribution': {'mode': 'observe', 'facts': {
                'suffering': {'mail': 'waits'}}}})
        self.assertEqual((['db'], ['mail'], [Mode.OBSERVE]), (
            found.incidents, found.suffering, found.detectors))

    def test_a_host_that_cannot_be_read(self) -> None:
        self.assertEqual({}, self.of(None).workloads)


class BudgetOfADay(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'used.json'

    def loaded(self, now: float) -> budget.Budget:
        """That of an agent that starts."""
        found = budget.Budget(100.0, self.path)
        self.goes_on = found.load(now)
        return found

    def test_over_a_restart(self) -> None:
        self.loaded(1e6).begin(1e6, 30.0)
        again = self.loaded(1e6 + 5)
        self.assertEqual((True, 70.0), (self.goes_on, again.left_s(1e6 + 5)))
        again.end(1e6 + 10, 10.0, clean=False)
        again = self.loaded(1e6 + 20)
        self.assertEqual((True, 90.0), (self.goes_on,
                                        again.left_s(1e6 + 20)))
        again.cleaned()
        again = self.loaded(1e6 + 20)
        self.assertEqual((False, 90.0), (self.goes_on,
                                         again.left_s(1e6 + 20)))
        self.assertEqual(100.0, again.left_s(1e6 + 10 + DAY_S))

    def test_of_before_the_host_was_started(self) -> None:
        self.loaded(1e6).begin(1e6, 30.0)
        self.assertEqual(100.0, self.loaded(50.0).left_s(50.0))

    def test_what_is_no_budget(self) -> None:
        """It counts as a day."""
        for text in ('', '[]', '{}', '{"used": 1, "goes_on": true}', 'null',
                     '{"used": [["x", 1]], "goes_on": 0}', '[' * 9000,
                     '{"used": [[1]], "goes_on": 0}'):
            self.path.write_text(text)
            self.path.chmod(0o600)
            self.assertEqual(0.0, self.loaded(1e6).left_s(1e6), text)
            self.assertTrue(self.goes_on)

    def test_a_file_of_others(self) -> None:
        self.path.write_text(json.dumps({'used': [], 'goes_on': False}))
        self.path.chmod(0o666)
        self.assertEqual(0.0, self.loaded(1e6).left_s(1e6))

    def test_nothing_is_begun_that_cannot_be_written(self) -> None:
        agent = profiling.Profiling(100.0, '/nonexistent', 15.0,
                                    path=self.path / 'no' / 'directory')
        [event] = agent.tick(50.0, 1e9, ORDER, QUIET)
        self.assertEqual('ended', event.what)
        self.assertIn('cannot be written', event.detail)


class Program(testtools.TestCase):

    def test_what_it_has_of_the_agent(self) -> None:
        """No priority, no protection, and no modules of a directory."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.profiling.process.COMMAND', (
                sys.executable, '-c', process.PREPARE +
                'import json; print(json.dumps(['
                'os.sched_getscheduler(0), os.getcwd(), '
                'open("/proc/self/oom_score_adj").read().strip()]))')))
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.useFixture(fixtures.TempDir()).path)
        program = process.Process([])
        self.addCleanup(program.close)
        self.assertTrue(program.wait(60.0))
        self.assertEqual([os.SCHED_OTHER, '/', '1000'],
                         json.loads(program.texts()[0]))


class WhileItIsMeasured(testtools.TestCase):

    def test_nothing_is_limited_for_its_sake(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.profiling.process.COMMAND', (
                sys.executable, '-c', 'import sys; sys.stdin.read()')))
        asked = orders.Orders(unprotected=frozenset({'u-db'}))
        agent = profiling.Profiling(60.0, '/nonexistent', 15.0)
        self.addCleanup(agent.close, 52.0)
        self.assertIs(asked, agent.orders(asked))
        [event] = agent.tick(50.0, 1e9, ORDER, QUIET)
        self.assertEqual('began', event.what)
        found = agent.orders(asked)
        self.assertEqual({'u-db', 'u-web'}, found.unprotected)
        [tagged] = tags.Tags().apply(SAMPLE, found).workloads
        self.assertFalse(tagged.workload.protected)
        agent.close(51.0)
        self.assertIs(asked, agent.orders(asked))


class Lines(testtools.TestCase):

    def test_history(self) -> None:
        event = report.Profiling(
            sequence=1, time_s=1e9, what='measured', id='id', workload='web',
            seconds=7.5, profile='{}')
        self.assertIn('7.5 s', sentences.line(event, names.Names()))
