# SPDX-License-Identifier: Apache-2.0

"""iBench, section V-D: mixes of programs on unlike cores, by mappings.

40 mixes of 4 programs on 4 cores and 60 of 16 on 16 cores, half of them fast
and half of them slow, which share an LLC of 8 MiB and a memory bus.  Each
program is profiled on each kind of core by injecting SoIs (LLC capacity and
memory bandwidth: what these cores share), with noise; the mapping that
profiles choose has the least predicted loss.  Beside it are random mappings,
one that gives the fast cores to what is fastest alone, and for 4 programs the
best of all mappings.  Performance is the rate of a program over that alone on
the fastest core; figure 9.

How programs slow each other down is that of ``ibench_cluster``; kinds of
cores and what programs do are drawn, and ours.

    PYTHONPATH=. python benchmarks/simulated/ibench_cores.py
        [--mixes 40,60] [--seed 1] [--json]

Takes half a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import dataclasses
import itertools
import json
import random
import statistics
import sys
from typing import Any
from typing import NamedTuple

import ibench_cluster as cluster
from ibench_cluster import App
from ibench_cluster import MIB
from scavenger_openstack.laboratory import summary
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack import text

HERTZ = 2.5e9
SOIS = ('llc_capacity', 'memory_bandwidth')
STEPS = 5
"""Of the bisection of what is tolerated."""
LEAST_TOLERATED = 0.02
MOST_LOSS = 0.9
RANDOM = 20
"""Mappings whose mean is that of a random one."""


class Kind(NamedTuple):
    """A kind of core: its clock, and what multiplies CPI, the share of a
    miss that is hidden, and accesses that its private caches let through."""

    name: str
    hertz: float
    cpi: float = 1.0
    overlap: float = 1.0
    accesses: float = 1.0


FOUR = (Kind('Xeon-like, new', 3.0e9), Kind('Xeon-like, old', 2.3e9, 1.15),
        Kind('Atom-like, new', 1.8e9, 1.7, 0.6, 1.3),
        Kind('Atom-like, old', 1.5e9, 2.2, 0.3, 1.6))
SIXTEEN = tuple(
    Kind(f'{name} {number}', hertz + step * number, cpi, overlap, accesses)
    for name, hertz, step, cpi, overlap, accesses in (
        ('Xeon-like', 2.0e9, 0.3e9, 1.1, 1.0, 1.0),
        ('Atom-like', 1.2e9, 0.2e9, 1.9, 0.5, 1.4))
    for number in (3, 3, 2, 2, 1, 1, 0, 0))

CLASSES = {
    'insensitive': {'accesses': (0.0003, 0.002), 'footprint': (0.3, 2),
                    'least': (0.01, 0.03), 'most': (0.3, 0.5),
                    'curve': (1.0, 2.0), 'overlap': (0.0, 0.2)},
    'friendly': {'accesses': (0.005, 0.015), 'footprint': (4, 16),
                 'least': (0.02, 0.08), 'most': (0.6, 0.9),
                 'curve': (1.0, 1.5), 'overlap': (0.0, 0.2)},
    'fitting': {'accesses': (0.008, 0.02), 'footprint': (1.5, 4),
                'least': (0.01, 0.03), 'most': (0.7, 0.95),
                'curve': (0.3, 0.5), 'overlap': (0.0, 0.2)},
    'streaming': {'accesses': (0.01, 0.03), 'footprint': (50, 400),
                  'least': (0.7, 0.8), 'most': (0.85, 0.95),
                  'curve': (1.0, 1.5), 'overlap': (0.4, 0.8)}}
"""By cache demands, as in Vantage (Sanchez and Kozyrakis, ISCA 2011); the
figures are ours."""


def machine(cores: int) -> Machine:
    """Return the chip: the bus grows with the cores, the LLC does not."""
    return Machine(cpus=cores, llc_bytes=8 * MIB,
                   memory_bytes_per_s=2.5e9 * cores)


def program(drawn: random.Random, class_: str, name: str) -> App:
    values = {key: drawn.uniform(*limits)
              for key, limits in CLASSES[class_].items()}
    return App(name=name, kind=class_, cpi=drawn.uniform(0.5, 1.1),
               accesses=values['accesses'],
               footprint_bytes=values['footprint'] * MIB,
               miss_least=values['least'], miss_most=values['most'],
               curve=values['curve'], overlap=values['overlap'])


def on(app: App, kind: Kind) -> App:
    """Return a program as it is on a kind of core."""
    return dataclasses.replace(
        app, cpi=app.cpi * kind.cpi * HERTZ / kind.hertz,
        overlap=app.overlap * kind.overlap,
        accesses=app.accesses * kind.accesses)


class Fit(NamedTuple):
    """A program on a kind of core, as injecting SoIs shows it: its rate
    alone, and by SoI what it tolerates and causes."""

    rate: float
    tolerated: tuple[float, ...]
    caused: tuple[float, ...]


def measure(app: App, chip: Machine, drawn: random.Random) -> Fit:
    """Return what short runs beside SoIs show, with noise."""
    (alone,) = cluster.rates(chip, [app])

    def noisy(value: float) -> float:
        return value * drawn.gauss(1.0, cluster.NOISE)

    def breaks(name: str, intensity: float) -> bool:
        rate, _ = cluster.rates(chip, [app, cluster.injected(
            name, intensity, chip, app)])
        return noisy(rate / alone) < 1 - cluster.QOS

    tolerated, caused = [], []
    for name in SOIS:
        low, high = 0.0, 1.0
        if breaks(name, 1.0):
            for _ in range(STEPS):
                middle = (low + high) / 2
                low, high = ((low, middle) if breaks(name, middle)
                             else (middle, high))
        else:
            low = 1.0
        tolerated.append(low)
        probe = cluster.injected(name, 0.5 if name == 'llc_capacity' else 1.0,
                                 chip, app, probe=True)
        (best,) = cluster.rates(chip, [probe])
        _, beside = cluster.rates(chip, [app, probe])
        caused.append(min(1.0, max(0.0, 1 - noisy(beside / best))))
    return Fit(noisy(alone), tuple(tolerated), tuple(caused))


Mapping = tuple[int, ...]
"""The core of each program."""


def predicted(fits: Sequence[Sequence[Fit]], mapping: Mapping) -> float:
    """Return the mean performance that profiles predict.

    At what it tolerates a program has lost :data:`cluster.QOS`, and the
    effect of an SoI is linear in its intensity (iBench, section IV-A).
    """
    chosen = [fits[number][core] for number, core in enumerate(mapping)]
    sums = [sum(fit.caused[soi] for fit in chosen)
            for soi in range(len(SOIS))]
    total = 0.0
    for fit, row in zip(chosen, fits, strict=True):
        loss = sum(cluster.QOS * min(1.0, sums[soi] - fit.caused[soi])
                   / max(LEAST_TOLERATED, fit.tolerated[soi])
                   for soi in range(len(SOIS)))
        total += (fit.rate / max(other.rate for other in row)
                  * (1 - min(MOST_LOSS, loss)))
    return total / len(chosen)


def choose(fits: Sequence[Sequence[Fit]], begin: Mapping) -> Mapping:
    """Return the mapping of the best prediction: of all for few programs,
    else where no exchange of two is better."""
    if len(fits) <= 4:
        return max(itertools.permutations(range(len(fits))),
                   key=lambda mapping: predicted(fits, mapping))
    best, value = list(begin), predicted(fits, begin)
    improved = True
    while improved:
        improved = False
        for first, second in itertools.combinations(range(len(best)), 2):
            best[first], best[second] = best[second], best[first]
            changed = predicted(fits, tuple(best))
            if changed > value:
                value, improved = changed, True
            else:
                best[first], best[second] = best[second], best[first]
    return tuple(best)


class Outcome(NamedTuple):
    """Of a mapping: the performance of each program, and the mean share of
    time that they wait for cache and memory."""

    performance: list[float]
    memory_share: float


def play(apps: Sequence[App], kinds: Sequence[Kind], mapping: Mapping,
         chip: Machine, best: Sequence[float]) -> Outcome:
    """Return what comes of a mapping in the model."""
    placed = [on(app, kinds[core])
              for app, core in zip(apps, mapping, strict=True)]
    rates = cluster.rates(chip, placed)
    waits = [1 - min(1.0, rate * cluster.INSTRUCTIONS * app.cpi / chip.hertz)
             for app, rate in zip(placed, rates, strict=True)]
    return Outcome([rate / alone
                    for rate, alone in zip(rates, best, strict=True)],
                   statistics.fmean(waits))


def mix(number: int, kinds: Sequence[Kind], drawn: random.Random
        ) -> dict[str, Any]:
    """Return a mix by all mappings."""
    chip = machine(len(kinds))
    combinations = list(itertools.combinations_with_replacement(CLASSES, 4))
    classes = combinations[number % len(combinations)]
    each = len(kinds) // 4
    apps = [program(drawn, class_, f'{class_}-{place}')
            for class_ in classes for place in range(each)]
    drawn.shuffle(apps)
    fast = max(kinds, key=lambda kind: kind.hertz / kind.cpi)
    best = [cluster.rates(chip, [on(app, fast)])[0] for app in apps]
    by_kind = {kind: [measure(on(app, kind), chip, drawn) for app in apps]
               for kind in dict.fromkeys(kinds)}
    fits = [[by_kind[kind][row] for kind in kinds]
            for row in range(len(apps))]
    cores = sorted(range(len(kinds)), reverse=True,
                   key=lambda core: kinds[core].hertz / kinds[core].cpi)
    order = sorted(range(len(apps)), reverse=True,
                   key=lambda row: best[row])
    naive = tuple(cores[order.index(row)] for row in range(len(apps)))

    def value(mapping: Mapping) -> Outcome:
        return play(apps, kinds, mapping, chip, best)

    drawn_maps = [tuple(drawn.sample(range(len(apps)), len(apps)))
                  for _ in range(RANDOM)]
    outcomes = {'profiles': value(choose(fits, naive)),
                'fastest_first': value(naive)}
    randoms = [value(mapping) for mapping in drawn_maps]
    row: dict[str, Any] = {
        'classes': list(classes),
        'random': {
            'mean': statistics.fmean(statistics.fmean(
                outcome.performance) for outcome in randoms),
            'least': statistics.fmean(min(outcome.performance)
                                      for outcome in randoms),
            'memory_share': statistics.fmean(
                outcome.memory_share for outcome in randoms)}}
    if len(apps) <= 4:
        outcomes['best'] = max(
            (value(mapping) for mapping in itertools.permutations(
                range(len(apps)))),
            key=lambda outcome: statistics.fmean(outcome.performance))
    return row | {name: {'mean': statistics.fmean(outcome.performance),
                         'least': min(outcome.performance),
                         'memory_share': outcome.memory_share,
                         'programs': outcome.performance}
                  for name, outcome in outcomes.items()}


def interval(values: Sequence[float]) -> str:
    """Return the mean with its 95 % interval."""
    mean = summary.interval(values, summary.resamples(len(values)))
    assert mean is not None
    return f'{mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]'


def lines(title: str, mixes: Sequence[dict[str, dict[str, float]]]
          ) -> list[str]:
    """Return the table of mixes of a size."""
    rows = []
    for name in ('random', 'fastest_first', 'profiles', 'best'):
        if name not in mixes[0]:
            continue
        values = [row[name] for row in mixes]
        against = [row[name]['mean'] / row['random']['mean'] - 1
                   for row in mixes]
        least = [value['least'] for value in values]
        memory = [value['memory_share'] for value in values]
        rows.append((
            name, interval([value['mean'] for value in values]),
            f'{min(value["mean"] for value in values):.3f}',
            f'{statistics.fmean(least):.3f}',
            f'{100 * statistics.fmean(memory):.0f} %',
            f'{100 * statistics.fmean(against):+.1f} %'))
    printed = [title, *text.columns(
        ('mapping', 'mean of programs', 'lowest mix', 'least program',
         'waits for memory', 'against random'), rows, left=(0,))]
    return printed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--mixes', metavar='N,N', default='40,60',
                        help='of 4 and of 16 programs (default 40,60)')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    document = {}
    for kinds, count in zip((FOUR, SIXTEEN),
                            map(int, options.mixes.split(',')), strict=True):
        drawn = random.Random(f'{len(kinds)} {options.seed}')
        document[len(kinds)] = [mix(number, kinds, drawn)
                                for number in range(count)]
    if options.json:
        print(json.dumps(document))
        return 0
    for size, mixes in document.items():
        if mixes:
            print('\n'.join(lines(f'{len(mixes)} mixes of {size} programs, '
                                  'performance against alone on the fastest '
                                  'core:', mixes)))
    return 0


if __name__ == '__main__':
    sys.exit(main())
