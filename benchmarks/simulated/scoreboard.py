# SPDX-License-Identifier: Apache-2.0



"""The scoreboard: every policy on every scenario, beside an oracle.

Writes ``benchmarks/simulated/scoreboard.md`` by one command:

    python benchmarks/simulated/scoreboard.py

Each seed that is done is kept in a file, so a run that was cut goes on
where it ended; seeds that other code or another scenario file has played do
not count.  Why ours is not best or tied on a scenario stands in
``reasons.yaml``, written by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
import pathlib
import platform
import statistics
import sys
import time
from typing import Any

from kept import Kept
import yaml

from scavenger_openstack.cmd import ending
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import compare
from scavenger_openstack.laboratory import process_pool
from scavenger_openstack.laboratory import summary
from scavenger_openstack.laboratory import table
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.scenario import Scenario
from scavenger_openstack.types import Priority

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
REASONS = HERE / 'reasons.yaml'
OURS = 'ours'
UNEXPLAINED = '**unexplained**'

BUDGET_MIN = 60
SPEED_RUNS = 3
ORACLE_SHARE = 0.25


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('scenarios', nargs='*', default=[catalogue.ALL],
                        help='names or files (default: all that are shipped)')
    parser.add_argument('--seeds', type=int, default=200)
    parser.add_argument('--oracle-seeds', type=int, metavar='N',
                        help='the oracle, which costs as much as all others '
                             'together,\nis played on the first N (default: '
                             'a quarter)')
    parser.add_argument('--jobs', type=int, default=process_pool.cpus())
    parser.add_argument('--directory', type=pathlib.Path,
                        default=TOP / 'build' / 'scoreboard',
                        help='where finished seeds are kept')
    parser.add_argument('--output', type=pathlib.Path,
                        default=HERE / 'scoreboard.md')
    found = parser.parse_args()
    if found.seeds < 1 or found.jobs < 1:
        parser.error('--seeds and --jobs: 1 at the least')
    return found


def timed(task: compare.Task) -> tuple[compare.Task, dict[str, Any], float]:
    began_s = time.process_time()
    record = compare.record(task)
    return task, record, time.process_time() - began_s


def _kept(kept: Kept, task: compare.Task) -> dict[str, Any] | None:
    """What came of a task, perhaps with more controllers than needed."""
    return kept.get(task.drawn(), task.controllers)


def play(kept: Kept, tasks: Sequence[compare.Task], jobs: int) -> None:
    """Do the tasks that are not done yet."""
    left = [task for task in tasks if _kept(kept, task) is None]
    progress = process_pool.Progress(len(left))
    try:
        for task, record, cost_s in process_pool.work(timed, left, jobs=jobs):
            kept.add(task.drawn(), record, cost_s)
            progress.step(f'{task.scenario.name} seed {task.seed}')
    finally:
        progress.end()


def ends(own: Sequence[compare.Task]) -> Sequence[compare.Task]:
    """Return the first and the last task of a scenario, which may be the
    same: the oracle plays the one, and perhaps not the other."""
    return own[::max(1, len(own) - 1)]


def estimate(kept: Kept, tasks: Mapping[str, Sequence[compare.Task]],
             jobs: int) -> float:
    """Minutes that the tasks which are not done yet will take."""
    total_s = 0.0
    for name, own in tasks.items():
        kinds = [[task for task in own
                  if (compare.ORACLE in task.controllers) is oracle]
                 for oracle in (True, False)]
        own_s = 0.0
        for kind in kinds:
            done = [one['cost_s'] for task in kind
                    if (one := _kept(kept, task)) is not None]
            if done:
                own_s += statistics.mean(done) * (len(kind) - len(done))
        print(f'  {name:<28} {own_s / jobs / 60:6.1f} minutes')
        total_s += own_s
    return total_s / jobs / 60


def host_hour() -> Drawn:
    """One host for an hour at 1 Hz, with 20 workloads that use all that a
    host has."""
    tenants = [Tenant(id=f'service-{i}', requests_per_s=30, cpu_s=0.004,
                      vcpus=2, io_ops=1, tx_bytes=1000) for i in range(12)]
    tenants += [Tenant(id=f'batch-{i}', priority=Priority.BACKGROUND,
                       vcpus=2, threads=2, queue_depth=1,
                       tx_bytes_per_s=1e6) for i in range(8)]
    return Drawn('host-hour', 1, Machine(cpus=16), tuple(tenants),
                 duration_s=3600, warmup_s=60, interval_s=1, step_s=1,
                 warmup_step_s=1)


def speed_s() -> float:
    """CPU seconds of one host-hour, the agent's loop included."""
    compare.quiet()
    found = []
    for _ in range(SPEED_RUNS):
        began_s = time.process_time()
        bench.run(host_hour(), bench.POLICIES[OURS])
        found.append(time.process_time() - began_s)
    return statistics.median(found)


def allocations(records: Sequence[Mapping[str, Any]]) -> str:
    """What the oracle chose, in a sentence."""
    records = [one for one in records if 'allocation' in one]
    said = []
    for name, label in (('cpus', 'CPUs'), ('memory', 'memory'),
                        ('link', 'link'), ('disk', 'disk')):
        shares = [one['allocation'][name] for one in records
                  if one['allocation'][name] is not None]
        if shares:
            said.append(f'limits the {label} in '
                        f'{_percent(len(shares), len(records))} of the '
                        f'seeds (median share {statistics.median(shares):.2f}'
                        ')')
    idle = sum([one['allocation']['idle'] for one in records])
    said.append(f'sets cpu.idle in {_percent(idle, len(records))}')
    return f'The oracle {", ".join(said)}.'


