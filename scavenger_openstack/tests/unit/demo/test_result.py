# SPDX-License-Identifier: Apache-2.0

"""Figures and verdicts of the demo, and its listing of antagonists."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.demo import play
from scavenger_openstack.demo import result
from scavenger_openstack.tests.unit.demo import records

LEFT = ['/cpu/x/cpu.shares: was 1, is 2']


class VerdictTest(testtools.TestCase):

    def verdict(self, *, left: list[str] | None = None, **how: Any
                ) -> dict[str, Any]:
        return result.summary(records.record(**how), left or [])

    def test_figures(self) -> None:
        found = self.verdict()
        self.assertEqual(
            [('alone', 1000, 40.0, 0.0), ('beside the hog', 1250, 320.0, 1.0),
             ('under the agent', 1650, 50.0, 0.1)],
            [(name, phase['requests'], round(phase['p99_ms'], 6),
              round(phase['hog_cores'], 2))
             for name, phase in found['phases'].items()])
        self.assertAlmostEqual(8.0, found['effect'])
        self.assertAlmostEqual(270 / 280, found['restored'])
        self.assertAlmostEqual(0.05, found['other_cpus'])
        self.assertEqual(11.0, found['named_after_s'])
        self.assertEqual(0.1, found['limit_cores'])

    def test_each_verdict(self) -> None:
        cases: list[tuple[str, str, dict[str, Any]]] = [
                (result.PASSED, result.PASSED, {}),
                # half of the harm, from 40 to 320 ms, is 180 ms
                (result.PASSED, result.PASSED, {'managed_ms': 179.0}),
                (result.FAILED, result.INCONCLUSIVE, {'managed_ms': 181.0}),
                # alone it was beside other programs
                (result.PASSED, result.PASSED,
                 {'alone_ms': 2493.0, 'unmanaged_ms': 3670.0}),
                (result.FAILED, result.INCONCLUSIVE,
                 {'named': (), 'limited': ()}),
                (result.FAILED, result.INCONCLUSIVE, {'limited': ()}),
                (result.FAILED, result.FAILED,
                 {'named': (play.HOG, play.QUIET)}),
                # a limit that is tried, and names nothing
                (result.PASSED, result.PASSED,
                 {'limited': (play.HOG, play.QUIET)}),
                (result.FAILED, result.FAILED, {'left': LEFT}),
                (result.INCONCLUSIVE, result.INCONCLUSIVE,
                 {'unmanaged_ms': 59.0}),
                (result.INCONCLUSIVE, result.INCONCLUSIVE,
                 {'unmanaged_ms': 30.0})]
        for expected, busy, how in cases:
            self.assertEqual(
                (expected, busy),
                (self.verdict(**how)['verdict'],
                 self.verdict(others=1.0, **how)['verdict']), str(how))

    def test_no_verdict_on_limits_while_the_agent_runs(self) -> None:
        running = result.summary(records.record(), None)
        self.assertEqual(result.PASSED, running['verdict'])
        self.assertEqual(len(self.verdict()['criteria']) - 1,
                         len(running['criteria']))

    def test_no_request_was_served(self) -> None:
        empty = {**records.record(), 'latencies': []}
        found = result.summary(empty, [])
        self.assertEqual(result.INCONCLUSIVE, found['verdict'])
        self.assertIn('- ', result.text(found))


class ListingTest(testtools.TestCase):

    def test_columns_are_those_of_the_command(self) -> None:
        try:
            from scavenger_openstack.osc.commands import antagonist
        except ImportError as exc:
            self.skipTest(f'needs openstackclient ({exc.name})')
        self.assertEqual([column.title for column in antagonist.COLUMNS],
                         list(result.LISTING))

    def test_the_worst_first(self) -> None:
        record = records.record()
        record['incidents'] += [
            records.incident(play.QUIET, id='b' * 32, time_s=1080.0),
            records.incident(play.HOG, id='c' * 32, time_s=1060.0,
                             victim='/other', cause='disk')]
        self.assertEqual(
            [[records.TREE + play.HOG, 'compute-1', '-', '2', '2', '1.5 min',
              'core, disk', 'yes'],
             [records.TREE + play.QUIET, 'compute-1', '-', '1', '1', '10 s',
              'core', 'no']], result.listing(record))

    def test_nothing_is_named(self) -> None:
        """The agent leaves out what is empty."""
        record = records.record(named=(), limited=())
        record['incidents'] = [records.incident()]
        for key in ('antagonists', 'suspects', 'grounds', 'action'):
            del record['incidents'][0][key]
        found = result.summary(record, [])
        self.assertEqual([], found['antagonists'])
        self.assertIn('none named', found['incidents'][0])

    def test_text_has_all_of_it(self) -> None:
        text = result.text(records.whole())
        for words in ('passed: ', 'beside the hog', 'Limited Now',
                      'grounds:', '8.0 times'):
            self.assertIn(words, text)
