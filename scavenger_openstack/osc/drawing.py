# SPDX-License-Identifier: Apache-2.0

"""Signals of an incident over time, drawn with characters.

The lines share one time axis, as wide as the terminal.  The height of a
column is the highest value in its time, from 0; where nothing was measured
it is blank.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import locale
import statistics
from typing import Any
from typing import NamedTuple
from typing import TextIO

from scavenger_openstack.osc.terminal import printable
from scavenger_openstack.osc import times
from scavenger_openstack import text
from scavenger_openstack import typed_amounts

VICTIM_LINES = 3
MIN_WIDTH = 24
LABEL_COLUMNS = 16
"""One time stands on the axis for so many columns."""


class Ink(NamedTuple):
    """Characters to draw with; ``levels`` go from the lowest to full."""

    levels: str
    mark: str
    line: str
    tick: str


BLOCKS = Ink('▁▂▃▄▅▆▇█', '▲', '─', '┴')
ASCII = Ink('_.-:=+*#', '^', '-', '+')


class Axis(NamedTuple):
    """From when to when, in UNIX time, and over how many columns."""

    begin_s: float
    end_s: float
    columns: int

    def column(self, time_s: float) -> int:
        """The column of a time; it may be left or right of the drawing."""
        share = (time_s - self.begin_s) / (self.end_s - self.begin_s)
        return min(int(share * self.columns), self.columns - 1) \
            if share <= 1 else self.columns


class Series(NamedTuple):
    """One signal of one workload, by time."""

    workload: str
    signal: str
    points: Sequence[tuple[float, float | None]]


def ink(stream: TextIO) -> Ink:
    """Blocks if both the locale and the stream are UTF-8, else ASCII."""
    names = (locale.getencoding(), getattr(stream, 'encoding', None))
    try:
        utf8 = all(codecs.lookup(name).name == 'utf-8'
                   for name in names if name)
    except LookupError:
        utf8 = False
    return BLOCKS if utf8 else ASCII


def series(evidence: Sequence[Mapping[str, Any]]) -> list[Series]:
    """The series of an incident that have at least one value."""
    drawn = []
    for measured in evidence:
        points = sorted(
            ((times.parse(at), value) for at, value in
             zip(measured.get('times_at') or (), measured.get('values') or (),
                 strict=False) if at is not None),
            key=lambda point: point[0])
        if any(value is not None for _, value in points):
            drawn.append(Series(measured.get('workload') or '',
                                measured['signal'], points))
    return drawn


def lines(incident: Mapping[str, Any], *, width: int, ink: Ink
          ) -> Iterator[str]:
    """The drawing: victim first, then suspects by score, then the axis.

    :param incident: as the API shows it, with its evidence
    :param width: of the terminal, in columns
    """
    drawn = series(incident.get('evidence') or ())
    if not drawn:
        yield 'No measurements of this incident are kept.'
        return
    moments = [time_s for curve in drawn for time_s, _ in curve.points]
    axis = Axis(min(moments), max(max(moments), min(moments) + 1),
                max(width, MIN_WIDTH) - 1)
    suspects = {suspect.get('workload'): suspect
                for suspect in incident.get('suspects') or ()}
    victim = incident.get('victim') or ''
    for curve in sorted(
            drawn, key=lambda curve: _rank(curve, victim, suspects)):
        first = curve.workload == victim
        title = _title(curve, incident, suspects.get(curve.workload), first)
        yield text.cut(printable(title), axis.columns)
        yield from chart(curve.points, axis, ink,
                         VICTIM_LINES if first else 1)
        if first and curve.signal == incident.get('signal') \
                and incident.get('threshold') is not None:
            yield from _above(curve.points, incident['threshold'], axis, ink)
        if first:
            yield from _begun(incident, axis)
        for limit in incident.get('caps') or ():
            if limit.get('workload') == curve.workload and not first:
                yield from _limited(limit, axis, ink)
    yield ruler(axis, ink)
    yield clocks(axis)


def _rank(series: Series, victim: str,
          suspects: Mapping[Any, Mapping[str, Any]]) -> tuple[bool, float]:
    score = (suspects.get(series.workload) or {}).get('score')
    return series.workload != victim, -(score or 0)


def _title(series: Series, incident: Mapping[str, Any],
           suspect: Mapping[str, Any] | None, first: bool) -> str:
    measured = [value for _, value in series.points if value is not None]
    low, high = (typed_amounts.human(series.signal, value)
                 for value in (min(measured), max(measured)))
    if first:
        name, role = incident.get('victim_name'), 'victim'
    elif suspect is None:
        name, role = None, ''
    else:
        name = suspect.get('name')
        role = 'antagonist' if suspect.get('antagonist') else 'suspect'
        if suspect.get('score') is not None:
            role += f', score {suspect["score"]:.2f}'
    called = name or series.workload or 'another workload'
    if role:
        called += f' ({role})'
    return f'{called}: {series.signal} {low} to {high}'


def chart(points: Sequence[tuple[float, float | None]], axis: Axis, ink: Ink,
          height: int) -> Iterator[str]:
    """``height`` lines, the highest first.

    :param points: (UNIX time, value), by time
    """
    values = resample(points, axis)
    measured = [value for value in values if value is not None]
    bottom, top = min([0.0, *measured]), max([0.0, *measured])
    steps = len(ink.levels)
    levels = [None if value is None else
              max(1, round((value - bottom) / (top - bottom or 1)
                           * steps * height)) for value in values]
    for line in reversed(range(height)):
        yield ''.join(
            ' ' if level is None or level <= line * steps
            else ink.levels[min(level - line * steps, steps) - 1]
            for level in levels).rstrip()


def resample(points: Sequence[tuple[float, float | None]], axis: Axis
             ) -> list[float | None]:
    """The highest value in the time of each column.

    A column in which no measurement falls has the value of the one before,
    unless that is older than twice the usual time between two.
    """
    columns: list[list[float]] = [[] for _ in range(axis.columns)]
    measured = [False] * axis.columns
    for time_s, value in points:
        at = axis.column(time_s)
        if 0 <= at < axis.columns:
            measured[at] = True
            if value is not None:
                columns[at].append(value)
    gaps = [after - before for (before, _), (after, _)
            in zip(points, points[1:], strict=False)]
    hold_s = 2 * statistics.median(gaps) if gaps else 0
    hold = hold_s / (axis.end_s - axis.begin_s) * axis.columns
    highest: list[float | None] = []
    last: float | None = None
    since = 0
    for at, held in enumerate(columns):
        if measured[at]:
            last, since = max(held, default=None), at
        elif at - since > hold:
            last = None
        highest.append(last)
    return highest


def _above(points: Sequence[tuple[float, float | None]], threshold: float,
           axis: Axis, ink: Ink) -> Iterator[str]:
    marks = ''.join(ink.mark if value is not None and value > threshold
                    else ' ' for value in resample(points, axis))
    if marks.strip():
        yield marks.rstrip()
    yield f'{ink.mark} above the threshold {threshold:.3g}'


def _begun(incident: Mapping[str, Any], axis: Axis) -> Iterator[str]:
    """Where the incident began: with the first of the marks above it that is
    attributed to an antagonist."""
    if incident.get('begun_at') is None:
        return
    begun_s = times.parse(incident['begun_at'])
    at = axis.column(begun_s)
    text = f'begun {times.clock(begun_s)}'
    if at < 0 or at >= axis.columns:
        yield text
    elif at + len(text) + 2 <= axis.columns:
        yield ' ' * at + f'| {text}'
    else:
        yield ' ' * (at - len(text) - 1) + f'{text} |'


def _limited(limit: Mapping[str, Any], axis: Axis, ink: Ink
             ) -> Iterator[str]:
    begin = axis.column(times.parse(limit['set_at']))
    removed = limit.get('removed_at')
    end = axis.columns - 1 if removed is None else \
        axis.column(times.parse(removed))
    if begin >= axis.columns or end < 0:
        return
    begin, end = max(begin, 0), min(end, axis.columns - 1)
    yield ' ' * begin + ink.line * (end - begin + 1)
    value = typed_amounts.human(limit.get('knob') or '', limit.get('value'))
    yield text.cut(printable(
        f'{ink.line} limited: {limit.get("knob")} {value}'), axis.columns)


def _ticks(axis: Axis) -> list[int]:
    count = max(2, min(7, axis.columns // LABEL_COLUMNS))
    return [round(i * (axis.columns - 1) / (count - 1)) for i in range(count)]


def ruler(axis: Axis, ink: Ink) -> str:
    """The line of the axis, with a tick above each time."""
    ticks = _ticks(axis)
    return ''.join(ink.tick if at in ticks else ink.line
                   for at in range(axis.columns))


def clocks(axis: Axis) -> str:
    """The times below the ticks, in UTC."""
    line = ''
    ticks = _ticks(axis)
    for i, at in enumerate(ticks):
        clock = times.clock(axis.begin_s + (axis.end_s - axis.begin_s)
                            * i / (len(ticks) - 1))
        begin = min(max(at - len(clock) // 2, 0), axis.columns - len(clock))
        line = text.padded(line, begin) + clock
    return line
