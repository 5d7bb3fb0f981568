# SPDX-License-Identifier: Apache-2.0

"""iBench, section V-A: 200 applications on 40 machines, by schedulers.

Profiles against least-loaded and random, in the three scenarios of the
paper; figures 5 and 6.  How applications slow each other down is that of
``ibench_cluster``, which knows no profile, so that the result can fail.

::

    PYTHONPATH=. python benchmarks/simulated/ibench_scheduling.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import heapq
import itertools
import json
import pathlib
import random
import statistics
from typing import NamedTuple

import ibench_cluster as cluster
from ibench_cluster import App
from ibench_pictures import page
from ibench_schedulers import alone_rate
from ibench_schedulers import Choose
from ibench_schedulers import Node
from ibench_schedulers import Running
from ibench_schedulers import SCHEDULERS
from ibench_schedulers import View
from scavenger_openstack.laboratory import process_pool
from scavenger_openstack.laboratory.process_pool import Progress
from scavenger_openstack.laboratory import summary
from scavenger_openstack.simulator.machine import Machine

APPLICATIONS, MACHINES, EVERY_S = 200, 40, 1.0
POINTS = 60
"""Of a curve over the time."""

BESIDE = 'least-loaded', 'random', 'profiles'
SCENARIOS = {'cloud': tuple(SCHEDULERS), 'hadoop': BESIDE,
             'memcached': BESIDE}


class Result(NamedTuple):
    """One scheduler in one scenario with one seed.

    :ivar good: share of the applications that lose less than 5 %
    :ivar machines: in use, the mean over the time until the last ends
    :ivar utilisation: CPUs in use of those of all machines, likewise
    :ivar useful: work done as a share of what the machines in use could do
    :ivar performance: of each application, worst first; 1 is alone
    :ivar usage: share of the CPUs in use, by machine, at :data:`POINTS` times
    """

    slowdown: float
    mean: float
    good: float
    machines: float
    machines_most: float
    utilisation: float
    useful: float
    duration_s: float
    wait_s: float
    primary: float | None
    performance: list[float]
    usage: list[list[float]]


def simulate(apps: Sequence[App], machines: Sequence[Machine], choose: Choose,
             view: View, primaries: Sequence[App]) -> Result:
    """Submit all applications, one a second, and run until the last ends.

    One that fits nowhere waits, and so does what comes after it.
    """
    nodes = [Node(machine) for machine in machines]
    for node, app in zip(nodes, primaries, strict=False):
        node.primary = Running(app, -1e9, float('inf'),
                               alone_rate(app, node.machine))
        node.running.append(node.primary)
        node.settle()
    numbers = itertools.count()
    # An end before what is submitted at the same time.
    events: list[tuple[float, int, int, Node | None, int]] = [
        (place * EVERY_S, 1, next(numbers), None, place)
        for place in range(len(apps))]
    waiting: list[int] = []
    waits: list[float] = []
    performance: list[float] = []
    usage: list[tuple[float, list[float]]] = []
    most, now_s = 0, 0.0

    def push(node: Node) -> None:
        left_s = node.settle()
        if left_s < float('inf'):
            heapq.heappush(events, (now_s + left_s, 0, next(numbers), node,
                                    node.version))

    while events:
        now_s, _, _, node, number = heapq.heappop(events)
        view.now_s = now_s
        if node is None:
            waiting.append(number)
        elif node.version == number:
            node.move(now_s)
            for each in node.running[:]:
                if each.left_s <= 1e-6:
                    node.running.remove(each)
                    performance.append(
                        each.app.alone_s / (now_s - each.began_s))
            push(node)
        else:
            continue
        while waiting:
            app = apps[waiting[0]]
            fitting = [node for node in nodes if node.fits(app)]
            if not fitting:
                break
            chosen = choose(app, fitting, view)
            chosen.move(now_s)
            chosen.running.append(Running(app, now_s, app.alone_s, alone_rate(
                app, chosen.machine)))
            waits.append(now_s - waiting.pop(0) * EVERY_S)
            push(chosen)
        usage.append((now_s, [node.used[0] for node in nodes]))
        most = max(most, sum(bool(node.running) for node in nodes))
    for node in nodes:
        node.move(now_s)
    cpus = sum(node.machine.cpus for node in nodes)
    return Result(
        statistics.fmean(1 / each for each in performance),
        statistics.fmean(performance),
        statistics.fmean(each > 1 - cluster.QOS for each in performance),
        sum(node.in_use_s for node in nodes) / now_s, most,
        sum(node.busy_s for node in nodes) / (cpus * now_s),
        sum(node.work_s for node in nodes) / sum(
            node.in_use_s * node.machine.cpus for node in nodes),
        now_s, statistics.fmean(waits),
        statistics.fmean(node.primary_s / now_s for node in nodes)
        if primaries else None, sorted(performance),
        _on_grid(usage, now_s))


def _on_grid(usage: Sequence[tuple[float, list[float]]], end_s: float
             ) -> list[list[float]]:
    """The usage of each machine at :data:`POINTS` times up to the end."""
    place, rows = 0, []
    for point in range(POINTS):
        while (place + 1 < len(usage)
               and usage[place + 1][0] <= end_s * point / POINTS):
            place += 1
        rows.append([round(share, 3) for share in usage[place][1]])
    return rows


def run(seed: int, cores: int) -> tuple[int, dict[str, dict[str, Result]]]:
    """Return the seed and the result of each scheduler in each scenario.

    :param cores: factor of those of :func:`ibench_cluster.machines`
    """
    alone_rate.cache_clear()
    drawn = random.Random(f'cluster {seed}')
    machines = cluster.machines(drawn, MACHINES, cores)
    apps = drawn.choices(cluster.pool(drawn), k=APPLICATIONS)
    measured = cluster.measured({app.name: app for app in apps}.values(), seed)
    results: dict[str, dict[str, Result]] = {}
    for scenario, names in SCENARIOS.items():
        primaries = []
        if scenario != 'cloud':
            primaries = [cluster.primary(scenario, machine)
                         for machine in machines]
            measured |= cluster.measured(
                [cluster.primary(scenario, cluster.REFERENCE)], seed)
        results[scenario] = {name: simulate(
            apps, machines, SCHEDULERS[name],
            View(measured, random.Random(f'{name} {seed}')), primaries)
            for name in names}
    return seed, results


# Figures -------------------------------------------------------------------

COLUMNS = {
    'slowdown': ('slowdown', 1.0, '{:.3f}'),
    'good': ('lose < 5 %', 100.0, '{:.1f} %'),
    'machines': ('machines, mean', 1.0, '{:.1f}'),
    'machines_most': ('most', 1.0, '{:.1f}'),
    'utilisation': ('CPUs in use', 100.0, '{:.1f} %'),
    'useful': ('useful work', 100.0, '{:.1f} %'),
    'duration_s': ('duration, s', 1.0, '{:.0f}'),
    'wait_s': ('wait, s', 1.0, '{:.1f}'),
    'primary': ('primary', 100.0, '{:.1f} %')}
BASES = {'least-loaded': '', 'nova, no profiles': 'nova'}
"""What is compared with others: with those whose name begins so."""
PAPER = {'cloud': 'performance +15.7 % on average, up to 25 %; '
                  'utilisation +42 %',
         'hadoop': 'utilisation +35.6 %', 'memcached': 'utilisation +27.1 %'}


def table(results: Mapping[str, Sequence[Result]]) -> list[list[str]]:
    """A row for each scheduler: mean and 95 % interval over the seeds."""
    rows = []
    for name, of_seeds in results.items():
        draws = summary.resamples(len(of_seeds))
        cells = [name]
        for field, (_, factor, form) in COLUMNS.items():
            spread = summary.interval(
                [getattr(result, field) for result in of_seeds], draws)
            cells.append('' if spread is None else (
                f'{form} [{form}, {form}]'.format(*(
                    factor * number for number in spread))))
        rows.append(cells)
    return rows


def gains(results: Sequence[Result], base: Sequence[Result]
          ) -> dict[str, summary.Range | None]:
    """What a scheduler gains over another, as shares, seed by seed; ``most``
    is at the rank of figure 5 where it gains most."""
    draws = summary.resamples(len(base))
    pairs = list(zip(results, base, strict=True))

    def spread(value: Callable[[Result, Result], float]
               ) -> summary.Range | None:
        return summary.interval([value(*pair) for pair in pairs], draws)

    return {
        'performance': spread(lambda one, other: one.mean / other.mean - 1),
        'most': spread(lambda one, other: max(
            mine / theirs - 1 for mine, theirs
            in zip(one.performance, other.performance, strict=True))),
        'useful': spread(lambda one, other: one.useful / other.useful - 1),
        'utilisation': spread(
            lambda one, other: one.utilisation / other.utilisation - 1),
        'duration': spread(
            lambda one, other: one.duration_s / other.duration_s - 1)}


def show(results: Mapping[str, Mapping[str, Sequence[Result]]]) -> None:
    for scenario, of_scenario in results.items():
        print(f'\n{scenario}: mean and 95 % interval')
        rows = [['scheduler', *(title for title, _, _ in COLUMNS.values())],
                *table(of_scenario)]
        widths = [max(len(row[at]) for row in rows)
                  for at in range(len(rows[0]))]
        for row in rows:
            print('  ' + '  '.join(
                f'{cell:{width}}' for cell, width
                in zip(row, widths, strict=True)).rstrip())
        print(f'  gains (the paper, over least-loaded: {PAPER[scenario]}):')
        for base in BASES:
            for name in of_scenario:
                if base in of_scenario and name.startswith(
                        BASES[base]) and name != base:
                    print(f'    {name} over {base}: ' + ', '.join(
                        f'{what} {100 * spread.value:+.1f} % '
                        f'[{100 * spread.low:+.1f}, {100 * spread.high:+.1f}]'
                        for what, spread in gains(
                            of_scenario[name], of_scenario[base]).items()
                        if spread is not None))
        for name in ('least-loaded', 'profiles'):
            curve = mean_curve([result.performance
                                for result in of_scenario[name]])
            print(f'  figure 5, {name}, performance from the worst to the '
                  'best application, by tenths: ' + ' '.join(
                      f'{curve[(len(curve) - 1) * at // 10]:.2f}'
                      for at in range(11)))
        for name in ('least-loaded', 'profiles'):
            used = mean_curve([[statistics.fmean(row)
                                for row in result.usage]
                               for result in of_scenario[name]])
            print(f'  figure 6, {name}, CPUs in use by tenths of the '
                  'duration: ' + ' '.join(
                      f'{100 * used[POINTS * at // 10]:.0f} %'
                      for at in range(10)))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*curves, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seeds', type=int, default=50, metavar='N',
                        help='clusters and sets of applications (50)')
    parser.add_argument('--jobs', type=int, default=process_pool.cpus(),
                        metavar='N', help='processes (one per CPU)')
    parser.add_argument('--per-socket', action=argparse.BooleanOptionalAction,
                        default=True,
                        help='whether the 4 to 12 cores of the paper are of '
                        'each of the two sockets (they are) or of both')
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE',
                        help='write all results there')
    parser.add_argument('--page', type=pathlib.Path, metavar='FILE',
                        help='write figures 5 and 6 there, as HTML')
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.jobs < 1:
        parser.error('--seeds and --jobs take a number from 1')
    progress = Progress(arguments.seeds)
    of_seed = {}
    for seed, scenarios in process_pool.work(
            functools.partial(run, cores=2 if arguments.per_socket else 1),
            range(arguments.seeds), jobs=arguments.jobs):
        of_seed[seed] = scenarios
        progress.step('of the seeds')
    progress.end()
    results = {scenario: {name: [of_seed[seed][scenario][name]
                                 for seed in range(arguments.seeds)]
                          for name in names}
               for scenario, names in SCENARIOS.items()}
    if arguments.json:
        arguments.json.write_text(json.dumps({
            scenario: {name: [result._asdict() for result in of_seeds]
                       for name, of_seeds in of_scenario.items()}
            for scenario, of_scenario in results.items()}))
    if arguments.page:
        arguments.page.write_text(page(results))
    show(results)


if __name__ == '__main__':
    main()
