# SPDX-License-Identifier: Apache-2.0

"""Curves over time as SVG: axes, and panels of them."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math

from scavenger_openstack.plot import shapes

Point = tuple[float, float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a panel; a point without value leaves a gap."""

    points: Sequence[Point]
    colour: str
    fill: bool = False
    dashed: bool = False
    steps: bool = False
    width: float = 1.6


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """The values that a panel shows from ``low`` to ``high``, and where its
    lines are."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    log: bool = False

    def share(self, value: float) -> float:
        """Return where ``value`` lies: 0 at the bottom, 1 at the top."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = (math.log(max(v, 1e-9))
                                for v in (value, low, high))
        return min(1.0, max(0.0, (value - low) / (high - low)))


def runs(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """The points as unbroken pieces."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    return [run for run in pieces if run]


class Panel:
    """A small plot over time.

    :param times: when, in seconds from its begin, and what is written there;
        ``None``: seconds
    """

    width, height = 380, 176
    left, right, top, bottom = 40, 10, 30, 22

    def __init__(self, title: str, note: str, seconds: float, axis: Axis,
                 times: Sequence[tuple[float, str]] | None = None) -> None:
        self._title, self._seconds, self._axis = title, seconds, axis
        self._parts = [
            shapes.text(self.left, 17, title, size=12.5, colour=shapes.INK,
                        bold=True),
            shapes.text(self.width - self.right, 17, note, anchor='end')]
        for value, label in axis.ticks:
            y = self.y(value)
            self._parts += [
                shapes.line(self.left, y, self.width - self.right, y,
                            shapes.GRID),
                shapes.text(self.left - 5, y + 3.5, label, size=10,
                            anchor='end')]
        if times is None:
            step = next(s for s in (1, 2, 5, 10, 20, 60, 120, 300, 1e9)
                        if seconds / s <= 7)
            times = [(i * step, f'{i * step:g}' + (' s' if i == 0 else ''))
                     for i in range(int(seconds / step) + 1)]
        for at_s, words in times:
            self._parts.append(shapes.text(
                self.x(at_s), self.height - 7, words, size=10,
                anchor='middle'))

    def x(self, at_s: float) -> float:
        inside = self.width - self.left - self.right
        return self.left + inside * min(1.0, max(0.0, at_s / self._seconds))

    def y(self, value: float) -> float:
        inside = self.height - self.top - self.bottom
        return self.top + inside * (1 - self._axis.share(value))

    def add(self, curve: Curve) -> None:
        for run in runs(curve.points):
            path = f'M{self.x(run[0][0]):.1f} {self.y(run[0][1]):.1f}'
            for x, y in run[1:]:
                path += (f'H{self.x(x):.1f}V{self.y(y):.1f}' if curve.steps
                         else f'L{self.x(x):.1f} {self.y(y):.1f}')
            if curve.fill:
                floor = self.y(self._axis.low)
                self._parts.append(
                    f"<path d='{path}V{floor:.1f}H{self.x(run[0][0]):.1f}Z' "
                    f"fill='{curve.colour}' fill-opacity='0.18'/>")
            dash = " stroke-dasharray='5 3'" if curve.dashed else ''
            self._parts.append(
                f"<path d='{path}' fill='none' stroke='{curve.colour}' "
                f"stroke-width='{curve.width:g}' "
                f"stroke-linejoin='round'{dash}/>")

    def shade(self, begin_s: float, end_s: float, colour: str,
              words: str = '') -> None:
        """A band from bottom to top.

        :param words: its tooltip
        """
        x = self.x(begin_s)
        self._parts.append(
            f"<rect x='{x:.1f}' y='{self.top}' "
            f"width='{max(0.5, self.x(end_s) - x):.1f}' "
            f"height='{self.height - self.top - self.bottom}' "
            f"fill='{colour}' fill-opacity='0.14'"
            + (f'>{shapes.tooltip(words)}</rect>' if words else '/>'))

    def moment(self, at_s: float, colour: str, words: str) -> None:
        """A line from bottom to top, with its words beside it."""
        x = self.x(at_s)
        right = x > (self.left + self.width) / 2
        self._parts += [
            shapes.line(x, self.top, x, self.height - self.bottom, colour),
            shapes.text(x + (-4 if right else 4), self.top + 10, words,
                        size=10, colour=colour,
                        anchor='end' if right else 'start')]

    def level(self, value: float, colour: str) -> None:
        """A dashed line from side to side."""
        self._parts.append(shapes.line(self.left, self.y(value),
                                       self.width - self.right, self.y(value),
                                       colour, dashed=True))

    def words(self, value: float, colour: str, words: str) -> None:
        """Words on the right above a value."""
        self._parts.append(shapes.text(
            self.width - self.right - 2, max(self.y(value) - 4,
                                             self.top + 9), words, size=10,
            colour=colour, anchor='end'))

    def mark(self, at_s: float, value: float, words: str) -> None:
        """A red dot with a tooltip."""
        self._parts.append(
            f"<circle cx='{self.x(at_s):.1f}' cy='{self.y(value):.1f}' "
            f"r='4' fill='{shapes.ALARM}'>{shapes.tooltip(words)}</circle>")

    def inside(self) -> str:
        """Return the parts of the panel, for a larger picture."""
        return ''.join(self._parts)

    def svg(self) -> str:
        return shapes.svg(self.width, self.height, self._parts, self._title)
