# SPDX-License-Identifier: Apache-2.0

"""A service beside a hog of its disk or its link: quiet, with the hog, and
with the hog under an agent.

The agent runs as a fresh install does, but enforces.  The stages are those of
``first_there.py``, where the antagonist comes first and nothing is learnt:

disk  a reader of 4 KiB a hundred times a second; fio reads 64 KiB at depth 32
link  a server that answers with 10 KB 200 times a second over a link of 100
      Mbit/s, by which four senders send as fast as they can

Each round is one line: P99 in ms, over quiet, and what the hog does of what it
did without an agent.  The last line has the medians.  Latencies mean something
on a machine that does nothing else.  With ``--at`` there is no agent: fio is
limited to so many operations per second, one after the other, which tells what
an agent could give it.

    python benchmarks/agent/disk_and_link.py [--of disk,link] [--rounds 3]
        [--settle 120] [--at 100,400,800,1600]

Needs root, fio for the disk, and some 20 minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

import first_there
import running_agent

SETTLED_S = 3.0
"""After a change that acts at once."""

CONTROLLERS = ('scavenger', 'perfiso', 'io_shares', 'attribution')


def config(stage: first_there.Stage) -> str:
    """Return the stage's configuration with all default controllers."""
    text = stage.config.replace('controllers = attribution\n', '')
    text = text.replace('[attribution]\nmode = {mode}\n', '')
    return text + ''.join(f'[{name}]\nmode = enforce\n'
                          for name in CONTROLLERS)


class Started(NamedTuple):
    """A stage whose hog works: its directory, P99 in ms without and with the
    hog, and what the hog does in a second."""

    stage: first_there.Stage
    top: pathlib.Path
    quiet_ms: float
    hog_ms: float
    free: float


def start(stack: contextlib.ExitStack, what: str) -> Started:
    """Measure without an agent.  All of it ends with ``stack``."""
    top = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(
        prefix='disk-and-link-', dir='.'))).absolute()
    top.chmod(0o755)
    stage = first_there.Stage(stack, what, top)
    quiet_ms, _ = stage.measure()
    stage.work()
    time.sleep(SETTLED_S)
    return Started(stage, top, quiet_ms, *stage.measure())


def play(what: str, settle_s: float) -> dict[str, float]:
    """Return the P99 in ms of three measurements, and what the hog kept."""
    with contextlib.ExitStack() as stack:
        stage, top, quiet_ms, beside_ms, free = start(stack, what)
        agent = stack.enter_context(running_agent.Agent(top, config(stage)))
        running_agent.wait_until(time.monotonic() + settle_s, what, agent)
        ours_ms, limited = stage.measure()
        return {'quiet_ms': quiet_ms, 'hog_ms': beside_ms, 'ours_ms': ours_ms,
                'hog_over_quiet': beside_ms / quiet_ms,
                'ours_over_quiet': ours_ms / quiet_ms,
                'work_kept': limited / free if free else 0.0}


def play_constant(limits: Sequence[int]) -> Iterator[tuple[int, dict[
        str, float]]]:
    """Yield a limit, the P99 in ms and what fio kept, for each."""
    with contextlib.ExitStack() as stack:
        stage, _, quiet_ms, _, free = start(stack, 'disk')
        for ops_per_s in limits:
            stage.limit_reads(ops_per_s)
            time.sleep(SETTLED_S)
            p99_ms, limited = stage.measure()
            yield ops_per_s, {
                'quiet_ms': quiet_ms, 'ms': p99_ms,
                'over_quiet': p99_ms / quiet_ms, 'work_kept': limited / free}


def show(what: str, number: int | str, figures: dict[str, float]) -> None:
    print(json.dumps({'of': what, 'round': number, **{
        name: round(value, 3) for name, value in figures.items()}}),
        flush=True)


def whole_numbers(text: str) -> list[int]:
    """Return the numbers between commas.

    :raises ValueError: one is none.
    """
    return [int(word) for word in text.split(',')]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--of', default='disk,link')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--settle', type=float, default=120.0, metavar='S',
                        help='seconds from the start of the agent to the '
                             'measurement (default: %(default)s)')
    parser.add_argument('--at', metavar='OPS,...', type=whole_numbers,
                        help='constant limits, in operations per second')
    options = parser.parse_args()
    chosen = ['disk'] if options.at else options.of.split(',')
    if 'disk' in chosen and not shutil.which('fio'):
        print('disk_and_link: fio is not installed', file=sys.stderr)
        return 2
    if options.at:
        for number in range(1, options.rounds + 1):
            for ops_per_s, figures in play_constant(options.at):
                show(f'{ops_per_s} operations/s', number, figures)
        return 0
    rounds: dict[str, list[dict[str, float]]] = {what: [] for what in chosen}
    for number in range(1, options.rounds + 1):
        for what in chosen:
            rounds[what].append(play(what, options.settle))
            show(what, number, rounds[what][-1])
    for what, played in rounds.items():
        show(what, 'median', {
            name: statistics.median(figures[name] for figures in played)
            for name in played[0]})
    return 0


if __name__ == '__main__':
    sys.exit(main())
