# SPDX-License-Identifier: Apache-2.0


"""What a whole host says about itself in /proc and /sys."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import errno
import logging
import os
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import parse_cpus

LOG = logging.getLogger(__name__)

Answer = TypeVar('Answer')

BYTES_PER_KIB = 1024

SOON_TICKS = 3
"""So often in a row it is read where CPUs sit after one came or went."""
TOPOLOGY_TICKS = 3600
"""It is read again this often without that: some ten files of each CPU."""

_READ_SIZE = 65536
_HZ = os.sysconf('SC_CLK_TCK')
_PAGE = os.sysconf('SC_PAGE_SIZE')
_COLUMNS = 4    # of a CPU that each kernel has: user, nice, system, idle


class Memory(NamedTuple):
    """The memory of a host in bytes; ``None`` for what is not known.

    ``available`` is what is free and what could be dropped.  ``refaults``:
    bytes of page cache that had been dropped and were read again, so far.
    """

    total: int | None = None
    available: int | None = None
    free: int | None = None
    refaults: int | None = None


def busy_s(data: bytes, hz: int = _HZ) -> dict[int, float]:
    """Seconds that each CPU has run something, from ``/proc/stat``.

    Time idle or waiting for I/O is not busy; what a hypervisor below stole
    is: a thread was to run then.  Guest time is part of user and nice time
    already.  A column that a kernel does not have is 0; a CPU whose row holds
    something else is left out.

    :raises ValueError: there is no CPU.
    """
    by_cpu: dict[int, float] = {}
    for line in data.split(b'\n'):
        if not line.startswith(b'cpu') or line.startswith(b'cpu '):
            continue
        try:
            name, *ticks = line.split()
            if len(ticks) < _COLUMNS:
                continue
            user, nice, system, _idle, _iowait, irq, softirq, steal = (
                *map(int, ticks[:8]), *(0,) * (8 - len(ticks)))
            by_cpu[int(name[3:])] = (
                user + nice + system + irq + softirq + steal) / hz
        except ValueError:
            continue
    if not by_cpu:
        raise ValueError('no CPU is named')
    return by_cpu


def sizes(data: bytes) -> Memory:
    """Return MemTotal, MemAvailable and MemFree, from ``/proc/meminfo``.

    :raises ValueError: it has neither of the first two.
    """
    amounts: list[int | None] = []
    for key in (b'MemTotal:', b'MemAvailable:', b'MemFree:'):
        try:
            amounts.append(BYTES_PER_KIB * rows.number(data, key))
        except ValueError:
            amounts.append(None)
    if amounts[:2] == [None, None]:
        raise ValueError('none of its rows')
    return Memory(*amounts)


def refault_bytes(data: bytes) -> int:
    """Return the page cache that was read again, from ``/proc/vmstat``;
    kernels before 5.9 count nothing else, under a shorter name.

    :raises ValueError: it is not counted.
    """
    key = b'workingset_refault'
    return _PAGE * rows.number(
        data, key + (b'_file ' if key + b'_file ' in data else b' '))


def read_topology(root_dir: str = '/',
                  logged: log_once.LogOnce | None = None) -> dict[int, Cpu]:
    """Return where each online CPU sits.

    A core, an LLC and a NUMA node are named by the lowest CPU in them (a
    node by its number).  Without the files in /sys each CPU is a core of
    its own and all share one LLC and one node.

    :param logged: what was logged of this host
    """
    logged = logged or log_once.LogOnce()
    top = f'{root_dir.rstrip("/")}/sys/devices/system'
    online = _cpus(f'{top}/cpu/online', logged)
    if not online:
        online = online_cpus.counted()
    isolated = online_cpus.isolated(root_dir)
    nodes: dict[int, int] = {}
    for name in list_names(f'{top}/node'):
        if name.startswith('node') and name[4:].isdigit():
            for cpu in _cpus(f'{top}/node/{name}/cpulist', logged):
                nodes[cpu] = int(name[4:])
    return {cpu: Cpu(core=min(siblings(cpu, root_dir, logged)),
                     llc=_llc(top, cpu, min(online), logged),
                     numa=nodes.get(cpu, 0),
                     isolated=cpu in isolated or None)
            for cpu in sorted(online)}


def started_ticks(pid: int, root_dir: str = '/') -> int:
    """Return when a process began, in clock ticks since boot.

    :raises WorkloadGone: there is none.
    """
    path = f'{root_dir.rstrip("/")}/proc/{pid}/stat'
    try:
        with open(path, 'rb') as file:
            data = file.read(4096)
        # Its name comes in parentheses and may hold anything.
        return int(data[data.rindex(b')'):].split()[20])
    except (OSError, ValueError, IndexError):
        raise errors.WorkloadGone(f'process {pid} is gone') from None


def siblings(cpu: int, root_dir: str = '/',
             logged: log_once.LogOnce | None = None) -> frozenset[int]:
    """The CPUs of one physical core: this one, and those beside it."""
    top = f'{root_dir.rstrip("/")}/sys/devices/system'
    for name in ('core_cpus_list', 'thread_siblings_list'):
        cpus = _cpus(f'{top}/cpu/cpu{cpu}/topology/{name}',
                     logged or log_once.LogOnce())
        if cpus:
            return cpus
    return frozenset((cpu,))


def _llc(top: str, cpu: int, unknown: int, logged: log_once.LogOnce) -> int:
    best: tuple[int, int] = (0, unknown)
    cache = f'{top}/cpu/cpu{cpu}/cache'
    for name in list_names(cache):
        level = read_text(f'{cache}/{name}/level')
        shared = _cpus(f'{cache}/{name}/shared_cpu_list', logged)
        if level.isdigit() and shared:
            best = max(best, (int(level), min(shared)))
    return best[1]


def _cpus(path: str, logged: log_once.LogOnce) -> frozenset[int]:
    try:
        cpus = parse_cpus(read_text(path))
    except ValueError:
        if logged.due(path, cause=('CPU list', os.path.basename(path))):
            LOG.warning('%s does not hold a CPU list; it is not used%s', path,
                        log_once.SAME_CAUSE)
        return frozenset()
    logged.over(path)
    return cpus


def read_text(path: str) -> str:
    """Return the text of a file, '' where it cannot be read."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read().strip()
    except OSError:
        return ''


