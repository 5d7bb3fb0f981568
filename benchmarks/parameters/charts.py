# SPDX-License-Identifier: Apache-2.0


"""Tables in Markdown and charts in SVG for the sensitivity study."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import html

from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

SHADES = ('#bfdbfe', '#93c5fd', '#60a5fa', '#3b82f6', '#1d4ed8', '#1e3a8a',
          '#172554', '#0f172a')
WIDTH, HEIGHT = 300, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 34, 34


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Points, with or without a tooltip; ``joined`` or as circles alone."""

    points: Sequence[tuple[float, float, str]]
    colour: str
    name: str = ''
    joined: bool = True
    hollow: bool = False


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *,
          words: bool = False) -> str:
    """A Markdown table; all but the first column to the right, unless they
    hold ``words``."""
    side = '---' if words else '---:'
    lines = [' | '.join(head),
             ' | '.join(['---', *[side] * (len(head) - 1)])]
    # Names of workloads may hold anything.
    lines += [' | '.join(' '.join(cell.replace('|', '\\|').split())
                         for cell in row) for row in rows]
    return '\n'.join(f'| {line} |' for line in lines) + '\n'


def number(value: float) -> str:
    """Two digits that matter, or all before the point."""
    if value >= 9.95 or value == 0:
        return f'{value:.0f}'
    return f'{value:.1f}' if value >= 0.95 else f'{value:.2f}'


def percent(share: float) -> str:
    return f'{100 * share:.1f}'


def seconds(value: float) -> str:
    """``90 s``, ``30 min``."""
    if value >= 600 and round(value) % 60 == 0:
        return f'{value / 60:.0f} min'
    return f'{value:.0f} s'


def colours(cs: Sequence[float], now: float) -> dict[float, str]:
    """A shade for each c; the one in use now in red."""
    step = max(1, len(SHADES) // max(1, len(cs)))
    return {c: shapes.ALARM if c == now else SHADES[
        min(len(SHADES) - 1, place * step)] for place, c in enumerate(cs)}


def panel(left: float, title: str, lines: Sequence[Line], *, x: panels.Axis,
          y: panels.Axis, x_name: str) -> list[str]:
    """One chart of a picture, beginning at ``left``."""
    inside_x, inside_y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at_x(value: float) -> float:
        return left + LEFT + inside_x * x.share(value)

    def at_y(value: float) -> float:
        return TOP + inside_y * (1 - y.share(value))

    parts = [shapes.text(left + 8, 18, title, size=12, colour=shapes.INK,
                         bold=True),
             shapes.text(left + LEFT + inside_x / 2, HEIGHT - 4, x_name,
                         size=10, anchor='middle')]
    for value, label in y.ticks:
        parts += [shapes.line(left + LEFT, at_y(value), left + WIDTH - RIGHT,
                              at_y(value), shapes.GRID),
                  shapes.text(left + LEFT - 5, at_y(value) + 3.5, label,
                              size=10, anchor='end')]
    for value, label in x.ticks:
        parts.append(shapes.text(at_x(value), HEIGHT - 18, label, size=10,
                                 anchor='middle'))
    for line in lines:
        if line.joined and line.points:
            path = 'L'.join(f'{at_x(a):.1f} {at_y(b):.1f}'
                            for a, b, _ in line.points)
            parts.append(f"<path d='M{path}' fill='none' "
                         f"stroke='{line.colour}' stroke-width='1.6'/>")
        paint = 'white' if line.hollow else line.colour
        parts.append(f"<g fill='{paint}' stroke='{line.colour}'>")
        for a, b, words in line.points:
            said = html.escape(words)
            parts.append(
                f"<circle cx='{at_x(a):.1f}' cy='{at_y(b):.1f}' r='2.5'"
                + (f'><title>{said}</title></circle>' if said else '/>'))
        parts.append('</g>')
    return parts


def picture(title: str, panels: Sequence[Sequence[str]],
            names: Mapping[str, str]) -> str:
    """Panels side by side over a legend of name -> colour."""
    width = WIDTH * len(panels)
    parts = [shapes.bar(0, 0, width, HEIGHT + 24, 'white')]
    for one in panels:
        parts += one
    at = 12.0
    for name, colour in names.items():
        parts += [shapes.bar(at, HEIGHT + 6, 12, 8, colour),
                  shapes.text(at + 16, HEIGHT + 14, name, size=11)]
        at += 30 + 6.5 * len(name)
    return shapes.svg(width, HEIGHT + 24, parts, title)


def log_axis(values: Iterable[float], least: float = 0.1) -> panels.Axis:
    """Powers of ten around the values."""
    top = max([least * 10, *values])
    low, high = least, least
    ticks = [(low, f'{low:g}')]
    while high < top:
        high *= 10
        ticks.append((high, f'{high:g}'))
    return panels.Axis(low, high, ticks, log=True)


def share_axis(values: Iterable[float]) -> panels.Axis:
    """Percent, from zero."""
    top = max([0.01, *values])
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
                if top / s <= 6)
    count = -int(-top // step)
    return panels.Axis(0.0, count * step, [
        (place * step, f'{100 * place * step:.0f} %')
        for place in range(count + 1)])


def window_axis(windows_s: Sequence[float]) -> panels.Axis:
    low, high = min(windows_s), max(windows_s)
    return panels.Axis(low, max(high, low * 1.01), [
        (value, f'{value:.0f}') for value in windows_s], log=True)
