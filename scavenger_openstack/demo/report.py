# SPDX-License-Identifier: Apache-2.0

"""The result as a picture, and as a page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import html
from typing import Any

from scavenger_openstack.demo import result as demo_result
from scavenger_openstack.plot import page as html_page
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

WIDTH, HEAD, ROW = 860, 62, 210
LATENCY_TICKS_MS = (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)
QUIET = '#9ca3af'
APART_S = 12.0
"""Between two moments that have words of their own."""
WORDS = ('A request service shares two CPUs with a hog and with a batch job '
         'that disturbs nothing. The agent observes from the start, as it '
         'does after an installation: it finds out which job disturbs the '
         'service. In the last phase it may set limits, too.')

STYLE = """
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:0 0 6px}
p{margin:4px 0 10px;max-width:80ch;color:#4b5563}
th,td{text-align:right}
th{color:#6b7280;font-weight:600;vertical-align:bottom}
th:first-child,td:first-child,table.texts th,table.texts td{text-align:left}
table.texts td{overflow-wrap:anywhere}
.verdict{display:inline-block;border-radius:999px;padding:2px 14px;
 font-weight:600;font-size:14px;margin-left:10px;vertical-align:3px;
 color:#fff}
.passed{background:#15803d}.failed{background:#dc2626}
.inconclusive{background:#a16207}
b.passed,b.failed{display:inline-block;width:70px;background:none;
 color:#15803d}b.failed{color:#dc2626}
ul{list-style:none;padding:0;margin:0;font-size:14px}li{padding:3px 2px}
"""


class Wide(panels.Panel):
    """A panel as wide as the picture."""

    width, height = WIDTH, ROW
    left = 48


def svg(result: Mapping[str, Any]) -> str:
    """Return the picture: latency above, CPUs below, over the same time."""
    rows = (_latency(result), _cores(result))
    height = HEAD + ROW * len(rows)
    key = (('P99 of the service', shapes.FOREGROUND),
           ('P50', '#93c5fd'), ('CPUs of the service', shapes.FOREGROUND),
           ('of the hog', shapes.BACKGROUND), ('of the quiet job', QUIET),
           ('limit of the hog', shapes.ALARM))
    parts = [f"<rect width='{WIDTH}' height='{height}' rx='8' "
             "fill='#ffffff'/>",
             shapes.text(16, 26, 'A service alone, beside a hog, and under '
                         'the agent', size=15, colour=shapes.INK, bold=True)]
    at = 16.0
    for words, colour in key:
        parts += [shapes.bar(at, 38, 14, 8, colour),
                  shapes.text(at + 19, 46, words)]
        at += 34 + 6.2 * len(words)
    for row, panel in enumerate(rows):
        parts.append(f"<g transform='translate(0 {HEAD + row * ROW})'>"
                     f'{panel.inside()}</g>')
    return shapes.svg(WIDTH, height, parts,
                      'A service alone, beside a hog, and under the agent',
                      demo_result.first_line(result))


def _panel(result: Mapping[str, Any], title: str, unit: str,
           axis: panels.Axis) -> Wide:
    """Return a panel with the moments at which something changed."""
    moments = result['moments']
    panel = Wide(title, unit, moments['end_s'], axis)
    limited_s = moments['limited_s']
    panel.shade(moments['hog_s'],
                moments['end_s'] if limited_s is None else limited_s,
                shapes.BACKGROUND)
    panel.moment(moments['hog_s'], shapes.BACKGROUND, 'the hog begins')
    named_s = moments['named_s']
    words = 'the agent names and limits it'
    if named_s is not None and (
            limited_s is None or limited_s - named_s > APART_S):
        panel.moment(named_s, shapes.FAINT, 'the agent names it')
        words = 'and limits it'
    if limited_s is not None:
        panel.shade(limited_s, moments['end_s'], shapes.FOREGROUND)
        panel.moment(limited_s, shapes.FOREGROUND, words)
    return panel


def _latency(result: Mapping[str, Any]) -> Wide:
    points = result['curves']['latency_ms']
    highest = max((p99 for _, _, p99 in points), default=1.0)
    lowest = min((p50 for _, p50, _ in points), default=1.0)
    low = max(tick for tick in LATENCY_TICKS_MS
              if tick <= max(lowest, LATENCY_TICKS_MS[0]))
    panel = _panel(result, 'latency of the service', 'ms, of 2 s each',
                   panels.Axis(low, 1.6 * max(highest, 10 * low), [
                       (tick, f'{tick:,.0f}') for tick in LATENCY_TICKS_MS
                       if low <= tick <= 1.6 * max(highest, 10 * low)],
                       log=True))
    panel.add(panels.Curve([(at_s, p50) for at_s, p50, _ in points],
                           '#93c5fd'))
    panel.add(panels.Curve([(at_s, p99) for at_s, _, p99 in points],
                           shapes.FOREGROUND, width=2.2))
    return panel


def _cores(result: Mapping[str, Any]) -> Wide:
    top = result['cpus'] * 1.15
    panel = _panel(result, 'CPUs used', 'CPUs', panels.Axis(0, top, [
        (tick / 2, f'{tick / 2:g}')
        for tick in range(2 * result['cpus'] + 1)]))
    curves = result['curves']['cores']
    for name, colour, fill in (('hog', shapes.BACKGROUND, True),
                               ('quiet', QUIET, False),
                               ('service', shapes.FOREGROUND, False)):
        panel.add(panels.Curve([(at_s, cores) for at_s, cores
                                in curves[name]], colour, fill=fill))
    panel.add(panels.Curve([(at_s, cores) for at_s, cores
                            in result['curves']['limit_cores']],
                           shapes.ALARM, dashed=True, steps=True))
    return panel


def page(result: Mapping[str, Any]) -> str:
    """Return the page."""
    verdict = html.escape(result['verdict'])
    criteria = ''.join(
        f"<li><b class='{row['outcome']}'>{row['outcome']}</b> "
        f'{html.escape(row["name"])}</li>' for row in result['criteria'])
    body = [f"<h1>Who disturbs the service?<span class='verdict {verdict}'>"
            f'{verdict}</span></h1>',
            f'<p><b>{html.escape(demo_result.first_line(result))}</b></p>',
            f'<p>{WORDS}</p>', _card(svg(result)),
            _card(html_page.table(demo_result.TITLES,
                                  demo_result.rows(result)))]
    if result['incidents']:
        body.append(_card('<h2>What the agent reports</h2>' + ''.join(
            f'<p>{html.escape(words)}</p>' for words in result['incidents'])))
    if result['antagonists']:
        body.append(_card(
            f'<p>{html.escape(demo_result.LISTING_WORDS)}</p>' + _texts(
                demo_result.LISTING, result['antagonists'])))
    body.append(_card(f'<ul>{criteria}</ul>'))
    return html_page.page(f'scavenger-demo: {verdict}', STYLE, body)


def _card(inside: str) -> str:
    return f"<div class='card'>{inside}</div>"


def _texts(titles: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    return html_page.table(titles, rows).replace(
        '<table>', "<table class='texts'>", 1)
