# SPDX-License-Identifier: Apache-2.0


"""What a recording costs the agent, and how fast it is replayed.

Runs the real agent over real cgroups as ``slow_loop.py`` does, in turn with
and without ``--record``, and compares the CPU time per tick.  Then looks at
the last recording: bytes per line and per day, and ticks per second when it
is read and when it is replayed.

    python benchmarks/agent/recording.py [--workloads 100] [--rounds 3]
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import slow_loop

from scavenger_openstack.laboratory import replay
from scavenger_openstack.laboratory import replay_settings
from scavenger_openstack.recording import replay as recordings

DAY_S = 86400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--workloads', type=int, default=100)
    parser.add_argument('--lively', type=int, default=20,
                        help='how many of the processes do something')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--warm-up', type=float, default=10)
    parser.add_argument('--seconds', type=float, default=20)
    args = parser.parse_args()
    cost: dict[str, list[float]] = {'without': [], 'recording': []}
    with tempfile.TemporaryDirectory(dir='/dev/shm') as where:
        for turn in range(args.rounds):
            path = pathlib.Path(where) / f'{turn}.recording'
            for name, words in (('without', ()),
                                ('recording', ('--record', str(path)))):
                found = slow_loop.measure(
                    args.workloads, args.lively, args.warm_up, args.seconds,
                    *words)
                cost[name].append(found['us_per_workload'] * args.workloads)
                print(f'round {turn + 1}, {name:>9}: {cost[name][-1]:.0f} us '
                      f'of CPU per tick, {found["workloads"]} workloads, '
                      f'{found["caps"]} caps', flush=True)
        off, on = (statistics.median(cost[name])
                   for name in ('without', 'recording'))
        print(f'recording costs {on - off:.0f} us per tick, {on / off:.2f} '
              'times the CPU of an agent that does not record')
        lines = path.read_bytes().splitlines()
        sizes = [len(line) + 1 for line in lines[1:]]
        size = statistics.mean(sizes[len(sizes) // 2:])
        print(f'{len(sizes)} ticks: {size:.0f} bytes per line, '
              f'{size / args.workloads:.0f} per workload; first line '
              f'{len(lines[0]) + 1}, second {sizes[0]}; '
              f'{size * DAY_S / 1e9:.2f} GB per day at 1 Hz')
        for name, work in (('read', read), ('replayed', played)):
            began = time.process_time()
            ticks = 0
            while time.process_time() - began < 2:
                ticks += work(path)
            used_s = time.process_time() - began
            print(f'{name}: {ticks / used_s:.0f} ticks per second of CPU')
    return 0


def read(path: pathlib.Path) -> int:
    return sum(1 for _ in recordings.read(path))


def played(path: pathlib.Path) -> int:
    recording = recordings.read(path)
    settings, _ = replay_settings.of_header(recording.header)
    return sum(1 for _ in replay.run(replay.Recording(recording), settings))


if __name__ == '__main__':
    sys.exit(main())
