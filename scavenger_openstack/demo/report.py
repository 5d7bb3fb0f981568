# SPDX-License-Identifier: Apache-2.0

"""The report: one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import html
from typing import Any

from scavenger_openstack.demo import table as table_
from scavenger_openstack.plot import page as page_

STYLE = """
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:34px 0 2px}
p{margin:4px 0 10px;max-width:80ch;color:#4b5563}
.grid{display:grid;gap:12px;margin-top:10px;
 grid-template-columns:repeat(auto-fill,minmax(330px,1fr))}
.grid .card{margin:0;padding:6px 4px 2px}
.wide svg{max-width:860px;margin:auto}
th,td{text-align:right;white-space:nowrap}
th{color:#6b7280;font-weight:600}th:first-child,td:first-child{text-align:left}
tr.ours td{background:#eff6ff;font-weight:600}
.verdict{display:inline-block;border-radius:999px;padding:2px 14px;
 font-weight:600;font-size:14px;margin-left:10px;vertical-align:3px;
 color:#fff}
.passed{background:#15803d}.failed{background:#dc2626}
.inconclusive,.not-judged{background:#a16207}
b.passed,b.failed,b.inconclusive{display:inline-block;width:90px;
 background:none;color:#15803d}b.failed{color:#dc2626}
b.inconclusive{color:#a16207}
ul{list-style:none;padding:0;margin:0;font-size:14px}li{padding:3px 2px}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:#4b5563}
.key i{display:inline-block;width:20px;margin-right:6px;vertical-align:4px;
 border-top:3px solid}.key i.d{border-top-style:dashed;border-width:2px}
.key i.dot{width:9px;height:9px;border:0;border-radius:9px;vertical-align:0}
"""


def page(title: str, result: Mapping[str, Any], words: Sequence[str],
         cards: Iterable[str]) -> str:
    """A page with the verdict on top.

    :param words: text before the cards; empty ones are left out
    """
    verdict = result['verdict']
    before = [html.escape(text) for text in words if text]
    before.insert(1, f'<b>{html.escape(table_.first(result))}</b>')
    return page_.page(f'scavenger-demo: {verdict}', STYLE, [
        f"<h1>{html.escape(title)}<span class='verdict "
        f"{verdict.replace(' ', '-')}'>{verdict}</span></h1>",
        *(f'<p>{text}</p>' for text in before), *cards])


def card(inside: str, *, wide: bool = False) -> str:
    return f"<div class='card{' wide' * wide}'>{inside}</div>"


def criteria(result: Mapping[str, Any]) -> str:
    return '<ul>' + ''.join(
        f"<li><b class='{test['outcome']}'>{test['outcome']}</b> "
        f'{html.escape(table_.criterion(test))}</li>'
        for test in result['criteria']) + '</ul>'


def section(title: str, words: str,
            key: Iterable[tuple[str, str, str]],
            panels: Iterable[str]) -> list[str]:
    """Panels below a title.

    :param key: name, colour and kind ('', d: dashed, dot) of what is drawn
    """
    marks = ''.join(
        f"<span><i class='{kind}' style='"
        f"{'background' if kind == 'dot' else 'border-color'}:{colour}'>"
        f'</i>{html.escape(name)}</span>' for name, colour, kind in key)
    return [f'<h2>{title}</h2><p>{words}</p>',
            f"<div class='key'>{marks}</div><div class='grid'>",
            *map(card, panels),
            '</div>']
