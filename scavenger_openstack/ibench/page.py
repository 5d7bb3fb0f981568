# SPDX-License-Identifier: Apache-2.0

"""Results as a page with plots that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import html
from typing import Any

from scavenger_openstack import amounts
from scavenger_openstack.ibench import report
from scavenger_openstack.plot import page as html_page
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

STYLE = html_page.PROSE + '''
table{width:auto}th,td{text-align:right}
th{color:#6b7280}td:first-child{text-align:left}
'''

_PERCENTS = [(at, f'{at} %' if at < 100 else '100')
             for at in range(0, 101, 20)]
"""The last has half of its width below a panel."""


def page(document: Mapping[str, Any]) -> str:
    """Return the page of a run, ramp, mix or validation."""
    if document['command'] == 'validate':
        cards = [_fit_panel(soi) for soi in document['sois']
                 if soi['points']]
        missing = [[soi['number'], soi['name'], soi['reason']]
                   for soi in document['sois'] if soi['reason']]
        parts = [html_page.grid(cards)]
        if missing:
            parts += ['<h2>Not shown on this host</h2>',
                      html_page.table(('SoI', 'name', 'why'), missing)]
        if document['pairs']:
            parts += ['<h2>Pairs on one core</h2>', _pairs(document)]
        title = 'Effect of each source of interference'
    else:
        parts = []
        for soi in document['sois']:
            parts += [f'<h2>SoI {soi["number"]}, '
                      f'{html.escape(soi["name"])}</h2>',
                      f'<p>100 % is {html.escape(soi["whole"])}.</p>',
                      html_page.grid([_time_panel(soi), _level_panel(soi)])]
        title = 'Sources of interference'
    return html_page.page(
        f'scavenger-ibench: {document["command"]}', STYLE,
        [f'<h1>{title}</h1>',
         *(f'<p>{html.escape(note)}.</p>' for note in document['notes']),
         *parts])


def _axis(values: Iterable[float], unit: str = '') -> panels.Axis:
    """From 0, or the lowest value below, to the highest."""
    values = list(values)
    low, high = min(0.0, *values), max(values)
    high = high if high > low else low + 1
    return panels.Axis(low, high, [
        (low + share * (high - low),
         _tick(low + share * (high - low), unit))
        for share in (0.0, 0.5, 1.0)])


def _tick(value: float, unit: str) -> str:
    """Short enough for the left of a panel."""
    if unit == 'slow-down':
        return f'{100 * value:.0f} %'
    for factor, mark in ((1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
        if abs(value) >= factor:
            return f'{value / factor:.3g} {mark}'
    return amounts.of_number(value, 2)


def _fit_panel(soi: Mapping[str, Any]) -> str:
    """The meter over the intensity, and the line through it, dashed."""
    points = [(point['percent'], point['value']) for point in soi['points']]
    note = '' if soi['r2'] is None else f'R2 {soi["r2"]:.3f}'
    panel = panels.Panel(
        f'{soi["number"]} {soi["title"]}: {soi["meter"]}', note, 100.0,
        _axis([value for _, value in points], soi['unit']), _PERCENTS)
    if soi['slope'] is not None:
        panel.add(panels.Curve(
            [(at, soi['intercept'] + soi['slope'] * at) for at in (0, 100)],
            shapes.FAINT, dashed=True))
    panel.add(panels.Curve(
        points, shapes.FOREGROUND if soi['independent']
        else shapes.BACKGROUND))
    return panel.svg()


def _time_panel(soi: Mapping[str, Any]) -> str:
    """The rate between two reports, over time."""
    points: list[panels.Point] = []
    before: Mapping[str, Any] = {'seconds': 0.0, 'operations': 0}
    for sample in soi['samples']:
        if sample['seconds'] <= before['seconds']:
            before = {'seconds': 0.0, 'operations': 0}
        passed_s = sample['seconds'] - before['seconds']
        points.append((sample['at_s'], (
            sample['operations'] - before['operations']) / passed_s
            if passed_s > 0 else None))
        before = sample
    alone = soi['calibrated']['operations_per_s']
    panel = panels.Panel(
        f'{soi["unit"]} per second', 'dashed: alone',
        max(points[-1][0] if points else 0.0, 1e-3),
        _axis([alone, *(value for _, value in points
                        if value is not None)]))
    panel.add(panels.Curve(points, shapes.FOREGROUND))
    panel.level(alone, shapes.FAINT)
    return panel.svg()


def _level_panel(soi: Mapping[str, Any]) -> str:
    """What is reached over what was chosen, in percent."""
    panel = panels.Panel('reached over chosen intensity', 'dashed: the same',
                         100.0, panels.Axis(0, 100, _PERCENTS), _PERCENTS)
    panel.add(panels.Curve([(0, 0), (100, 100)], shapes.FAINT, dashed=True))
    panel.add(panels.Curve([(level['percent'], level['reached_percent'])
                            for level in soi['levels']], shapes.FOREGROUND))
    for level in soi['levels']:
        if level['reached_percent'] is not None:
            panel.mark(level['percent'], level['reached_percent'],
                       f'{level["percent"]:g} %: '
                       f'{level["reached_percent"]:.0f} %')
    return panel.svg()


def _pairs(document: Mapping[str, Any]) -> str:
    names = report.pair_names(document['pairs'])
    cells = report.pair_cells(document['pairs'])
    return (f'<p>Each at {document["pair_percent"]:g} %: what the row '
            'reaches beside the column, in % of alone.</p>' + html_page.table(
                ('', *names), [[name, *(
                    '' if (name, other) not in cells
                    else f'{100 * cells[name, other]:.0f}'
                    for other in names)] for name in names]))
