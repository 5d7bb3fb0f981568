# SPDX-License-Identifier: Apache-2.0

"""What ``incident show`` draws."""

from __future__ import annotations

import io
from typing import Any

import fixtures
import testtools
import wcwidth

from scavenger_openstack.osc import drawing
from scavenger_openstack.osc import times
from scavenger_openstack.tests.unit.odd_names import NAMES
from scavenger_openstack import text

BEGIN_S = times.parse('2026-11-23T12:00:00Z')


def one(workload: str, signal: str, values: list[float | None], *,
        step_s: float = 10.0) -> dict[str, Any]:
    return {'workload': workload, 'signal': signal, 'values': values,
            'times_at': [times.iso(BEGIN_S + i * step_s)
                         for i in range(len(values))]}


INCIDENT = {
    'victim': '/web', 'victim_name': None, 'signal': 'cpi',
    'threshold': 2.0, 'suspects': [
        {'workload': '/steady', 'score': 0.125, 'antagonist': False},
        {'workload': '/batch', 'name': 'batch\x1b[2J', 'score': 0.9,
         'antagonist': True}],
    'caps': [{'workload': '/batch', 'knob': 'cpu_cores', 'value': 0.5,
              'set_at': '2026-11-23T12:00:20Z',
              'removed_at': '2026-11-23T12:00:30Z'}],
    'evidence': [one('/steady', 'cpu_cores', [1.0, 1.0, 1.0, 1.0, 1.0]),
                 one('/batch', 'cpu_cores', [0.0, 4.0, 4.0, None, 0.0]),
                 one('/web', 'cpi', [1.0, 3.0, 3.0, 1.0, 1.0])]}


