# SPDX-License-Identifier: Apache-2.0


"""What keeps this machine busy beside the demo: which programs, how much.

The CPU time of the machine is compared with that of the demo's cgroups and of
the processes that descend from the demo (the agent, its watcher, the demo
itself).  The rest is other load.  What a hypervisor took away (steal) is
counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import pathlib
from typing import Any
from typing import NamedTuple

from scavenger_openstack.types import printable

OTHER_CPUS = 0.15
"""Other load, in CPUs, above which a latency is not trusted; a quiet machine
with two was seen at 0.01 to 0.09, mostly the kernel's own threads."""
OTHER_SHARE = 0.05
"""The same on a large machine, where more programs run: a share of its CPUs,
from four CPUs on."""
STOLEN_SHARE = 0.05
"""Likewise of the CPUs, what a hypervisor took away."""
NAMED_CPUS = 0.02
NAMED = 3
PROC = pathlib.Path('/proc')
TICKS_PER_S = os.sysconf('SC_CLK_TCK')


class Process(NamedTuple):
    """One process, as :file:`/proc/PID/stat` has it."""

    pid: int
    name: str
    parent: int
    started: int
    cpu_s: float


class Look(NamedTuple):
    """Totals of the machine at one moment; they only ever grow."""

    at_s: float
    busy_s: float
    stolen_s: float
    demo_s: float
    members: frozenset[int]
    processes: Mapping[int, Process]


def machine_s(proc: pathlib.Path = PROC) -> tuple[float, float]:
    """CPU time used and CPU time stolen by a hypervisor, in s."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, (proc / 'stat').read_text().split(None, 9)[1:9])
    return ((user + nice + system + irq + softirq) / TICKS_PER_S,
            steal / TICKS_PER_S)


def processes(proc: pathlib.Path = PROC) -> dict[int, Process]:
    """Every process that is here now."""
    found = {}
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                text = (proc / entry / 'stat').read_text(errors='replace')
            except OSError:
                continue   # it ended meanwhile
            name, _, rest = text.partition('(')[2].rpartition(')')
            field = rest.split()
            found[int(entry)] = Process(
                int(entry), printable(name), int(field[1]), int(field[19]),
                (int(field[11]) + int(field[12])) / TICKS_PER_S)
    return found


def look(at_s: float, demo_s: float, members: Iterable[int],
         proc: pathlib.Path = PROC) -> Look:
    """Read the totals.

    :param demo_s: CPU time used in the demo's cgroups
    :param members: the processes in them
    """
    return Look(at_s, *machine_s(proc), demo_s, frozenset(members),
                processes(proc))


def between(before: Look, after: Look, *, cpus: int,
            demo: int) -> dict[str, Any]:
    """Other load between two looks, in CPUs; plain JSON values.

    ``other_cpus`` and ``stolen_cpus`` say how much, ``disturbed`` whether it
    is too much to trust a latency, and ``busy`` the busiest programs.

    :param cpus: how many the demo uses
    :param demo: process id of the demo
    """
    seconds = max(after.at_s - before.at_s, 1e-3)
    used = {pid: _used(before.processes.get(pid), one)
            for pid, one in after.processes.items()}
    ours = _descendants(after.processes, demo) | after.members
    own_s = sum(used.get(pid, 0.0)
                for pid in ours - after.members - before.members)
    other = (after.busy_s - before.busy_s - (after.demo_s - before.demo_s)
             - own_s) / seconds
    stolen = (after.stolen_s - before.stolen_s) / seconds
    busy = sorted(((used[pid] / seconds, pid) for pid in used
                   if pid not in ours), reverse=True)[:NAMED]
    return {'other_cpus': max(0.0, other), 'stolen_cpus': stolen,
            'disturbed': (other > max(OTHER_CPUS, OTHER_SHARE * cpus)
                          or stolen > STOLEN_SHARE * cpus),
            'busy': [{'name': after.processes[pid].name, 'pid': pid,
                      'cpus': share}
                     for share, pid in busy if share >= NAMED_CPUS]}


def said(looks: Sequence[Mapping[str, Any]]) -> str:
    """What kept the machine busy in these, such as ``other programs used
    1.0 CPUs (bash, pid 17: 0.98)``."""
    if not looks:
        return 'nothing'
    found = []
    other = max(one['other_cpus'] for one in looks)
    stolen = max(one['stolen_cpus'] for one in looks)
    most: dict[int, Mapping[str, Any]] = {}
    for one in looks:
        for program in one['busy']:
            before = most.get(program['pid'])
            if not before or before['cpus'] < program['cpus']:
                most[program['pid']] = program
    if other > OTHER_CPUS:
        names = ', '.join(
            f'{one["name"]} (pid {one["pid"]}) {one["cpus"]:.2f}'
            for one in sorted(most.values(), key=lambda one: -one['cpus'])
            [:NAMED])
        found.append(f'other programs used up to {other:.2f} CPUs'
                     + (f': {names}' if names else
                        ', in processes that ended too soon to be named'))
    late = max(one.get('late_s', 0.0) for one in looks)
    if late:
        found.append('the demo stopped or continued the batch work up to '
                     f'{late:.2f} s late')
    batch = max(one.get('batch_cpus', 0.0) for one in looks)
    if batch:
        found.append(f'batch work that was stopped used up to {batch:.2f} '
                     'CPUs')
    if stolen > OTHER_CPUS or not found:
        found.append(f'the hypervisor took up to {stolen:.2f} CPUs away')
    return ' and '.join(found)


def _used(before: Process | None, after: Process) -> float:
    if before is None or before.started != after.started:
        return after.cpu_s
    return after.cpu_s - before.cpu_s


def _descendants(found: Mapping[int, Process], top: int) -> frozenset[int]:
    children: dict[int, list[int]] = {}
    for one in found.values():
        children.setdefault(one.parent, []).append(one.pid)
    ours, left = {top}, [top]
    while left:
        for pid in children.get(left.pop(), ()):
            ours.add(pid)
            left.append(pid)
    return frozenset(ours)