def _percent(part: int, whole: int) -> str:
    return f'{100 * part / whole:.0f} %'


def why(name: str, row: summary.Row | None,
        reasons: Mapping[str, str]) -> str:
    """A line for a row that is not best, or nothing."""
    if row is not None and row.verdict in (summary.BEST, summary.TIED):
        return ''
    text = ' '.join(str(reasons.get(name) or UNEXPLAINED).split())
    return f'Why ours is not best or tied: {text}'


def markdown(rows: Mapping[str, summary.Row | None]) -> list[str]:
    """Return a table in Markdown; what is best or tied stands out."""
    lines = [_line(table.TITLES),
             _line(['---', *['---:'] * (len(table.TITLES) - 2), '---'])]
    for name, row in rows.items():
        cells = table.cells(name, row)
        if row and row.verdict in (summary.BEST, summary.TIED):
            cells = (*cells[:-1], f'**{cells[-1]}**')
        lines.append(_line(cells))
    return lines


def _line(values: Sequence[str]) -> str:
    return f'| {" | ".join(values)} |'


def page(scenarios: Sequence[Scenario],
         found: Mapping[str, Sequence[Mapping[str, Any]]],
         rows: Mapping[str, Mapping[str, summary.Row | None]],
         seeds: int, oracle_seeds: int, hour_s: float,
         reasons: Mapping[str, str]) -> str:
    """The scoreboard as Markdown."""
    said = [
        '# Scoreboard', '',
        f'Made by `python benchmarks/simulated/scoreboard.py --seeds {seeds}`;'
        ' do not edit. Why-lines come from '
        '`benchmarks/simulated/reasons.yaml`.', '',
        f'{seeds} seeds per scenario, the oracle on the first '
        f'{oracle_seeds} of them. {table.LEGEND}', '', summary.RULE, '',
        'The oracle is the best constant allocation (shares of CPUs, memory, '
        'link and disk for the background, and cpu.idle) that a search with '
        'full knowledge finds for each seed. It does not compete; a policy '
        'that follows the load can do better.', '',
        'ours is a fresh install in `enforce`, with the parts that have rows '
        'of their own. scavenger_strict, perfiso, cpi2 and perfcloud are the '
        'papers and nothing else. The detectors of cpi2 and perfcloud have '
        'learnt from the foreground alone on the same host, and keep no '
        'floors.', '',
        '| scenario | foreground P99 x alone | background work | of oracle '
        '| result |', '| --- | ---: | ---: | ---: | --- |']
    for name, table_ in rows.items():
        row = table_[OURS]
        cells = table.cells(OURS, row)
        said.append(f'| [{name}](#{name}) | {cells[1]} | {cells[4]} | '
                    f'{cells[5]} | {cells[-1]} |')
    said += ['', 'Rows of `ours`.', '']
    for scenario in scenarios:
        name = scenario.name
        said += [f'## {name}', '', scenario.about, '',
                 *markdown(rows[name]), '', allocations(found[name]),
                 '']
        if not all(one['fast'] for one in found[name]):
            said += [table.SMALL, '']
        reason = why(name, rows[name][OURS], reasons)
        if reason:
            said += [reason, '']
    said += ['## Speed', '',
             'One simulated host-hour at 1 Hz with 20 workloads, the whole '
             f'loop included: {hour_s:.1f} s of CPU time (median of '
             f'{SPEED_RUNS}; Python {platform.python_version()}, one of '
             f'{os.cpu_count()} CPUs).']
    return '\n'.join(said) + '\n'


def main() -> int:
    chosen = options()
    reasons = yaml.safe_load(REASONS.read_text()) or {}
    scenarios = catalogue.find(chosen.scenarios)
    kept = Kept(chosen.directory)
    hour_s = speed_s()
    print(f'one host-hour with 20 workloads: {hour_s:.1f} CPU s')
    oracle_seeds = chosen.oracle_seeds or math.ceil(
        chosen.seeds * ORACLE_SHARE)
    some = tuple(name for name in compare.CONTROLLERS
                 if name != compare.ORACLE)
    tasks = {one.name: [
        compare.Task(0, one, seed, compare.CONTROLLERS
                     if seed < oracle_seeds else some)
        for seed in range(chosen.seeds)] for one in scenarios}
    play(kept, [task for own in tasks.values() for task in ends(own)],
         chosen.jobs)
    minutes = estimate(kept, tasks, chosen.jobs)
    print(f'about {minutes:.0f} minutes to go with {chosen.jobs} processes'
          + ('' if minutes <= BUDGET_MIN else
             f', more than {BUDGET_MIN}: --seeds makes it shorter'),
          flush=True)
    began_s = time.monotonic()
    play(kept, [task for turn in zip(*tasks.values(), strict=True)
                for task in turn], chosen.jobs)
    found = {name: [one['record'] for task in own
                    if (one := _kept(kept, task)) is not None]
             for name, own in tasks.items()}
    rows = {name: summary.rows(records) for name, records in found.items()}
    chosen.output.write_text(page(scenarios, found, rows, chosen.seeds,
                                  oracle_seeds, hour_s, reasons))
    print(f'{chosen.output} written after '
          f'{(time.monotonic() - began_s) / 60:.1f} minutes')
    lost = {name for name in rows if why(name, rows[name][OURS], {})}
    for names, text in (
            (lost - set(reasons), 'not best, not tied, not explained'),
            ((set(rows) - lost) & set(reasons), 'explained, yet best or '
                                                'tied by now')):
        if names:
            print(f'{text} in {REASONS.name}: {", ".join(sorted(names))}')
    return 0


if __name__ == '__main__':
    sys.exit(ending.code('scoreboard', main))
