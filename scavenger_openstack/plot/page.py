# SPDX-License-Identifier: Apache-2.0

"""An HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import html

STYLE = """
body{margin:0;background:#f8fafc;color:#1f2937;
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1220px;margin:0 auto;padding:28px 20px 60px}
svg{width:100%;display:block}
table{border-collapse:collapse;width:100%;font-size:14px;
 font-variant-numeric:tabular-nums}
th,td{padding:6px 9px;border-bottom:1px solid #e5e7eb}
.card{background:#fff;border:1px solid #e5e7eb;border-radius:10px;
 padding:12px;margin-top:14px;overflow-x:auto}
"""

PROSE = """
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:34px 0 2px}
p{margin:4px 0 10px;max-width:80ch;color:#4b5563}
.grid{display:grid;gap:12px;margin-top:10px;
 grid-template-columns:repeat(auto-fill,minmax(330px,1fr))}
.grid .card{padding:6px 4px 2px;margin-top:0}
"""
"""CSS of headings, sentences and :func:`grid`."""


def page(title: str, style: str, body: Iterable[str]) -> str:
    """Return a page.

    :param style: CSS besides :data:`STYLE`
    :param body: HTML
    """
    return ("<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width'>"
            f'<title>{html.escape(title)}</title>'
            f'<style>{STYLE}{style}</style></head><body><main>'
            + '\n'.join(body) + '</main></body></html>\n')


def grid(cards: Iterable[str]) -> str:
    """Return pictures beside each other; the page needs :data:`PROSE`."""
    return "<div class='grid'>" + ''.join(
        f"<div class='card'>{card}</div>" for card in cards) + '</div>'


def table(titles: Iterable[str], rows: Iterable[Sequence[str]], *,
          ours: str = '') -> str:
    """Return a table of texts.

    :param ours: begins the row that stands out
    """
    head = ''.join(f"<th scope='col'>{html.escape(title)}</th>"
                   for title in titles)
    return f'<table><thead><tr>{head}</tr></thead><tbody>' + ''.join(
        f'<tr{" class=ours" * (cells[0] == ours)}>' + ''.join(
            f'<td>{html.escape(cell)}</td>' for cell in cells) + '</tr>'
        for cells in rows) + '</tbody></table>'
