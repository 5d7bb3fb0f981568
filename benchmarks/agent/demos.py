# SPDX-License-Identifier: Apache-2.0

"""How close a managed service comes to one alone, and what the demo says.

``ratio`` has the service of the demo beside its hog, here of three times its
CPU weight, under the regulators, in short turns: in one of a pair the hog is
stopped (SIGSTOP), in the other it runs; both have the same requests, and
follow each other within seconds, every second pair the other way round.  It
prints

* the P99 of all requests beside the hog over the P99 of all alone, with the
  interval of 90 % of 400 draws of the pairs (a bootstrap of pairs, not of
  requests: those that wait in one queue are not independent), and whether
  all of the interval is at or below 1.10,
* the CPU time that the hog gets over that without the agent, and whether it
  is at least 0.85.

``verdicts`` runs the demo many times in a row, on a quiet machine or beside a
busy loop on each CPU, and prints for each its verdict, its exit code, its
P99s, how long it took, and what was left on the machine.

    sudo python benchmarks/agent/demos.py ratio [--pairs 24]
    sudo python benchmarks/agent/demos.py verdicts [--count 5] [--busy]
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
import json
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from scavenger_openstack.demo import play
from scavenger_openstack.demo import product
from scavenger_openstack.demo import service as service_
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import interrupt as interrupt_

P99_LIMIT = 1.10
CPU_WORK_LIMIT = 0.85
LEAST_PAIRS = 12
DRAWS = 400
LEVEL = 0.90

TURN_S = 4.0
QUIET_CPUS = 0.15
"""CPU time of other programs, in CPUs, above which nothing is decided."""
SKIP_S = 0.25
"""The begin of a turn belongs to the turn before."""
UNMANAGED_S = 15.0
LEARN_S = 15.0
HOG_WEIGHT = 3

CONFIG = """\
[agent]
protect = cpu
"""


def others_s(stage: stage_.Stage) -> float:
    """CPU time of other programs on the CPUs of the demo, in s."""
    busy_s = proc.busy_s(play.STAT.read_bytes())
    return (sum(busy_s[cpu] for cpu in stage.cpus)
            - stage.tree.cpu_s(''))


def requests(pairs: int, seed: str) -> list[service_.Request]:
    """The same requests in both turns of a pair."""
    begin_s = UNMANAGED_S + LEARN_S
    planned = service_.requests(f'{seed} warm-up', begin_s, play.CPUS)
    for turn in range(2 * pairs):
        planned += [(begin_s + turn * TURN_S + at_s, cpu_ms)
                    for at_s, cpu_ms in service_.requests(
                        f'{seed} {turn // 2}', TURN_S, play.CPUS)]
    return planned


def p99_ratio(pairs: list[tuple[list[float], list[float]]]
              ) -> tuple[float, float, float]:
    """P99 of all beside over P99 of all alone, and its interval."""
    rng = random.Random(1)

    def ratio(drawn: Sequence[tuple[list[float], list[float]]]) -> float:
        alone, beside = (service_.percentile(
            [latency_s for pair in drawn for latency_s in pair[side]], 0.99)
            for side in (0, 1))
        assert alone and beside
        return beside / alone

    draws = [ratio(rng.choices(pairs, k=len(pairs))) for _ in range(DRAWS)]
    *_, high = bounds = statistics.quantiles(draws, n=round(2 / (1 - LEVEL)))
    return ratio(pairs), bounds[0], high


def measure(pairs: int, seed: str) -> int:
    """Print both ratios; 0 both hold, 1 one does not, 3 not decided."""
    interrupt = interrupt_.Interrupt()
    stage = stage_.Stage(play.GROUPS, play.choose_cpus())
    agent = None
    try:
        stage.make()
        stage.tree.set_cpu_weight(stage_.BACKGROUND, HOG_WEIGHT)
        start_s = time.monotonic() + 1
        service = service_.Service(stage.directory, requests(pairs, seed),
                                   play.CPUS, start_s)
        stage.launch(*service.command(service_.compile_program()),
                     log='service', below=play.SERVICE)
        hog = stage.launch(
            str(build.build()), 'integer', 'chunk_s=1', 'every_s=3600',
            f'threads={play.HOG_THREADS_PER_CPU * play.CPUS}',
            f'levels=100:{play.FOREVER_S:g}', log='hog', below=play.HOG)

        def work_cores(until_s: float) -> float:
            """CPUs that the hog uses until a moment."""
            before = time.monotonic(), stage.tree.cpu_s(play.HOG)
            interrupt.wait_until(until_s)
            return ((stage.tree.cpu_s(play.HOG) - before[1])
                    / (time.monotonic() - before[0]))

        unmanaged = work_cores(start_s + UNMANAGED_S)
        agent = product.Agent(stage, product.config(
            background=stage.tree.name + stage_.BACKGROUND,
            foreground=stage.tree.name + stage_.FOREGROUND, more=CONFIG))
        agent.wait(interrupt)
        begin_s = start_s + UNMANAGED_S + LEARN_S
        interrupt.wait_until(begin_s)
        turns, work = [], []
        before_s = others_s(stage)
        for number in range(2 * pairs):
            beside = number % 4 in (1, 2)
            hog.send_signal(signal.SIGCONT if beside else signal.SIGSTOP)
            from_s = begin_s + number * TURN_S
            interrupt.wait_until(from_s + SKIP_S)
            cores = work_cores(from_s + TURN_S)
            if beside:
                work.append(cores)
            turns.append((from_s - start_s, beside))
            print(f'\r{number // 2 + 1} of {pairs} pairs', end='',
                  file=sys.stderr, flush=True)
        print(file=sys.stderr)
        others = ((others_s(stage) - before_s)
                  / (2 * pairs * TURN_S))
        latencies = service.latencies(time.monotonic())
    finally:
        if agent is not None:
            agent.stop()
        for problem in stage.remove():
            print(problem, file=sys.stderr)
    by_turn = {from_s: [latency_s for due_s, latency_s in latencies
                        if from_s + SKIP_S <= due_s < from_s + TURN_S]
               for from_s, _ in turns}
    both = []
    for first, second in zip(turns[::2], turns[1::2], strict=True):
        pair = sorted((first, second), key=lambda turn: turn[1])
        both.append((by_turn[pair[0][0]], by_turn[pair[1][0]]))
    value, low, high = p99_ratio(both)
    share = statistics.fmean(work) / unmanaged
    if others > QUIET_CPUS:
        undecided = f'not decided: other programs used {others:.2f} CPUs'
    elif pairs < LEAST_PAIRS:
        undecided = f'not decided: fewer than {LEAST_PAIRS} pairs'
    else:
        undecided = ''
    p99_holds, work_holds = high <= P99_LIMIT, share >= CPU_WORK_LIMIT
    p99_words = undecided or (
        'holds' if p99_holds else 'not decided: the interval holds the limit'
        if low <= P99_LIMIT else 'does not hold')
    work_words = undecided or ('holds' if work_holds else 'does not hold')
    print(f'P99 beside the hog, managed, over alone: {value:.2f} ({low:.2f} '
          f'to {high:.2f}, {pairs} pairs of turns of {TURN_S:g} s); at most '
          f'{P99_LIMIT:.2f}: {p99_words}')
    print(f'CPU time of the hog, managed, over unmanaged: {share:.2f} '
          f'({statistics.fmean(work):.2f} and {unmanaged:.2f} CPUs); at '
          f'least {CPU_WORK_LIMIT}: {work_words}')
    if undecided:
        return 3
    if low > P99_LIMIT or not work_holds:
        return 1
    return 0 if p99_holds else 3


def spin(cpu: int) -> None:
    """Keep one CPU busy for ever."""
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def run_demo(output: pathlib.Path) -> tuple[int, float, dict[str, Any]]:
    """One demo: exit code, seconds, and its result, with ``error`` alone
    when it is lost."""
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.demo',
         '--output', str(output)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, check=False)
    try:
        result = json.loads((output / 'result.json').read_text())
    except (OSError, ValueError):
        result = {'error': done.stderr.strip().rpartition('\n')[2]}
    return done.returncode, time.monotonic() - begun_s, result


def line(number: int, code: int, seconds: float, result: dict[str, Any],
         left: set[str]) -> str:
    """What is printed for one demo."""
    if 'error' in result:
        return (f'{number:3}  no result, exit {code}, {seconds:.0f} s: '
                f'{result["error"]}')
    p99s = ', '.join('-' if phase['p99_ms'] is None
                     else f'{phase["p99_ms"]:.0f}'
                     for phase in result['phases'].values())
    return (f'{number:3}  {result["verdict"]:12}  exit {code}  P99 {p99s} ms'
            f'  {seconds:.0f} s  left: {" ".join(sorted(left)) or "nothing"}'
            f'  {result["why"]}')


def verdicts(count: int, *, busy: bool) -> int:
    """Run demos; 1 when a result is missing or something was left."""
    loops = [multiprocessing.Process(target=spin, args=(cpu,), daemon=True)
             for cpu in (os.sched_getaffinity(0) if busy else ())]
    for loop in loops:
        loop.start()
    counts: collections.Counter[str] = collections.Counter()
    good = True
    before = stage_.left_over()
    with tempfile.TemporaryDirectory() as where:
        for number in range(1, count + 1):
            code, seconds, result = run_demo(
                pathlib.Path(where) / str(number))
            left = stage_.left_over() - before
            counts[result.get('verdict', 'lost')] += 1
            good &= 'error' not in result and not left
            print(line(number, code, seconds, result, left), flush=True)
    for loop in loops:
        loop.kill()
    print(', '.join(f'{number} {verdict}'
                    for verdict, number in counts.most_common()))
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('what', choices=('ratio', 'verdicts'))
    parser.add_argument('--pairs', type=int, default=24)
    parser.add_argument('--seed', default='1')
    parser.add_argument('--count', type=int, default=5)
    parser.add_argument('--busy', action='store_true')
    args = parser.parse_args()
    if args.what == 'ratio':
        return measure(args.pairs, args.seed)
    return verdicts(args.count, busy=args.busy)


if __name__ == '__main__':
    sys.exit(main())
