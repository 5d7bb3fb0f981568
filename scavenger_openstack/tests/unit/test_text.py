# SPDX-License-Identifier: Apache-2.0

"""Columns, bars and JSON."""

from __future__ import annotations

import io
import itertools
import json
import math

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import testtools
from testtools import matchers
import wcwidth

from scavenger_openstack import amounts
from scavenger_openstack.tests.unit.odd_names import begins
from scavenger_openstack.tests.unit.odd_names import NAMES
from scavenger_openstack import text
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable


class Terminal(io.StringIO):

    def isatty(self) -> bool:
        return True


class Text(testtools.TestCase):

    def test_times(self) -> None:
        for iso_text, time_s in (
                ('2026-11-18T11:06:40', 1_795_000_000.0),
                ('2026-11-18T13:06:40.25+02:00', 1_795_000_000.25),
                ('0001-01-01T00:00+23:59', -62_135_683_140.0),
                ('9999-12-31T23:59-23:59', 253_402_387_080.0)):
            self.assertEqual(time_s, text.time_s(iso_text))
        self.assertRaises(ValueError, text.time_s, 'soon')

    def test_without_ids(self) -> None:
        for line, left in (
                ('no (Request-ID: req-12345678-1234-4321-8765-123456789abc)',
                 'no (Request-ID: )'),
                ('<Connection object at 0x7f21aa> refused',
                 '<Connection object at > refused')):
            self.assertEqual(left, text.without_ids(line))

    def test_columns(self) -> None:
        self.assertEqual(
            ['name   used  why', 'a         1', 'long  1,234  full'],
            text.columns(('name', 'used', 'why'),
                         [('a', '1', ''), ('long', '1,234', 'full')],
                         left=(0, 2)))

    def test_columns_show_what_a_terminal_would_obey(self) -> None:
        self.assertEqual(['x', 'a\\x1b[2J\\nb'],
                         text.columns(('x',), [('a\x1b[2J\nb',)]))

    def test_columns_of_odd_widths(self) -> None:
        """The text after them begins where a terminal is as far."""
        titles: tuple[list[str], ...] = [], ['name', 'what it does']
        for names in (NAMES, [name * 3 for name in NAMES]):
            for left, title in itertools.product(((0, 1), (1,)), titles):
                lines = text.columns(title, [(name, 'END') for name in names],
                                     left=left)
                self.assertEqual(1, len(begins(lines, 'END')), str(lines))

    def test_widths(self) -> None:
        for name in NAMES:
            shown = printable(name)
            self.assertEqual(wcwidth.wcswidth(shown), text.width(shown),
                             ascii(name))

    def test_cut(self) -> None:
        for name, most, left in (
                ('日本語のテスト', 8, '日本...'), ('日本語の', 8, '日本語の'),
                ('日本語の', 7, '日本...'), ('e\u0301tc.', 4, 'e\u0301tc.'),
                ('e\u0301tc..', 4, 'e\u0301...'), ('abc', 3, 'abc')):
            self.assertEqual(left, text.cut(name, most))

    @given(st.text(), st.integers(12, 40))
    @example('a' * 100, 12)
    @example('数据' * 30 + ' b', 13)
    def test_wrap(self, given: str, most: int) -> None:
        """Nothing is lost, and no line is too wide."""
        shown = printable(given)
        lines = text.wrap(shown, most, '> ', '    ')
        self.assertEqual(shown.replace(' ', ''), ''.join(
            line[4 if i else 2:] for i, line in enumerate(lines)
        ).replace(' ', ''))
        for line in lines:
            self.assertThat(text.width(line), matchers.LessThan(most + 1))

    def test_numbers_that_json_lacks(self) -> None:
        for form in (text.json_line, text.json_page):
            found = json.loads(form({'a': [math.inf, (math.nan, 1.5)]}))
            self.assertEqual({'a': [None, [None, 1.5]]}, found)
        self.assertEqual('{"a":[1,2]}',
                         text.json_line({'a': [1, 2]}, compact=True))

    def test_bars(self) -> None:
        stream, terminal = io.StringIO(), Terminal()
        for one in (stream, terminal):
            text.over(one, text.bar(0.5))
        self.assertEqual('', stream.getvalue())
        self.assertEqual(f'\r\033[K[{"#" * 12}{"." * 12}]',
                         terminal.getvalue())


class Amounts(testtools.TestCase):

    def test_knobs(self) -> None:
        for knob, value, wanted in (
                (Knob.CPU_CORES, 0.5, '0.5 cores'),
                (Knob.CPU_SET, '0-1', 'CPUs 0-1'),
                (Knob.MEMORY_BYTES, 2 ** 34, '16,384 MiB'),
                (Knob.EGRESS_BYTES_PER_S, 2e7, '20 MB/s'),
                (Knob.IO_OPS_PER_S, 200.0, '200 operations/s'),
                (Knob.IO_OPS_PER_S, 12345.0, '12,345 operations/s'),
                (Knob.IO_BYTES_PER_S, 2.5e9, '2,500 MB/s'),
                (Knob.IO_BYTES_PER_S, 5.0, '0.000005 MB/s'),
                (Knob.CPU_IDLE, 1, '1'), (Knob.CPU_SET, '', 'CPUs '),
                (Knob.MEMORY_BYTES, None, 'no limit')):
            self.assertEqual(wanted, amounts.of_knob(knob, value))
            self.assertEqual(wanted, amounts.of_knob(str(knob), value))

    def test_signals_that_end_with_their_unit(self) -> None:
        for signal, value, wanted in (
                ('p99_s', 0.00123, '1.23 ms'), ('p99_s', 2.5, '2,500 ms'),
                ('io_bytes_per_s', 2e7, '20 MB/s'), ('errors', 3.0, '3'),
                ('requests_per_s', 40000.0, '40,000')):
            self.assertEqual(wanted, amounts.of_signal(signal, value))

    def test_numbers_are_plain(self) -> None:
        for value, wanted in (
                (0.0, '0'), (0.0000123, '0.0000123'), (0.5, '0.5'),
                (1.2345, '1.23'), (99.96, '100'), (999.4, '999'),
                (999.6, '1,000'), (1000, '1,000'), (12345, '12,345'),
                (1e15, '1,000,000,000,000,000'), (-12345.0, '-12,345'),
                (math.inf, 'inf'), (math.nan, 'nan')):
            self.assertEqual(wanted, amounts.of_number(value))
        self.assertEqual('1.235', amounts.of_number(1.23456, 4))
        self.assertEqual('9,999', amounts.of_number(9999.4, 4))
