# SPDX-License-Identifier: Apache-2.0

"""Columns of the commands: titles and units for people, fields for programs.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import io
import json
import pkgutil
import subprocess
from typing import Any

from cliff.formatters import commaseparated
from cliff.formatters import json_format
from cliff.formatters import shell as shell_format
from cliff.formatters import table as table_format
from cliff.formatters import value as value_format
import fixtures
from osc_lib import exceptions
import testtools

from scavenger_openstack.osc import commands
from scavenger_openstack.osc import table

COLUMNS = (
    table.Column('name', 'Workload'),
    table.Column('display_name', 'Name'),
    table.Column('interference_s', 'Interference', table.duration),
    table.Column('limited', 'Limited'))
ROWS: list[dict[str, Any]] = [
    {'name': '/batch/a', 'display_name': 'a\x1b[31m\nb',
     'interference_s': 180, 'limited': True},
    {'name': '/batch/b', 'display_name': None, 'interference_s': None,
     'limited': False}]


def arguments(formatter: str, *columns: str,
              sort: tuple[str, ...] = ()) -> argparse.Namespace:
    return argparse.Namespace(
        formatter=formatter, columns=list(columns), sort_columns=list(sort),
        noindent=True, print_empty=False, max_width=0, fit_width=False)


class Rows(testtools.TestCase):

    def test_tables_are_for_people(self) -> None:
        options = arguments('table')
        names, rows = table.rows(options, COLUMNS, ROWS)
        self.assertEqual(('Workload', 'Name', 'Interference', 'Limited'),
                         names)
        out = io.StringIO()
        table_format.TableFormatter().emit_list(names, rows, out, options)
        self.assertEqual(
            ['| /batch/a | a\\x1b[31m\\nb | 3 min        | yes     |',
             '| /batch/b | -            | -            | no      |'],
            [line for line in out.getvalue().splitlines()
             if '/batch' in line])

    def test_json_has_the_fields_of_the_api(self) -> None:
        options = arguments('json')
        names, rows = table.rows(options, COLUMNS, ROWS)
        out = io.StringIO()
        json_format.JSONFormatter().emit_list(names, rows, out, options)
        self.assertEqual(ROWS, json.loads(out.getvalue()))
        self.assertNotIn('\x1b', out.getvalue())

    def test_plain_values_are_escaped(self) -> None:
        options = arguments('value')
        names, rows = table.rows(options, COLUMNS, ROWS)
        out = io.StringIO()
        value_format.ValueFormatter().emit_list(names, rows, out, options)
        self.assertEqual('/batch/a a\\x1b[31m\\nb 180 True\n'
                         '/batch/b None None False\n', out.getvalue())

    def test_cells_of_csv_are_plain_text(self) -> None:
        """JSON where they have parts, and no formula of a spreadsheet."""
        columns = [table.Column(name, name) for name in 'abcdefgh']
        row = {'a': {'x': [1, None]}, 'b': ['p', 'q'], 'c': True, 'd': None,
               'e': -1.5, 'f': '=1+1', 'g': '@SUM(A1)', 'h': 'a "b", c'}
        options = arguments('csv')
        options.quote_mode = 'nonnumeric'
        names, rows = table.rows(options, columns, [row])
        out = io.StringIO()
        commaseparated.CSVLister().emit_list(names, rows, out, options)
        [_, cells] = csv.reader(io.StringIO(out.getvalue()))
        self.assertEqual(
            ['{"x": [1, null]}', '["p", "q"]', 'true', '', '-1.5', "'=1+1",
             "'@SUM(A1)", 'a "b", c'], cells)
        for text in ('+1', '-1', '=x', '@x'):
            self.assertEqual(f"'{text}", table.rows(
                options, columns[:1], [{'a': text}])[1][0][0])

    def test_every_column_of_every_command(self) -> None:
        """Whatever the API has there, in each format."""
        bad = '=1+1\n\r\x1b[31m\u2028\u202e\u200b'
        count = 0
        for found in pkgutil.iter_modules(commands.__path__):
            module = importlib.import_module(
                f'{commands.__name__}.{found.name}')
            for columns in vars(module).values():
                if not (isinstance(columns, tuple) and columns
                        and isinstance(columns[0], table.Column)):
                    continue
                for column in columns:
                    count += 1
                    for value in (bad, [bad], {bad: bad}):
                        self.check_cell(column, value)
        self.assertGreater(count, 100)

    def check_cell(self, column: table.Column, value: Any) -> None:
        for formatter, emitter in (
                ('table', table_format.TableFormatter()),
                ('csv', commaseparated.CSVLister()),
                ('value', value_format.ValueFormatter()),
                ('json', json_format.JSONFormatter())):
            options = arguments(formatter)
            options.quote_mode = 'nonnumeric'
            try:
                names, rows = table.rows(options, [column],
                                         [{column.field: value}])
            except exceptions.CommandError as exc:
                self.assertTrue(str(exc).isprintable())
                continue
            out = io.StringIO()
            emitter.emit_list(names, rows, out, options)
            text = out.getvalue()
            self.assertTrue(text.replace('\r\n', '').replace(
                '\n', '').isprintable(), column)
            if formatter == 'csv':
                [_, [cell]] = csv.reader(io.StringIO(text))
                self.assertFalse(cell.startswith(table.FORMULA), column)

    def test_a_shell_runs_nothing(self) -> None:
        """What tenants chose is text, also to "eval"."""
        options = arguments('shell')
        options.variables, options.prefix = [], ''
        name = 'a"$(touch x)`touch y`\\'
        names, cells = table.record(options, COLUMNS, {'name': name})
        out = io.StringIO()
        shell_format.ShellFormatter().emit_one(names, cells, out, options)
        done = subprocess.run(
            ['sh', '-c', f'{out.getvalue()}printf %s "$name"'],
            cwd=self.useFixture(fixtures.TempDir()).path,
            capture_output=True, text=True, check=True)
        self.assertEqual(name, done.stdout)

    def test_columns_by_either_name(self) -> None:
        """The name that the format shows counts first."""
        for formatter, asked, meant in (
                ('table', 'interference_s', 'Interference'),
                ('table', 'Interference', 'Interference'),
                ('json', 'Interference', 'interference_s'),
                ('table', 'name', 'Name'), ('json', 'name', 'name'),
                ('json', 'no such', 'no such')):
            options = arguments(formatter, asked, sort=(asked,))
            table.rows(options, COLUMNS, ROWS)
            self.assertEqual(([meant], [meant]),
                             (options.columns, options.sort_columns))

    def test_one(self) -> None:
        names, cells = table.record(arguments('json'), COLUMNS, {'name': 'x'})
        self.assertEqual({'name': 'x', 'display_name': None,
                          'interference_s': None, 'limited': None},
                         {name: cell.machine_readable() for name, cell
                          in zip(names, cells, strict=True)})

    def test_the_unknown_comes_last(self) -> None:
        cells = [table.Cell(value, '') for value in (3, None, 1, None, 2)]
        self.assertEqual([1, 2, 3, None, None],
                         [cell.machine_readable() for cell in sorted(cells)])


class Human(testtools.TestCase):

    def test_plain(self) -> None:
        for value, text in ((None, '-'), (True, 'yes'), (False, 'no'),
                            (1.23456, '1.235'), (12, '12'), ([], ''),
                            (['cpu', 'io'], 'cpu, io'),
                            ({'b': 'on', 'a': None}, 'a=-, b=on')):
            self.assertEqual(text, table.plain(value))

    def test_short(self) -> None:
        self.assertEqual('as it is', table.short('as it is'))
        self.assertEqual(f'{"word " * 12}...', table.short('word ' * 20))
        self.assertEqual('6d2a6a52 is slow', table.short(
            '6d2a6a52-7a3c-4a57-9c52-5d5f8e2b7a10 is slow'))
        self.assertEqual(f'{"x" * table.SHORT_COLUMNS} ...',
                         table.short('x' * 100))
