# SPDX-License-Identifier: Apache-2.0

"""The directive ``incident-states``: what moves an antagonist, drawn.

Picture and table are made of the table that the detector itself follows.
"""

from __future__ import annotations

from collections.abc import Iterator
import html
import math
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from scavenger_openstack.algorithms.attribution.antagonist import State
from scavenger_openstack.algorithms.attribution.antagonist import TABLE

PLACES = {
    State.SUSPECTED: (110, 150), State.ON_TRIAL: (380, 40),
    State.CONFIRMED: (650, 90), State.LOOSENING: (650, 260),
    State.REMEMBERED: (380, 310), State.EXAMINED: (110, 40)}
"""Middle of each box."""

WIDTH, HEIGHT, BOX, TALL = 760, 350, 130, 40
ASIDE = 9
"""By how much two arrows between the same boxes keep apart."""


class IncidentStates(Directive):

    def run(self) -> list[nodes.Node]:
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(list(table()), 'antagonist.py'),
                                0, node)
        return [nodes.raw('', picture(), format='html'), *node.children]


def moves() -> list[tuple[State, str, State, str]]:
    """State, what moves it, the next state, and what happens to the limit."""
    return [(before, str(event), after, str(change))
            for before, events in TABLE.items()
            for event, (after, change) in events.items()]


def table() -> Iterator[str]:
    yield from ('.. list-table::', '   :header-rows: 1',
                '   :widths: 5 15 45 15 20', '',
                '   * - No.', '     - State', '     - What moves it',
                '     - Next state', '     - Its limit')
    for number, (before, event, after, change) in enumerate(moves(), 1):
        yield f'   * - {number}'
        yield from (f'     - {text}' for text in (before, event, after,
                                                  change))


def picture() -> str:
    """Boxes and arrows, as SVG; each arrow has the numbers of its rows."""
    numbers: dict[tuple[State, State], list[int]] = {}
    for number, (before, _, after, _) in enumerate(moves(), 1):
        numbers.setdefault((before, after), []).append(number)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'xmlns="http://www.w3.org/2000/svg" style="max-width:100%;'
             'font-family:sans-serif;font-size:14px">',
             '<title>States of an antagonist</title>']
    for state, (x, y) in PLACES.items():
        label = str(state)
        if (state, state) in numbers:
            label += f' ({_listed(numbers.pop((state, state)))})'
        parts += [f'<rect x="{x - BOX / 2}" y="{y - TALL / 2}" '
                  f'width="{BOX}" height="{TALL}" rx="6" fill="none" '
                  'stroke="currentColor"/>', _text(x, y + 5, label)]
    for (before, after), rows in numbers.items():
        parts += _arrow(PLACES[before], PLACES[after], _listed(rows))
    return '\n'.join([*parts, '</svg>'])


def _arrow(start: tuple[int, int], end: tuple[int, int], label: str
           ) -> list[str]:
    """From the edge of one box to that of another, to the right of its way.
    """
    length = math.dist(start, end)
    along = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    aside = -along[1] * ASIDE, along[0] * ASIDE
    edge = min([half / abs(part) for half, part in
                zip((BOX / 2 + 6, TALL / 2 + 6), along, strict=True)
                if part])
    x1, y1 = (start[i] + along[i] * edge + aside[i] for i in (0, 1))
    x2, y2 = (end[i] - along[i] * edge + aside[i] for i in (0, 1))
    back = [(x2 - 9 * along[0] + side * along[1],
             y2 - 9 * along[1] - side * along[0]) for side in (4, -4)]
    head = ''.join(f'M{x:.0f} {y:.0f}L{x2:.0f} {y2:.0f}' for x, y in back)
    third = [(2 * a + b) / 3 for a, b in ((x1, x2), (y1, y2))]
    return [f'<path d="M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}{head}" '
            'fill="none" stroke="currentColor"/>',
            _text(third[0] + 1.6 * aside[0], third[1] + 1.6 * aside[1] + 4,
                  label, 12)]


def _listed(rows: list[int]) -> str:
    return ', '.join(map(str, rows))


def _text(x: float, y: float, words: str, size: int = 14) -> str:
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" '
            f'font-size="{size}" fill="currentColor">'
            f'{html.escape(words)}</text>')


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('incident-states', IncidentStates)
    return {'parallel_read_safe': True}
