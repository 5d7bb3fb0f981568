# SPDX-License-Identifier: Apache-2.0

"""The report and the picture: whole, well formed, without anything else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import testtools

from scavenger_openstack.demo.filling import picture
from scavenger_openstack.demo.filling import report
from scavenger_openstack.demo.filling import result
from scavenger_openstack.tests.unit.demo.records import pairs
from scavenger_openstack.tests.unit.demo.records import record
from scavenger_openstack.tests.unit.demo.records import SETTINGS
from scavenger_openstack.tests.unit.demo.records import whole

NAMES = ('alone', 'unmanaged', 'static_half', 'scavenger')


class ReportTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.records = [record(name) for name in NAMES]
        self.result = result.summary(self.records, SETTINGS, pairs())
        self.page = report.page(self.result, self.records)

    def test_needs_nothing_but_itself(self) -> None:
        self.assertNotIn('<script', self.page)
        self.assertNotIn('<link', self.page)
        self.assertNotIn('url(', self.page)
        found = set(re.findall(r'https?://[^\'"\s]+', self.page))
        self.assertEqual({'http://www.w3.org/2000/svg'}, found)

    def test_four_plots_per_phase_and_the_picture(self) -> None:
        plots = re.findall(r'<svg.*?</svg>', self.page, re.DOTALL)
        self.assertEqual(4 * len(NAMES) + 1, len(plots))
        for one in plots:
            ElementTree.fromstring(one)
            self.assertIsNone(re.search(r'\bnan\b', one))

    def test_how_many_rounds(self) -> None:
        needed = [record(name, number) for number in (1, 2)
                  for name in ('alone', 'unmanaged', 'scavenger')]
        for more, expected in (([], (1, 0)), (needed, (1, 2)),
                               (needed[:2], (1, 0)), (needed[:4], (1, 1)),
                               (needed[:3] + [record('static_half', 1)],
                                (2, 0))):
            self.assertEqual(expected, tuple(result.rounds(
                [*self.records, *more]).values()))
        self.assertEqual((1, 0), tuple(result.rounds(
            [record('alone'), *needed[:2]]).values()))

    def test_text_is_escaped(self) -> None:
        settings = {**SETTINGS, 'seed': '<b>'}
        found = result.summary(self.records, settings)
        self.assertIn('&lt;b&gt;', report.page(found, self.records))


class PictureTest(testtools.TestCase):

    def test_every_phase(self) -> None:
        drawn = picture.svg(whole())
        ElementTree.fromstring(drawn)
        for words in ('unmanaged', 'scavenger', '500 ms (50x)',
                      '10.5 ms (1.00x)'):
            self.assertIn(words, drawn)

    def test_without_any_work(self) -> None:
        drawn = picture.svg(result.summary([record('alone', work=0.0)],
                                           SETTINGS))
        ElementTree.fromstring(drawn)

    def test_milliseconds(self) -> None:
        for value, words in ((12.34, '12.3 ms'), (345.6, '346 ms'),
                             (4321.0, '4.3 s')):
            self.assertEqual(words, picture.milliseconds(value))
