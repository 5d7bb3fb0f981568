# SPDX-License-Identifier: Apache-2.0

"""Pictures: what is where, what is escaped, what is not drawn."""

from __future__ import annotations

import datetime
import re
from xml.etree import ElementTree
import zoneinfo

import testtools

from scavenger_openstack.dashboard import plots

BEGIN_S = 1764381600.0      # 2025-11-29 02:00:00 UTC
BERLIN = zoneinfo.ZoneInfo('Europe/Berlin')
HOSTILE = ('<script>alert(1)</script>', '"onload="x', "'><b>", '&lt;',
           '\u202ereversed', '\u05e2\u05d1\u05e8\u05d9\u05ea', 'x' * 255,
           'a\x1b[31mb', '{{ evil }}')
SVG = '{http://www.w3.org/2000/svg}'


def line(values, step_s=5.0):
    return [(BEGIN_S + step_s * i, value) for i, value in enumerate(values)]


def limit(begin, end, *steps, knob='cpu_cores'):
    return plots.Limit(knob, BEGIN_S + begin,
                       None if end is None else BEGIN_S + end,
                       [(BEGIN_S + at, value) for at, value in steps])


def victim(values=(0.1, 0.6, 0.7, 0.2), name='web'):
    return plots.Series(name, 'victim', 'run_delay', line(values))


def suspect(values=(3.0, 3.0, 0.5, 0.5), name='batch', limits=()):
    return plots.Series(name, 'antagonist', 'cpu_cores', line(values), limits)


def drawn(*series, threshold=0.3, zone=BERLIN, begun_s=None, ended_s=None):
    return plots.incident(series, threshold=threshold, begun_s=begun_s,
                          ended_s=ended_s, zone=zone)


def texts(svg):
    return [''.join(node.itertext())
            for node in ElementTree.fromstring(svg).iter(f'{SVG}text')]


def bands(svg):
    """Left and right edge of what is shaded."""
    return [(float(node.get('x')), float(node.get('x'))
             + float(node.get('width')))
            for node in ElementTree.fromstring(svg).iter(f'{SVG}rect')
            if node.get('fill') == plots.LIMIT]


