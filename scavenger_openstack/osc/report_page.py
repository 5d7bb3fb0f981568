# SPDX-License-Identifier: Apache-2.0

"""A report as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import html
from typing import Any

from scavenger_openstack.osc import table
from scavenger_openstack.osc.terminal import printable
from scavenger_openstack.plot import shapes

MOST_BARS = 20
ROW, LEFT, WIDTH = 22, 260, 760

STYLE = """
body{margin:0;background:#f8fafc;color:#1f2937;
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1100px;margin:0 auto;padding:24px 16px 60px}
section{background:#fff;border:1px solid #e5e7eb;border-radius:10px;
 padding:8px 16px 16px;margin-top:16px;overflow-x:auto}
svg{width:100%;max-width:760px;display:block}
table{border-collapse:collapse;width:100%;font-size:14px;
 font-variant-numeric:tabular-nums}
th,td{padding:5px 9px;text-align:left;border-bottom:1px solid #eef0f3}
"""

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
    """The page.

    :param totals: one sentence
    """
    return ("<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width'>"
            f'<title>Interference report</title><style>{STYLE}</style>'
            '</head><body><main><h1>Interference report</h1>'
            f'<p>{html.escape(printable(totals))}</p>'
            + ''.join(''.join(_section(report[name], columns[name], *words))
                      for name, *words in SECTIONS)
            + '</main></body></html>\n')


def _section(rows: Sequence[Mapping[str, Any]],
             columns: Sequence[table.Column], title: str, drawn: str,
             empty: str) -> Iterator[str]:
    yield f'<section><h2>{title}</h2>'
    if not rows:
        yield f'<p>{empty}</p></section>'
        return
    if drawn:
        yield _bars(rows, columns, title, drawn)
    yield '<table><thead><tr>'
    yield from (f"<th scope='col'>{html.escape(column.title)}</th>"
                for column in columns)
    yield '</tr></thead><tbody>'
    for row in rows:
        yield '<tr>' + ''.join(
            f'<td>{html.escape(_cell(column, row))}</td>'
            for column in columns) + '</tr>'
    yield '</tbody></table></section>'


def _bars(rows: Sequence[Mapping[str, Any]],
          columns: Sequence[table.Column], title: str, drawn: str) -> str:
    """The largest, to scale; the table has the numbers."""
    largest = sorted(rows, key=lambda row: -row[drawn])[:MOST_BARS]
    most = largest[0][drawn] or 1.0
    column = next(column for column in columns if column.field == drawn)
    parts = []
    for place, row in enumerate(largest):
        y = place * ROW
        name = ' / '.join(_cell(one, row) for one in columns[:2]
                          if isinstance(row[one.field], str))
        width = (WIDTH - LEFT - 110) * row[drawn] / most
        parts += [
            shapes.text(LEFT - 8, y + 15, name[:40], anchor='end',
                      colour=shapes.INK),
            shapes.bar(LEFT, y + 4, width, ROW - 8, shapes.FOREGROUND),
            shapes.text(LEFT + width + 6, y + 15, _cell(column, row))]
    return shapes.svg(WIDTH, len(largest) * ROW, parts, title,
                    f'{column.title} of the first {len(largest)}, to scale; '
                    'the table below has the numbers.')


def _cell(column: table.Column, row: Mapping[str, Any]) -> str:
    return printable(column.human(row.get(column.field)))
