# SPDX-License-Identifier: Apache-2.0



"""The second act of the demo: its schedule, its figures and its picture."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import testtools

from scavenger_openstack.demo.who import play
from scavenger_openstack.demo.who import report
from scavenger_openstack.demo.who import result
from scavenger_openstack.tests.unit.demo.records import other

HARM_MS = {result.ALONE: 2.0, result.DISTURBED: 10.0,
           result.LIMITED: 3.0}


def record(*, named_s: float = 20.0, seconds: float = 100.0,
           innocent: bool = False) -> dict[str, Any]:
    """An act in which all happens as it should.

    Both antagonists are named ``named_s`` after they began and limited
    while they work from then on; they then do a quarter of the work.
    """
    end_s = play.QUIET_S + seconds
    looks: list[dict[str, Any]] = []
    work = {job.group: 0.0 for job in play.JOBS}
    for step in range(int(end_s)):
        at_s = float(step)
        working = {job.group: job.works(at_s, end_s) for job in play.JOBS}
        caps, incidents = {}, []
        for job in play.JOBS:
            late = at_s >= play.QUIET_S + job.offset_s + named_s
            if job.victim and late:
                incidents.append({
                    'victim': job.victim, 'signal': job.signal,
                    'cause': job.cause, 'threshold': 0.2,
                    'outcome': 'confirmed', 'antagonists': [job.group]})
                if working[job.group]:
                    caps[job.group] = 0.5
            if not job.victim and innocent and late:
                caps[job.group] = 0.1
        looks.append({'at_s': at_s, 'working': working, 'caps': caps,
                      'incidents': incidents, 'work': dict(work)})
        for group in work:
            work[group] += working[group] * (0.25 if group in caps else 1)
    latencies = {}
    for job in play.JOBS:
        if job.victim:
            latencies[job.victim] = [
                (begin_s + 0.5, HARM_MS[state] / 1000) for begin_s, _, state
                in result.spans(looks, job)]
    return {'seconds': end_s, 'sample_s': 2.0, 'cpus': 2, 'looks': looks,
            'latencies': latencies, 'knobs_left': [],
            'problem': '', 'others': [],
            'signals': {job.group: [
                {'at_s': look['at_s'], 'run_delay': 0.1, 'io_wait': None,
                 'cores': float(look['working'][job.group]),
                 'io_bytes_per_s': 1e6} for look in looks]
                for job in play.JOBS} | {
                    job.victim: [{'at_s': 1.0, 'run_delay': 0.1,
                                  'io_wait': 0.001, 'cores': 0.2,
                                  'io_bytes_per_s': 1e5}]
                    for job in play.JOBS if job.victim}}


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
