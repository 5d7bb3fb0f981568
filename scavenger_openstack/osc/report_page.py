# SPDX-License-Identifier: Apache-2.0

"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import html
from typing import Any

from scavenger_openstack.osc import table
from scavenger_openstack.plot import page as html_page
from scavenger_openstack.plot import shapes
from scavenger_openstack.types import printable

MOST_BARS = 20
ROW, LEFT, WIDTH = 22, 260, 760

STYLE = 'svg{max-width:760px}th,td{text-align:left}'

SECTIONS = (
    ('projects', 'Interference by project', 'interference_s',
     'No workload was disturbed.'),
    ('hosts', 'Background work by host', 'background_core_s',
     'No background work ran, and no workload was disturbed.'),
    ('antagonists', 'Antagonists', 'interference_s',
     'No antagonist was named.'),
    ('precision', 'How limits ended', '', 'No limit was judged.'))
"""List, title, what is drawn, and what an empty list says."""


def page(report: Mapping[str, Any], totals: str,
         columns: Mapping[str, Sequence[table.Column]]) -> str:
    """Return the page.

    :param totals: one sentence
    """
    return html_page.page('Interference report', STYLE, [
        '<h1>Interference report</h1>',
        f'<p>{html.escape(printable(totals))}</p>',
        *(_section(report[name], columns[name], *words)
          for name, *words in SECTIONS)])


def _section(rows: Sequence[Mapping[str, Any]],
             columns: Sequence[table.Column], title: str, drawn: str,
             empty: str) -> str:
    if not rows:
        inside = f'<p>{empty}</p>'
    else:
        inside = (_bars(rows, columns, title, drawn) if drawn else ''
                  ) + html_page.table((column.title for column in columns), (
                      [_cell(column, row) for column in columns]
                      for row in rows))
    return f"<section class='card'><h2>{title}</h2>{inside}</section>"


def _bars(rows: Sequence[Mapping[str, Any]],
          columns: Sequence[table.Column], title: str, drawn: str) -> str:
    """Draw the largest rows to scale; the table has the numbers."""
    largest = sorted(rows, key=lambda row: -row[drawn])[:MOST_BARS]
    most = largest[0][drawn] or 1.0
    column = next(column for column in columns if column.field == drawn)
    parts = []
    for place, row in enumerate(largest):
        y = place * ROW
        name = ' / '.join(_cell(text, row) for text in columns[:2]
                          if isinstance(row[text.field], str))
        width = (WIDTH - LEFT - 110) * row[drawn] / most
        parts += [
            shapes.text(LEFT - 8, y + 15, name[:40], anchor='end',
                        colour=shapes.INK),
            shapes.bar(LEFT, y + 4, width, ROW - 8, shapes.FOREGROUND),
            shapes.text(LEFT + width + 6, y + 15, _cell(column, row))]
    return shapes.svg(WIDTH, len(largest) * ROW, parts, title,
                      f'{column.title} of the first {len(largest)}, to '
                      'scale; the table below has the numbers.')


def _cell(column: table.Column, row: Mapping[str, Any]) -> str:
    return printable(column.human(row.get(column.field)))
