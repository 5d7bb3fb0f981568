# SPDX-License-Identifier: Apache-2.0

"""Figures, violations, criteria, verdict."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.filling import result
from scavenger_openstack.demo.filling import table
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import table as shared
from scavenger_openstack.tests.unit.demo.records import GIB
from scavenger_openstack.tests.unit.demo.records import pairs
from scavenger_openstack.tests.unit.demo.records import record
from scavenger_openstack.tests.unit.demo.records import sample
from scavenger_openstack.tests.unit.demo.records import SETTINGS
from scavenger_openstack.tests.unit.demo.records import whole


class PercentileTest(testtools.TestCase):

    def test_nearest_rank(self) -> None:
        values = list(range(1, 101))
        for share, expected in ((0.5, 50), (0.99, 99), (0.999, 100),
                                (1.0, 100), (0.0, 1), (0.001, 1)):
            self.assertEqual(expected, figures.percentile(values, share))

    def test_order_does_not_matter(self) -> None:
        self.assertEqual(3, figures.percentile([3, 1, 2], 0.99))

    def test_one_value(self) -> None:
        self.assertEqual(7, figures.percentile([7], 0.5))

    def test_nothing_is_unknown(self) -> None:
        self.assertIsNone(figures.percentile([], 0.5))


class MedianTest(testtools.TestCase):

    def test_unknown_does_not_count(self) -> None:
        self.assertEqual(2.5, figures.median([1, None, 4]))
        self.assertIsNone(figures.median([None]))

    def test_ratio(self) -> None:
        self.assertEqual(2.0, figures.ratio(4.0, 2.0))
        self.assertIsNone(figures.ratio(None, 2.0))
        self.assertIsNone(figures.ratio(4.0, None))
        self.assertIsNone(figures.ratio(4.0, 0.0))


class TransfersTest(testtools.TestCase):
    """An undisturbed file takes 1.75 s."""

    def test_finished(self) -> None:
        self.assertEqual([1.8], result.transfers(
            [load.File(1, 1, 1.8)], 10.0))

    def test_over_before_the_measured_time(self) -> None:
        self.assertEqual([], result.transfers([load.File(-3, -3, 2.9)], 10))
        self.assertEqual([3.1], result.transfers([load.File(-3, -3, 3.1)],
                                                 10))

    def test_still_on_its_way(self) -> None:
        self.assertEqual([6.0], result.transfers([load.File(4, 4, 0)], 10))
        self.assertEqual([], result.transfers([load.File(9, 9, 0)], 10))


class ViolationsTest(testtools.TestCase):
    """100 MiB take half a second, so the answer is due 1.75 s later."""

    WALL = 2 * GIB

    def judge(self, *steps: load.Step,
              free_mib: float = 500) -> tuple[int, int]:
        samples = [sample(at_s / 5,
                          memory_bytes=self.WALL - free_mib * 2**20)
                   for at_s in range(51)]
        return result.violations(steps, samples, self.WALL)

    def test_did_not_meet(self) -> None:
        self.assertEqual((0, 0), self.judge(
            load.Step(2, 2, 0.5, 100, 7, 7), free_mib=1))

    def test_met_and_answered(self) -> None:
        self.assertEqual((1, 0), self.judge(
            load.Step(2, 2, 0.6, 100, 7, 9)))

    def test_wall_stands_after_the_answer_was_due(self) -> None:
        self.assertEqual((1, 1), self.judge(
            load.Step(2, 2, 0.6, 100, 7, 9), free_mib=40))
        self.assertEqual((1, 0), self.judge(
            load.Step(2, 2, 0.6, 100, 7, 9), free_mib=42))

    def test_looked_at_only_until_the_next_step(self) -> None:
        self.assertEqual((1, 0), self.judge(
            load.Step(2, 2, 0.6, 100, 7, 9),
            load.Step(3.7, 3.7, 0.5, -100, 9, 9), free_mib=1))

    def test_took_too_long(self) -> None:
        self.assertEqual((1, 1), self.judge(
            load.Step(2, 2, 1.8, 100, 7, 9)))

    def test_still_under_way(self) -> None:
        self.assertEqual((1, 1), self.judge(
            load.Step(2, 2, 0, 100, 7, 8)))

    def test_waits_for_the_cpu_not_for_memory(self) -> None:
        self.assertEqual((0, 0), self.judge(
            load.Step(2, 2, 0, 100, 7, 7)))

    def test_steps_down_and_warm_up_do_not_count(self) -> None:
        self.assertEqual((0, 0), self.judge(
            load.Step(-3, -3, 0.6, 300, 0, 9),
            load.Step(2, 2, 0.1, -100, 9, 12)))


class RecordTest(testtools.TestCase):

    def test_figures(self) -> None:
        found = record('unmanaged', p99_s=0.25, work=0.7)
        self.assertEqual(5.0, found['p50_ms'])
        self.assertEqual(250.0, found['p99_ms'])
        self.assertEqual(0.5, found['cpu_use'])
        for kind, expected in (('cpu', 0.7), ('memory', 0.7),
                               ('network', 7e6)):
            self.assertAlmostEqual(expected, found['background_work'][kind])


class SummaryTest(testtools.TestCase):

    def test_keys_of_a_phase(self) -> None:
        phase = whole()['phases']['scavenger']
        for key in ('p50_ms', 'p99_ms', 'p999_ms', 'background_work',
                    'foreground_transfer_s', 'memory_violations', 'rounds'):
            self.assertIn(key, phase)
        self.assertEqual({'cpu', 'memory', 'network'},
                         set(phase['background_work']))
        self.assertEqual(2, len(phase['rounds']))
        self.assertNotIn('series', phase['rounds'][0])

    def test_compared_within_each_round(self) -> None:
        records = [record('alone', 0, p99_s=0.01),
                   record('scavenger', 0, p99_s=0.011),
                   record('scavenger', 1, p99_s=0.044),
                   record('alone', 1, p99_s=0.04)]
        phases = result.summary(records, SETTINGS)['phases']
        self.assertAlmostEqual(1.1, phases['scavenger']['p99_to_alone'])
        self.assertAlmostEqual(27.5, phases['scavenger']['p99_ms'])

    def test_best_split_by_hindsight(self) -> None:
        # 90 % of what a peak of a quarter leaves of 2 GiB
        self.assertAlmostEqual(0.9 * 1.75,
                               whole()['memory_by_hindsight_gib'])


class VerdictTest(testtools.TestCase):

    def failed(self, found: dict[str, Any]) -> list[str]:
        return [test['name'] for test in found['criteria']
                if test['outcome'] != 'passed']

    def test_passed(self) -> None:
        found = whole()
        self.assertEqual([], self.failed(found))
        self.assertEqual('passed', found['verdict'])

    def test_slower_service(self) -> None:
        found = whole(pairs(slower=1.3))
        self.assertEqual(['P99 against alone'], self.failed(found))
        self.assertEqual('failed', found['verdict'])
        self.assertEqual(1.3, found['phases']['scavenger']['p99_to_alone'])

    def test_the_bar_inside_the_interval(self) -> None:
        found = whole(pairs(slower=1.02, scatter=0.1))
        self.assertEqual('inconclusive', found['verdict'])
        self.assertIn('the interval holds the bar', found['why'])

    def test_fewer_pairs_than_it_takes(self) -> None:
        for slower in (1.0, 1.3):
            found = whole(pairs(5, slower=slower))
            self.assertEqual(
                ('inconclusive',
                 'P99 against alone: only 5 of 12 pairs of turns'),
                (found['verdict'], found['why']))
        slow = whole(pairs(5), scavenger={'work': 0.1, 'transfer_s': 9.0})
        self.assertEqual('inconclusive', slow['verdict'])

    def test_a_difference_between_phases_alone_does_not_count(self) -> None:
        self.assertEqual('passed',
                         whole(scavenger={'p99_s': 0.02})['verdict'])

    def test_without_turns(self) -> None:
        found = whole([])
        self.assertEqual('inconclusive', found['verdict'])
        self.assertIn('P99 against alone', found['why'])

    def test_too_few_quiet_turns(self) -> None:
        for slower in (1.0, 1.3):
            found = whole(pairs(slower=slower, disturbed=1))
            self.assertEqual('inconclusive', found['verdict'])
            self.assertIn('dpkg (pid 77) 1.00', found['why'])
            self.assertEqual(1, found['turns']['set_aside'])

    def test_disturbed_turns_are_set_aside(self) -> None:
        found = whole(pairs(14, disturbed=2))
        self.assertEqual('passed', found['verdict'])
        self.assertIn('2 of 14 pairs', found['disturbed'])
        self.assertIn('dpkg', table.text(found))

    def test_a_disturbed_phase_is_never_failed(self) -> None:
        for name in ('alone', 'unmanaged', 'scavenger'):
            change: Any = {name: {'other_cpus': 0.5, 'transfer_s': 9.0}}
            found = whole(**change)
            self.assertEqual('inconclusive', found['verdict'])
            self.assertIn('not quiet', shared.first(found))

    def test_a_disturbed_round_is_set_aside(self) -> None:
        records = [record('alone', 0), record('scavenger', 0),
                   record('alone', 1, p99_s=5.0, other_cpus=1.0),
                   record('scavenger', 1, p99_s=9.0, other_cpus=1.0)]
        phases = result.summary(records, SETTINGS)['phases']
        self.assertEqual(1.0, phases['scavenger']['p99_to_alone'])
        self.assertEqual(10.0, phases['scavenger']['p99_ms'])

    def test_a_program_that_fails(self) -> None:
        found = result.summary([record('alone')], SETTINGS, (),
                               'the service ended with 1')
        self.assertEqual('failed', found['verdict'])
        self.assertIn('the service ended with 1; missing: unmanaged, '
                      'scavenger', shared.first(found))
        self.assertIn('turns are missing',
                      whole([], 'no end')['why'])

    def test_too_little_work(self) -> None:
        found = whole(scavenger={'work': 0.8})
        self.assertEqual(['batch CPU work against unmanaged'],
                         self.failed(found))

    def test_slow_file(self) -> None:
        found = whole(scavenger={'transfer_s': 2.0})
        self.assertEqual(['file transfer against alone'],
                         self.failed(found))

    def test_one_unanswered_violation_in_any_round(self) -> None:
        found = whole(scavenger={
            'steps': [load.Step(2, 2, 0, 100, 0, 1)]})
        self.assertEqual(['memory violations left unanswered'],
                         self.failed(found))

    def test_half_does_as_much(self) -> None:
        found = whole(static_half={'work': 0.95})
        self.assertEqual(2, len(self.failed(found)))
        self.assertEqual('failed', found['verdict'])

    def test_half_that_hurts_the_files_is_no_bar(self) -> None:
        found = whole(static_half={'work': 0.95, 'transfer_s': 4.0})
        self.assertEqual(
            ['batch memory work against the half that also keeps the '
             'service whole'], self.failed(found))

    def test_no_effect_is_inconclusive(self) -> None:
        found = whole(unmanaged={'p99_s': 0.0129})
        self.assertEqual('inconclusive', found['verdict'])
        self.assertEqual('passed',
                         whole(unmanaged={'p99_s': 0.0131})['verdict'])

    def test_a_phase_is_missing(self) -> None:
        found = result.summary([record('alone'), record('unmanaged')],
                               SETTINGS)
        self.assertEqual('not judged', found['verdict'])

    def test_a_knob_left_changed_always_fails(self) -> None:
        one = record('alone')
        one['knobs_left'] = ["/x/cpu.shares: was '1024', is '2'"]
        found = result.summary([one], SETTINGS)
        self.assertEqual('failed', found['verdict'])
        self.assertIn('/x/cpu.shares', table.text(found))


class RoundsTest(testtools.TestCase):
    """Batch work and file transfer: the median of the rounds, and a failure
    only where three rounds or more miss the limit."""

    def judge(self, *rounds: dict[str, Any],
              slower: float = 1.0) -> tuple[str, str, bool]:
        """Verdict, why, and whether another round is due."""
        records = [record(name, number, **how)
                   for number, ours in enumerate(rounds)
                   for name, how in (('alone', {'work': 0.0}),
                                     ('unmanaged', {'p99_s': 0.5}),
                                     ('scavenger', ours))]
        turns = pairs(slower=slower)
        found = result.summary(records, SETTINGS, turns)
        return (found['verdict'], found['why'],
                result.takes_a_round(records, turns))

    def test_one_round_decides_when_it_holds(self) -> None:
        self.assertEqual(('passed', False), self.judge({'work': 0.86})[::2])

    def test_one_round_that_misses_takes_more(self) -> None:
        for short in ({'work': 0.84}, {'transfer_s': 2.0}):
            verdict, why, more = self.judge(short)
            self.assertEqual(('inconclusive', True), (verdict, more))
            self.assertIn('holds in 0 of 1 rounds, and 3 rounds are needed',
                          why)

    def test_the_median_holds(self) -> None:
        self.assertEqual(('passed', False), self.judge(
            {'work': 0.80}, {'work': 0.95}, {'work': 0.86})[::2])

    def test_three_that_miss_have_failed(self) -> None:
        self.assertEqual(
            ('failed', 'batch CPU work against unmanaged', False),
            self.judge({'work': 0.80}, {'work': 0.84}, {'work': 0.84}))
        self.assertEqual(
            ('failed', 'file transfer against alone', False),
            self.judge(*3 * [{'transfer_s': 2.0}]))

    def test_one_of_three_holds(self) -> None:
        self.assertEqual(
            ('inconclusive', 'batch CPU work against unmanaged: holds in 1 '
             'of 3 rounds', False),
            self.judge({'work': 0.80}, {'work': 0.84}, {'work': 0.95}))

    def test_two_that_differ_take_a_third(self) -> None:
        """Whatever their mean is."""
        self.assertEqual(('inconclusive', True), self.judge(
            {'work': 0.80}, {'work': 0.95})[::2])

    def test_many_rounds(self) -> None:
        """Some of them may hold by chance."""
        bad, good = {'work': 0.80}, {'work': 0.95}
        for misses, holds, expected in ((4, 0, 'failed'),
                                        (4, 1, 'inconclusive'),
                                        (14, 6, 'failed'),
                                        (13, 7, 'inconclusive'),
                                        (10, 11, 'passed')):
            found, _, more = self.judge(*misses * [bad], *holds * [good])
            self.assertEqual((expected, False), (found, more),
                             f'{misses} {holds}')

    def test_the_half_is_compared_within_a_round(self) -> None:
        """More rounds of the others change nothing of it."""
        ours = [record('scavenger', number, work=work)
                for number, work in enumerate((0.95, 0.86, 0.86))]
        phases = result.summary(
            [*ours, record('static_half', 0, work=0.90)], SETTINGS)['phases']
        self.assertEqual(0.95 / 0.90,
                         phases['scavenger']['work_to_half']['cpu'])

    def test_no_quiet_round_has_the_half_too(self) -> None:
        records = [record('alone'), record('static_half', work=0.90),
                   record('scavenger', work=0.5, other_cpus=1.0),
                   record('scavenger', 1, work=0.86)]
        failed = [test for test in result.summary(
            records, SETTINGS)['criteria'] if test['outcome'] == 'failed']
        self.assertEqual(2, len(failed))
        self.assertAlmostEqual(0.86 / 0.90, failed[0]['value'])

    def test_no_more_rounds_where_something_else_decides(self) -> None:
        self.assertEqual(('failed', False),
                         self.judge({'work': 0.5}, slower=1.3)[::2])


class TableTest(testtools.TestCase):

    def test_every_phase_has_a_row(self) -> None:
        text = table.text(whole())
        for word in ('alone', 'unmanaged', 'static half', 'scavenger',
                     'P99.9 ms', 'memory 5 s'):
            self.assertIn(word, text)
        self.assertTrue(text.startswith('passed: everything'), text)

    def test_the_latest_of_all_rounds_outside(self) -> None:
        records = [record('alone', 0, late_s=0.002),
                   record('alone', 1, late_s=2.5), record('scavenger')]
        text = table.text(result.summary(records, SETTINGS))
        self.assertIn('late by at most 2500.0 ms (alone), 0.0 ms (scavenger)',
                      text)

    def test_unknown_is_a_dash(self) -> None:
        self.assertEqual('-', shared.number(None))
        self.assertEqual('-', shared.percent(None))
