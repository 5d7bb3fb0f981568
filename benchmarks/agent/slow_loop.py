# SPDX-License-Identifier: Apache-2.0

"""What the agent costs on a host with many workloads.

Makes real cgroups, half of them background and each with a process that
allocates and computes a little, runs the real agent at 1 Hz, its state on a
tmpfs as /run is, and reads its CPU time and memory from /proc.  Prints CPU
per workload and tick for each number of workloads, and how far the curve is
from a line.

    python benchmarks/agent/slow_loop.py [--workloads 10,50,100,200,500]
        [--mode enforce] [--buffer-cores N]

With ``--buffer-cores`` the fast loop runs too, which a host of fewer than
eight CPUs does not have by default.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import fixtures

from scavenger_openstack.tests.functional import base

LIVELY = """
import time, random
data = []
while True:
    data.append(bytearray(random.randrange(1, 4) << 16))
    if len(data) > 24:
        data.clear()
    sum(range(20000))
    time.sleep(random.uniform(0.2, 0.6))
"""
TICKS_PER_S = os.sysconf('SC_CLK_TCK')


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process, in seconds, to the ns."""
    total = 0
    for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
        total += int((task / 'schedstat').read_text().split()[0])
    return total / 1e9


def ticks_cpu_s(pid: int) -> float:
    """That of the main thread, which does the agent's ticks."""
    return int(pathlib.Path(f'/proc/{pid}/task/{pid}/schedstat').read_text(
        ).split()[0]) / 1e9


def memory_bytes(pid: int, key: str = 'VmRSS') -> int:
    for line in pathlib.Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith(key + ':'):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def measure(count: int, lively: int, warm_up_s: float, seconds: float,
            *words: str, module: str = 'scavenger_openstack.cmd.agent',
            mode: str = 'enforce', config: str = '') -> dict[str, float]:
    """Cost of one agent over ``count`` workloads: us, bytes, shares.

    :param words: more for its command line
    :param module: what to run, in a directory of its own
    :param mode: of its regulators
    :param config: more lines of its configuration
    """
    with base.CgroupTree() as tree, tempfile.TemporaryDirectory(
                dir='/dev/shm') as where, \
            fixtures.EnvironmentVariable('PYTHONUNBUFFERED', '1'):
        directory = pathlib.Path(where)
        processes = []
        try:
            tree.make('/background')
            tree.make('/foreground')
            for number in range(count):
                kind = 'background' if number % 2 else 'foreground'
                tree.make(f'/{kind}/w{number:03}')
                code = LIVELY if number < lively else (
                    'import time\nwhile True: time.sleep(3600)')
                paths = [str(tree.path(c, f'/{kind}/w{number:03}')
                             / 'cgroup.procs') for c in tree.mounts]
                processes.append(subprocess.Popen(
                    [sys.executable, '-S', '-E', '-c',
                     f'for p in {paths!r}: open(p, "w").write("0")\n'
                     + code]))
            (directory / 'agent.conf').write_text(f'''
[agent]
require_watcher = false
[cgroups]
background_parents = {tree.name}/background
foreground_parents = {tree.name}/foreground
[scavenger]
mode = {mode}
memory_window_s = 5
{config}''')
            agent = subprocess.Popen(
                [sys.executable, '-m', module, 'run',
                 '--config-file', str(directory / 'agent.conf'),
                 '--state-dir', str(directory / 'state'), *words],
                cwd=directory, stderr=(directory / 'log').open('w'))
            processes.append(agent)
            time.sleep(warm_up_s)
            status = directory / 'state' / 'status.json'
            first = json.loads(status.read_text())
            ticks_cpu, began, cpu = (ticks_cpu_s(agent.pid), time.monotonic(),
                                     cpu_s(agent.pid))
            time.sleep(seconds)
            cpu, elapsed = cpu_s(agent.pid) - cpu, time.monotonic() - began
            ticks_cpu = ticks_cpu_s(agent.pid) - ticks_cpu
            last = json.loads(status.read_text())
            ticks = last['counters']['ticks'] - first['counters']['ticks']
            found = {
                'workloads': sum(last['workloads'].values()),
                'caps': len(last['caps']),
                'writes_per_tick': (last['counters']['writes']
                                    - first['counters']['writes']) / ticks,
                'cpu_percent': 100 * cpu / elapsed,
                'us_per_workload': 1e6 * cpu / ticks / count,
                'tick_us': 1e6 * ticks_cpu / ticks,
                'rss_bytes': memory_bytes(agent.pid),
            }
            agent.terminate()
            agent.wait(20)
            return found
        finally:
            for process in processes:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--workloads', default='10,50,100,200,500')
    parser.add_argument('--lively', type=int, default=20,
                        help='how many of the processes do something')
    parser.add_argument('--warm-up', type=float, default=10)
    parser.add_argument('--seconds', type=float, default=20)
    parser.add_argument('--mode', choices=['observe', 'enforce'],
                        default='enforce')
    parser.add_argument('--buffer-cores', type=int)
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    config = '' if args.buffer_cores is None else (
        f'[perfiso]\nmode = {args.mode}\n'
        f'buffer_cores = {args.buffer_cores}\n')
    rows = []
    for count in map(int, args.workloads.split(',')):
        rows.append(measure(count, min(args.lively, count), args.warm_up,
                            args.seconds, mode=args.mode, config=config))
        if not args.json:
            row = rows[-1]
            print(f'{row["workloads"]:4} workloads, {row["caps"]:4} caps: '
                  f'{row["cpu_percent"]:.3f} % of one CPU, '
                  f'{row["us_per_workload"]:.1f} us per workload and tick, '
                  f'{row["writes_per_tick"]:.1f} writes per tick, '
                  f'{row["rss_bytes"] / 2**20:.1f} MiB', flush=True)
    if args.json:
        print(json.dumps(rows))
    elif len(rows) > 2:
        x = [row['workloads'] for row in rows]
        y = [row['cpu_percent'] for row in rows]
        mx, my = sum(x) / len(x), sum(y) / len(y)
        slope = (sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
                 / sum((a - mx)**2 for a in x))
        base_ = my - slope * mx
        off = max(abs(b - base_ - slope * a) / b
                  for a, b in zip(x, y, strict=True))
        print(f'line: {base_:.3f} % + {slope * 1e4:.1f} us per workload and '
              f'second; largest distance from it {100 * off:.0f} %')
    return 0


if __name__ == '__main__':
    sys.exit(main())
