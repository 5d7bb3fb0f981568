# SPDX-License-Identifier: Apache-2.0

"""What stands still beside a background that is limited in CPU.

A background group runs the integer kernel of ibench (six threads, three times
the weight), a foreground group memcached and its client, which asks 2,500
times a second over 16 connections.  Three probes outside of both sleep and
wake: two in the root cgroup, at 100 and at 1 Hz, one in a third group, at 10
Hz.  For each way to limit the background, with both groups below one parent
(*nested*) or directly below the root (*top*): how late each probe was in the
worst round, and the worst of them in the median round; the median of the
foreground's answers, and their P99, of the median round and from the best to
the worst, and against the same round alone (the mean of the ratios, and where
it lies with a probability of 0.9); how long its threads waited for a CPU, each
time that they ran; the CPUs that the background got.  The ways are played in
turn, round after round.

    sudo python benchmarks/agent/starvation.py [--rounds 5] [--seconds 12]
        [--kind containers] [--boots 1] [--places nested,top]
        [--ways alone,unmanaged,agent-idle,follow,agent]

*alone* is without the hogs.  *agent* is scavenger-standalone, a process with
its usual options and ``protect = cpu``; *agent-idle* the same with
``use_cpu_leftover = false``, *agent-alone* without the hogs.  Without an
agent: *idle* is cpu.idle, *weight* the smallest there is, *weights* that and
the largest for the foreground (Scavenger, section 7), *apart* half of the CPUs
for each side and none shared, *quota* half of the
CPUs, *both* cpu.idle with a quota of 90 % of the CPUs, *follow* cpu.idle with
a quota of 97 % of what everything else leaves over, looked at twice a second;
*follow-weight* that quota with the smallest weight instead of cpu.idle,
*follow-quota* with neither.
*lapses*: how often the agent stood still until its leases ran out.

With ``--kind vms`` they are two guests of a libvirtd of its own, under TCG,
with a vCPU per CPU: the background spins, the foreground answers look-ups,
500 a second.  libvirt puts both below one parent (*nested*).  Then there is
also how long QEMU of the background took to answer ``blockStats``.  How fast a
guest answers depends on its boot: with ``--boots`` all rounds are played with
new guests so often.

Needs a C compiler and memcached, or libvirt and QEMU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

import running_agent
from starvation_places import Containers
from starvation_places import CPUS
from starvation_places import Guests
from starvation_places import Stage
from starvation_places import start
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.tests.functional import base
from scavenger_openstack.text import columns

WAYS = ('alone', 'unmanaged', 'agent-idle', 'follow', 'agent')
OTHER_WAYS = ('idle', 'weight', 'weights', 'apart', 'quota', 'both',
              'follow-weight', 'follow-quota', 'agent-alone')
AGENTS = ('agent', 'agent-idle', 'agent-alone')
ALONE = ('alone', 'agent-alone')
HZ = (100, 1, 10)
FOLLOW_EVERY_S, FOLLOW_SHARE, FLOOR_CORES = 0.5, 0.97, 0.1
SETTLE_S = 5.0
"""Until an agent has learned what is left over."""
ANSWER_EVERY_S = 0.1
AGENT = """
[agent]
protect = cpu
[scavenger]
use_cpu_leftover = {leftover}
{more}"""
PROBE = """
import sys, time
hz, until_s = float(sys.argv[1]), float(sys.argv[2])
worst_s = 0.0
while time.monotonic() < until_s:
    due_s = time.monotonic() + 1 / hz
    time.sleep(1 / hz)
    worst_s = max(worst_s, time.monotonic() - due_s)
