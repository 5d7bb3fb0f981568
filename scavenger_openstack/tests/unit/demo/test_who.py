# SPDX-License-Identifier: Apache-2.0



"""The second act of the demo: its schedule, its figures and its picture."""

from __future__ import annotations

from xml.etree import ElementTree

import testtools

from scavenger_openstack.demo.who import play
from scavenger_openstack.demo.who import report
from scavenger_openstack.demo.who import result
from scavenger_openstack.tests.unit.demo.records import HARM_MS
from scavenger_openstack.tests.unit.demo.records import other
from scavenger_openstack.tests.unit.demo.records import who as record


class ScheduleTest(testtools.TestCase):

    def test_nobody_disturbs_at_first_nor_at_the_end(self) -> None:
        for job in play.JOBS:
            if job.victim:
                self.assertFalse(any(job.works(at_s / 10, 200.0) for at_s
                                     in range(int(10 * play.QUIET_S))))
                self.assertTrue(job.works(play.QUIET_S + job.offset_s,
                                          200.0))
            self.assertFalse(job.works(200.0, 200.0))

    def test_works_and_rests_irregularly(self) -> None:
        for job in play.JOBS:
            begun_s = (play.QUIET_S + job.offset_s) if job.victim else 0.0
            works = [job.works(begun_s + at_s / 10, 1000.0)
                     for at_s in range(7000)]
            self.assertTrue(works[0])
            share = sum(works) / len(works)
            self.assertTrue(0.35 < share < 0.65, share)
            ends = [place for place, (one, two) in enumerate(
                zip(works, works[1:], strict=False)) if one and not two]
            lengths = [b - a for a, b in zip(ends, ends[1:], strict=False)]
            self.assertGreater(max(lengths), 1.5 * min(lengths))

    def test_lookups(self) -> None:
        found = play.lookups('1', 100.0)
        self.assertEqual(found, play.lookups('1', 100.0))
        due_s, places = found[::2], found[1::2]
        self.assertEqual(sorted(due_s), due_s)
        self.assertTrue(0.9 < len(due_s) / (100 * play.LOOKUPS_PER_S) < 1.1)
        self.assertTrue(0 <= min(places) and max(places) < 1)


class SummaryTest(testtools.TestCase):

    def test_other_load_is_inconclusive(self) -> None:
        busy, calm = other(1.0), other(0.0)
        for found in (record(), record(named_s=1e9)):
            told = result.summary(
                found | {'others': [busy] * 2 + [calm] * 8})
            self.assertEqual('inconclusive', told['verdict'])
            self.assertIn('dpkg (pid 77) 1.00, in 2 of 10', told['why'])
        told = result.summary(
            record() | {'others': [busy] + [calm] * 9})
        self.assertEqual('passed', told['verdict'])

    def test_a_program_that_fails(self) -> None:
        told = result.summary(
            record() | {'problem': 'batch work ended with 3'})
        self.assertEqual('failed', told['verdict'])
        self.assertTrue(result.text(told).startswith(
            'failed: batch work ended with 3; what follows ends'))

    def test_as_it_should_be(self) -> None:
        found = result.summary(record())
        self.assertEqual('passed', found['verdict'], str(found))
        one = found['victims'][play.SERVICE]
        self.assertEqual((20.0, 'confirmed'), (one['named_s'],
                                               one['outcome']))
        self.assertTrue(5 < one['worked_s'] < 20, one['worked_s'])
        for state, wanted in HARM_MS.items():
            self.assertAlmostEqual(wanted, one['mean_ms'][state])
            self.assertAlmostEqual(wanted, one['p99_ms'][state])
        self.assertAlmostEqual(7 / 8, one['restored'])
        self.assertAlmostEqual(0.25, one['work_left'])

    def test_nobody_was_named(self) -> None:
        found = result.summary(record(named_s=1000.0))
        self.assertEqual('failed', found['verdict'])
        one = found['victims'][play.LOOKUP]
        self.assertEqual((None, None, None), (
            one['named_s'], one['restored'], one['work_left']))
        self.assertIn('FAILED', result.text(found))

    def test_an_innocent_was_limited(self) -> None:
        found = result.summary(record(innocent=True))
        self.assertEqual(
            ['no other workload is named or limited'],
            [one['name'] for one in found['criteria']
             if one['outcome'] != 'passed'])

    def test_something_was_left_behind(self) -> None:
        found = result.summary(record() | {'knobs_left': ['a: was 1']})
        self.assertEqual('failed', found['verdict'])

    def test_the_table(self) -> None:
        text = result.text(result.summary(record()))
        self.assertIn('run_delay (core)', text)
        self.assertTrue(text.startswith('passed: '), text)


class PictureTest(testtools.TestCase):

    def test_limits_are_shaded(self) -> None:
        one = record()
        drawn = report.svg(one)
        ElementTree.fromstring(drawn)
        spans = [span for job in play.JOBS if job.victim
                 for span in report.limits(one['looks'], job.group)]
        self.assertEqual(2 * len(spans), drawn.count("fill-opacity='0.14'"))

    def test_a_page_of_an_act_without_anything(self) -> None:
        one = record(named_s=1000.0)
        page = report.page(result.summary(one), one)
        self.assertIn('<svg', page)
        self.assertIn("<b class='failed'>failed</b>", page)