def list_names(path: str) -> list[str]:
    """Return what is in a directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


class Proc:
    """The host's own counters over kept descriptors.

    A counter that cannot be read is ``None`` (or empty), with one warning
    that names its file.

    :param root_dir: where /proc and /sys are looked for
    :param logged: what was logged of this host
    :param refaults: count page cache that is read again
    :raises DriverError: there is no boot id: /proc is not mounted.
    """

    def __init__(self, root_dir: str = '/',
                 logged: log_once.LogOnce | None = None, *,
                 refaults: bool = True) -> None:
        self._root = root_dir.rstrip('/')
        self._refaults = refaults
        self._fds: dict[str, int] = {}
        self._logged = logged or log_once.LogOnce()
        path = f'{self._root}/proc/sys/kernel/random/boot_id'
        self.boot_id = read_text(path)
        if not self.boot_id:
            raise errors.DriverError(f'cannot read {path}: mount /proc')
        self.cpu_model = self._cpu_model()
        self._online = online_cpus.OnlineCpus(root_dir, self._logged)
        self._online.refresh()
        self._topology: Mapping[int, Cpu] = read_topology(root_dir,
                                                          self._logged)
        self._isolated = online_cpus.isolated(root_dir)
        self._ticks = self._soon = 0

    def topology(self) -> Mapping[int, Cpu]:
        """Return where each CPU sits that is online now.

        It is the same object until that changes.  The kernel tells of the
        caches of a CPU a moment after it came.
        """
        self._ticks += 1
        self._soon = max(0, self._soon - 1)
        if self._online.refresh():
            self._soon = SOON_TICKS
        if not self._ticks % base.RESCAN_TICKS:
            self.cpu_model = self.cpu_model or self._cpu_model()
            isolated = online_cpus.isolated(self._root or '/')
            if isolated != self._isolated:
                self._isolated, self._soon = isolated, SOON_TICKS
        if self._soon or not self._ticks % TOPOLOGY_TICKS:
            before, now = self._topology, read_topology(self._root or '/',
                                                        self._logged)
            if now != before:
                self._topology = now
            if before.keys() != now.keys():
                LOG.info('the host has %d CPUs online now (%s), it had %d',
                         len(now), format_cpus(now), len(before))
        return self._topology

    def cpu_busy_s(self) -> dict[int, float]:
        """Seconds that each CPU has run something; empty when unknown."""
        return self._ask('/proc/stat', busy_s) or {}

    def memory(self) -> Memory:
        """Return the memory of the host."""
        return (self._ask('/proc/meminfo', sizes) or Memory())._replace(
            refaults=self._ask('/proc/vmstat', refault_bytes)
            if self._refaults else None)

    def close(self) -> None:
        """Close what is kept open."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}
        self._online.close()

    def _ask(self, path: str, parse: Callable[[bytes], Answer]
             ) -> Answer | None:
        path = self._root + path
        data = self._read(path)
        if data is None:
            return None
        try:
            answer = parse(data)
        except ValueError:
            self._unknown(path, f'holds {data[:60]!r}')
            return None
        self._logged.over(path)
        return answer

    def _read(self, path: str) -> bytes | None:
        """Return all of a file, over a descriptor that stays open.

        A device that was made again under the same name is opened again.
        """
        for _ in range(2):
            fd = self._fds.get(path)
            try:
                if fd is None:
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    self._fds[path] = fd
                size = _READ_SIZE
                while len(data := os.pread(fd, size, 0)) == size:
                    size *= 4
            except OSError as exc:
                kept = self._fds.pop(path, None)
                if kept is not None:
                    os.close(kept)
                    if exc.errno in (errno.ENODEV, errno.EINVAL):
                        continue
                self._unknown(path, os.strerror(exc.errno or 0))
                return None
            return data
        return None

    def _unknown(self, path: str, why: str) -> None:
        if self._logged.due(path):
            LOG.warning('%s: %s; what it says is unknown until it can be '
                        'read again', path, why)

    def _cpu_model(self) -> str | None:
        for line in read_text(f'{self._root}/proc/cpuinfo').splitlines():
            key, _, value = line.partition(':')
            if key.strip() in ('model name', 'Model', 'cpu model'):
                return value.strip()
        return None
