# SPDX-License-Identifier: Apache-2.0

"""Drawing: axes, gaps, heat maps, and what is escaped."""

from __future__ import annotations

from xml.etree import ElementTree

import testtools

from scavenger_openstack.ibench import catalogue
from scavenger_openstack.plot import heat
from scavenger_openstack.plot import panels

SVG = '{http://www.w3.org/2000/svg}'


class PlotTest(testtools.TestCase):

    def test_linear_axis(self) -> None:
        axis = panels.Axis(0.0, 10.0, ())
        for value, share in ((0, 0.0), (5, 0.5), (10, 1.0), (99, 1.0),
                             (-1, 0.0)):
            self.assertEqual(share, axis.share(value))

    def test_logarithmic_axis(self) -> None:
        axis = panels.Axis(1.0, 10000.0, (), log=True)
        for value, share in ((1, 0.0), (100, 0.5), (10000, 1.0), (0, 0.0)):
            self.assertAlmostEqual(share, axis.share(value))

    def test_a_missing_value_leaves_a_gap(self) -> None:
        self.assertEqual([[(0, 1.0)], [(2, 3.0), (3, 4.0)]], panels.runs(
            [(0, 1.0), (1, None), (2, 3.0), (3, 4.0)]))
        self.assertEqual([], panels.runs([(0, None)]))


ROWS: list[heat.Row] = [
    ('memory capacity', (0.4, 0.35, 0.45), (0.0, 0.0, 0.0)),
    ('LLC capacity', None, (0.9, 0.8, 1.0)),
    ('integer units', (0.1, 0.0, 0.2), None)]


class HeatMapTest(testtools.TestCase):

    def texts(self, picture: ElementTree.Element) -> list[str]:
        return [''.join(text.itertext())
                for text in picture.iter(f'{SVG}text')]

    def test_each_value_is_text_and_its_interval_a_line(self) -> None:
        picture = ElementTree.fromstring(heat.svg('db', ROWS))
        cells = {''.join(cell[0].itertext()): cell
                 for cell in picture.iter(f'{SVG}g')}
        self.assertEqual(6, len(cells))
        cell = cells['memory capacity, tolerated: 40 % (35 to 45 %)']
        self.assertEqual(['40 %'], self.texts(cell))
        (box,), span = cell.iter(f'{SVG}rect'), next(cell.iter(f'{SVG}line'))
        width = float(box.attrib['width']) - 12
        for name, share in (('x1', 0.35), ('x2', 0.45)):
            self.assertAlmostEqual(
                share, (float(span.attrib[name]) - float(box.attrib['x']) - 6)
                / width, delta=0.001)

    def test_what_was_not_measured_says_so_and_has_no_shade(self) -> None:
        picture = ElementTree.fromstring(heat.svg('db', ROWS))
        missing = [cell for cell in picture.iter(f'{SVG}g')
                   if 'not measured' in self.texts(cell)]
        self.assertEqual(
            ['LLC capacity, tolerated: not measured',
             'integer units, caused: not measured'],
            [''.join(cell[0].itertext()) for cell in missing])
        for cell in missing:
            self.assertEqual(['none'], [box.get('fill') for box
                                        in cell.iter(f'{SVG}rect')])
            self.assertEqual([], list(cell.iter(f'{SVG}line')))

    def test_rows_are_all_sources_in_the_order_of_the_catalogue(self) -> None:
        labels = {soi.name: f"{soi.number.replace('a', chr(39))} {soi.title}"
                  for soi in catalogue.SOIS}
        self.assertEqual(list(labels.items()), list(heat.LABELS.items()))
        rows = heat.rows({'caused': {'tlb': {
            'value': 0.4, 'low': 0.3, 'high': 0.5}}})
        self.assertEqual(list(labels.values()), [row[0] for row in rows])
        self.assertEqual([('10 TLB', None, (0.4, 0.3, 0.5))],
                         [row for row in rows if row[1:] != (None, None)])

    def test_zero_is_a_value(self) -> None:
        picture = ElementTree.fromstring(heat.svg('db', ROWS[:1]))
        self.assertIn('0 %', self.texts(picture))

    def test_shades_darken_steadily(self) -> None:
        shades = [heat.luminance(heat.shade(i / 100)) for i in range(101)]
        self.assertEqual(sorted(shades, reverse=True), shades)
        self.assertEqual(101, len(set(shades)))

    def test_text_contrasts_with_its_shade(self) -> None:
        for i in range(101):
            pair = sorted((heat.luminance(heat.shade(i / 100)),
                           float(heat.ink(i / 100) == '#fff')))
            self.assertGreater((pair[1] + 0.05) / (pair[0] + 0.05), 4.5, i)

    def test_text_outside_of_the_cells_follows_the_page(self) -> None:
        picture = ElementTree.fromstring(heat.svg('db', ROWS))
        in_cells = {text for cell in picture.iter(f'{SVG}g')
                    for text in cell.iter(f'{SVG}text')
                    if ''.join(text.itertext()) != heat.NOT_MEASURED}
        shaded = [text for text in picture.iter(f'{SVG}text')
                  if text.get('fill') != 'currentColor'
                  and text not in in_cells]
        self.assertEqual(['0 %', '25 %', '50 %', '75 %', '100 %'],
                         [text.text for text in shaded])

    def test_description_counts_and_names_the_extremes(self) -> None:
        self.assertIn('tolerated: 2 of 3 sources measured, least 10 % '
                      '(integer units). caused: 2 of 3 sources measured, most '
                      '90 % (LLC capacity)', heat.describe(ROWS))
        self.assertIn('tolerated: 0 of 0', heat.describe([]))

    def test_hostile_names_stay_text(self) -> None:
        hostile = '<script>alert(1)</script>\x1b[31m"\'&' + 'x' * 255
        picture = ElementTree.fromstring(
            heat.svg(hostile, [(hostile, None, (1.0, 1.0, 1.0))]))
        self.assertEqual({f'{SVG}{name}' for name in
                          ('svg', 'title', 'desc', 'text', 'g', 'rect',
                           'line', 'circle')},
                         {element.tag for element in picture.iter()})
