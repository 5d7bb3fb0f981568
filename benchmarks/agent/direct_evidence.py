# SPDX-License-Identifier: Apache-2.0

"""What direct evidence for CPUs costs.

Runs threads that sleep and wake on all CPUs, in a cgroup of its own that
plays the victim (root), and asks the real driver for one window after the
other.  *Reading* is the agent's CPU time in it: to load, to read, to look up
whose the threads are.  *Counting* is what the kernel's programs add to each
context switch: the CPU time of two processes on one CPU that wake each other,
without and with a window, in turn, the least of each.  A window costs both; in
the mean that is spread over the time from one window to the next.

Nothing is asserted; numbers compare only within one run::

    sudo python benchmarks/agent/direct_evidence.py [--threads 200]
        [--hertz 50] [--window 2] [--period 30] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple
import uuid

from oslo_config import cfg

from scavenger_openstack.agent import parts
from scavenger_openstack import conf as conf_
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.types import Resource

BAR = 0.002
"""Of one CPU, in the mean."""

NAPPERS = '''
import os, sys, threading, time
threads, hertz, *files = sys.argv[1:]
for file in files:
    open(file, 'w').write('0')
def nap():
    while True:
        time.sleep(1 / float(hertz))
for _ in range(os.cpu_count()):
    if not os.fork():
        os.close(1)
        for _ in range(int(threads) // os.cpu_count() - 1):
            threading.Thread(target=nap, daemon=True).start()
        nap()
print('all')
time.sleep(3600)
'''

PING_PONG = '''
import os, resource, sys, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
# What else runs on this machine does not get in between.
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
(asked, ask), (answered, answer) = os.pipe(), os.pipe()
if not os.fork():
    os.close(ask)
    while os.read(asked, 1):
        os.write(answer, b'x')
    os._exit(0)
os.close(asked)
count = int(sys.argv[1])
for _ in range(count):
    os.write(ask, b'x')
    os.read(answered, 1)
os.close(ask)
os.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print((time.process_time() + used.ru_utime + used.ru_stime) / (2 * count))
'''


class Window(NamedTuple):
    """One window: CPU seconds of the agent, seconds that asking took, and
    context switches per second, of the host and of the victim."""

    cpu_s: float
    open_s: float
    end_s: float
    waited_s: float
    host_per_s: float
    victim_per_s: float


def switches(procs: pathlib.Path) -> tuple[float, int, int]:
    """When, and context switches until then: of this host, and away from
    the processes of a cgroup."""
    host = re.search(r'^ctxt (\d+)$', pathlib.Path('/proc/stat').read_text(),
                     re.MULTILINE)
    assert host is not None
    return time.monotonic(), int(host[1]), sum(
        int(count) for pid in procs.read_text().split()
        for status in pathlib.Path(f'/proc/{pid}/task').glob('*/status')
        for count in re.findall(r'ctxt_switches:\s*(\d+)',
                                status.read_text()))


def switch_s(count: int) -> float:
    """CPU seconds for a context switch, and what two programs do at one."""
    return float(subprocess.run(
        [sys.executable, '-c', PING_PONG, str(count)], check=True,
        capture_output=True, text=True).stdout)


def host(parent: str, directory: str) -> base.Driver:
    """The driver of an agent that protects what is below ``parent``."""
    path = pathlib.Path(directory, 'agent.conf')
    path.write_text('\n'.join((
        '[cgroups]', f'foreground_parents = {parent}', '[libvirt]', 'uri =',
        '[perf]', 'enabled = off')))
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, ['--config-file', str(path), '--state-dir', directory],
               'benchmark')
    return parts.load_driver(conf)


def one_window(driver: base.Driver, victim: str, window_s: float,
               procs: pathlib.Path) -> Window:
    driver.sample()
    before = switches(procs)
    began, cpu_s = time.monotonic(), time.process_time()
    driver.ask([(victim, Resource.CPU)])
    opened = time.monotonic()
    time.sleep(window_s)
    ending = time.monotonic()
    driver.ask(())
    ended, cpu_s = time.monotonic(), time.process_time() - cpu_s
    after = switches(procs)
    passed_s = after[0] - before[0]
    answers = driver.sample().direct
    if not answers or answers[0].shared:
        raise SystemExit(f'no direct evidence: {driver.facts().grade}')
    return Window(cpu_s, opened - began, ended - ending, answers[0].waited_s,
                  (after[1] - before[1]) / passed_s,
                  (after[2] - before[2]) / passed_s)


def measure(args: argparse.Namespace, parent: str, procs: pathlib.Path
            ) -> list[Window]:
    with tempfile.TemporaryDirectory() as directory:
        driver = host(parent, directory)
        try:
            return [one_window(driver, f'{parent}/victim', args.window, procs)
                    for _ in range(args.rounds)]
        finally:
            driver.close()


class Switch(NamedTuple):
    """CPU seconds of a context switch without a window, and how many more
    with one: of threads of no victim, and of a victim."""

    alone_s: float
    other_s: float
    victim_s: float


def switch_costs(rounds: int) -> Switch:
    plain, other, victim = [], [], []
    for _ in range(rounds):
        plain.append(switch_s(50_000))
        waits = cpu_waits.CpuWaits({'victim': ()})
        try:
            other.append(switch_s(50_000))
            # And what this process starts.
            waits.watch({'victim': [os.getpid()]})
            victim.append(switch_s(50_000))
        finally:
            waits.close()
    return Switch(min(plain), min(other) - min(plain),
                  min(victim) - min(plain))


def report(windows: list[Window], switch: Switch, period_s: float,
           window_s: float) -> None:
    cpu_s, open_s, end_s, waited_s, host_per_s, victim_per_s = (
        statistics.median(column) for column in zip(*windows, strict=True))
    counting_s = window_s * (
        switch.victim_s * victim_per_s
        + switch.other_s * max(0.0, host_per_s - victim_per_s))
    share = (cpu_s + counting_s) / period_s
    print(f'{host_per_s:.0f} context switches per second, {victim_per_s:.0f} '
          f'of them away from the victim, which waited {waited_s:.2f} s in '
          f'{window_s:g} s')
    print(f'reading   {1e3 * cpu_s:8.1f} ms of CPU per window; the tick takes '
          f'{1e3 * open_s:.0f} ms longer at its beginning, '
          f'{1e3 * end_s:.0f} ms at its end')
    print(f'counting  {1e3 * counting_s:8.1f} ms of CPU per window: '
          f'{1e6 * switch.victim_s:.2f} us more for a switch of the '
          f'victim ({1e6 * switch.other_s:.2f} us for others) that takes '
          f'{1e6 * switch.alone_s:.2f} us')
    print(f'in all    {1e3 * (cpu_s + counting_s):8.1f} ms; one window every '
          f'{period_s:g} s takes {100 * share:.3f} % of a CPU, '
          f'{share / BAR:.2f} times the bar of {100 * BAR:g} %')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--threads', type=int, default=200)
    parser.add_argument('--hertz', type=float, default=50.0,
                        help='how often each wakes up, default %(default)s')
    parser.add_argument('--window', type=float, default=2.0,
                        help='seconds, default %(default)s')
    parser.add_argument('--period', type=float, default=30.0,
                        help='seconds from window to window, default '
                             '%(default)s')
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    if os.geteuid() != 0:
        print('needs root: it makes a cgroup', file=sys.stderr)
        return 2
    mounts = cgroup_mounts.find_mounts()
    mount = mounts.get('cpu') or mounts['unified']
    parent = f'/scv-bench-{uuid.uuid4().hex[:8]}'
    top = pathlib.Path(mount.path + parent)
    (top / 'victim').mkdir(parents=True)
    load = subprocess.Popen(
        [sys.executable, '-c', NAPPERS, str(args.threads), str(args.hertz),
         str(top / 'victim/cgroup.procs')], stdout=subprocess.PIPE, text=True)
    try:
        assert load.stdout is not None
        load.stdout.readline()
        time.sleep(1.0)
        windows = measure(args, parent, top / 'victim/cgroup.procs')
    finally:
        for path in (top / 'victim', top):
            for pid in (path / 'cgroup.procs').read_text().split():
                os.kill(int(pid), 9)
        load.communicate()
        for path in (top / 'victim', top):
            for _ in range(500):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.01)    # its last process is still ending
    report(windows, switch_costs(args.rounds), args.period, args.window)
    return 0


if __name__ == '__main__':
    sys.exit(main())
