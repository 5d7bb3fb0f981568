# SPDX-License-Identifier: Apache-2.0

"""The report of the first act."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import statistics
from typing import Any

from scavenger_openstack.demo.filling import phases as phases_
from scavenger_openstack.demo.filling import picture
from scavenger_openstack.demo.filling import result as result_
from scavenger_openstack.demo.filling import table
from scavenger_openstack.demo import report
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

BIN_S = 0.25
GIB = 2**30
MB = 1e6
WORST = '#93b4f5'
BOTH = (('service', shapes.FOREGROUND, ''),
        ('batch work', shapes.BACKGROUND, ''))
LIMITS = (('reserve for the service', shapes.FOREGROUND, 'd'),
          ('limit of the batch work', shapes.BACKGROUND, 'd'))

def page(result: Mapping[str, Any],
         records: Sequence[Mapping[str, Any]]) -> str:
    """The whole report.

    :param records: as :func:`result.record` makes them; the last round that
        each phase had is plotted
    """
    last = {str(one['phase']): one for one in records
            if one['round'] < result['settings']['rounds']}
    shown = [last[name] for name in result['phases'] if name in last]
    return report.page('Batch work beside a service', result, [
        _settings(result['settings']), table.turns(result)], [
        report.card(picture.svg(result), wide=True),
        report.card(report.table(table.TITLES, table.rows(result),
                                 ours='scavenger')
                    + '<p>Batch work is a share of what it gets done '
                    'unmanaged.</p>'),
        report.card(report.criteria(result)),
        *report.section(
            'Latency of the service',
            'Each request, from the moment it was due. The fine line is the '
            'worst of a quarter of a second.',
            (('median', shapes.FOREGROUND, ''), ('worst', WORST, ''),
             ('P99 alone', shapes.FAINT, 'd')),
            [_latency(one, shown, result) for one in shown]),
        *report.section(
            'CPU', 'CPUs kept busy, and how many CPUs the batch work may use.',
            (*BOTH, ('CPU set of the batch work', shapes.INK, 'd')),
            [_cpu(one, result) for one in shown]),
        *report.section(
            'Memory', 'The wall at the top is the memory of the host. A red '
            'dot is a step of the service that met it.',
            (*BOTH, *LIMITS, ('met the wall', shapes.ALARM, 'dot')),
            [_memory(one, result) for one in shown]),
        *report.section(
            'Uplink', 'What was delivered, in MB per second.',
            (*BOTH, *LIMITS, ('capacity', shapes.FAINT, 'd')),
            [_network(one, result) for one in shown])])


def _settings(settings: Mapping[str, Any]) -> str:
    return (f'{table.rounds(settings)} on {settings["cpus"]} CPUs, '
            f'{settings["memory_bytes"] / GIB:g} GiB of memory, an uplink '
            f'of {settings["link_bytes_per_s"] * 8 / MB:g} Mbit/s, seed '
            f'{settings["seed"]}. Windows shortened for '
            f'the demo: memory {settings["memory_window_s"]} s, network '
            f'{settings["network_window_s"]} s. Figures are medians over '
            'the rounds; the plots show the last one that each phase had.')


def _title(one: Mapping[str, Any]) -> str:
    return table.NAMES.get(one['phase'], str(one['phase']))


def _bins(requests: Sequence[tuple[float, float]]
          ) -> tuple[list[panels.Point], list[panels.Point]]:
    """Median and worst latency in ms per :data:`BIN_S`."""
    found: dict[int, list[float]] = {}
    for at_s, latency_s in requests:
        found.setdefault(int(at_s / BIN_S), []).append(1000 * latency_s)
    middle: list[panels.Point] = [
        ((i + 0.5) * BIN_S, statistics.median(values))
        for i, values in sorted(found.items())]
    worst: list[panels.Point] = [
        ((i + 0.5) * BIN_S, max(values))
        for i, values in sorted(found.items())]
    return middle, worst


def _latency(one: Mapping[str, Any], shown: Sequence[Mapping[str, Any]],
             result: Mapping[str, Any]) -> str:
    alone = [other['p99_ms'] for other in shown
             if other['phase'] == 'alone' and other['p99_ms']]
    most = max((1000 * latency for other in shown
                for _, latency in other['series']['requests']), default=100)
    ticks = [(1.0, '1 ms'), (10.0, '10'), (100.0, '100'), (1e3, '1 s'),
             (1e4, '10')]
    high = next((t for t, _ in ticks[1:] if t >= most), 1e5)
    axis = panels.Axis(1.0, high, [t for t in ticks if t[0] <= high], log=True)
    p99 = one['p99_ms']
    panel = panels.Panel(_title(one),
                         f'P99 {picture.milliseconds(p99)}' if p99 else '',
                         result['settings']['seconds'], axis)
    middle, worst = _bins(one['series']['requests'])
    panel.add(panels.Curve(worst, WORST, fill=True, width=1))
    panel.add(panels.Curve(middle, shapes.FOREGROUND))
    for value in alone:
        panel.level(value, shapes.FAINT)
    return panel.svg()


def _rates(samples: Sequence[Mapping[str, Any]], key: str,
           unit: float = 1.0, every_s: float = 0.0) -> list[panels.Point]:
    """Growth of a total per second, over ``every_s`` at least."""
    found: list[panels.Point] = []
    before = samples[0]
    for sample in samples[1:]:
        seconds = sample['at_s'] - before['at_s']
        if seconds >= max(every_s, 1e-3):
            found.append(((sample['at_s'] + before['at_s']) / 2,
                          (sample[key] - before[key]) / seconds / unit))
            before = sample
    return found


def _gauge(samples: Sequence[Mapping[str, Any]], key: str,
           unit: float = 1.0) -> list[panels.Point]:
    return [(sample['at_s'], None if sample.get(key) is None
             else float(sample[key]) / unit) for sample in samples]


def _cpu(one: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    cpus, samples = result['settings']['cpus'], one['series']['samples']
    step = max(1, cpus // 4)
    axis = panels.Axis(0, cpus * 1.08, [(i, str(i))
                                        for i in range(0, cpus + 1, step)])
    idle = any(sample['cpu_idle'] for sample in samples)
    panel = panels.Panel(_title(one), 'cpu.idle = 1' if idle else '',
                         result['settings']['seconds'], axis)
    if phases_.PHASES[one['phase']].batch:
        panel.add(panels.Curve(_rates(samples, 'background_cpu_s'),
                               shapes.BACKGROUND, fill=True))
        panel.add(panels.Curve(_gauge(samples, 'cpu_set'), shapes.INK,
                               dashed=True, steps=True))
    panel.add(panels.Curve(_rates(samples, 'foreground_cpu_s'),
                           shapes.FOREGROUND))
    return panel.svg()


def _memory(one: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    samples = one['series']['samples']
    wall = result['settings']['memory_bytes'] / GIB
    axis = panels.Axis(0, wall * 1.04, [(wall * i / 4, f'{wall * i / 4:g}')
                                        for i in range(5)])
    notes = [f'{one["memory_violations"]} met the wall']
    if one['kills']:
        notes.append(f'batch killed {one["kills"]}x')
    panel = panels.Panel(_title(one), ', '.join(notes),
                         result['settings']['seconds'], axis)
    panel.level(wall, shapes.ALARM)
    panel.add(panels.Curve(_gauge(samples, 'background_bytes', GIB),
                           shapes.BACKGROUND, fill=True))
    panel.add(panels.Curve(_gauge(samples, 'limit_bytes', GIB),
                           shapes.BACKGROUND, dashed=True, steps=True))
    panel.add(panels.Curve(_gauge(samples, 'memory_upper_bytes', GIB),
                           shapes.FOREGROUND, dashed=True, steps=True))
    panel.add(panels.Curve(_gauge(samples, 'foreground_bytes', GIB),
                           shapes.FOREGROUND, fill=True))
    level = dict(_gauge(samples, 'foreground_bytes', GIB))
    for at_s, took_s in result_.at_the_wall(one['series']['steps']):
        near = min(level, key=lambda x: abs(x - at_s))
        panel.mark(at_s, level[near] or 0, f'met the wall at {at_s:.1f} s, '
                   + (f'took {took_s:.2f} s' if took_s
                      else 'still waits for memory'))
    return panel.svg()


def _network(one: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    samples = one['series']['samples']
    capacity = result['settings']['link_bytes_per_s'] / MB
    axis = panels.Axis(0, capacity * 1.1,
                       [(capacity * i / 5, f'{capacity * i / 5:g}')
                        for i in range(6)])
    took = one['foreground_transfer_s']
    panel = panels.Panel(_title(one), f'a file takes {took:.2f} s'
                         if took else '', result['settings']['seconds'], axis)
    panel.level(capacity, shapes.FAINT)
    panel.add(panels.Curve(_rates(samples, 'work_network_bytes', MB, 0.5),
                           shapes.BACKGROUND, fill=True))
    panel.add(panels.Curve(_gauge(samples, 'egress_cap_bytes_per_s', MB),
                           shapes.BACKGROUND, dashed=True, steps=True))
    panel.add(panels.Curve(_gauge(samples, 'link_upper_bytes_per_s', MB),
                           shapes.FOREGROUND, dashed=True, steps=True))
    panel.add(panels.Curve(_rates(samples, 'foreground_tx_bytes', MB, 0.5),
                           shapes.FOREGROUND, fill=True))
    return panel.svg()
