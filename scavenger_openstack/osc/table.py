# SPDX-License-Identifier: Apache-2.0

"""Rows of the API as columns of a command.

Tables show titles and human values; all other formats show the API's own
names and values.  ``-c`` and ``--sort-column`` take either name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import re
import textwrap
from typing import Any
from typing import NamedTuple

from cliff import columns
from osc_lib import exceptions

from scavenger_openstack.osc.terminal import printable
from scavenger_openstack.osc import times
from scavenger_openstack import typed_amounts

SHORT_COLUMNS = 60
SENTENCE_COLUMNS = 90
_UNIT = re.compile('_(cores|bytes|bytes_per_s|per_s)$')

TEXT_FORMATS = ('csv', 'shell', 'value')
"""Formats that hand text on as it is: what tenants chose is escaped."""

FORMULA = ('=', '+', '-', '@')
"""What begins a formula in a spreadsheet; after a quote it is text."""


def plain(value: Any) -> str:
    """Any value of the API in a table; ``-`` is "not known"."""
    if value is None:
        return '-'
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float):
        from scavenger_openstack.amounts import of_number
        return of_number(value, 4)
    if isinstance(value, Mapping):
        return ', '.join(f'{key}={plain(item)}'
                         for key, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return ', '.join(map(plain, value))
    return str(value)


def known_flag(value: Any) -> str:
    """Return a flag in words, where that may be not known."""
    return 'not known' if value is None else plain(value)


def short(value: Any) -> str:
    """The beginning of a sentence, and of each UUID in it."""
    from scavenger_openstack import text
    from scavenger_openstack.wire import patterns
    sentence = printable(re.sub(
        patterns.UUID, lambda uuid: uuid[0][:8], plain(value)))
    first, *rest = text.wrap(sentence, SHORT_COLUMNS)
    return f'{first} ...' if rest else sentence


def time(value: Any) -> str:
    """A time, in UTC."""
    return '-' if value is None else times.human(value)


def duration(value: Any) -> str:
    """A number of seconds."""
    from scavenger_openstack.amounts import of_duration
    return '-' if value is None else of_duration(value)


def amounts_by_name(value: Any) -> str:
    """Knobs or resources, each with an amount."""
    return ', '.join(f'{_UNIT.sub("", name)} '
                     f'{typed_amounts.human(name, amount)}'
                     for name, amount in sorted((value or {}).items())) or '-'


class Column(NamedTuple):
    """A field of the API, its title in a table, and how it reads there."""

    field: str
    title: str
    human: Callable[[Any], str] = plain


Answer = tuple[Sequence[str], Sequence[Any]]
"""What a command returns: names of columns, and rows or the cells of one.
"""


class Cell(columns.FormattableColumn):
    """A value as the API has it, and as a person reads it."""

    def __init__(self, value: Any, *lines: str) -> None:
        super().__init__(value)
        self._lines = lines

    def human_readable(self) -> str:
        return '\n'.join(map(printable, self._lines))

    def __lt__(self, other: object) -> bool:
        """What is not known comes last."""
        if not isinstance(other, Cell):
            return NotImplemented
        if self._value is None or other._value is None:
            return self._value is not None
        return bool(self._value < other._value)


def sentences(value: Sequence[str] | None) -> Cell:
    """Return a cell of sentences, broken so that the table fits a screen."""
    lines = [line for sentence in value or () for line in textwrap.wrap(
        printable(sentence), SENTENCE_COLUMNS, subsequent_indent='  ')]
    return Cell(value, *lines or ['-'])


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Report an answer that has not the shape of the API.

    :raises CommandError: it has another.
    """
    try:
        yield
    except Exception as exc:
        from scavenger_openstack.errors import MISREAD
        if not isinstance(exc, MISREAD):
            raise
        raise exceptions.CommandError(printable(
            f'The answer is not one of the interference API ({exc!r:.200}); '
            'check the endpoint.')) from exc


def rows(arguments: argparse.Namespace, shown: Sequence[Column],
         records: Iterable[Mapping[str, Any]]) -> Answer:
    """Return what a command returns: names of columns, and the cells of each
    row.

    :param records: rows of the API; a value may be a :class:`Cell` already
    """
    with understood():
        return (_names(arguments, shown),
                [tuple(_cell(arguments, column, row) for column in shown)
                 for row in records])


def record(arguments: argparse.Namespace, shown: Sequence[Column],
           record: Mapping[str, Any],
           shape: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
           ) -> Answer:
    """Return the names and the cells of one row.

    :param shape: adds cells to it that are made of several fields
    """
    names, [cells] = rows(arguments, shown, map(shape, [record]))
    return names, cells


def _names(arguments: argparse.Namespace,
           shown: Sequence[Column]) -> tuple[str, ...]:
    human = arguments.formatter == 'table'
    chosen = [(column.title, column.field) if human else
              (column.field, column.title) for column in shown]
    names = {_plain_name(other): name for name, other in chosen}
    names |= {_plain_name(name): name for name, _ in chosen}
    for asked in (arguments.columns,
                  getattr(arguments, 'sort_columns', None) or []):
        asked[:] = [names.get(_plain_name(name), name) for name in asked]
    return tuple(name for name, _ in chosen)


def _plain_name(name: str) -> str:
    return name.strip().lower().replace(' ', '_')


def _cell(arguments: argparse.Namespace, column: Column,
          row: Mapping[str, Any]) -> Any:
    value = row.get(column.field)
    cell = value if isinstance(value, Cell) else Cell(
        value, column.human(value))
    if arguments.formatter not in TEXT_FORMATS:
        return cell
    return _text(arguments.formatter, cell.machine_readable())


def _text(formatter: str, value: Any) -> Any:
    """A value in a format of text, which holds what tenants chose: no
    terminal, shell or spreadsheet obeys it."""
    is_csv = formatter == 'csv'
    if isinstance(value, Mapping | list | tuple) or (
            is_csv and isinstance(value, bool)):
        value = json.dumps(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    if is_csv:
        return f"'{text}" if text.startswith(FORMULA) else text
    return re.sub(r'([\\$`])', r'\\\1', text) if formatter == 'shell' \
        else text


def write_page(path: str, page: str) -> None:
    """Write a page of HTML to a file, in place of what is there.

    :raises CommandError: that is not possible.
    """
    try:
        with open(path, 'w', encoding='utf-8') as file:
            file.write(page)
    except (OSError, ValueError) as exc:
        raise exceptions.CommandError(printable(
            f'{path} cannot be written: {exc}')) from exc


def named(row: Mapping[str, Any], field: str, name: str) -> Cell:
    """Return what a workload is called, in tables; its id elsewhere."""
    return Cell(row.get(field), plain(row.get(name) or row.get(field)))


def beside(row: Mapping[str, Any], field: str, name: str) -> Cell:
    """An id that other commands take, after what it is called."""
    value = row.get(field)
    called = row.get(name)
    return Cell(value, f'{called} ({value})' if called else plain(value))
