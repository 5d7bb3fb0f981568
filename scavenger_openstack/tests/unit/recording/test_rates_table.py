# SPDX-License-Identifier: Apache-2.0



"""Tables of rates: what they say, and each cell that cannot be."""

from __future__ import annotations

from collections.abc import Callable
import importlib.util
import pathlib
import sys
from typing import Any
from unittest import mock

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.recording import rates_table
from scavenger_openstack.recording import table_files
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority

COLUMNS = ','.join(rates_table.REQUIRED)
ROW = '10,web,foreground,shop,EPYC,0.5,1.5,0.01,0.002,1e6,2000,3000,4096'
FLOOR = {Knob.CPU_CORES: 0.1}
NOTHING = rates_table.Capacity()


class TableTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'rates.csv'

    def read(self, *lines: str, end: str = '\n') -> rates_table.Table:
        self.write(end.join((*lines, '')).encode())
        return table_files.read(self.path, FLOOR)

    def write(self, data: bytes) -> None:
        self.path.write_bytes(data)

    def fails(self, line: int, *words: str,
              read: Callable[[], Any] | None = None) -> None:
        error = self.assertRaises(
            errors.DriverError,
            read or (lambda: table_files.read(self.path, FLOOR)))
        said = str(error)
        self.assertTrue(said.startswith(f'{self.path}:{line}: '), said)
        self.assertNotIn('\n', said)
        for word in words:
            self.assertIn(word, said)


