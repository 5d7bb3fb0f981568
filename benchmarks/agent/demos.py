# SPDX-License-Identifier: Apache-2.0

"""Whether the quick demo says the same each time.

Plays it many times in a row, on a quiet machine or beside a busy loop on one
CPU, and prints for each: verdict, exit code, the ratio of the P99s with its
interval, pairs of turns, seconds, and what was left on the machine.  Ends
with 1 when a result is missing or something was left.

    sudo python benchmarks/agent/demos.py [--count 20] [--busy CPU]
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from scavenger_openstack.demo.stage import stage

EXIT = {0: 'passed', 1: 'failed', 3: 'inconclusive'}


def spin(cpu: int) -> None:
    """Keep one CPU busy for ever."""
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def play(output: pathlib.Path) -> tuple[int, float, dict[str, Any]]:
    """One demo: exit code, seconds, and its result; empty when lost."""
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.demo', '--quick',
         '--output', str(output)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=False)
    try:
        found = json.loads((output / 'result.json').read_text())
    except (OSError, ValueError):
        found = {}
    return done.returncode, time.monotonic() - begun_s, found


def line(number: int, code: int, seconds: float, found: dict[str, Any],
         left: set[str]) -> str:
    """What is printed for one demo."""
    if not found:
        return f'{number:3}  no result, exit {code}, {seconds:.0f} s'
    turns = found.get('turns') or {}
    ratio = ('P99 -' if not turns.get('p99_to_alone') else
             'P99 {p99_to_alone:.2f} ({low:.2f}-{high:.2f}) of {pairs} pairs'
             .format(**turns))
    return (f'{number:3}  {found["verdict"]:12}  exit {code}  {ratio}  '
            f'{seconds:.0f} s  left: {" ".join(sorted(left)) or "nothing"}  '
            f'{found["why"]}')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--count', type=int, default=20)
    parser.add_argument('--busy', type=int, metavar='CPU')
    args = parser.parse_args()
    busy = None
    if args.busy is not None:
        busy = multiprocessing.Process(target=spin, args=(args.busy,),
                                       daemon=True)
        busy.start()
    verdicts: collections.Counter[str] = collections.Counter()
    good = True
    before = stage.left_over()
    with tempfile.TemporaryDirectory() as where:
        for number in range(1, args.count + 1):
            code, seconds, found = play(pathlib.Path(where) / str(number))
            left = stage.left_over() - before
            verdicts[found.get('verdict', 'lost')] += 1
            good &= (bool(found) and not left
                     and EXIT.get(code) == found['verdict'])
            print(line(number, code, seconds, found, left), flush=True)
    if busy:
        busy.kill()
    print(', '.join(f'{count} {verdict}'
                    for verdict, count in verdicts.most_common()))
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
