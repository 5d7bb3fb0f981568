# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.



"""How victims recover and what antagonists keep, under three kinds of caps.

Writes ``benchmarks/recovery.md`` by one command:

    python benchmarks/recovery.py

Hosts that are done are kept in a file, so a run that was cut goes on where
it ended.  The seeds were not used while the detector was written.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
import statistics
import sys
import time
from typing import Any

from detectors import GROUPS
from detectors import Share
from detectors import SINGLE
from kept import Kept

from scavenger_openstack.cmd import exit as exit_
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import crew
from scavenger_openstack.laboratory import detection
from scavenger_openstack.laboratory import progress as progress_
from scavenger_openstack.laboratory import recovery

HERE = pathlib.Path(__file__).resolve().parent

POLICIES = {'none': 'no cap', 'ours': 'ours', 'static': 'static 20 %',
            'hard': 'hard cap'}


def page(records: Mapping[str, Sequence[Mapping[str, Any]]],
         seeds: int) -> str:
    """The comparison as Markdown."""
    said = [
        '# What caps do to victims and antagonists', '',
        f'Made by `python benchmarks/recovery.py --seeds {seeds}`; do not '
        'edit.', '',
        f'{seeds} seeds per scenario; the detector was written on other '
        'seeds. It enforces on the simulated host. From the moment of its '
        'first cap on, a host like it holds the antagonists at '
        f'{recovery.STATIC:.0%} of what they use while they work (their '
        '90th percentile), and another at the hard cap of CPI2 (0.1 cores, '
        '1 MB/s): both are told who the antagonists are, ours is not. '
        f'Judged from {recovery.SETTLE_S:.0f} s after the first cap to the '
        f'end, on victims that are {detection.VICTIM:.0%} slower without '
        f'caps. Back is slower by {recovery.BACK:.0%} at most. Work is the '
        'mean over the antagonists, as a share of what they do without '
        'caps; both do nothing while they rest, capped or not.', '']
    every = [one for own in records.values() for one in own
             if 'slower' in one]
    said += ['## All scenarios', '', *_table(every), '', *_times(every), '']
    late = sum(one.get('late', False)
               for own in records.values() for one in own)
    said += [f'On {late} more hosts there are victims and nobody was capped '
             'early enough to be judged.', '', '## Scenario by scenario', '',
             '| scenario | hosts | back: ours | static | hard | work: ours '
             '| static | hard | ours / static |',
             '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: '
             '|']
    for scenario, own in records.items():
        judged = [one for one in own if 'slower' in one]
        if judged:
            work = {name: _work(judged, name) for name in POLICIES}
            said.append(
                f'| {scenario} | {len(judged)} | ' + ' | '.join(
                    f'{_back(judged, name).part / len(judged):.2f}'
                    for name in ('ours', 'static', 'hard')) + ' | '
                + ' | '.join(f'{work[name]:.2f}'
                             for name in ('ours', 'static', 'hard'))
                + f' | {work["ours"] / work["static"]:.2f} |')
    return '\n'.join([*said, ''])


def _table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ['| | victims back | slower, median | slower, 90 % | work |',
             '| --- | ---: | ---: | ---: | ---: |']
    for name, shown in POLICIES.items():
        slower = sorted(one['slower'][name] for one in records)
        if not slower:
            continue
        lines.append(
            f'| {shown} | {_back(records, name)} | '
            f'{statistics.median(slower):.3f} | '
            f'{slower[int(0.9 * len(slower))]:.3f} | '
            f'{_work(records, name):.3f} |')
    return lines


def _back(records: Sequence[Mapping[str, Any]], name: str) -> Share:
    return Share(sum(one['slower'][name] <= recovery.BACK
                     for one in records), len(records))


def _work(records: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.fmean(one['work'][name] for one in records)


def _times(records: Sequence[Mapping[str, Any]]) -> list[str]:
    times = sorted(one['back_s'] for one in records
                   if one['back_s'] is not None)
    if not times:
        return []
    return [f'With ours, victims are back {statistics.median(times):.0f} s '
            'after the first cap (median; '
            f'{times[int(0.9 * len(times))]:.0f} s: 90 %), for 15 s at '
            f'least; on {len(records) - len(times)} of {len(records)} hosts '
            'never for so long.']


def timed(task: detection.Task) -> tuple[detection.Task, dict[str, Any],
                                         float]:
    began_s = time.process_time()
    found = recovery.record(task)
    return task, found, time.process_time() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('scenarios', nargs='*', default=[*SINGLE, *GROUPS])
    parser.add_argument('--seeds', type=int, default=200)
    parser.add_argument('--first-seed', type=int, default=0, metavar='N')
    parser.add_argument('--jobs', type=int, default=crew.cpus())
    parser.add_argument('--directory', type=pathlib.Path,
                        default=HERE.parent / 'build' / 'recovery')
    parser.add_argument('--output', type=pathlib.Path,
                        default=HERE / 'recovery.md')
    chosen = parser.parse_args()
    if chosen.seeds < 1 or chosen.jobs < 1:
        parser.error('--seeds and --jobs: 1 at the least')
    kept = Kept(chosen.directory)
    tasks = [detection.Task(scenario, chosen.first_seed + seed)
             for seed in range(chosen.seeds)
             for scenario in catalogue.find(chosen.scenarios)]
    left = [task for task in tasks if kept.get(task.drawn()) is None]
    progress = progress_.Progress(len(left))
    try:
        for task, found, cost_s in crew.work(timed, left, jobs=chosen.jobs):
            kept.add(task.drawn(), found, cost_s)
            progress.step(f'{task.scenario.name} seed {task.seed}')
    finally:
        progress.end()
    records: dict[str, list[dict[str, Any]]] = {}
    for task in tasks:
        one = kept.get(task.drawn())
        if one is not None:
            records.setdefault(task.scenario.name, []).append(one['record'])
    chosen.output.write_text(page(records, chosen.seeds))
    print(f'{chosen.output} written')
    return 0


if __name__ == '__main__':
    sys.exit(exit_.code('recovery', main))
