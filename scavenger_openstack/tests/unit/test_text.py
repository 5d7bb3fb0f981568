# SPDX-License-Identifier: Apache-2.0

"""Columns, bars and JSON."""

from __future__ import annotations

import io
import json
import math

import testtools

from scavenger_openstack import amounts
from scavenger_openstack import text
from scavenger_openstack.types import Knob


class Terminal(io.StringIO):

    def isatty(self) -> bool:
        return True


class Text(testtools.TestCase):

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
                (Knob.MEMORY_BYTES, None, 'unlimited')):
            self.assertEqual(wanted, amounts.of_knob(knob, value))
            self.assertEqual(wanted, amounts.of_knob(str(knob), value))

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