class CsvTest(TableTestCase):

    def test_every_column(self) -> None:
        table = self.read(
            COLUMNS + ',host,project,vcpus,throttled_share,io_ops_per_s,'
            'net_rx_bytes_per_s', ROW + ',node7,p,4,0.25,12,5000',
            '10,batch,background' + ',' * 16)
        self.assertEqual(([], ['node7', 'local']),
                         (table.warnings, list(table.hosts)))
        host = table.hosts['node7']
        self.assertEqual('EPYC', host.cpu_model)
        [rates] = host.rates(NOTHING)
        [one] = rates.workloads
        self.assertEqual(
            (1.0, 0.5, 1.5, 0.01, 0.25, 1e6, 0.002, 2000.0, 12.0, 3000.0,
             5000.0, None, None, 4096), one[1:])
        self.assertEqual(
            ('web', Priority.FOREGROUND, 'table', 'p', 'shop', 4.0, FLOOR),
            (one.workload.id, one.workload.priority, one.workload.source,
             one.workload.project, one.workload.application,
             one.workload.vcpus, one.workload.floor))
        [rates] = table.hosts['local'].rates(NOTHING)
        self.assertEqual((None,) * 13, rates.workloads[0][2:])
        self.assertIs(Priority.BACKGROUND,
                      rates.workloads[0].workload.priority)
        self.assertTrue(rates.complete)

    def test_order_of_columns_and_rows_does_not_matter(self) -> None:
        names = COLUMNS.split(',')
        cells = dict(zip(names, ROW.split(','), strict=True))
        lines = [','.join(reversed(names))]
        for time_s in (30, 10, 20, 60):
            lines.append(','.join(reversed(list(
                {**cells, 'time_s': str(time_s)}.values()))))
        host = self.read(*lines).hosts['local']
        self.assertEqual(10.0, host.interval_s)
        self.assertEqual(
            [(10.0, 10.0), (20.0, 10.0), (30.0, 10.0), (60.0, 30.0)],
            [(one.time_s, one.interval_s) for one in host.rates(NOTHING)])

    def test_how_a_file_may_be_written(self) -> None:
        quoted = ','.join(f'"{cell}"' for cell in ROW.split(','))
        spaced = ','.join(f' {cell} ' for cell in ROW.split(','))
        plain = self.read(COLUMNS, ROW).hosts['local'].times
        for lines, words in (
                ((COLUMNS, ROW), {'end': '\r\n'}), ((COLUMNS, quoted), {}),
                ((COLUMNS, spaced), {}), (('\ufeff' + COLUMNS, ROW), {}),
                ((COLUMNS, '', ROW, ''), {}),
                ((COLUMNS, ROW.replace('foreground', 'FOREGROUND')), {}),
                ((COLUMNS, ROW.replace('foreground', '')), {})):
            found = self.read(*lines, **words).hosts['local'].times
            self.assertEqual([row.rates[1:] for row in plain[10.0].values()],
                             [row.rates[1:] for row in found[10.0].values()])
            self.assertIs(Priority.FOREGROUND,
                          found[10.0]['web'].rates.workload.priority)
        named = self.read(COLUMNS, ROW.replace('web', '"a, ""b""\n c"'))
        self.assertIn('a, "b"\n c', named.hosts['local'].times[10.0])

    def test_a_bad_cell_is_named(self) -> None:
        names = COLUMNS.split(',')
        for column, cell, *words in (
                ('time_s', '', 'empty'), ('time_s', '-1', 'from 0 up'),
                ('time_s', 'nan', 'from 0 up'), ('time_s', 'noon', 'number'),
                ('workload', ' ', 'empty'),
                ('priority', 'mine', "'mine' is not foreground or background"),
                ('cpi', 'inf', 'from 0 up'), ('cpi', '1,5', '14 cells'),
                ('cpi', '1_000', "'1_000' is not a number"),
                ('cpi', '\u0661', 'not a number'),
                ('cpu_cores', '-0.5', '-0.5', 'empty'),
                ('memory_bytes', '4 KiB', "'4 KiB' is not a number"),
                ('memory_bytes', '1e999', 'from 0 up'),
                ('memory_bytes', '1e308', 'from 0 up'),
        ):
            cells = dict(zip(names, ROW.split(','), strict=True))
            cells[column] = cell
            self.write('\n'.join((COLUMNS, ROW.replace('10,', '9,', 1),
                                  ','.join(cells.values()), '')).encode())
            self.fails(3, *([] if 'cells' in words[0] else [f'{column}: ']),
                       *words)
        for cell in ('0', '-1', 'x'):
            self.write(f'{COLUMNS},vcpus\n{ROW},{cell}\n'.encode())
            self.fails(2, 'vcpus: ')

    def test_one_row_per_workload_and_time(self) -> None:
        self.write('\n'.join((COLUMNS, ROW, '', ROW)).encode())
        self.fails(4, "workload: 'web'", 'twice', 'line 2')
        self.read(COLUMNS + ',host', ROW + ',a', ROW + ',b')

    def test_a_host_has_one_cpu_model(self) -> None:
        self.write('\n'.join((
            COLUMNS, ROW, ROW.replace('EPYC', '').replace('10,', '11,'),
            ROW.replace('EPYC', 'Xeon').replace('10,', '12,'))).encode())
        self.fails(4, "cpu_model: 'Xeon'", 'EPYC')

    def test_the_header(self) -> None:
        for header, *words in (
                (COLUMNS.replace(',cpi', ''), 'no column cpi'),
                (COLUMNS.replace(',cpi,run_delay', ''),
                 'no column cpi, run_delay'),
                (COLUMNS + ',cpi', 'column cpi is there twice'),
                (COLUMNS.replace(',', ';'), 'separated by commas')):
            self.write(f'{header}\n{ROW}\n'.encode())
            self.fails(1, *words)
        table = self.read(COLUMNS + ',color,weight', ROW + ',1,2')
        [warning] = table.warnings
        self.assertIn("'color', 'weight'", warning)
        many = [f'c{place}' for place in range(100_000)]
        table = self.read(','.join((COLUMNS, *many)), ROW + ',' * len(many))
        [warning] = table.warnings
        self.assertIn("'c9' and 99990 more", warning)
        self.assertLess(len(warning), 500)

    def test_what_is_no_table(self) -> None:
        for data, line, word in (
                (b'', 1, 'empty'), (b'\n', 1, 'empty'),
                (COLUMNS.encode(), 1, 'no row'),
                (COLUMNS.encode() + b'\n\n\n', 3, 'no row'),
                (b'\xff\xfe\x00', 1, 'UTF-8'),
                ((COLUMNS + '\n').encode() + b'\xff,\n', 2, 'UTF-8'),
                ('\n'.join((COLUMNS, *(f'{time_s},a' + ',' * 11 for time_s
                                       in range(5000)), '')).encode()
                 + b'1,\xff', 5002, 'UTF-8'),
                ((COLUMNS + '\n' + ROW + '\n"open').encode(), 3, 'not CSV'),
                ((COLUMNS + '\n"a"b,\n').encode(), 2, 'not CSV'),
                ((COLUMNS + '\n' + 'x' * 200_000).encode(), 2, 'not CSV')):
            self.write(data)
            self.fails(line, word)

    def test_a_table_is_told_from_a_recording(self) -> None:
        for data, expected in ((b'', True), (b'time_s', True),
                               (b'PAR1..', True), (b'{"type":', False),
                               (b' \n{', False)):
            self.write(data)
            self.assertEqual(expected, table_files.is_table(self.path))


