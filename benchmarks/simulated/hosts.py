# SPDX-License-Identifier: Apache-2.0



"""Many simulated hosts, a record of each, and a page of all."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import pathlib
import time
from typing import Any

import detection
from kept import Kept

from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import process_pool

HERE = pathlib.Path(__file__).resolve().parent

Record = dict[str, Any]
Records = Mapping[str, Sequence[Mapping[str, Any]]]


def timed(record: Callable[[detection.Task], Record], task: detection.Task
          ) -> tuple[detection.Task, Record, float]:
    began_s = time.process_time()
    found = record(task)
    return task, found, time.process_time() - began_s


def main(name: str, description: str | None, scenarios: Sequence[str],
         record: Callable[[detection.Task], Record],
         page: Callable[[Records, int], str]) -> int:
    """Play what the command line says and write ``NAME.md``.

    Hosts that are done are kept in a file, so a run that was cut goes on
    where it ended.

    :param scenarios: unless others are asked for
    :param page: of the records by scenario and the number of seeds
    """
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('scenarios', nargs='*', default=list(scenarios))
    parser.add_argument('--seeds', type=int, default=200)
    parser.add_argument('--first-seed', type=int, default=0, metavar='N')
    parser.add_argument('--jobs', type=int, default=process_pool.cpus())
    parser.add_argument('--directory', type=pathlib.Path,
                        default=HERE.parents[1] / 'build' / name)
    parser.add_argument('--output', type=pathlib.Path,
                        default=HERE / f'{name}.md')
    chosen = parser.parse_args()
    if chosen.seeds < 1 or chosen.jobs < 1:
        parser.error('--seeds and --jobs: 1 at the least')
    kept = Kept(chosen.directory)
    tasks = [detection.Task(scenario, chosen.first_seed + seed)
             for seed in range(chosen.seeds)
             for scenario in catalogue.find(chosen.scenarios)]
    left = [task for task in tasks if kept.get(task.drawn()) is None]
    progress = process_pool.Progress(len(left))
    try:
        for task, found, cost_s in process_pool.work(
                functools.partial(timed, record), left, jobs=chosen.jobs):
            kept.add(task.drawn(), found, cost_s)
            progress.step(f'{task.scenario.name} seed {task.seed}')
    finally:
        progress.end()
    records: dict[str, list[Record]] = {}
    for task in tasks:
        one = kept.get(task.drawn())
        if one is not None:
            records.setdefault(task.scenario.name, []).append(one['record'])
    chosen.output.write_text(page(records, chosen.seeds))
    print(f'{chosen.output} written')
    return 0
