# SPDX-License-Identifier: Apache-2.0

"""Pictures of the panel, as SVG in the page: they need no script, print, and
have a name and a description for screen readers.

What differs by colour differs by a dash, a shade or a word, too; the colours
are those of Okabe and Ito, darkened where they lack contrast on white.  Names
come from tenants: they are escaped, cut and isolated, so that one written from
right to left does not move the words around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import datetime
import html
import itertools
import math
import statistics
from typing import NamedTuple

from django.utils.safestring import mark_safe
from django.utils.safestring import SafeString

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import names
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes
from scavenger_openstack import typed_amounts
from scavenger_openstack.types import printable

VICTIM, SUSPECT, LIMIT, THRESHOLD = '#0072b2', '#7a4300', '#b34700', '#b02a37'
SHADES = ('#0072b2', '#7fb8d8', '#d9e8f1')
"""Parts of a bar: they differ in lightness."""

WIDTH = 900
NAME_COLUMNS = 60
MOST_SUSPECTS = 8
"""Number of suspects that are drawn; the table has all."""
GAP = 4.0
"""A line breaks where nothing was measured for this many times the usual
interval."""

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
           10800, 21600, 43200, 86400)
MOST_TICKS = 9

LARGEST = 1e300
"""The largest number that is drawn: agents may report any number."""


class Limit(NamedTuple):
    """A limit on a suspect: its begin and end in UNIX time, no end while it is
    in force, and its values, each with its time."""

    knob: str
    begin_s: float
    end_s: float | None
    steps: Sequence[tuple[float, float | str | None]]


class Series(NamedTuple):
    """One signal of one workload, by UNIX time, and the limits on it.

    ``role``: what it is in the incident, such as ``antagonist``.
    """

    name: str
    role: str
    signal: str
    points: Sequence[tuple[float, float | None]]
    limits: Sequence[Limit] = ()


class Span(NamedTuple):
    """The begin and end of a picture in UNIX time, and the zone of its
    times."""

    begin_s: float
    end_s: float
    zone: datetime.tzinfo

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    def clock(self, time_s: float, form: str = '%H:%M:%S') -> str:
        return _local(time_s, self.zone).strftime(form)

    def ticks(self) -> list[tuple[float, str]]:
        """Return full times of the clock, in seconds from the begin."""
        step = next((step for step in STEPS_S
                     if self.seconds / step <= MOST_TICKS),
                    86400 * math.ceil(self.seconds / MOST_TICKS / 86400))
        form = ('%H:%M:%S' if step < 60 else '%H:%M' if step < 86400
                else '%m-%d')
        offset = _local(self.begin_s, self.zone).utcoffset()
        shift_s = offset.total_seconds() if offset else 0.0
        first_s = math.ceil((self.begin_s + shift_s) / step) * step - shift_s
        return [(at_s - self.begin_s, self.clock(at_s, form)) for at_s in
                itertools.takewhile(lambda at_s: at_s <= self.end_s,
                                    itertools.count(first_s, step))]


class _Signal(panels.Panel):

    width, height, left = WIDTH, 210, 56


class _Use(panels.Panel):

    width, height, left = WIDTH, 132, 56


def incident(series: Sequence[Series], *, threshold: float | None,
             begun_s: float | None, ended_s: float | None,
             zone: datetime.tzinfo) -> SafeString:
    """Draw a victim's signal above the use of the suspects.

    Source: figures 8 and 9 of CPI2.

    :param series: the victim's first; '' for nothing to draw
    :param threshold: of the victim's signal
    :param begun_s: and ``ended_s``: of the incident, in UNIX time
    """
    drawn = [curve for curve in series if _values(curve)][:1 + MOST_SUSPECTS]
    if not drawn:
        return mark_safe('')
    span = _span(drawn, zone)
    stack: list[panels.Panel] = [_signal(drawn[0], threshold, span, [
        limit for curve in drawn[1:] for limit in curve.limits])]
    for at_s, words in ((begun_s, 'begun'), (ended_s, 'ended')):
        if at_s is not None and span.begin_s <= at_s <= span.end_s:
            stack[0].moment(at_s - span.begin_s, shapes.INK,
                             f'{words} {span.clock(at_s)}')
    stack += [_use(curve, span) for curve in drawn[1:]]
    parts = [shapes.bar(0, 0, WIDTH, sum(panel.height for panel in stack),
                        '#ffffff')]
    top = 0
    for panel in stack:
        parts.append(f"<g transform='translate(0 {top})'>{panel.inside()}"
                     '</g>')
        top += panel.height
    return mark_safe(shapes.svg(
        WIDTH, top, parts,
        f'{_titled(drawn[0])}, {span.clock(span.begin_s, "%Y-%m-%d %H:%M")} '
        f'to {span.clock(span.end_s, "%H:%M")}',
        ' '.join(sentences(drawn, threshold, span))))


def table(series: Sequence[Series], zone: datetime.tzinfo
          ) -> tuple[list[str], list[list[str]]]:
    """Return the measurements of a picture as a table: titles, and a row
    for each time."""
    by_time: dict[float, list[str]] = {}
    for column, curve in enumerate(series):
        for time_s, value in curve.points:
            by_time.setdefault(time_s, ['-'] * len(series))[column] = (
                '-' if value is None else amounts.of_signal(
                    curve.signal, value))
    return (['Time', *(_titled(curve) for curve in series)],
            [[_local(time_s, zone).strftime('%Y-%m-%d %H:%M:%S'), *cells]
             for time_s, cells in sorted(by_time.items())])


def sentences(series: Sequence[Series], threshold: float | None, span: Span
              ) -> Iterator[str]:
    """Yield the sentences that describe a picture."""
    for i, curve in enumerate(series):
        values = _values(curve)
        low, high = (amounts.of_signal(curve.signal, value)
                     for value in (min(values), max(values)))
        words = f'{_titled(curve)}: from {low} to {high}'
        if i == 0 and threshold is not None:
            above = sum(value > threshold for value in values)
            words += (f', above the threshold '
                      f'{amounts.of_signal(curve.signal, threshold)} in '
                      f'{above} of {len(values)} measurements')
        for limit in curve.limits:
            words += f'; {limited(limit, span.zone)}'
        yield f'{words}.'


def limited(limit: Limit, zone: datetime.tzinfo) -> str:
    """Return the values of a limit, and its begin and end, for people."""
    values = [typed_amounts.human(limit.knob, value)
              for _, value in limit.steps]
    begin = _local(limit.begin_s, zone).strftime('%H:%M:%S')
    end = 'on' if limit.end_s is None else 'to ' + _local(
        limit.end_s, zone).strftime('%H:%M:%S')
    return (f'limited to {", then ".join(dict.fromkeys(values))} '
            f'({limit.knob}) from {begin} {end}')


def sparkline(values: Sequence[float | None], label: str) -> SafeString:
    """Draw a small line without axes, from 0 to the highest value.

    :param label: the same in words, for readers who do not see it
    """
    width, height, edge = 120.0, 24.0, 3.0
    highest = max((value for value in values if value is not None),
                  default=0.0) or 1.0
    step = (width - 2 * edge) / max(1, len(values) - 1)
    points = [(edge + i * step, None if value is None else height - edge - (
        height - 2 * edge) * max(0.0, value) / highest)
        for i, value in enumerate(values)]
    parts = [shapes.line(edge, height - edge, width - edge, height - edge,
                         shapes.GRID)]
    for run in panels.runs(points):
        path = 'L'.join(f'{x:.1f} {y:.1f}' for x, y in run)
        parts += [f"<path d='M{path}' fill='none' stroke='{VICTIM}' "
                  "stroke-width='1.6' stroke-linejoin='round'/>",
                  f"<circle cx='{run[-1][0]:.1f}' cy='{run[-1][1]:.1f}' "
                  f"r='2' fill='{VICTIM}'/>"]
    return mark_safe(shapes.svg(width, height, parts, label))


def bar(parts: Sequence[tuple[str, float | None]], total: float | None,
        label: str) -> SafeString:
    """Draw a bar of parts of a whole, side by side.

    :param parts: (name, amount); at most as many as :data:`SHADES`
    :param total: the whole, in the unit of the parts; ``None``: their sum
    :param label: the same in words, with units
    """
    width, height = 200.0, 16.0
    sizes = [(name, max(0.0, amount or 0.0)) for name, amount in parts]
    whole = max(total or 0.0, sum(amount for _, amount in sizes)) or 1.0
    drawn, x = [], 0.0
    for (name, amount), shade in zip(sizes, SHADES, strict=False):
        wide = (width - 2) * amount / whole
        if amount:
            drawn.append(
                f"<rect x='{1 + x:.1f}' y='1' width='{wide:.1f}' "
                f"height='{height - 2:g}' fill='{shade}'>"
                f'<title>{html.escape(name)}</title></rect>')
        x += wide
    drawn.append(f"<rect x='1' y='1' width='{width - 2:g}' "
                 f"height='{height - 2:g}' fill='none' stroke='{shapes.FAINT}'"
                 '/>')
    return mark_safe(shapes.svg(width, height, drawn, label))


def _titled(series: Series) -> str:
    role = f' ({series.role})' if series.role else ''
    return (f'{names.shown(series.name, NAME_COLUMNS)}{role}: '
            f'{printable(series.signal)}')


def _local(time_s: float, zone: datetime.tzinfo) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_s, zone)


def _values(series: Series) -> list[float]:
    return [value for _, value in series.points if value is not None]


def _span(series: Iterable[Series], zone: datetime.tzinfo) -> Span:
    """Return the time of all measurements, and of limits unless they last
    much longer."""
    times = [time_s for curve in series for time_s, _ in curve.points]
    begin_s, end_s = min(times), max(max(times), min(times) + 1.0)
    ends = [limit.end_s for curve in series for limit in curve.limits
            if limit.end_s is not None]
    return Span(begin_s, min(max([end_s, *ends]), 2 * end_s - begin_s), zone)


def _signal(series: Series, threshold: float | None, span: Span,
            limits: Iterable[Limit]) -> panels.Panel:
    size, unit = amounts.unit(series.signal.partition(' ')[0])
    highest = max([*_values(series), threshold or 0.0])
    panel = _Signal(_titled(series), unit, span.seconds, _axis(highest / size),
                    span.ticks())
    _shade(panel, limits, span)
    panel.add(panels.Curve(_points(series, span, size), VICTIM, fill=True,
                           width=2))
    if threshold is not None:
        panel.level(threshold / size, THRESHOLD)
        panel.words(threshold / size, THRESHOLD, 'threshold '
                    + amounts.of_number(threshold / size))
    return panel


def _use(series: Series, span: Span) -> panels.Panel:
    name = series.signal.partition(' ')[0]
    size, unit = amounts.unit(name)
    same = [limit for limit in series.limits if limit.knob == name]
    highest = max(_values(series))
    panel = _Use(_titled(series), unit, span.seconds, _axis(highest / size),
                 span.ticks())
    _shade(panel, series.limits, span)
    panel.add(panels.Curve(_points(series, span, size), SUSPECT))
    for limit in same:
        steps = [(max(0.0, time_s - span.begin_s), value / size)
                 for time_s, value in limit.steps
                 if isinstance(value, int | float)]
        if steps:
            end_s = span.end_s if limit.end_s is None else limit.end_s
            panel.add(panels.Curve(
                [*steps, (end_s - span.begin_s, steps[-1][1])], LIMIT,
                dashed=True, steps=True))
    return panel


def _shade(panel: panels.Panel, limits: Iterable[Limit], span: Span) -> None:
    for limit in limits:
        end_s = span.end_s if limit.end_s is None else limit.end_s
        if limit.begin_s < span.end_s and end_s > span.begin_s:
            words = limited(limit, span.zone)
            panel.shade(limit.begin_s - span.begin_s, end_s - span.begin_s,
                        LIMIT, words)
            panel.moment(limit.begin_s - span.begin_s, LIMIT, 'limited')


def _axis(highest: float) -> panels.Axis:
    """Return an axis from 0 to a round number above; there is none above the
    largest of numbers, nor below the smallest."""
    highest = min(highest, LARGEST)
    if not highest > 1 / LARGEST:
        return panels.Axis(0.0, 1.0, [(0.0, '0'), (1.0, '1')])
    step = 10.0 ** math.floor(math.log10(highest))
    top = next(factor * step for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15)
               if factor * step >= highest * 1.05)
    return panels.Axis(0.0, top, [(part * top, amounts.of_number(part * top))
                                  for part in (0.0, 0.5, 1.0)])


def _points(series: Series, span: Span, size: float) -> list[panels.Point]:
    """Return points by seconds from the begin, with a gap where nothing was
    measured."""
    points = sorted(series.points, key=lambda point: point[0])
    gaps = [after - before for (before, _), (after, _)
            in itertools.pairwise(points)]
    most_s = GAP * statistics.median(gaps) if gaps else math.inf
    drawn: list[panels.Point] = []
    last_s = math.inf
    for time_s, value in points:
        if time_s - last_s > most_s:
            drawn.append((last_s - span.begin_s, None))
        drawn.append((time_s - span.begin_s,
                      None if value is None else value / size))
        last_s = time_s
    return drawn