class Incident(testtools.TestCase):

    def test_name_and_description(self) -> None:
        svg = drawn(victim(), suspect(limits=[limit(5, 15, (5, 0.5))]))
        root = ElementTree.fromstring(svg)
        self.assertEqual('img', root.get('role'))
        self.assertIn('web', root.findtext(f'{SVG}title'))
        described = root.findtext(f'{SVG}desc')
        for part in ('0.3 s waited', '2 of 4', '0.5 cores', '03:00:05',
                     '03:00:15'):
            self.assertIn(part, described)

    def test_no_script_and_nothing_from_elsewhere(self) -> None:
        svg = drawn(victim(), suspect())
        self.assertNotRegex(svg, r'<script|href|url\(|\son\w+=|<style')

    def test_names_are_escaped_cut_and_isolated(self) -> None:
        for name in HOSTILE:
            svg = drawn(victim(name=name), suspect(name=name))
            root = ElementTree.fromstring(svg)
            self.assertEqual(
                {'svg', 'title', 'desc', 'text', 'line', 'rect', 'path',
                 'g'}, {node.tag.removeprefix(SVG) for node in root.iter()})
            for shown in texts(svg):
                self.assertLess(len(shown), 120)
                self.assertNotIn('\x1b', shown)
                self.assertNotIn('\u202e', shown)
                self.assertEqual(shown.count('\u2068'), shown.count('\u2069'))

    def test_times_are_in_the_zone(self) -> None:
        values = [0.1] * 60
        self.assertIn('03:01', texts(drawn(victim(values), zone=BERLIN)))
        kolkata = zoneinfo.ZoneInfo('Asia/Kolkata')
        self.assertIn('07:31', texts(drawn(victim(values), zone=kolkata)))

    def test_limit_is_shaded_on_both_charts_at_its_time(self) -> None:
        svg = drawn(victim(), suspect(limits=[limit(5, 10, (5, 0.5))]))
        shaded = bands(svg)
        self.assertEqual(2, len(shaded))
        inside = plots.WIDTH - 56 - 10
        for left, right in shaded:
            self.assertAlmostEqual(56 + inside / 3, left, delta=0.1)
            self.assertAlmostEqual(56 + inside * 2 / 3, right, delta=0.1)

    def test_limit_in_force_is_shaded_to_the_end(self) -> None:
        (_, right), *_ = bands(drawn(victim(), suspect(
            limits=[limit(5, None, (5, 0.5))])))
        self.assertAlmostEqual(plots.WIDTH - 10, right, delta=0.1)

    def test_limit_of_another_time_is_not_shaded(self) -> None:
        for begin, end in ((-100, -50), (10000, 10010), (10000, None)):
            self.assertEqual([], bands(drawn(victim(), suspect(
                limits=[limit(begin, end, (begin, 0.5))]))))

    def test_steps_of_a_limit_are_drawn_in_the_unit_of_the_use(self) -> None:
        series = plots.Series('batch', 'antagonist', 'io_bytes_per_s',
                              line([40e6, 40e6, 10e6, 5e6]),
                              [limit(5, 15, (5, 10e6), (10, 5e6),
                                     knob='io_bytes_per_s')])
        svg = drawn(victim(), series)
        self.assertIn('MB/s', texts(svg))
        steps = [node.get('d') for node in ElementTree.fromstring(
            svg).iter(f'{SVG}path') if node.get('stroke') == plots.LIMIT]
        self.assertEqual(1, len(steps))
        self.assertEqual(2, steps[0].count('V'))

    def test_another_knob_is_shaded_and_not_drawn_as_use(self) -> None:
        svg = drawn(victim(), suspect(limits=[
            limit(5, 15, (5, '0-1'), knob='cpu_set')]))
        self.assertEqual(2, len(bands(svg)))
        self.assertIn('CPUs 0-1', svg)

    def test_what_was_not_measured_is_a_gap(self) -> None:
        svg = drawn(victim([0.1, 0.2, None, 0.3, 0.4]))
        lines = [node for node in ElementTree.fromstring(svg).iter(
            f'{SVG}path') if node.get('fill') == 'none']
        self.assertEqual(2, len(lines))

    def test_a_pause_is_a_gap(self) -> None:
        points = [*line([0.1] * 5), *((at + 3600, value)
                                      for at, value in line([0.1] * 5))]
        svg = drawn(plots.Series('web', 'victim', 'run_delay', points))
        lines = [node for node in ElementTree.fromstring(svg).iter(
            f'{SVG}path') if node.get('fill') == 'none']
        self.assertEqual(2, len(lines))

    def test_nothing_measured_is_nothing_drawn(self) -> None:
        self.assertEqual('', drawn())
        self.assertEqual('', drawn(victim([None, None])))

    def test_odd_numbers_are_drawn(self) -> None:
        for values in ([0.0], [0.0, 0.0], [1e-12], [1e15, 1e-9], [-1.0]):
            svg = drawn(victim(values))
            self.assertNotRegex(svg, r'nan|inf')
            ElementTree.fromstring(svg)

    def test_begin_is_marked(self) -> None:
        self.assertIn('begun 03:00:05', texts(drawn(
            victim(), begun_s=BEGIN_S + 5)))
        self.assertNotIn('begun', drawn(victim(), begun_s=BEGIN_S - 60))

    def test_suspects_are_bounded(self) -> None:
        svg = drawn(victim(), *(suspect(name=f'batch-{i}')
                                for i in range(40)))
        self.assertEqual(plots.MOST_SUSPECTS, len(
            [one for one in texts(svg) if 'batch-' in one]))

    def test_ticks_are_few(self) -> None:
        for seconds in (1, 30, 600, 7000, 90000, 40 * 86400):
            span = plots.Span(BEGIN_S, BEGIN_S + seconds, BERLIN)
            self.assertLessEqual(len(span.ticks()), plots.MOST_TICKS + 1)
            self.assertTrue(all(0 <= at_s <= seconds
                                for at_s, _ in span.ticks()))


class Table(testtools.TestCase):

    def test_row_for_each_time(self) -> None:
        head, rows = plots.table([victim(), suspect([3.0, None])],
                                 datetime.UTC)
        self.assertEqual(3, len(head))
        self.assertEqual(4, len(rows))
        self.assertEqual(['2025-11-29 02:00:05', '0.6 s waited per s of '
                          'CPU time', '-'], rows[1])

    def test_empty(self) -> None:
        self.assertEqual((['Time'], []), plots.table([], datetime.UTC))


class Small(testtools.TestCase):

    def test_sparkline(self) -> None:
        svg = plots.sparkline([0.0, 5.0, None, 10.0], 'min by <hour>')
        root = ElementTree.fromstring(svg)
        self.assertEqual('min by <hour>', root.findtext(f'{SVG}title'))
        lines = [node.get('d') for node in root.iter(f'{SVG}path')]
        self.assertEqual(2, len(lines))
        self.assertEqual('3.0', lines[1].split()[-1])
        for values in ([], [None], [0.0], [7.0]):
            self.assertNotIn('nan', plots.sparkline(values, ''))

    def test_bar(self) -> None:
        svg = plots.bar([('foreground', 2.0), ('background', 1.0)], 4.0,
                        'used "3" of 4 cores')
        root = ElementTree.fromstring(svg)
        self.assertEqual('used "3" of 4 cores',
                         root.findtext(f'{SVG}title'))
        widths = [float(node.get('width')) for node in root.iter(
            f'{SVG}rect') if node.get('fill') in plots.SHADES]
        self.assertEqual([99.0, 49.5], widths)

    def test_bar_stays_inside(self) -> None:
        for parts, total in (([('a', 9.0)], 4.0), ([('a', None)], None),
                             ([], 0.0), ([('a', -1.0), ('b', 2.0)], 1.0)):
            for found in re.findall(r"width='([\d.]+)'",
                                    plots.bar(parts, total, '')):
                self.assertLessEqual(float(found), 200.0)

    def test_isolated(self) -> None:
        self.assertEqual('\u2068a\\u202eb\u2069', plots.isolated('a\u202eb'))
