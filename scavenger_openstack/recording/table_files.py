# SPDX-License-Identifier: Apache-2.0

"""Tables of rates as files: CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import csv
import pathlib
from typing import AnyStr
from typing import IO

from scavenger_openstack import errors
from scavenger_openstack.recording.rates_table import OPTIONAL
from scavenger_openstack.recording.rates_table import REQUIRED
from scavenger_openstack.recording.rates_table import Table
from scavenger_openstack.types import Knob

MAX_LINE = 1 << 24
"""A longer line, in characters, is none of a table and must not fill the
memory."""

MOST_ROWS = 20_000_000
"""All of a table is kept, and a row takes a kilobyte."""

MOST_NAMED = 10
"""Unknown columns that a warning names."""

PARQUET = b'PAR1'
"""How a Parquet file begins."""


def is_table(path: pathlib.Path) -> bool:
    """Whether a file is a table and not a recording, by its beginning.

    :raises OSError: it cannot be read.
    """
    with path.open('rb') as file:
        return not file.read(64).lstrip().startswith(b'{')


def read(path: pathlib.Path, floor: Mapping[Knob, float]) -> Table:
    """Read a table of schema 1.

    :param floor: knob -> value below which no cap of a workload goes
    :raises OSError: it cannot be read.
    :raises DriverError: a cell is wrong; the message has file, line and
        column.  In a Parquet file the first row below the header is line 2,
        as it would be in CSV.
    """
    table = Table(path, floor)
    with path.open('rb') as file:
        parquet = file.read(len(PARQUET)) == PARQUET
    return (_read_parquet if parquet else _read_csv)(path, table)


def _read_csv(path: pathlib.Path, table: Table) -> Table:
    line = 1
    # utf-8-sig: spreadsheets write a byte order mark.
    with path.open(encoding='utf-8-sig', newline='') as file:
        rows = csv.reader(_lines(path, file), strict=True)
        try:
            header = next(rows, None)
            if not header:
                raise errors.DriverError(
                    f'{path}:1: empty: the first line has to name the '
                    'columns')
            columns = _columns(path, table, [name.strip() for name in header])
            for row in rows:
                line = rows.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise errors.DriverError(
                        f'{path}:{line}: {len(row)} cells, but the header '
                        f'has {len(header)}')
                table.add(line, {name: row[place]
                                 for name, place in columns.items()})
        except csv.Error as exc:
            raise errors.DriverError(
                f'{path}:{rows.line_num}: not CSV: {exc}') from None
        except UnicodeDecodeError:
            raise errors.DriverError(
                f'{path}:{_not_text(path)}: not UTF-8') from None
    return table.finish(rows.line_num)


def _lines(path: pathlib.Path, file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of a file.

    :raises DriverError: one is too long.
    """
    number = 1
    while line := file.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise errors.DriverError(
                f'{path}:{number}: longer than {MAX_LINE} characters: not a '
                'table')
        yield line
        number += 1


def _not_text(path: pathlib.Path) -> int:
    """The line of the first byte that is not UTF-8: it is found ahead."""
    with path.open('rb') as file:
        for line, data in enumerate(_lines(path, file), 1):
            try:
                data.decode()
            except UnicodeDecodeError:
                return line
    return 1


def _read_parquet(path: pathlib.Path, table: Table) -> Table:
    try:
        from pyarrow import lib
        from pyarrow import parquet
    except ImportError:
        raise errors.DriverError(
            f'{path}: a Parquet file needs the Python package pyarrow, which '
            'is not installed; install it or convert the table to CSV'
        ) from None
    line = 1
    try:
        with parquet.ParquetFile(path) as file:
            # A few bytes of it may stand for any number of rows.
            if file.metadata.num_rows > MOST_ROWS:
                raise errors.DriverError(
                    f'{path}:1: {file.metadata.num_rows} rows, at most '
                    f'{MOST_ROWS}')
            columns = _columns(path, table, list(file.schema_arrow.names))
            for batch in file.iter_batches(columns=list(columns)):
                for row in batch.to_pylist():
                    line += 1
                    table.add(line, row)
    except (OSError, lib.ArrowException, *errors.MISREAD) as exc:
        if isinstance(exc, OSError) and exc.errno:
            raise
        raise errors.DriverError(
            f'{path}:{line}: not a Parquet file that can be read: '
            + str(exc).replace('\n', ' ')) from None
    return table.finish(line)


def _columns(path: pathlib.Path, table: Table, header: list[str],
             ) -> dict[str, int]:
    """Return where each column stands; unknown ones are warned about."""
    places: dict[str, int] = {}
    unknown = []
    for place, name in enumerate(header):
        if name in places:
            raise errors.DriverError(
                f'{path}:1: column {name} is there twice')
        if name in REQUIRED or name in OPTIONAL:
            places[name] = place
        else:
            unknown.append(name)
    missing = [name for name in REQUIRED if name not in places]
    if missing:
        hint = ('; cells are separated by commas'
                if len(header) == 1 else '')
        raise errors.DriverError(
            f'{path}:1: no column {", ".join(missing)}{hint}; a cell may be '
            'empty, the column has to be there')
    if unknown:
        table.warnings.append(
            f'{path}:1: unknown columns are passed over: '
            + ', '.join(f'{name!r:.40}' for name in unknown[:MOST_NAMED])
            + (f' and {len(unknown) - MOST_NAMED} more'
               if len(unknown) > MOST_NAMED else ''))
    return places
