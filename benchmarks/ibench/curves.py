# SPDX-License-Identifier: Apache-2.0

"""Panels of several curves over intensity, and the page around them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import html
import math

from scavenger_openstack.plot import page as page_
from scavenger_openstack.plot import panels

COLOURS = ('#2563eb', '#7c3aed', '#059669', '#f08c2e', '#dc2626', '#0891b2',
           '#6b7280')
STYLE = page_.PROSE + '''
.key span{display:inline-block;margin-right:18px}
.key i{display:inline-block;width:22px;height:3px;vertical-align:middle;
 margin-right:6px}
'''
PERCENTS = [(at, f'{at} %' if at < 100 else '100')
            for at in range(0, 101, 20)]


def key(names: Sequence[str]) -> str:
    """Return which colour is which curve."""
    return "<p class='key'>" + ''.join(
        f"<span><i style='background:{colour}'></i>{html.escape(name)}"
        '</span>' for name, colour in zip(names, COLOURS, strict=False)
    ) + '</p>'


def panel(title: str, unit: str,
          lines: Mapping[str, Sequence[tuple[float, float]]], *,
          log: bool = False, top: float | None = None) -> str:
    """Return a panel of curves over intensity in percent.

    :param lines: by name, in the order of :func:`key`
    :param top: of the axis; None: the highest value
    """
    values = [value for points in lines.values() for _, value in points]
    most, least = max(values), max(min(values), 1e-6)
    if log:
        low, high = (10.0 ** math.floor(math.log10(least)),
                     10.0 ** math.ceil(math.log10(max(most, 2 * least))))
        ticks = [(10.0 ** power, f'{10.0 ** power:g}') for power in range(
            round(math.log10(low)), round(math.log10(high)) + 1)]
    else:
        low, high = 0.0, top or most or 1.0
        ticks = [(share * high, _short(share * high))
                 for share in (0.0, 0.5, 1.0)]
    made = panels.Panel(title, unit, 100.0,
                        panels.Axis(low, high, ticks, log), PERCENTS)
    for points, colour in zip(lines.values(), COLOURS, strict=False):
        made.add(panels.Curve(points, colour))
    return made.svg()


def _short(value: float) -> str:
    for factor, mark in ((1e6, 'M'), (1e3, 'k')):
        if value >= factor:
            return f'{value / factor:.3g} {mark}'
    return f'{value:.3g}'


def page(title: str, parts: Sequence[str]) -> str:
    """Return the page."""
    return page_.page(title, STYLE, [f'<h1>{html.escape(title)}</h1>',
                                     *parts])
