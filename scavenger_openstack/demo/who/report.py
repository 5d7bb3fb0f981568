# SPDX-License-Identifier: Apache-2.0



"""The second act as a picture and a page: the evidence, and the limits."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.demo import report
from scavenger_openstack.demo.who import play
from scavenger_openstack.demo.who import result as result_
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

WIDTH, ROW, HEAD = 860, 190, 64
STEADY = '#9ca3af'
MB = 1e6

SIGNALS = {'run_delay': ('waits for a CPU: run_delay', 's per s', 1.0),
           'io_wait': ('waits for the disk: io_wait', 'ms per operation',
                       1000.0)}
USES = {'run_delay': ('CPUs used', 'cores', 'cores', 1.0),
        'io_wait': ('disk used', 'io_bytes_per_s', 'MB/s', 1 / MB)}


class Wide(panels.Panel):
    """Half of the picture."""

    width = WIDTH // 2


def svg(record: Mapping[str, Any]) -> str:
    """Victims on the left, suspects on the right, limits shaded."""
    jobs = [job for job in play.JOBS if job.victim]
    height = HEAD + ROW * len(jobs)
    parts = [f"<rect width='{WIDTH}' height='{height}' rx='8' "
             "fill='#ffffff'/>",
             shapes.text(16, 26, 'Who did it? What the victims feel, and what '
                         'the suspects use', size=14, colour=shapes.INK,
                         bold=True),
             shapes.bar(16, 37, 10, 9, shapes.BACKGROUND),
             shapes.text(30, 46, 'the antagonist'),
             shapes.bar(120, 37, 10, 9, STEADY),
             shapes.text(134, 46, 'the other suspects'),
             shapes.bar(250, 37, 10, 9, '#d6e4fd'),
             shapes.text(264, 46, 'the antagonist is limited'),
             shapes.line(412, 42, 432, 42, shapes.ALARM, dashed=True),
             shapes.text(438, 46, 'threshold of the incident')]
    for row, job in enumerate(jobs):
        for column, panel in enumerate((_signal(record, job),
                                        _use(record, job))):
            parts.append(
                f"<g transform='translate({column * WIDTH // 2} "
                f"{HEAD + row * ROW})'>{panel.inside()}</g>")
    return shapes.svg(WIDTH, height, parts, 'Who did it?')


def _panel(record: Mapping[str, Any], job: play.Job, title: str, unit: str,
           values: Sequence[float]) -> Wide:
    top = max([*values, 1e-3]) * 1.1
    panel = Wide(title, unit, record['seconds'] + play.DRAIN_S, panels.Axis(
        0, top, [(top * i / 4, f'{top * i / 4:.2g}') for i in range(5)]))
    for begin_s, end_s in limits(record['looks'], job.group):
        panel.shade(begin_s, end_s, shapes.FOREGROUND)
    return panel


def limits(looks: Sequence[Mapping[str, Any]],
           group: str) -> list[tuple[float, float]]:
    """When a job was limited: from, to."""
    found: list[tuple[float, float]] = []
    begun_s: float | None = None
    for look in looks:
        if group in look['caps']:
            begun_s = look['at_s'] if begun_s is None else begun_s
        elif begun_s is not None:
            found.append((begun_s, look['at_s']))
            begun_s = None
    if begun_s is not None:
        found.append((begun_s, looks[-1]['at_s']))
    return found


def _points(record: Mapping[str, Any], group: str, key: str,
            scale: float) -> list[panels.Point]:
    return [(one['at_s'], None if one[key] is None else scale * one[key])
            for one in record['signals'].get(group, ())
            if one['at_s'] >= 0]


def _signal(record: Mapping[str, Any], job: play.Job) -> Wide:
    title, unit, scale = SIGNALS[job.signal]
    points = _points(record, job.victim, job.signal, scale)
    panel = _panel(record, job, f'{_short(job.victim)} {title}', unit,
                   [value for _, value in points if value is not None])
    panel.add(panels.Curve(points, shapes.FOREGROUND))
    threshold = next((one['threshold'] for look in record['looks']
                      for one in look['incidents']
                      if one['victim'] == job.victim
                      and one['signal'] == job.signal), None)
    if threshold is not None:
        if job.signal == 'run_delay':   # the detector's is a share
            threshold = threshold / (1 - threshold)
        panel.level(scale * threshold, shapes.ALARM)
    return panel


def _use(record: Mapping[str, Any], job: play.Job) -> Wide:
    title, key, unit, scale = USES[job.signal]
    curves = {other.group: _points(record, other.group, key, scale)
              for other in play.JOBS}
    panel = _panel(record, job, f'{title} by {_short(job.group)} and others',
                   unit, [value for points in curves.values()
                          for _, value in points if value is not None])
    for group, points in curves.items():
        if group != job.group:
            panel.add(panels.Curve(points, STEADY, width=1.2))
    panel.add(panels.Curve(curves[job.group], shapes.BACKGROUND, fill=True))
    return panel


def _short(group: str) -> str:
    return group.rsplit('/', 1)[-1]


def page(result: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The whole report."""
    return report.page('Who did it?', result, [
        'Two services and three batch jobs that work and rest; the detector '
        'is told nothing about them. Left: what each victim feels. Right: '
        'what the suspects use at the same time. Shaded: the antagonist is '
        'limited.'], [
        report.card(svg(record), wide=True),
        report.card(report.table(result_.TITLES, result_.rows(result))),
        report.card(report.criteria(result))])
