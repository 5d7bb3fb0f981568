# SPDX-License-Identifier: Apache-2.0

"""The page and the picture: whole, well formed, without anything else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import testtools

from scavenger_openstack.demo import report
from scavenger_openstack.demo import result
from scavenger_openstack.tests.unit.demo import records


class ReportTest(testtools.TestCase):

    def test_needs_nothing_but_itself(self) -> None:
        page = report.page(records.whole())
        for words in ('<script', '<link', 'url('):
            self.assertNotIn(words, page)
        self.assertEqual({'http://www.w3.org/2000/svg'}, set(re.findall(
            r'https?://[^\'"\s]+', page)))
        self.assertIn("<span class='verdict passed'>passed", page)

    def test_names_are_text(self) -> None:
        record = records.record()
        record['incidents'][0]['antagonists'] = ['<b>/x']
        page = report.page(result.summary(record, []))
        self.assertNotIn('<b>/x', page)
        self.assertIn('&lt;b&gt;/x', page)

    def test_nothing_is_drawn_outside_the_picture(self) -> None:
        """In acts that end early, are slow, or name nothing, too."""
        for how in ({}, {'named': (), 'limited': ()}, {'alone_ms': 0.0},
                    {'unmanaged_ms': 60_000.0}):
            picture = report.svg(result.summary(records.record(
                **how), []))
            root = ElementTree.fromstring(picture)
            width, height = map(float, root.attrib['viewBox'].split()[2:])
            for element in root.iter():
                for names, most in ((('x', 'x1', 'x2', 'cx'), width),
                                    (('y', 'y1', 'y2', 'cy'), height)):
                    for name in names:
                        value = float(element.attrib.get(name, 0))
                        self.assertTrue(0 <= value <= most,
                                        ElementTree.tostring(element))

    def test_the_key_ends_before_the_picture_does(self) -> None:
        """By the width of an average letter."""
        root = ElementTree.fromstring(report.svg(records.whole()))
        for element in root:
            if element.tag.endswith('text') and element.text:
                size = float(element.attrib['font-size'])
                end = (float(element.attrib['x'])
                       + 0.6 * size * len(element.text))
                self.assertLess(end, report.WIDTH, element.text)

    def test_the_moments_are_drawn(self) -> None:
        """With words of their own, unless they are too near."""
        both = ['the hog begins', 'the agent names it', 'and limits it']
        near = ['the hog begins', 'the agent names and limits it']
        for how, limited_s, expected in (
                ({}, records.LIMITED_S, both),
                ({}, records.HOG_S + 12.0, near),
                ({'limited': ()}, None, both[:2]),
                ({'named': (), 'limited': ()}, None, both[:1])):
            drawn = result.summary(records.record(
                **how), [])     # type: ignore[arg-type]
            drawn['moments']['limited_s'] = limited_s
            texts = [element.text for element in ElementTree.fromstring(
                report.svg(drawn)).iter()
                if element.tag.endswith('text')]
            self.assertEqual(2 * expected, [
                text for text in texts if text in {*both, *near}])