class Lines(testtools.TestCase):

    def draw(self, incident: dict[str, Any], width: int = 41,
             ink: drawing.Ink = drawing.BLOCKS) -> list[str]:
        return list(drawing.lines(incident, width=width, ink=ink))

    def test_victim_then_suspects_by_score(self) -> None:
        titles = [line for line in self.draw(INCIDENT, 81)
                  if ' to ' in line]
        self.assertEqual(
            ['/web (victim): cpi 1 to 3',
             'batch\\x1b[2J (antagonist, score 0.90): '
             'cpu_cores 0 cores to 4 cores',
             '/steady (suspect, score 0.12): '
             'cpu_cores 1 cores to 1 cores'], titles)

    def test_in_full(self) -> None:
        self.assertEqual(
            ['/web (victim): cpi 1 to 3',
             ' ' * 10 + '█' * 20,
             ' ' * 10 + '█' * 20,
             '█' * 40,
             ' ' * 10 + '▲' * 20,
             '▲ above the threshold 2',
             'batch\\x1b[2J (antagonist, score 0.90)...',
             '▁' * 10 + '█' * 20 + ' ' * 9 + '▁',
             ' ' * 20 + '─' * 11,
             '─ limited: cpu_cores 0.5 cores',
             '/steady (suspect, score 0.12): cpu_co...',
             '█' * 40,
             '┴' + '─' * 38 + '┴',
             '12:00:00' + ' ' * 24 + '12:00:40'], self.draw(INCIDENT))

    def test_where_it_began(self) -> None:
        """Below the first of the marks; not a column further."""
        for seconds, width, line in (
                (10, 41, ' ' * 10 + '| begun 12:00:10'),
                (30, 41, ' ' * 15 + 'begun 12:00:30 |'),
                (-60, 41, 'begun 11:59:00'), (900, 41, 'begun 12:15:00')):
            drawn = self.draw({**INCIDENT, 'begun_at': times.iso(
                BEGIN_S + seconds)}, width)
            at = drawn.index('▲ above the threshold 2')
            self.assertEqual(line, drawn[at + 1])
            if seconds == 10:
                self.assertEqual(drawn[at - 1].index('▲'), line.index('|'))

    def test_ascii(self) -> None:
        drawn = '\n'.join(self.draw(INCIDENT, ink=drawing.ASCII))
        self.assertTrue(drawn.isascii(), drawn)
        self.assertIn('\n' + ' ' * 10 + '^' * 20 + '\n', drawn)
        self.assertIn('\n' + '_' * 10 + '#' * 20 + ' ' * 9 + '_\n', drawn)

    def test_no_line_is_wider(self) -> None:
        for width in (20, 24, 41, 80, 237):
            for line in self.draw(INCIDENT, width):
                self.assertLess(text.width(line),
                                max(width, drawing.MIN_WIDTH), line)

    def test_titles_of_any_width(self) -> None:
        for name in NAMES:
            for line in self.draw({
                    'victim': 'v', 'victim_name': name * 40, 'signal': 'cpi',
                    'evidence': [one('v', 'cpi', [1.0, 2.0])]}, 41):
                self.assertLess(wcwidth.wcswidth(line), 41, ascii(name))

    def test_unknown_is_not_zero(self) -> None:
        drawn = self.draw({'victim': 'v', 'signal': 'cpi', 'evidence': [
            one('v', 'cpi', [0.0, 0.0, None, 0.0])]}, 41)
        self.assertEqual('▁' * 26 + ' ' * 13 + '▁', drawn[3])

    def test_a_gap_is_blank(self) -> None:
        """One missing sample is held over; a minute without is not."""
        late = one('v', 'cpi', [1.0] * 7)
        late['times_at'][-1] = '2026-11-23T12:05:00Z'
        line = self.draw({'victim': 'v', 'signal': 'cpi',
                          'evidence': [late]}, 61)[3]
        self.assertEqual((60, '█', ' '), (len(line), line[-1], line[40]))

    def test_peaks_are_kept(self) -> None:
        """Also when many samples fall in one column."""
        values: list[float | None] = [0.0] * 120
        values[77] = 5.0
        drawn = self.draw({'victim': 'v', 'signal': 'cpi',
                           'evidence': [one('v', 'cpi', values)]}, 25)
        self.assertEqual(1, drawn[1].count('█'))

    def test_without_evidence(self) -> None:
        for evidence in (None, [], [one('v', 'cpi', [])],
                         [one('v', 'cpi', [None])]):
            self.assertEqual(
                ['No measurements of this incident are kept.'],
                self.draw({'victim': 'v', 'evidence': evidence}))

    def test_odd_times(self) -> None:
        """Twice the same, backwards, and none."""
        odd = one('v', 'cpi', [2.0, None, 1.0, 5.0])
        odd['times_at'] = ['2026-11-23T12:00:10Z', '2026-11-23T12:00:10Z',
                           '2026-11-23T12:00:00Z', None]
        drawn = self.draw({'victim': 'v', 'signal': 'cpi',
                           'evidence': [odd]})
        self.assertEqual('v (victim): cpi 1 to 2', drawn[0])
        self.assertEqual('12:00:00' + ' ' * 24 + '12:00:10', drawn[-1])

    def test_one_sample(self) -> None:
        drawn = self.draw({'victim': 'v', 'signal': 'cpi', 'threshold': 1.0,
                           'evidence': [one('v', 'cpi', [2.0])]})
        self.assertEqual('█', drawn[1][0])

    def test_negative_values(self) -> None:
        drawn = self.draw({'victim': 'v', 'signal': 'cpi',
                           'evidence': [one('v', 'cpi', [-1.0, 0.0])]})
        self.assertEqual('v (victim): cpi -1 to 0', drawn[0])

    def test_the_other_side_may_be_anonymous(self) -> None:
        drawn = self.draw({
            'victim': 'v', 'signal': 'cpi', 'suspects': [{'score': 0.5}],
            'evidence': [one('v', 'cpi', [1.0]),
                         {**one('', 'cpu_cores', [1.0]), 'workload': None}]},
            81)
        self.assertIn('another workload: cpu_cores 1 cores to 1 cores',
                      drawn)

    def test_times_on_the_axis(self) -> None:
        drawn = self.draw({'victim': 'v', 'signal': 'cpi', 'evidence': [
            one('v', 'cpi', [1.0] * 61)]}, 101)
        self.assertEqual(['12:00:00', '12:02:00', '12:04:00', '12:06:00',
                          '12:08:00', '12:10:00'], drawn[-1].split())
        self.assertEqual((100, 100), (len(drawn[-1]), len(drawn[-2])))


class Ink(testtools.TestCase):

    def test_of_a_stream(self) -> None:
        """Both the locale and the stream have to be UTF-8."""
        for locale, stream, ink in (
                ('UTF-8', 'utf-8', drawing.BLOCKS),
                ('UTF-8', 'ascii', drawing.ASCII),
                ('ANSI_X3.4-1968', 'utf-8', drawing.ASCII),
                ('UTF-8', 'latin-1', drawing.ASCII)):
            self.useFixture(fixtures.MonkeyPatch(
                'locale.getencoding', lambda locale=locale: locale))
            self.assertEqual(ink, drawing.ink(
                io.TextIOWrapper(io.BytesIO(), encoding=stream)))

    def test_of_text_kept_in_memory(self) -> None:
        self.useFixture(fixtures.MonkeyPatch('locale.getencoding',
                                             lambda: 'UTF-8'))
        self.assertEqual(drawing.BLOCKS, drawing.ink(io.StringIO()))
