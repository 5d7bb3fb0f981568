# SPDX-License-Identifier: Apache-2.0

"""Results of kernels as documents and as tables."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack import amounts
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import measure
from scavenger_openstack import text

Document = dict[str, Any]


def of_soi(soi: catalogue.Soi) -> Document:
    """Return an SoI as a document."""
    return {'number': soi.number, 'name': soi.name, 'title': soi.title,
            'kind': str(soi.kind), 'whole': soi.whole,
            'intensity': soi.intensity, 'unit': soi.unit,
            'meter': str(soi.meter)}


def of_result(result: run.Result, calibrated: Mapping[str, Any]) -> Document:
    """Return what a kernel reported as a document, in SI units."""
    return {'number': result.start.soi.number,
            'name': result.start.soi.name, 'whole': result.start.whole,
            'unit': result.start.soi.unit,
            'calibrated': _without_event(calibrated),
            'levels': [{**_without_event(level),
                        'reached_percent': reached_percent(level, calibrated)}
                       for level in result.levels],
            'samples': [_without_event(sample)
                        for sample in result.samples]}


def _without_event(event: Mapping[str, Any]) -> Document:
    return {key: value for key, value in event.items() if key != 'event'}


def reached_percent(level: Mapping[str, Any], calibrated: Mapping[str, Any]
                    ) -> float | None:
    """Return the rate of a level in percent of that alone; None without a
    rate.  Source: iBench, figure 4."""
    alone = calibrated.get('operations_per_s')
    if not alone or not level['seconds']:
        return None
    return float(100 * level['operations'] / level['seconds'] / alone)


def result_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines for a run, a ramp or a mix."""
    lines: list[str] = []
    for soi in document['sois']:
        if lines:
            lines.append('')
        lines += [
            f'SoI {soi["number"]}, {soi["name"]}: 100 % is {soi["whole"]}',
            f'alone: {_rate(soi["calibrated"], soi["unit"])}']
        lines += text.columns(
            ('intensity', 'seconds', f'{soi["unit"]}/s', 'MB/s', 'held',
             'of the rate alone'),
            [_level_row(level) for level in soi['levels']], left=())
    return [*lines, *(f'Note: {note}.' for note in document['notes'])]


def _rate(calibrated: Mapping[str, Any], unit: str) -> str:
    words = f'{amounts.of_number(calibrated["operations_per_s"])} {unit}/s'
    if 'bytes_per_s' in calibrated:
        words += ', ' + amounts.of_bytes_per_s(calibrated['bytes_per_s'])
    return words


def _level_row(level: Mapping[str, Any]) -> list[str]:
    seconds = level['seconds']
    held, moved = level.get('held_bytes'), level.get('bytes')
    reached = level['reached_percent']
    return [f'{level["percent"]:g} %', f'{seconds:.3f}',
            amounts.of_number(level['operations'] / seconds)
            if seconds else '-',
            amounts.of_number(moved / seconds / 1e6)
            if moved is not None and seconds else '-',
            '-' if held is None else size_text(held),
            '-' if reached is None else f'{reached:.0f} %']


def size_text(size_bytes: float) -> str:
    """Return a size in KiB or MiB."""
    return (f'{size_bytes / 1024:,.0f} KiB' if size_bytes < 2**20
            else amounts.of_bytes(size_bytes))


def of_row(row: measure.Row) -> Document:
    """Return what a validation shows of an SoI as a document."""
    line = row.fit()
    return {'number': row.soi.number, 'name': row.soi.name,
            'title': row.soi.title, 'whole': row.whole or row.soi.whole,
            'meter': row.meter, 'unit': row.unit,
            'independent': row.independent,
            'points': [{'percent': percent, 'value': value}
                       for percent, value in row.points],
            'r2': line and line.r2, 'slope': line and line.slope,
            'intercept': line and line.intercept,
            'monotone': line and line.monotone,
            'reason': row.reason or None}


def validation_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines for a validation."""
    rows = [[soi['number'], soi['name'],
             f'{soi["meter"]}' + ('' if soi['independent'] else ' (own)')
             if soi['points'] else 'none here',
             _value(soi, 0), _value(soi, -1),
             '-' if soi['r2'] is None else f'{soi["r2"]:.3f}',
             {None: '-', True: 'yes', False: 'no'}[soi['monotone']]]
            for soi in document['sois']]
    lines = text.columns(('SoI', 'name', 'meter', 'at 10 %', 'at 100 %',
                          'R2', 'monotone'), rows, left=(0, 1, 2))
    reasons = [f'{soi["name"]}: {soi["reason"]}.'
               for soi in document['sois'] if soi['reason']]
    if reasons:
        lines += ['', 'Not shown on this host, and why:', *reasons]
    if document['pairs']:
        lines += ['', *_pair_lines(document)]
    return [*lines, *(f'Note: {note}.' for note in document['notes'])]


def _value(soi: Mapping[str, Any], index: int) -> str:
    if not soi['points']:
        return '-'
    value = soi['points'][index]['value']
    if soi['unit'] == 'bytes':
        return size_text(value)
    if soi['unit'] == 'bytes/s':
        return amounts.of_bytes_per_s(value)
    if soi['unit'] == 'slow-down':
        return f'{100 * value:+.1f} %'
    return amounts.of_number(value)


def _pair_lines(document: Mapping[str, Any]) -> list[str]:
    """A matrix: what the SoI of the row reaches beside that of the column."""
    pairs = document['pairs']
    names = pair_names(pairs)
    cells = pair_cells(pairs)
    rows = [[name, *(
        '' if (name, other) not in cells
        else f'{100 * cells[name, other]:.0f}' for other in names)]
        for name in names]
    numbers = [catalogue.find_soi(name).number for name in names]
    return [f'Pairs on one core, each at {document["pair_percent"]:g} %: '
            'what the row reaches beside the column, in % of alone',
            *text.columns(('', *numbers), rows)]


def pair_names(pairs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the SoIs of pairs, in the order of the paper."""
    names = {pair[key] for pair in pairs for key in ('first', 'second')}
    return [soi.name for soi in catalogue.SOIS if soi.name in names]


def pair_cells(pairs: Iterable[Mapping[str, Any]]
               ) -> dict[tuple[str, str], float]:
    """Return what the first of two SoIs reaches beside the second, as a
    share of alone."""
    cells = {}
    for pair in pairs:
        cells[pair['first'], pair['second']] = pair['first_reached']
        cells[pair['second'], pair['first']] = pair['second_reached']
    return cells


def list_lines(sois: Sequence[catalogue.Soi]) -> list[str]:
    """Return the lines for the SoIs themselves."""
    return text.columns(
        ('SoI', 'name', 'kind', '100 % is', 'meter'),
        [(soi.number, soi.name, str(soi.kind), soi.whole, str(soi.meter))
         for soi in sois], left=range(5))
