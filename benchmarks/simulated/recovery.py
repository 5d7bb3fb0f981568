# SPDX-License-Identifier: Apache-2.0



"""How victims recover and what antagonists keep, under kinds of caps.

Writes ``benchmarks/simulated/recovery.md`` by one command:

    python benchmarks/simulated/recovery.py

Hosts that are done are kept in a file, so a run that was cut goes on where
it ended.  The seeds were not used while the detector was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import statistics
import sys
from typing import Any

import capped_runs
import detection
from detectors import GROUPS
from detectors import Share
from detectors import SINGLE
import hosts

from scavenger_openstack.cmd import ending

POLICIES = {'none': 'no cap', 'ours': 'ours', 'static': 'static 20 %',
            'best': 'best static, in hindsight', 'hard': 'hard cap'}


def page(records: Mapping[str, Sequence[Mapping[str, Any]]],
         seeds: int) -> str:
    """The comparison as Markdown."""
    said = [
        '# What caps do to victims and antagonists', '',
        f'Made by `python benchmarks/simulated/recovery.py --seeds {seeds}`; '
        'do not edit.', '',
        f'{seeds} seeds per scenario; the detector was written on other '
        'seeds. Ours is a fresh install that enforces on the simulated host. '
        'From the moment of the first cap of its detector on (without one: '
        'from the end of the warm-up), a host like it holds the antagonists '
        'at '
        f'{capped_runs.STATIC:.0%} of what they use while they work (their '
        '90th percentile), and another at the hard cap of CPI2 (0.1 cores, '
        '1 MB/s). The best static cap is the loosest of '
        + ', '.join(f'{share:.0%}' for share in capped_runs.SHARES)
        + ' under which the victims are back. All three are told who the '
        'antagonists are, ours is not. '
        f'Judged from {capped_runs.SETTLE_S:.0f} s after the first cap to the '
        f'end, on victims that are {detection.VICTIM:.0%} slower without '
        f'caps. Back is slower by {capped_runs.BACK:.0%} at most. Work is the '
        'mean over the antagonists, as a share of what they do without '
        'caps; both do nothing while they rest, capped or not.', '']
    every = [one for own in records.values() for one in own
             if 'slower' in one]
    said += ['## All scenarios', '', *_table(every), '', *_times(every), '']
    enough = [one for one in every
              if one['slower']['static'] <= capped_runs.BACK]
    few = [one for one in every if one not in enough]
    said += [f'## Where a static {capped_runs.STATIC:.0%} is enough', '',
             *_table(enough), '',
             f'## Where a static {capped_runs.STATIC:.0%} is too much', '',
             'Whoever keeps more work than that does not bring these '
             'victims back.', '', *_table(few), '']
    said += ['## Scenario by scenario', '',
             '| scenario | hosts | back: ours | static | hard | work: ours '
             '| static | best | hard | ours / static |',
             '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: '
             '| ---: |']
    for scenario, own in records.items():
        judged = [one for one in own if 'slower' in one]
        if judged:
            work = {name: _work(judged, name) for name in POLICIES}
            said.append(
                f'| {scenario} | {len(judged)} | ' + ' | '.join(
                    f'{_back(judged, name).part / len(judged):.2f}'
                    for name in ('ours', 'static', 'hard')) + ' | '
                + ' | '.join(f'{work[name]:.2f}'
                             for name in ('ours', 'static', 'best', 'hard'))
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
    return Share(sum(one['slower'][name] <= capped_runs.BACK
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


def main() -> int:
    return hosts.main('recovery', __doc__, [*SINGLE, *GROUPS],
                      capped_runs.record, page)


if __name__ == '__main__':
    sys.exit(ending.code('recovery', main))
