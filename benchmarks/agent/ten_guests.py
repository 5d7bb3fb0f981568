# SPDX-License-Identifier: Apache-2.0


"""Ten guests on two CPUs and one disk: which disturbs, and does a limit help?

Starts a libvirtd of its own with ten guests under TCG (root): three are the
instances of one foreground application, a service that reads from its disk
and computes under open load and measures its own latency; one background
guest takes the CPUs and one the disk, each for some seconds at a time, at
random; of five other background guests three do a little and two nothing.
The real agent, with the detector ``attribution`` in enforce mode and nothing
else (regulators would limit the two before they could disturb others), sees
only what it always sees.  With ``--controllers`` other ones enforce, too:
``scavenger,io_shares,attribution`` is what a fresh install has here.  Only
the limits of the detector count as caps.

Prints, before a guest disturbs, while one does that is not limited, while all
that do are, and after they have stopped: the victims' own work, what each
guest used, which was named for which victim and why, the caps, and whether in
the end all domains are as they were.  Nothing is asserted; numbers compare
only within one run.  It takes --quiet + --seconds + --after, and some two
minutes.

    python benchmarks/agent/ten_guests.py [--seconds 300] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import contextlib
import json
import os
import pathlib
import sys
import time
from typing import Any

from running_agent import Agent
from running_agent import guarded
from running_agent import libvirt_section
from running_agent import say
from running_agent import show
import ten_guests_report

from ten_guests_work import Hog
from ten_guests_work import ON_S
from ten_guests_work import turns
from ten_guests_work import Victim
from ten_guests_work import Worker
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack import errors
from scavenger_openstack.recording import replay
from scavenger_openstack.tests.functional import domain_console
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob

CPUS = 2
"""So many are shared by all; more would leave room for everybody."""

APPLICATION = ('shop-1', 'shop-2', 'shop-3')
CPU_HOG, DISK_HOG = 'cruncher', 'scanner'
HOGS = {CPU_HOG: str(Knob.CPU_CORES), DISK_HOG: str(Knob.IO_BYTES_PER_S)}
"""By what each should be limited."""

OTHERS: Mapping[str, str] = {
    'logger': 'disk write seq kib=16 bytes_per_s=100000',
    'poller': 'lookup per_s=5', 'reader': 'disk kib=16 bytes_per_s=200000',
    'idle-1': '', 'idle-2': ''}
NAMES = (*APPLICATION, *HOGS, *OTHERS)

SHARES = """
  <cputune><shares>{}</shares></cputune>"""
HOG_VCPUS = 2
HOG_SHARES = 1024 * HOG_VCPUS
"""By its vCPUs, as nova-compute sets them on hosts with cgroup v1."""

PER_S = 40
"""Requests that are due in a second, of each instance."""

CORES = 0.33
"""What they take of a CPU; run_delay below 0.25 is not looked at."""


TRIAL_S = 4
DISK_BYTES_PER_S = 120_000_000
"""Of the disk that all share.  An emulated guest that reads a fast one takes
half a CPU for that, and is a CPU hog."""

DISK_MIB = 48
SCANNED_MIB = 256
REMOVE_TIMEOUT_S = 180.0
EVERY_S = 0.25

CONFIG = """\
[agent]
controllers = {controllers}
{libvirt}stats_ticks = {stats_ticks}
{modes}[attribution]
sample_s = {sample_s:g}
"""

MODE = """\
[{}]
mode = enforce
"""


class Stage:
    """The hypervisor and its guests; all of it ends with ``stack``."""

    def __init__(self, stack: contextlib.ExitStack, shares: int) -> None:
        self.host = stack.enter_context(hypervisor.Hypervisor(
            disk_bytes_per_s=DISK_BYTES_PER_S))
        self.host.tree.write('cpu', '', 'cpu.shares', str(shares))
        cpus = format_cpus(frozenset(sorted(os.sched_getaffinity(0))[:CPUS]))
        project = domain_guest.new_uuid()
        self.guests = {}
        for name in NAMES:
            specs = (virtual_host.BACKGROUND if name not in APPLICATION
                     else {'scavenger:application': 'shop'})
            more: dict[str, Any] = {}
            if name == CPU_HOG:
                more = {'vcpus': HOG_VCPUS,
                        'extra': SHARES.format(HOG_SHARES)}
            self.guests[name] = domain_guest.DomainGuest(
                name=name, cpuset=cpus, nova=domain_guest.Nova(
                    name=name, project_uuid=project, extra_specs=specs),
                disks=(filled(self.host.disks / name, SCANNED_MIB
                              if name == DISK_HOG else DISK_MIB),), **more)
        self.names = {guest.uuid: name
                      for name, guest in self.guests.items()}
        self.host.start_all(list(self.guests.values()))
        self.consoles = {name: self.host.console(name) for name in NAMES}
        with futures.ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(domain_console.Console.keep_time,
                          self.consoles.values()))

    def cpu_s(self) -> float:
        """CPU time of all that is of the application, in seconds."""
        machines = self.host.tree.path('cpuacct', '/machine')
        return sum(int((path / 'cpuacct.usage').read_text())
                   for name in APPLICATION
                   for path in machines.glob(f'qemu-*-{name}.*')) / 1e9

    def limits(self) -> dict[str, list[list[str]]]:
        """What limits each domain, as it runs and as it is defined."""
        return {name: [virtual_host.limits(self.host, name, *options)
                       for options in ((), ('--inactive',))]
                for name in NAMES}


def filled(path: pathlib.Path, size_mib: int) -> domain_guest.Disk:
    """A disk on a file without holes, which would cost no reading.

    :raises DriverError: its pages would be kept in memory.
    """
    with path.open('wb') as file:
        for _ in range(size_mib):
            file.write(os.urandom(2**20))
        os.fsync(file.fileno())
    if not domain_guest.direct_io(path):
        raise errors.DriverError(f'{path.parent}: no disk that can be read '
                                 'past the page cache; set TMPDIR to a '
                                 'directory that is on one')
    return domain_guest.Disk(path=path)


def work_of(stage: Stage) -> str:
    """What each instance has to do to take its part of a CPU.

    Of two trials: what a request costs besides what it computes, and that.

    :raises DriverError: the machine has other work to do.
    """
    consoles = [stage.consoles[name] for name in APPLICATION]
    consoles[0].tell('cpu 1')
    most = max(2, round(CORES * consoles[0].measure(3).per_s / PER_S))
    tried = []
    for rounds in (1, most):
        for console in consoles:
            console.tell(f'lookup per_s={PER_S} rounds={rounds}')
        consoles[0].measure(1)
        cpu_s, began_s = stage.cpu_s(), time.monotonic()
        consoles[0].measure(TRIAL_S)
        tried.append((stage.cpu_s() - cpu_s) / (time.monotonic() - began_s))
    least, cores = (value / len(consoles) for value in tried)
    if cores - least < CORES / 4:
        raise errors.DriverError(
            f'each instance got {cores:.2f} cores where it wanted {CORES:g}: '
            'this machine has other work to do, see what runs')
    rounds = 1 + round((most - 1) * (CORES - least) / (cores - least))
    return f'lookup per_s={PER_S} rounds={max(1, rounds)}'


def play(args: argparse.Namespace) -> dict[str, Any]:
    """Everything that was seen; see :mod:`ten_guests_report`."""
    with contextlib.ExitStack() as stack:
        say('ten guests start')
        stage = Stage(stack, args.shares)
        work = work_of(stage)
        say(f'each instance of the application does: {work}')
        before = stage.limits()
        for name in APPLICATION:
            stage.consoles[name].tell(work)
        for name, command in OTHERS.items():
            stage.consoles[name].tell(command or 'rest')
        directory = stage.host.directory / 'agent'
        directory.mkdir()
        recording = directory / 'recording'
        agent = stack.enter_context(Agent(directory, CONFIG.format(
            controllers=args.controllers,
            libvirt=libvirt_section(stage.host), sample_s=args.sample_s,
            stats_ticks=args.stats_ticks, modes=''.join(
                MODE.format(name) for name in args.controllers.split(','))),
            '--record', str(recording)))
        start_s = time.monotonic()
        workers: list[Worker] = [
            Victim(name, stage.consoles[name]) for name in APPLICATION]
        for name, command, first_s in (
                (CPU_HOG, f'cpu {HOG_VCPUS}', args.quiet),
                (DISK_HOG, args.scan, args.quiet + ON_S / 2)):
            workers.append(Hog(
                name, stage.consoles[name], command, turns(
                    name, args.seed, first_s, args.quiet + args.seconds),
                start_s))
        for worker in workers:
            stack.callback(worker.end)
            worker.start()
        looks = watch(stage, agent, workers, start_s, args)
        after = stage.limits()
        log = agent.log()
        reports = {one.name: one.reports for one in workers}
        worked = {one.name: one.worked for one in workers
                  if isinstance(one, Hog)}
        used = usage(recording, stage.names)
    return {'start_s': start_s, 'quiet_s': args.quiet,
            'sample_s': args.sample_s, 'work': work, 'looks': looks,
            'victims': APPLICATION, 'knobs': HOGS, 'reports': reports,
            'worked': worked, 'used': used,
            'limits_before': before, 'limits_after': after, 'log': log}


def watch(stage: Stage, agent: Agent, workers: Sequence[Worker],
          start_s: float, args: argparse.Namespace) -> list[dict[str, Any]]:
    """What the agent says, until no limit is left and some time after."""
    looks: list[dict[str, Any]] = []
    stopped_s = start_s + args.quiet + args.seconds
    until_s = stopped_s + REMOVE_TIMEOUT_S
    removed = False
    said: set[str] = set()
    while (now_s := time.monotonic()) < until_s:
        for worker in workers:
            if worker.failed:
                raise errors.DriverError(worker.failed)
        if agent.look():
            looks.append(look(agent.status.last, stage.names, now_s))
            for line in ten_guests_report.news(looks[-1]):
                if line not in said:
                    said.add(line)
                    say(f'{now_s - start_s:5.0f} s  {line}')
            if (not removed and now_s > stopped_s and not looks[-1]['caps']
                    and all(one.worked and one.worked[-1][1] <= now_s
                            for one in workers if isinstance(one, Hog))):
                removed = True
                until_s = now_s + args.after
                say(f'{now_s - start_s:5.0f} s  the hogs have stopped and '
                    'all limits are removed')
        show(f'{until_s - now_s:.0f} s left, or less')
        time.sleep(EVERY_S)
    show('')
    return looks


def look(status: Mapping[str, Any], names: Mapping[str, str], at_s: float
         ) -> dict[str, Any]:
    """What matters of a status, with names in the place of UUIDs."""
    def named(text: str) -> str:
        for one, name in names.items():
            text = text.replace(one, name)
        return text

    return json.loads(named(json.dumps({
        'at_s': at_s, 'caps': [cap for cap in status['caps']
                               if cap['owner'] == 'attribution'],
        'incidents': status['incidents'],
        'cpu_share': status['cpu_share']})))


def usage(recording: pathlib.Path, names: Mapping[str, str]
          ) -> list[dict[str, Any]]:
    """What the agent saw of each guest in each tick, by the same clock."""
    offset_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    found: list[dict[str, Any]] = []
    previous = None
    for turn in replay.read(recording):
        if turn.sample is None:
            continue
        rates = rates_.rates(previous, turn.sample)
        previous = turn.sample
        found.append({'at_s': rates.time_s - offset_s, 'guests': {
            names[one.workload.id]: {
                'cores': one.cpu_cores, 'run_delay': one.run_delay,
                'io_wait_s': one.io_wait_s_per_op,
                'io_bytes_per_s': one.io_bytes_per_s}
            for one in rates.workloads if one.workload.id in names}})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--quiet', type=float, default=75,
                        help='seconds before a guest disturbs (%(default)s)')
    parser.add_argument('--seconds', type=float, default=300,
                        help='from the first disturbance to the last '
                             '(%(default)s)')
    parser.add_argument('--after', type=float, default=30,
                        help='seconds after the last limit was removed '
                             '(%(default)s)')
    parser.add_argument('--controllers', default='attribution',
                        help='of the agent, with commas (%(default)s)')
    parser.add_argument('--sample-s', type=float, default=5,
                        help='[attribution] sample_s (%(default)s, as '
                             'shipped)')
    parser.add_argument('--stats-ticks', type=int, default=5,
                        help='[libvirt] stats_ticks (%(default)s, as '
                             'shipped)')
    parser.add_argument('--scan', default='disk kib=1024 threads=4',
                        help='what the disk hog does (%(default)s); see '
                             'tests/functional/domain_console.py')
    parser.add_argument('--seed', default='1')
    parser.add_argument('--json', type=pathlib.Path,
                        help='write all that was seen to this file')
    parser.add_argument('--shares', type=int, default=1024,
                        help="cpu.shares of all guests together, against "
                             "the machine's other work (%(default)s)")
    args = parser.parse_args()

    def work() -> int:
        record = play(args)
        if args.json:
            args.json.write_text(json.dumps(record))
        print(ten_guests_report.text(record))
        return 0

    return guarded(work)


if __name__ == '__main__':
    sys.exit(main())
