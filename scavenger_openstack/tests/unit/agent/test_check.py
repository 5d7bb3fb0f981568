# SPDX-License-Identifier: Apache-2.0

"""What a monitoring system is told."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.agent import check
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.agent import statuses

RUNS = {'running': True, 'cannot_restore': {}}
MISSING = {'running': False, 'cannot_restore': {}}
ENFORCES = {'scavenger': {'mode': 'enforce', 'facts': {}}}


def told(**differing: Any) -> tuple[int, str]:
    document = statuses.document(**{
        'watcher': RUNS, 'refused': [], 'stopped': False, 'time_s': 9.0,
        'state': 'running', **differing})
    return check.line(check.findings(document, 10.0), document, 10.0)


class CheckTest(testtools.TestCase):

    def assert_told(self, code: int, *words: str, **differing: Any) -> None:
        found, line = told(**differing)
        self.assertEqual(code, found, line)
        self.assertNotIn('\n', line)
        for word in (f'SCAVENGER {check.WORDS[code]} - ', *words):
            self.assertIn(word, line)

    def test_all_is_well(self) -> None:
        self.assertEqual(
            (0, 'SCAVENGER OK - h: enforces, 0 limits in force, 0 incidents, '
                'last tick 1.0 s ago, the watcher runs | last_tick_age=1.0s '
                'limits=0 incidents=0 problems=0'),
            told(controllers=ENFORCES))
        self.assert_told(0, 'h: observes, ')

    def test_an_agent_that_does_not_turn(self) -> None:
        code, line = told(time_s=-25.0, problems=['old'])
        self.assertEqual(2, code)
        self.assertIn('STALE: no tick for 35 s', line)
        self.assertNotIn('running', line)
        self.assertNotIn('old', line)
        self.assert_told(2, 'the agent cannot read the host',
                         state='cannot read the host')

    def test_no_watcher(self) -> None:
        for differing in ({'controllers': ENFORCES},
                          {'caps': [{'workload': 'a', 'knob': 'paused'}]},
                          {'isolation': {'mode': 'enforce'}}):
            self.assert_told(2, 'the watcher is NOT RUNNING: ',
                             watcher=MISSING, **differing)
        self.assert_told(1, 'NOT RUNNING', watcher=MISSING)
        self.assert_told(1, 'not those of tc, which are not set: why',
                         watcher={**RUNS, 'cannot_restore': {'tc': 'why'}})

    def test_stopped(self) -> None:
        self.assert_told(1, '- stopped: the stop file is there |',
                         stopped=True, controllers=ENFORCES,
                         state='stopped: the stop file is there')

    def test_what_is_not_as_it_should_be(self) -> None:
        for word, differing in (
                ('a cpu_cores: EINVAL', {'problems': ['a cpu_cores: EINVAL']}),
                ('missing: no links', {'missing': ['no links']}),
                ('cpi2 failed: KeyError', {'controllers': {'cpi2': {
                    'mode': 'off', 'facts': {'fault': 'KeyError'}}}}),
                ('libvirt does not answer for 12 s', {'libvirt': {
                    'state': 'does not answer', 'since_s': 12}}),
                ('history: disk full', {'history': {'fault': 'disk full'}}),
                ('conductor: away', {'conductor': {'fault': 'away'}}),
                ('refused lease /x.refused', {'refused': ['/x.refused']})):
            self.assert_told(1, word, **differing)

    def test_what_nothing_on_this_host_cures(self) -> None:
        """It is in the status, and wakes no operator."""
        lasting = f'cache: no counters; {base.NO_CURE}'
        self.assert_told(0, missing=[lasting])
        self.assert_told(1, ' missing: disk, cpu (', missing=[
            lasting, 'disk: off', 'disk: no parents', 'cpu: off'])

    def test_the_worst_is_first_and_few_are_named(self) -> None:
        self.assert_told(
            2, '- the watcher is NOT RUNNING', '; 1; 2; and 2 more, see ',
            watcher=MISSING, controllers=ENFORCES,
            problems=['1', '2', '3', '4'])

    def test_the_line_stays_one_line_with_one_bar(self) -> None:
        code, line = told(problems=['a|b\n\x1b[2Jc'])
        self.assertEqual(1, line.count('|'))
        self.assertIn('a/b \\x1b[2Jc', line)

    def test_no_agent(self) -> None:
        self.assertEqual(
            (2, 'SCAVENGER CRITICAL - gone'),
            check.line([check.Finding(check.CRITICAL, 'gone')], {}, 0.0))

    def test_a_status_of_another_version(self) -> None:
        for wrong in ({'controllers': 3}, {'problems': None}):
            self.assertRaises(errors.ScavengerError, told, **wrong)
