# SPDX-License-Identifier: Apache-2.0

"""Figures 5 and 6 of iBench, as a page."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import statistics
from typing import Any

from scavenger_openstack.plot import page as pages
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

COLOURS = {'least-loaded': shapes.BACKGROUND, 'random': shapes.FAINT,
           'profiles': shapes.FOREGROUND, 'the model itself': shapes.ALARM}
SHARES = [(share / 100, f'{share} %') for share in (0, 25, 50, 75, 100)]


def page(results: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    """Return a page of figures 5 and 6, averages over the seeds."""
    body = ['<h1>iBench, section V-A: figures 5 and 6</h1>',
            '<p>' + ', '.join(
                f"<span style='color:{colour}'>{name}</span>"
                for name, colour in COLOURS.items()) + '</p>']
    for scenario, of_scenario in results.items():
        body += [f'<h2>{scenario}</h2>', *(
            f"<div class='card'>{picture}</div>"
            for picture in _pictures(scenario, of_scenario))]
    return pages.page('iBench, V-A', '', body)


def _pictures(scenario: str, results: Mapping[str, Sequence[Any]]
              ) -> Iterator[str]:
    curves = {name: [_mean(column) for column in zip(*(
        result.performance for result in results[name]), strict=True)]
        for name in COLOURS if name in results}
    count = len(curves['least-loaded'])
    panel = panels.Panel(
        f'Figure 5, {scenario}: performance', 'worst to best application',
        count, panels.Axis(0, 1, SHARES),
        [(count * share, label) for share, label in SHARES])
    for name, curve in curves.items():
        panel.add(panels.Curve(list(enumerate(curve)), COLOURS[name]))
    yield _svg(panel, f'Performance of {count} applications, {scenario}')
    most_s = max(_mean(result.duration_s for result in results[name])
                 for name in curves)
    panel = panels.Panel(f'Figure 6, {scenario}: CPUs in use', '',
                         most_s, panels.Axis(0, 1, SHARES))
    for name in curves:
        duration_s = _mean(result.duration_s for result in results[name])
        used = [_mean(column) for column in zip(*(
            [_mean(row) for row in result.usage]
            for result in results[name]), strict=True)]
        panel.add(panels.Curve(
            [(duration_s * at / len(used), value)
             for at, value in enumerate(used)], COLOURS[name]))
    yield _svg(panel, f'Share of all CPUs in use over the time, {scenario}')
    for name in ('least-loaded', 'profiles'):
        yield _by_machine(f'Figure 6, {scenario}, {name}: CPUs in use by '
                          'machine, seed 0', results[name][0].usage)


def _svg(panel: panels.Panel, label: str) -> str:
    return shapes.svg(panel.width, panel.height, [panel.svg()], label)


def _by_machine(title: str, usage: Sequence[Sequence[float]]) -> str:
    """Time to the right, machines downwards, darker is more."""
    width, height = 5, 4
    parts = [shapes.text(4, 14, title, size=9, colour=shapes.INK)]
    for at, row in enumerate(usage):
        for machine, share in enumerate(row):
            parts.append(
                f"<rect x='{4 + at * width}' y='{20 + machine * height}' "
                f"width='{width}' height='{height}' "
                f"fill='{shapes.FOREGROUND}' "
                f"fill-opacity='{min(1.0, share):.2f}'/>")
    return shapes.svg(8 + width * len(usage), 24 + height * len(usage[0]),
                      parts, title)


def _mean(values: Any) -> float:
    return statistics.fmean(values)