class HostTest(TableTestCase):

    def test_capacities_make_a_host_of_it(self) -> None:
        host = self.read(
            COLUMNS, ROW, ROW.replace('web', 'b').replace('fore', 'back'),
            '11,web,,,,,,,,,,7,', '11,b,background,,,,,,,,,,100',
        ).hosts['local']
        first, second = host.rates(rates_table.Capacity(2, 10_000, 1e6))
        self.assertEqual([0, 1], list(first.topology))
        self.assertEqual((10_000, 10_000 - 2 * 4096),
                         (first.memory_total_bytes,
                          first.memory_available_bytes))
        self.assertEqual(({'link': 1e6}, {'link': 6000.0}, {'link': 'link'}),
                         (first.links, first.link_tx_bytes_per_s,
                          first.link_of))
        # One of them was not measured: nor is the sum.
        self.assertEqual((10_000, None, {'link': None}),
                         (second.memory_total_bytes,
                          second.memory_available_bytes,
                          second.link_tx_bytes_per_s))

    def test_what_is_received(self) -> None:
        """Unknown without its column, and where a row has none."""
        column = ',net_rx_bytes_per_s'
        for lines, total in (
                ((COLUMNS, ROW), None),
                ((COLUMNS + column, ROW + ',500',
                  ROW.replace('web', 'b') + ',700'), 1200.0),
                ((COLUMNS + column, ROW + ',500',
                  ROW.replace('web', 'b') + ','), None)):
            [rates] = self.read(*lines).hosts['local'].rates(
                rates_table.Capacity(2, 10_000, 1e6))
            self.assertEqual({'link': total}, rates.link_rx_bytes_per_s)

    def test_without_capacities_there_are_none(self) -> None:
        [rates] = self.read(COLUMNS, ROW).hosts['local'].rates(NOTHING)
        self.assertEqual(({}, None, None, {}, {}, {}), (
            rates.topology, rates.memory_total_bytes,
            rates.memory_available_bytes, rates.links,
            rates.link_tx_bytes_per_s, rates.link_of))


class ParquetTest(TableTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.installed = importlib.util.find_spec('pyarrow') is not None

    def write_rows(self, *rows: dict[str, Any]) -> None:
        if not self.installed:
            self.skipTest('needs pyarrow: pip install pyarrow')
        import pyarrow
        from pyarrow import parquet
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), self.path)

    def row(self, **changes: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, cell in zip(rates_table.REQUIRED, ROW.split(','),
                              strict=True):
            try:
                row[name] = float(cell)
            except ValueError:
                row[name] = cell
        return {**row, **changes}

    def test_without_pyarrow_it_says_what_to_do(self) -> None:
        # None is what Python takes for "cannot be imported".
        hidden = dict.fromkeys(name for name in sys.modules
                               if name.partition('.')[0] == 'pyarrow')
        patch = mock.patch.dict(sys.modules, {**hidden, 'pyarrow': None})
        patch.start()
        self.addCleanup(patch.stop)
        self.write(table_files.PARQUET + b'...')
        error = self.assertRaises(errors.DriverError, table_files.read,
                                  self.path, FLOOR)
        self.assertIn('install', str(error))
        self.assertIn(str(self.path), str(error))

    def test_it_says_the_same_as_csv(self) -> None:
        expected = self.read(COLUMNS, ROW, '12,web' + ',' * 11)
        self.write_rows(self.row(), dict.fromkeys(self.row()) | {
            'time_s': 12.0, 'workload': 'web'})
        found = table_files.read(self.path, FLOOR)
        self.assertEqual(list(expected.hosts['local'].rates(NOTHING)),
                         list(found.hosts['local'].rates(NOTHING)))

    def test_a_bad_cell_is_named(self) -> None:
        for changes, words in (
                ({'cpi': float('nan')}, ('cpi: ', 'nan')),
                ({'cpi': -1.0}, ('cpi: ',)),
                ({'cpi': True}, ('cpi: True',)),
                ({'workload': 7}, ('workload: 7 is not a text',)),
                ({'time_s': None}, ('time_s: empty',))):
            self.write_rows(self.row(**changes))
            self.fails(2, *words)

    def test_more_rows_than_are_kept(self) -> None:
        """A few bytes stand for any number of them."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.recording.table_files.MOST_ROWS', 3))
        self.write_rows(*[self.row(time_s=float(n)) for n in range(3)])
        table_files.read(self.path, FLOOR)
        self.write_rows(*[self.row(time_s=float(n)) for n in range(4)])
        self.fails(1, '4 rows, at most 3')

    def test_text_that_is_none(self) -> None:
        if not self.installed:
            self.skipTest('needs pyarrow: pip install pyarrow')
        import pyarrow
        from pyarrow import parquet
        parquet.write_table(pyarrow.table({
            name: pyarrow.array([b'\xff']).view(pyarrow.string())
            if isinstance(cell, str) else [cell]
            for name, cell in self.row().items()}), self.path)
        self.fails(1, 'not a Parquet file')

    def test_columns_and_garbage(self) -> None:
        self.write_rows({'time_s': 1.0})
        self.fails(1, 'no column workload')
        self.write_rows(self.row(color=1))
        self.assertIn("'color'", table_files.read(
            self.path, FLOOR).warnings[0])
        self.write(table_files.PARQUET + b'\0' * 40)
        self.fails(1, 'not a Parquet file')
