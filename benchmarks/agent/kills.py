# SPDX-License-Identifier: Apache-2.0

"""Kill and stop the real agent, and count what survives it.

(a) SIGKILL at every call through which it changes anything, enumerated by
strace over a script of first caps, changed caps and removals of every knob;
(b) SIGKILL at random instants; (c) SIGSTOP past the lease, then SIGCONT and
SIGKILL; and, to show that (a) can fail, (a) once more over a copy of the
code that writes before it leases.

    python benchmarks/agent/kills.py [--kills 200] [--stops 50]
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable
import pathlib
import sys
import tempfile
from typing import Any

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import kills


def report(title: str, runs: Iterable[tuple[Any, ...]]) -> bool:
    """Print how often all was back and how long it took; whether always."""
    took, bad, calls = [], [], collections.Counter()
    for *what, seconds, left in runs:
        took.append(seconds)
        if len(what) == 2:
            calls[what[0]] += 1
        if left:
            bad.append((what, left))
        if sys.stderr.isatty():
            print(f'\r{title}: {len(took)}', end='', file=sys.stderr)
    took.sort()
    print(f'\r{title}: {len(took)} times, {len(bad)} times something was '
          f'left; all was back after {took[len(took) // 2]:.2f} s (median), '
          f'{took[-1]:.2f} s (longest); the lease is {kills.LEASE_S:g} s'
          + (f'; {dict(calls)}' if calls else ''), flush=True)
    for what, left in bad[:1]:
        print(f'  first: {what}: {left}')
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--kills', type=int, default=200)
    parser.add_argument('--stops', type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir='/dev/shm') as where:
        directory = pathlib.Path(where)
        with base.CgroupTree() as tree, \
                kills.Stage(tree, directory) as stage:
            good = [
                report('(a) SIGKILL at every call',
                       kills.enumerate_kills(stage)),
                report('(b) SIGKILL at random instants',
                       kills.random_kills(stage, args.kills)),
                report('(c) SIGSTOP past the lease, SIGCONT',
                       kills.random_stops(stage, args.stops))]
            clean = stage.agent(kills.TICKS)
            out, err = clean.communicate(timeout=60)
            good.append(clean.returncode == 0 and not stage.changed())
            print('the next agent starts and ends clean:', good[-1])
        broken = kills.swapped_package(directory / 'broken')
        with base.CgroupTree() as tree, \
                kills.Stage(tree, directory, broken) as stage:
            good.append(not report(
                'written before leased, must leave something',
                kills.enumerate_kills(stage, calls=('fsync', 'renameat'))))
    return 0 if all(good) else 1


if __name__ == '__main__':
    sys.exit(main())
