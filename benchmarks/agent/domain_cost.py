# SPDX-License-Identifier: Apache-2.0


"""What the agent costs beside many domains, and what it costs libvirtd.

Starts a libvirtd of its own with real QEMUs (root), half of them background;
at each number of domains runs the real agent at 1 Hz, its state on a tmpfs as
/run is, and prints: CPU of the agent's process; CPU of libvirtd and of all
QEMUs meanwhile, and of libvirtd without the agent; calls to libvirt by the
thread that ticks, and by all others; wall and CPU time of a tick.

A 'small' domain is machine isapc with 8 MB and no devices; one that is
'usual' has a disk and a NIC.  They are 'paused', so that their vCPUs never
run, or 'idle': the firmware has nothing to boot and waits.  Nothing is
asserted.

    python benchmarks/agent/domain_cost.py [--domains 10,50,100] [--seconds 60]

The agent works for some milliseconds in a second, so what it costs is mostly
what a CPU forgets meanwhile: the same work takes twice as long on a CPU that
was left idle, or that others used.  With --cpu it is measured on one CPU.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
import contextlib
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

from libvirt_calls import Call
from libvirt_calls import Turn
from running_agent import Agent
from running_agent import guarded
from running_agent import libvirt_section
from running_agent import say
from running_agent import wait_until
from slow_loop import cpu_s
from slow_loop import memory_bytes

from scavenger_openstack import errors
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host

CONFIG = """\
[agent]
controllers = {controllers}
{libvirt}[scavenger]
mode = {mode}
[io_shares]
mode = {mode}
[attribution]
mode = {mode}
"""

TITLES = ('domains', 'agent %', 'MiB', 'libvirtd s/min', 'without',
          'QEMUs %', 'calls in ticks', 'others/min', 'tick ms', 'p99',
          'CPU ms', 'p99')


def domain(number: int, args: argparse.Namespace,
           host: hypervisor.Hypervisor) -> domain_guest.DomainGuest:
    """One of them; every second is background."""
    name = f'vm-{number:03}'
    more: dict[str, Any] = {}
    if args.kind == 'usual':
        more = {'machine': 'pc', 'memory_bytes': 16 * 2**20,
                'disks': (domain_guest.Disk.make(host.disks / name, 2**20),),
                'interfaces': (domain_guest.Interface(
                    tap=f'scvc{host.host_uuid[:4]}-{number:03}',
                    mac=f'52:54:00:98:00:{number:02x}'),)}
    make = virtual_host.tiny if number % 2 else domain_guest.tiny
    return make(name, paused=args.state == 'paused', **more)


def qemus_cpu_s(host: hypervisor.Hypervisor) -> float:
    return int(host.tree.read('cpuacct', '/machine', 'cpuacct.usage')) / 1e9


def measure(host: hypervisor.Hypervisor, count: int,
            args: argparse.Namespace) -> dict[str, Any]:
    """The figures of an agent beside so many domains."""
    libvirtd_s = host.cpu_s()
    wait_until(time.monotonic() + args.without, f'{count} domains, no agent')
    without_s = (host.cpu_s() - libvirtd_s) / args.without
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(tempfile.TemporaryDirectory(
            dir='/dev/shm'))
        host.at_end('rm', '-rf', shared)
        directory = pathlib.Path(shared)
        counted = directory / 'calls.json'
        with Agent(directory, CONFIG.format(
                controllers=args.controllers, mode=args.mode,
                libvirt=libvirt_section(host)),
                program=('-P', str(pathlib.Path(__file__).with_name(
                    'libvirt_calls.py')), str(counted)),
                   cpu=args.cpu) as agent:
            wait_until(time.monotonic() + args.warm_up,
                       f'{count} domains, the agent warms up', agent)
            agent.look()
            seen = sum(agent.status.last['workloads'].values())
            if seen != count:
                raise errors.DriverError(
                    f'the agent sees {seen} of {count} domains: '
                    f'{agent.said()}')
            began_s = time.monotonic()
            agent_s, libvirtd_s, qemus_s = (cpu_s(agent.pid), host.cpu_s(),
                                            qemus_cpu_s(host))
            wait_until(began_s + args.seconds, f'{count} domains')
            ended_s = time.monotonic()
            agent_s, libvirtd_s, qemus_s = (
                cpu_s(agent.pid) - agent_s, host.cpu_s() - libvirtd_s,
                qemus_cpu_s(host) - qemus_s)
            used = memory_bytes(agent.pid)
            agent.look()
            status = agent.status.last
        found = json.loads(counted.read_text())
        log = agent.log()
    took_s = ended_s - began_s
    calls = [call for one in found['calls']
             if began_s <= (call := Call(*one)).at_s < ended_s]
    turns = [turn for one in found['turns']
             if began_s <= (turn := Turn(*one)).at_s < ended_s]
    ticking = [call for call in calls if call.thread == found['main']]
    others = collections.Counter(
        (call.thread, call.name) for call in calls
        if call.thread != found['main'])
    return {
        'domains': count, 'took_s': took_s, 'agent_share': agent_s / took_s,
        'rss_bytes': used, 'libvirtd_s_per_min': 60 * libvirtd_s / took_s,
        'without_s_per_min': 60 * without_s,
        'qemus_share': qemus_s / took_s, 'in_ticks': len(ticking),
        'others_per_min': {' '.join(key): 60 * number / took_s
                           for key, number in others.items()},
        'block_stats_s': [call.took_s for call in calls
                          if 'GetAllDomainStats' in call.name
                          or 'DomainListGetStats' in call.name],
        'tick_s': [turn.took_s for turn in turns],
        'tick_cpu_s': [turn.cpu_s for turn in turns],
        'caps': len(status['caps']), 'problems': status['problems'],
        'warnings': [line for line in log.splitlines()
                     if ' WARNING ' in line or ' ERROR ' in line]}


def row(one: dict[str, Any]) -> str:
    cells = (
        str(one['domains']), f'{100 * one["agent_share"]:.3f}',
        f'{one["rss_bytes"] / 2**20:.0f}',
        f'{one["libvirtd_s_per_min"]:.3f}',
        f'{one["without_s_per_min"]:.3f}',
        f'{100 * one["qemus_share"]:.1f}', str(one['in_ticks']),
        f'{sum(one["others_per_min"].values()):.0f}',
        *(f'{1000 * value:.2f}' for times in (one['tick_s'],
                                              one['tick_cpu_s'])
          for value in (statistics.median(times), p99(times))))
    return '  '.join(cell.rjust(len(title)) for title, cell
                     in zip(TITLES, cells, strict=True))


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def more_of(one: dict[str, Any]) -> list[str]:
    """What does not fit into the table."""
    found = [f'{one["domains"]} domains, calls per minute outside of ticks: '
             + ', '.join(f'{name} {number:.0f}' for name, number
                         in sorted(one['others_per_min'].items()))]
    if one['block_stats_s']:
        found.append(
            f'  statistics of all disks take '
            f'{1000 * statistics.median(one["block_stats_s"]):.0f} ms '
            f'(median), {1000 * max(one["block_stats_s"]):.0f} (most); '
            f'caps in force: {one["caps"]}; problems: '
            f'{len(one["problems"])}; warnings: {len(one["warnings"])}')
    return found + [f'  {line}' for line in
                    [*one['problems'], *one['warnings']][:3]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--domains', default='10,50,100')
    parser.add_argument('--kind', choices=['usual', 'small'],
                        default='usual')
    parser.add_argument('--state', choices=['paused', 'idle'],
                        default='paused')
    parser.add_argument('--controllers',
                        default='scavenger,io_shares,attribution')
    parser.add_argument('--mode', choices=['observe', 'enforce'],
                        default='observe')
    parser.add_argument('--warm-up', type=float, default=20)
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--without', type=float, default=20,
                        help='seconds in which libvirtd is measured without '
                             'an agent')
    parser.add_argument('--cpu', type=int, metavar='N',
                        help='let the agent use this CPU only')
    parser.add_argument('--json', type=pathlib.Path)
    args = parser.parse_args()

    def work() -> int:
        found: list[dict[str, Any]] = []
        with hypervisor.Hypervisor() as host:
            print(f'{args.kind} domains, {args.state}; {args.controllers}, '
                  f'{args.mode}; {args.seconds:g} s each')
            print('  '.join(TITLES), flush=True)
            started = 0
            for count in sorted(map(int, args.domains.split(','))):
                say(f'{count - started} more domains start')
                host.start_all([domain(number, args, host)
                                for number in range(started, count)])
                started = count
                found.append(measure(host, count, args))
                print(row(found[-1]), flush=True)
        for one in found:
            print('\n'.join(more_of(one)))
        if args.json:
            args.json.write_text(json.dumps(found))
        return 0

    return guarded(work)


if __name__ == '__main__':
    sys.exit(main())