print(worst_s)
"""


class Round(NamedTuple):
    """What one round came to, times in s."""

    late_s: list[float]
    p50_s: float
    p99_s: float
    wait_s: float
    background_cpus: float
    lapses: int
    answers_s: list[float]


def limit(stage: Stage, way: str) -> None:
    """Set what the way is about on the background."""
    if way in ('idle', 'both', 'follow'):
        stage.idle(True)
    if way in ('weight', 'weights', 'follow-weight'):
        stage.least_weight()
    if way == 'weights':
        stage.most_weight()
    if way == 'apart':
        stage.apart()
    if way in ('quota', 'both'):
        stage.quota(CPUS * (0.5 if way == 'quota' else 0.9))


def busy_s() -> float:
    """CPU time of the machine that was not idle."""
    with open('/proc/stat', 'rb') as file:
        return sum(proc.busy_s(file.read()).values())


def at_once() -> None:
    """Let this thread run before ordinary ones."""
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR,
                          os.sched_param(1))


def follow(stage: Stage, ended: threading.Event) -> None:
    """Leave the background a little less than is left over."""
    at_once()
    time_s, busy, own = time.monotonic(), busy_s(), stage.cpu_s()
    while not ended.wait(FOLLOW_EVERY_S):
        last_s, last_busy, last_own = time_s, busy, own
        time_s, busy, own = time.monotonic(), busy_s(), stage.cpu_s()
        others = max(0.0, busy - last_busy - (own - last_own)) / (
            time_s - last_s)
        stage.quota(max(FLOOR_CORES, FOLLOW_SHARE * (CPUS - others)))


def answers(stage: Stage, ended: threading.Event, took_s: list[float]
            ) -> None:
    """How long QEMU takes, again and again."""
    at_once()
    while not ended.wait(ANSWER_EVERY_S):
        asked_s = time.monotonic()
        stage.answer()
        took_s.append(time.monotonic() - asked_s)


@contextlib.contextmanager
def running(target: Callable[..., None], stage: Stage, *more: object
            ) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=target, args=(stage, ended, *more))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def play(stage: Stage, way: str, seconds: float) -> Round:
    """One round."""
    with contextlib.ExitStack() as stack:
        third = stack.enter_context(base.CgroupTree())
        took_s: list[float] = []
        if way not in ALONE:
            stage.work()
        limit(stage, way)
        if way.startswith('follow'):
            stack.enter_context(running(follow, stage))
        agent = None
        if way in AGENTS:
            # In memory, as /run is: the guests' disks are beside /tmp.
            directory = stack.enter_context(tempfile.TemporaryDirectory(
                dir='/dev/shm'))
            agent = stack.enter_context(running_agent.Agent(
                pathlib.Path(directory), AGENT.format(
                    leftover=way != 'agent-idle', more=stage.config)))
        time.sleep(SETTLE_S)
        before_s, begun_s = stage.cpu_s(), time.monotonic()
        before_wait_s, before_runs = stage.waited()
        until_s = begun_s + seconds
        stack.enter_context(running(answers, stage, took_s))
        probes = []
        for hz in HZ:
            argv = (sys.executable, '-c', PROBE, str(hz), str(until_s))
            probes.append(start(third, '', *argv) if hz == HZ[-1] else
                          subprocess.Popen(argv, stdout=subprocess.PIPE))
        p50_s, p99_s = stage.ask(until_s)()
        late_s = [float(probe.communicate(timeout=60)[0])
                  for probe in probes]
        cpus = (stage.cpu_s() - before_s) / (time.monotonic() - begun_s)
        wait_s, runs = stage.waited()
        return Round(
            late_s, p50_s, p99_s,
            (wait_s - before_wait_s) / max(1, runs - before_runs), cpus,
            agent.log().count('the leases ran out') if agent else 0, took_s)


def rounds(args: argparse.Namespace) -> dict[tuple[str, str], list[Round]]:
    """All rounds, by place and way."""
    found: dict[tuple[str, str], list[Round]] = {}
    for boot in range(args.boots):
        with contextlib.ExitStack() as stack:
            guests = Guests(stack) if args.kind == 'vms' else None
            for number in range(args.rounds):
                for where in args.places.split(','):
                    for way in args.ways.split(','):
                        running_agent.show(f'boot {boot + 1} round '
                                           f'{number + 1} {where} {way}')
                        found.setdefault((where, way), []).append(
                            one_round(guests, where, way, args.seconds))
    running_agent.show('')
    return found


def one_round(guests: Guests | None, where: str, way: str, seconds: float
              ) -> Round:
    with contextlib.ExitStack() as stack:
        if guests is not None:
            stack.callback(guests.free)
        return play(guests or Containers(stack, where), way, seconds)


def against(p99_s: list[float], alone_s: list[float]) -> str:
    """The mean ratio of the same rounds, and its interval of 90 %."""
    logs = [math.log(one / other)
            for one, other in zip(p99_s, alone_s, strict=True)]
    if len(logs) < 2:
        return f'{math.exp(logs[0]):.2f}'
    far = (statistics.NormalDist().inv_cdf(0.95) * statistics.stdev(logs)
           / math.sqrt(len(logs)))
    mean = statistics.mean(logs)
    return f'{math.exp(mean):.2f} ({math.exp(mean - far):.2f}-' \
           f'{math.exp(mean + far):.2f})'


def ms(seconds: float) -> str:
    return f'{1e3 * seconds:.1f}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=12)
    parser.add_argument('--boots', type=int, default=1,
                        help='with VMs: how often they are made (1)')
    parser.add_argument('--kind', choices=('containers', 'vms'),
                        default='containers')
    parser.add_argument('--ways', default=','.join(WAYS))
    parser.add_argument('--places', default='')
    args = parser.parse_args()
    args.places = args.places or (
        'nested' if args.kind == 'vms' else 'nested,top')
    wrong = set(args.ways.split(',')) - {*WAYS, *OTHER_WAYS}
    if wrong or set(args.places.split(',')) - {'nested', 'top'}:
        parser.error(f'no such way or place: {", ".join(wrong)}')
    if args.kind != 'vms' and args.boots != 1:
        parser.error('only VMs boot')
    if args.kind == 'vms' and args.places != 'nested':
        parser.error('VMs are nested')
    if args.kind == 'containers' and not shutil.which('memcached'):
        parser.error('memcached is not installed')
    def work() -> int:
        show(args, rounds(args))
        return 0

    return running_agent.guarded(work) if args.kind == 'vms' else work()


def show(args: argparse.Namespace,
         found: dict[tuple[str, str], list[Round]]) -> None:
    """Print the table."""
    kernel = pathlib.Path('/proc/sys/kernel/osrelease').read_text().strip()
    print(f'Linux {kernel}, {CPUS} CPUs, cgroup v{base.version()}, '
          f'{args.kind}, {args.rounds} rounds of {args.seconds:g} s'
          + (f', {args.boots} boots' if args.kind == 'vms' else ''))
    body = []
    for (where, way), every in found.items():
        took_s = [one for each in every for one in each.answers_s]
        p99_s = sorted(one.p99_s for one in every)
        alone = found.get((where, 'alone'))
        body.append((
            where, way,
            *(f'{max(one.late_s[i] for one in every):.3f}'
              for i in range(len(HZ))),
            f'{statistics.median(max(one.late_s) for one in every):.3f}',
            f'{1e3 * statistics.median(one.p50_s for one in every):.2f}',
            f'{ms(statistics.median(p99_s))} '
            f'({ms(p99_s[0])}-{ms(p99_s[-1])})',
            '' if alone is None or way == 'alone' else against(
                [one.p99_s for one in every], [one.p99_s for one in alone]),
            f'{1e6 * statistics.median(one.wait_s for one in every):.0f}',
            f'{statistics.median(o.background_cpus for o in every):.2f}',
            str(sum(one.lapses for one in every)),
            *((ms(statistics.median(took_s)), ms(max(took_s)))
              if args.kind == 'vms' else ())))
    print('\n'.join(columns(
        ('place', 'way', 'latest s: root 100 Hz', 'root 1 Hz', 'group 10 Hz',
         'median round', 'P50 ms', 'P99 ms', 'of alone', 'wait us',
         'background CPUs', 'lapses',
         *(('QEMU ms', 'worst') if args.kind == 'vms' else ())), body)))


if __name__ == '__main__':
    sys.exit(main())
