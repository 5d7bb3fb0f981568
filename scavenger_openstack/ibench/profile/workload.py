# SPDX-License-Identifier: Apache-2.0

"""The workload that is profiled: its processes, its CPUs, its counters."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import os
import pathlib
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel.perf_event import Place
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.drivers.qemu import process as qemu_process
from scavenger_openstack import errors
from scavenger_openstack.types import printable

NS_PER_S = 1e9
MOST_PROCESSES = 100_000
_CONTROLLERS = ('cpu', 'cpuacct', 'memory', 'cpuset', 'unified')
_BLOCKED_FIELD = 39
"""Of /proc/PID/stat, behind the name: time that it waited for disks."""
_HZ = os.sysconf('SC_CLK_TCK')


class Unfit(errors.ConfigError):
    """The workload cannot be profiled, or not any more."""


class Workload(NamedTuple):
    """A workload by its processes.

    :ivar name: for the operator
    :ivar processes: returns those that it has now; none: it has ended
    :ivar place: where hardware counters see it
    """

    name: str
    processes: Callable[[], list[int]]
    place: Place | None = None

    def threads(self) -> list[int]:
        """Return the numbers of its threads.

        :raises Unfit: it has ended.
        """
        processes = self.processes()
        if not processes:
            raise Unfit(f'{self.name} has ended: profile a workload that '
                        'runs until the profile is there')
        return threads_of(processes)

    def cpus(self) -> frozenset[int]:
        """Return the CPUs that its threads may use.

        :raises Unfit: it has ended.
        """
        cpus: set[int] = set()
        for thread in self.threads():
            with contextlib.suppress(ProcessLookupError):
                cpus |= os.sched_getaffinity(thread)
        return frozenset(cpus)


class Times(NamedTuple):
    """What a thread did until now, in ns: it ran, it waited for a CPU, it
    waited for disks (None: not counted here)."""

    ran: int
    cpu_wait: int
    io_wait: int | None


def of_cgroup(path: str) -> Workload:
    """Return the workload of a cgroup and all below it.

    :raises Unfit: there is no such cgroup, or nothing runs in it.
    """
    mounts = cgroup_mounts.find_mounts()
    relative = '/' + path.strip('/')
    directories = [
        f'{mounts[name].path}{relative}' for name in _CONTROLLERS
        if name in mounts and os.path.isdir(f'{mounts[name].path}{relative}')]
    if not directories or relative == '/':
        raise Unfit(f'there is no cgroup {printable(path)} that could be '
                    'profiled: name one below the root of the tree, such as '
                    '/machine.slice/batch')
    perf = mounts.get('perf_event')
    perf_path = perf and f'{perf.path}{relative}'
    workload = Workload(
        f'the cgroup {relative}',
        lambda: _members(directories[0]),
        Place(perf_path) if perf_path and os.path.isdir(perf_path) else None)
    if not workload.processes():
        raise Unfit(f'nothing runs in the cgroup {relative}')
    return workload


def _members(directory: str) -> list[int]:
    try:
        return cgroup_members.members(
            cgroup_members.nodes_of(directory, MOST_PROCESSES),
            cgroup_members.PROCESSES, MOST_PROCESSES)
    except OSError:
        return []       # it is gone
    except cgroup_members.TooMany as exc:
        raise Unfit(f'{directory} has more than {MOST_PROCESSES:,} '
                    'processes') from exc


def of_instance(word: str, run_dir: str = qemu_process.RUN_DIR) -> Workload:
    """Return the workload of a Nova instance: the QEMU of its domain.

    :param word: UUID, or the name that libvirt has for it
    :raises Unfit: no QEMU of this host is that instance.
    """
    for name in sorted(path.name.removesuffix('.pid') for path
                       in pathlib.Path(run_dir).glob('*.pid')):
        with contextlib.suppress(errors.WorkloadGone, OSError):
            pid = qemu_process.pid_of(name, run_dir)
            uuid = _uuid(pid)
            if uuid and word in (name, uuid):
                return _of_qemu(f'the instance {uuid} ({name})',
                                qemu_process.Process(pid, uuid))
    raise Unfit(f'no instance {printable(word)} runs on this host: name it by '
                'its UUID or as in "virsh list"')


def _of_qemu(name: str, process: qemu_process.Process) -> Workload:
    domain = domain_cgroup.machine(
        process.read('cgroup').decode(errors='replace'),
        cgroup_mounts.find_mounts())
    return Workload(name, lambda: [process.pid] if process.alive() else [],
                    domain.place('kvm') if domain else None)


def _uuid(pid: int) -> str:
    words = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().split(b'\0')
    return words[words.index(b'-uuid') + 1].decode() \
        if b'-uuid' in words[:-1] else ''


def of_group(name: str, leader: int) -> Workload:
    """Return the workload of a process and what descends from it."""
    def processes() -> list[int]:
        pids = [leader] if os.path.exists(f'/proc/{leader}') else []
        for pid in pids:        # which grows meanwhile
            pids += _children(pid)
        return [pid for pid in pids if not _is_zombie(pid)]
    return Workload(name, processes)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f'/proc/{pid}/task'):
            children += map(int, pathlib.Path(
                f'/proc/{pid}/task/{thread}/children').read_text().split())
    return children


def _is_zombie(pid: int) -> bool:
    try:
        return ') Z ' in pathlib.Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return True


def threads_of(processes: Iterable[int]) -> list[int]:
    """Return the numbers of the threads of processes."""
    threads: list[int] = []
    for pid in processes:
        with contextlib.suppress(OSError):
            threads += map(int, os.listdir(f'/proc/{pid}/task'))
    return threads


def read_times(threads: Iterable[int], *, disks: bool) -> dict[int, Times]:
    """Return what threads did until now; one that is gone is left out.

    :param disks: the kernel counts waits for disks
    :raises Unfit: this kernel counts no waits for CPUs.
    """
    times = {}
    for thread in threads:
        try:
            ran, waited, _ = pathlib.Path(
                f'/proc/{thread}/schedstat').read_text().split()
            io_ns = None
            if disks:
                fields = pathlib.Path(
                    f'/proc/{thread}/stat').read_text().rpartition(')')[2]
                io_ns = int(int(fields.split()[_BLOCKED_FIELD])
                            * NS_PER_S / _HZ)
        except (FileNotFoundError, ProcessLookupError):
            if not os.path.exists('/proc/self/schedstat'):
                raise Unfit(
                    'this kernel does not count how long threads wait for a '
                    'CPU (/proc/PID/schedstat): name a --qos of a --meter'
                ) from None
            continue
        times[thread] = Times(int(ran), int(waited), io_ns)
    return times


def passed(before: Mapping[int, Times], after: Mapping[int, Times]) -> Times:
    """Return what threads did between two readings; one that ended between
    is left out, and one that began counts from its begin."""
    ran = cpu_wait = io_wait = 0
    disks = all(times.io_wait is not None for times in after.values())
    for thread, times in after.items():
        earlier = before.get(thread, Times(0, 0, 0))
        ran += times.ran - earlier.ran
        cpu_wait += times.cpu_wait - earlier.cpu_wait
        io_wait += (times.io_wait or 0) - (earlier.io_wait or 0)
    return Times(ran, cpu_wait, io_wait if disks else None)


def counts_disk_waits() -> bool:
    """Whether the kernel accounts delays."""
    try:
        return pathlib.Path('/proc/sys/kernel/task_delayacct').read_text(
            ).strip() != '0'
    except OSError:
        return False
