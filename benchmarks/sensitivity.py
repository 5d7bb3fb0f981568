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


"""What c and w do: violations and what is left to background work.

Memory on real traces, network on simulated hosts, the CPU quota on made-up
noise, or all of it on a recording of an operator's own host.  The rule is
the agent's own controller.  Writes sensitivity.md and pictures.  Takes some
ten minutes of one CPU; reading the traces needs pyarrow.

    python benchmarks/sensitivity.py [--data DIR] [--output DIR]
    python benchmarks/sensitivity.py --recording FILE

The results in this directory are from

    python benchmarks/sensitivity.py --output benchmarks \\
        --pictures doc/source/_static
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import math
import os
import pathlib
import sys

import charts
import quota_report
import reserve_report
from reserve_report import Study
import sweep
import traces
from traces import Group

from scavenger_openstack.algorithms.scavenger import Params
from scavenger_openstack import errors
from scavenger_openstack.types import Rates

TOP = pathlib.Path(__file__).parents[1]
CS = '0,0.5,1,1.5,2,2.5,3,4'
WINDOWS_S = '15,30,60,120,300,600,1800,3600'
PARTS = ('memory', 'network', 'ipc')

INTRODUCTION = '''\
# How c and w trade violations for background work

Scavenger (section 4.1) keeps mu + c sigma of a resource for the foreground;
mu and sigma come from w seconds. This is what c and w do, with the agent's
own controller on the series below; section 6.1 of the paper has the like in
its figures 6 and 14.

* A *violation* is a sample of the foreground's use above what was reserved
  before it. mu then jumps to that use, so the next sample above is judged
  anew: violations are the samples above the reserve.
* *Afforded* is the mean of what background work was given, in % of the
  capacity; *of the oracle* is its share of what is left to one who knows the
  foreground's use in advance. *Overshoot* is by how much a violation was
  above the reserve, on average, in % of the capacity.
* *Held* is the share of samples for which there was a reserve to judge; the
  rest is learning: the first w, and after a gap longer than w.
* A window of seconds is a number of samples, which stands in brackets; at
  least 2. The agent takes a sample a second, so w = 60 s is 60 samples
  there and 6 on a trace of 10 s: both w and its number of samples matter,
  and only a recording of the agent has them as they will be.
* The least headroom (`min_headroom`, not in the paper) is 2 % of the
  capacity; everything is also shown without.
'''

OWN = '''\
## The same on your own host

Record what the agent sees, for a day at the least and a week at best, with
the controllers in `observe`, then run the study on it:

    scavenger-agent run --record FILE
    python benchmarks/sensitivity.py --recording FILE --output DIR

`DIR/sensitivity.md` then has the same tables for that host's memory, each of
its links and its IPC. Say with `--memory-violations` and
`--network-violations` how many violations a day are acceptable there.
'''


def numbers(text: str) -> list[float]:
    found = sorted({float(part) for part in text.split(',')})
    if not found or not 0 <= found[0] <= found[-1] < math.inf:
        raise argparse.ArgumentTypeError(f'{text}: numbers from 0 up, '
                                         f'between commas, are expected')
    return found


def parts(text: str) -> list[str]:
    chosen = text.split(',')
    if not set(chosen) <= set(PARTS):
        raise argparse.ArgumentTypeError(
            f'{text}: some of {",".join(PARTS)} are expected')
    return chosen


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog='The whole study takes '
        'about ten minutes of one CPU.')
    made.add_argument('--data', type=pathlib.Path, metavar='DIR',
                      default=TOP.parent / 'shared' / 'data',
                      help='where the traces are (%(default)s)')
    made.add_argument('--recording', type=pathlib.Path, metavar='FILE',
                      help='study this recording of scavenger-agent run '
                           '--record instead')
    made.add_argument('--output', type=pathlib.Path, metavar='DIR',
                      default=TOP / 'build' / 'sensitivity',
                      help='where sensitivity.md goes (%(default)s)')
    made.add_argument('--pictures', type=pathlib.Path, metavar='DIR',
                      help='where the pictures go (as --output)')
    made.add_argument('--only', type=parts, default=','.join(PARTS),
                      help='parts of the study (%(default)s)')
    made.add_argument('--c', type=numbers, default=CS, help='(%(default)s)')
    made.add_argument('--windows', type=numbers, default=WINDOWS_S,
                      help='w in seconds (%(default)s)')
    made.add_argument('--memory-violations', type=float, default=24.0,
                      help='acceptable ones a day; each may pause or kill '
                           'background work (%(default)s)')
    made.add_argument('--network-violations', type=float, default=864.0,
                      help='acceptable ones a day; each is a second in '
                           'which the link is shared (%(default)s, 1 %% of '
                           'the time)')
    made.add_argument('--seconds', type=int, default=3600,
                      help='length of simulated series (%(default)s)')
    made.add_argument('--hosts', type=int, default=16,
                      help='number of simulated hosts (%(default)s)')
    made.add_argument('--ipc-seconds', type=int, default=1800,
                      help='length of each run with noise (%(default)s)')
    return made


def sources(args: argparse.Namespace) -> Iterator[Group | traces.Absent]:
    """What to study without a recording, made when it is its turn."""
    for make in (traces.mean_trace, traces.machines, traces.pods,
                 traces.pod_hosts):
        if 'memory' in args.only:
            try:
                yield make(args.data)
            except traces.Absent as exc:
                yield exc
    if 'network' in args.only:
        size = {'seconds': args.seconds, 'hosts': args.hosts}
        yield traces.simulated(tenants=3, **size)
        yield traces.simulated(tenants=20, **size)
        yield traces.heavy_tailed(sources=20, **size)


def reserve(args: argparse.Namespace,
            groups: Iterable[Group | traces.Absent], params: Params,
            ) -> tuple[list[str], list[reserve_report.Advice]]:
    """Sections on memory and network, and what to choose."""
    pictures = args.pictures or args.output
    text: list[str] = []
    studies: list[Study] = []
    for group in groups:
        if isinstance(group, traces.Absent):
            print(f'skipped: {group}', flush=True)
            text.append(f'Skipped: {group}.\n')
            continue
        if group.resource not in args.only:
            continue
        print(f'{group.title} ...', flush=True)
        study = sweep.sweep(group, reserve_report.settings(
            group, args.c, args.windows, params))
        svg = pictures / f'sensitivity-{group.key}.svg'
        svg.write_text(reserve_report.picture(group, study, args.c, params))
        text += reserve_report.section(
            group, study, args.c, os.path.relpath(svg, args.output), params)
        # Its samples are not needed any more, and many.
        studies.append((dataclasses.replace(group, traces=[
            dataclasses.replace(group.traces[0], ticks=())]), study))
    chosen = []
    for resource in PARTS[:2]:
        ours = [(group, study) for group, study in studies
                if group.resource == resource]
        if ours:
            lines, row = reserve_report.recommendation(
                resource, ours, args.c, args.windows,
                getattr(args, f'{resource}_violations'), params)
            text += lines
            chosen.append(row)
    return text, chosen


def main() -> int:
    args = parser().parse_args()
    pictures = args.pictures or args.output
    params = Params()
    ticks: list[Rates] = []
    try:
        for where in (args.output, pictures):
            where.mkdir(parents=True, exist_ok=True)
        if args.recording:
            ticks, interval_s, params = traces.recorded(args.recording)
    except (OSError, errors.DriverError) as exc:
        print(f'sensitivity: {exc}', file=sys.stderr)
        return 1
    text, chosen = reserve(
        args, traces.of_recording(ticks, interval_s) if args.recording
        else sources(args), params)
    if 'ipc' in args.only:
        print('IPC ...', flush=True)
        if args.recording:
            text += quota_report.of_recording(ticks, interval_s, params)
        else:
            lines, row = quota_report.of_noise(
                args.ipc_seconds, pictures, os.path.relpath(
                    pictures / 'sensitivity-ipc.svg', args.output))
            text += lines
            chosen.append(row)
    text += ['## Recommended defaults\n', charts.table(
        ('resource', 'in use now', 'recommended', 'reason'), chosen,
        words=True) if chosen else 'Nothing was studied.\n']
    result = args.output / 'sensitivity.md'
    result.write_text('\n'.join([INTRODUCTION, *text, OWN]))
    print(f'wrote {result}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
