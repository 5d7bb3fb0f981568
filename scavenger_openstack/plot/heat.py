# SPDX-License-Identifier: Apache-2.0

"""Heat maps of interference profiles, as SVG.

A cell holds its value as text, so the shades say nothing that only eyes for
colour read; they go from light to dark in one hue.  What is outside the cells
has the colour of the text around the picture: it is readable on light pages
and on dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import html
from typing import Any

from scavenger_openstack.plot import page as html_page
from scavenger_openstack.plot import shapes
from scavenger_openstack import text
from scavenger_openstack.types import printable

Estimate = tuple[float, float, float]
"""A value and its interval, (value, low, high), each from 0 to 1."""

Row = tuple[str, Estimate | None, Estimate | None]
"""A source of interference, what the workload tolerates of it and what it
causes; ``None``: not measured."""

LABELS = {
    'memory_capacity': '1 memory capacity',
    'memory_bandwidth': '2 memory bandwidth',
    'storage_capacity': '3 storage capacity',
    'storage_bandwidth': '4 storage bandwidth',
    'network_bandwidth': '5 network bandwidth',
    'llc_capacity': '6 LLC capacity', 'llc_bandwidth': '7 LLC bandwidth',
    'l2_capacity': "6' L2 capacity", 'l2_bandwidth': "7' L2 bandwidth",
    'l1i': '8 L1 instruction cache', 'l1d': '9 L1 data cache',
    'tlb': '10 TLB', 'integer': '11 integer units',
    'floating_point': '12 floating-point units',
    'prefetcher': '13 prefetchers', 'interconnect': '14 interconnect',
    'vector': '15 vector units'}
"""Number and title of each source of interference, in the order and with the
numbers of the paper.  Source: iBench, section III-B."""

COLUMNS = ('tolerated', 'caused')
NOT_MEASURED = 'not measured'

WIDTH = 760
TITLE_COLUMNS, LABEL_COLUMNS = 80, 28
_LEFT, _TOP, _ROW, _GAP, _FOOT = 190, 54, 30, 3, 34
_CELL = (WIDTH - _LEFT) / len(COLUMNS) - _GAP
_EDGE = 6.0
"""Room left and right of the line of an interval, inside its cell."""

_OUTSIDE = 'currentColor'
_STOPS = ((234, 243, 250), (91, 163, 207), (8, 48, 88))
"""Red, green and blue at 0, one half and 1."""
_LEGEND = 5


def rows(document: Mapping[str, Any]) -> list[Row]:
    """Return all sources of interference, in order, out of the JSON document
    of a profile."""
    tolerated, caused = (document.get(name, {}) for name in COLUMNS)
    return [(label, estimate(tolerated.get(soi)), estimate(caused.get(soi)))
            for soi, label in LABELS.items()]


def estimate(fields: Mapping[str, float] | None) -> Estimate | None:
    """Return an estimate of a JSON document; ``None``: not measured."""
    return None if fields is None else (
        fields['value'], fields['low'], fields['high'])


def page(workload: str, document: Mapping[str, Any], parts: Iterable[str]
         ) -> str:
    """Return a page with the heat map of a profile.

    :param workload: its name; any text
    :param document: the JSON document of the profile
    :param parts: HTML below the heat map
    """
    title = f'Interference profile of {printable(workload)}'
    return html_page.page(title, html_page.PROSE + 'th,td{text-align:left}', [
        f'<h1>{html.escape(title)}</h1>',
        f"<section class='card'>{svg(workload, rows(document))}</section>",
        *parts])


def svg(title: str, rows: Sequence[Row]) -> str:
    """Return the heat map of a profile.

    The shade and the text of a cell are the value; the line below the text
    goes from the low to the high end of its interval, on a scale from 0 at
    the left edge to 1 at the right edge of the cell, with a dot at the value.

    :param title: of which workload; any text
    :param rows: from top to bottom
    """
    title = text.cut(printable(title), TITLE_COLUMNS)
    parts = [shapes.text(0, 16, title, size=14, colour=_OUTSIDE, bold=True)]
    parts += [shapes.text(_x(column), _TOP - 10, name, size=12.5,
                          colour=_OUTSIDE, bold=True)
              for column, name in enumerate(COLUMNS)]
    for place, (label, *estimates) in enumerate(rows):
        y = _TOP + place * _ROW
        label = text.cut(printable(label), LABEL_COLUMNS)
        parts.append(shapes.text(0, y + 17, label, size=12.5,
                                 colour=_OUTSIDE))
        for column, estimate in enumerate(estimates):
            parts.append(_cell(_x(column), y, f'{label}, {COLUMNS[column]}',
                               estimate))
    end = _TOP + len(rows) * _ROW
    parts += _legend(end + 8)
    return shapes.svg(WIDTH, end + _FOOT, parts, title, describe(rows),
                      widest=WIDTH)


def describe(rows: Sequence[Row]) -> str:
    """Return what a heat map shows, for those who do not see it."""
    sentences = ['Interference that the workload tolerates and causes, in % '
                 'of the most that each source can do']
    for name, estimates, extreme, words in (
            (COLUMNS[0], [row[1] for row in rows], min, 'least'),
            (COLUMNS[1], [row[2] for row in rows], max, 'most')):
        values = [None if estimate is None else estimate[0]
                  for estimate in estimates]
        measured = [value for value in values if value is not None]
        sentence = f'{name}: {len(measured)} of {len(rows)} sources measured'
        if measured:
            labels = [printable(row[0]) for row, value in zip(
                rows, values, strict=True) if value == extreme(measured)]
            sentence += (f', {words} {_percent(extreme(measured))} '
                         f'({", ".join(labels)})')
        sentences.append(sentence)
    return '. '.join(sentences) + '.'


def amount(estimate: Estimate | None) -> str:
    """Return a value with its interval, as a table shows it."""
    if estimate is None:
        return NOT_MEASURED
    value, low, high = estimate
    return (f'{_percent(value)} ({100 * low:.0f} to {100 * high:.0f} %)'
            if low < high else _percent(value))


def shade(value: float) -> tuple[int, int, int]:
    """Return the colour of a value from 0 to 1: the darker the larger."""
    place = 2 * min(1.0, max(0.0, value))
    below = min(1, int(place))
    red, green, blue = (
        round(low + (high - low) * (place - below)) for low, high
        in zip(_STOPS[below], _STOPS[below + 1], strict=True))
    return red, green, blue


def ink(value: float) -> str:
    """Return black or white: what contrasts more with the shade.

    Source: WCAG 2.2, contrast ratio; both are equal at this luminance.
    """
    return '#000' if luminance(shade(value)) > 0.179 else '#fff'


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance of a colour.

    Source: WCAG 2.2, relative luminance.
    """
    red, green, blue = (
        part / 255 / 12.92 if part / 255 <= 0.04045
        else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _x(column: int) -> float:
    return _LEFT + column * (_CELL + _GAP)


def _percent(value: float) -> str:
    return f'{100 * value:.0f} %'


def _cell(x: float, y: float, name: str, estimate: Estimate | None) -> str:
    height = _ROW - _GAP
    if estimate is None:
        inside = (_box(x, y, _CELL, height, 'none', dashed=True)
                  + shapes.text(x + _EDGE, y + 17, NOT_MEASURED, size=12,
                                colour=_OUTSIDE))
    else:
        value, low, high = estimate
        colour = ink(value)
        inside = (_box(x, y, _CELL, height, _hex(value))
                  + shapes.text(x + _EDGE, y + 14, _percent(value), size=12.5,
                                colour=colour)
                  + _interval(x, y + 20.5, value, low, high, colour))
    return f'<g>{shapes.tooltip(f"{name}: {amount(estimate)}")}{inside}</g>'


def _interval(x: float, y: float, value: float, low: float, high: float,
              colour: str) -> str:
    begin, at, end = (x + _EDGE + share * (_CELL - 2 * _EDGE)
                      for share in (low, value, high))
    return (shapes.line(begin, y, end, y, colour)
            + ''.join(shapes.line(edge, y - 3, edge, y + 3, colour)
                      for edge in (begin, end))
            + f"<circle cx='{at:.1f}' cy='{y:.1f}' r='2' fill='{colour}'/>")


def _box(x: float, y: float, width: float, height: float, fill: str, *,
         dashed: bool = False) -> str:
    dash = " stroke-dasharray='4 3'" if dashed else ''
    return (f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' "
            f"height='{height:.1f}' rx='2' fill='{fill}' "
            f"stroke='{_OUTSIDE}' stroke-opacity='0.45'{dash}/>")


def _hex(value: float) -> str:
    return '#' + ''.join(f'{part:02x}' for part in shade(value))


def _legend(y: float) -> list[str]:
    """Draw the shades of some values, and an interval with its name."""
    width = 46
    parts = [_box(_LEFT + i * width, y, width, 16,
                  _hex(i / (_LEGEND - 1))) for i in range(_LEGEND)]
    parts += [shapes.text(_LEFT + (i + 0.5) * width, y + 12,
                          _percent(i / (_LEGEND - 1)), size=10.5,
                          colour=ink(i / (_LEGEND - 1)), anchor='middle')
              for i in range(_LEGEND)]
    x = _x(1)
    return [*parts, _interval(x - _EDGE, y + 8, 0.1, 0.0, 0.2, _OUTSIDE),
            shapes.text(x + 66, y + 12, 'value and its interval', size=10.5,
                        colour=_OUTSIDE)]
