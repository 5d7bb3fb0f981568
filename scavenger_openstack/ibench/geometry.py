# SPDX-License-Identifier: Apache-2.0

"""Sizes of this host that kernels need: caches, pages, TLB, memory."""

from __future__ import annotations

from collections.abc import Mapping
import os
import pathlib
import re
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import errors
from scavenger_openstack.types import parse_cpus

LINE_BYTES = 64
TLB_ENTRIES = 1536
"""Assumed where the kernel does not list them: the second level of most
server CPUs has 1,024 to 3,072."""

_UNITS = {'': 1, 'k': 2**10, 'm': 2**20, 'g': 2**30, 't': 2**40}


class Cache(NamedTuple):
    """One cache; ways and sets are None where only its size is given."""

    size_bytes: int
    ways: int | None = None
    sets: int | None = None
    line_bytes: int | None = None


class Geometry(NamedTuple):
    """The caches, TLBs and ways of a CPU.

    :ivar caches: by ``l1i``, ``l1d``, ``l2``, ``llc``; what is missing is
        not readable here
    :ivar notes: a sentence for each size that was assumed
    """

    cpu: int
    caches: dict[str, Cache]
    line_bytes: int
    page_bytes: int
    tlb_entries: int
    notes: tuple[str, ...] = ()

    def cache(self, name: str) -> Cache:
        """Return one of the caches.

        :raises ConfigError: this host does not show its size.
        """
        if name not in self.caches:
            raise errors.ConfigError(
                f'the size of the {name.upper()} cache of CPU {self.cpu} is '
                'not in /sys/devices/system/cpu (some containers and arm64 '
                f'hosts hide it): give it with --geometry {name}=SIZE')
        return self.caches[name]


class Memory(NamedTuple):
    """The size of the memory, and what limits it."""

    total_bytes: int
    available_bytes: int
    whole: str


OVERRIDES = ('l1i', 'l1i_ways', 'l1d', 'l1d_ways', 'l2', 'l2_ways', 'llc',
             'llc_ways', 'line', 'page', 'tlb')


def parse_bytes(text: str) -> int:
    """Return the bytes of ``32M``, ``48KiB`` or ``1.5g``.

    :raises ValueError: the text is no size above 0.
    """
    match = re.fullmatch(r'([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(?:i?b)?',
                         text.strip().lower())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 0 < size < 2**60:
        raise ValueError(f'{text!r} is not a size such as 32M')
    return size


def parse_overrides(text: str) -> dict[str, int]:
    """Return the sizes in ``llc=32M,llc_ways=16,tlb=1536``.

    :raises ValueError: a name or a size is wrong.
    """
    sizes = {}
    for part in text.split(','):
        name, equals, size = part.strip().partition('=')
        if name not in OVERRIDES or not equals:
            raise ValueError(f'{part.strip()!r} is not NAME=SIZE; the names '
                             f'are {", ".join(OVERRIDES)}')
        sizes[name] = parse_bytes(size)
    return sizes


def read_geometry(cpu: int, overrides: Mapping[str, int] | None = None,
                  root_dir: str = '/') -> Geometry:
    """Return what a CPU has; ``overrides`` go before what is read.

    Of the caches, what cannot be read is left out.
    """
    sizes = overrides or {}
    root = root_dir.rstrip('/')
    caches = _read_caches(pathlib.Path(
        f'{root}/sys/devices/system/cpu/cpu{cpu}/cache'))
    notes = []
    line = sizes.get('line') or next(
        (cache.line_bytes for cache in caches.values() if cache.line_bytes),
        None)
    if line is None:
        line = LINE_BYTES
        notes.append(f'cache lines are assumed to have {line} bytes')
    for name in ('l1i', 'l1d', 'l2', 'llc'):
        if name in sizes or f'{name}_ways' in sizes:
            caches[name] = _override(name, sizes, caches.get(name), line)
    entries = sizes.get('tlb') or _read_tlb(f'{root}/proc/cpuinfo')
    if entries is None:
        entries = TLB_ENTRIES
        notes.append(f'the TLB is assumed to have {entries:,} entries, '
                     'since this kernel does not list them; --geometry '
                     'tlb=N sets it')
    return Geometry(cpu=cpu, caches=caches, line_bytes=line,
                    page_bytes=sizes.get('page')
                    or os.sysconf('SC_PAGE_SIZE'),
                    tlb_entries=entries, notes=tuple(notes))


def _override(name: str, sizes: Mapping[str, int], cache: Cache | None,
              line: int) -> Cache:
    """A cache of which size or ways were given; the sets follow."""
    size = sizes.get(name) or (cache and cache.size_bytes)
    if not size:
        raise errors.ConfigError(f'{name}_ways needs {name}=SIZE as well, '
                                 'which this host does not show')
    ways = sizes.get(f'{name}_ways') or (cache and cache.ways) or None
    sets = size // (ways * line) if ways else None
    if sets == 0:
        raise errors.ConfigError(f'{name}: {ways} ways of {line} bytes do '
                                 f'not fit into {size:,} bytes')
    return Cache(size, ways, sets, line)


def _read_caches(directory: pathlib.Path) -> dict[str, Cache]:
    caches: dict[str, Cache] = {}
    levels: dict[int, Cache] = {}
    for index in sorted(directory.glob('index[0-9]*')):
        try:
            level = int((index / 'level').read_text())
            kind = (index / 'type').read_text().strip()
            cache = Cache(parse_bytes((index / 'size').read_text()),
                          _number(index / 'ways_of_associativity'),
                          _number(index / 'number_of_sets'),
                          _number(index / 'coherency_line_size'))
        except (OSError, ValueError):
            continue        # an arm64 without firmware tables lists no size
        if level == 1 and kind in ('Instruction', 'Unified'):
            caches['l1i'] = cache
        if level == 1 and kind in ('Data', 'Unified'):
            caches['l1d'] = cache
        elif level > 1 and kind != 'Instruction':
            levels[level] = cache
    if levels:
        caches['llc'] = levels[max(levels)]
        if 2 in levels and max(levels) > 2:
            caches['l2'] = levels[2]
    return caches


def _number(path: pathlib.Path) -> int | None:
    """Return the number in a file; 0, as for a cache without ways, and what
    cannot be read are None."""
    try:
        return int(path.read_text()) or None
    except (OSError, ValueError):
        return None


def _read_tlb(path: str) -> int | None:
    """The entries of the second level, which x86-64 of AMD lists."""
    try:
        text = pathlib.Path(path).read_text()
    except OSError:
        return None
    match = re.search(r'^TLB size\s*:\s*([0-9]+) 4K pages', text, re.M)
    return int(match[1]) if match else None


def find_sibling(cpu: int, root_dir: str = '/') -> int | None:
    """Return another CPU of the same core; None when there is none."""
    return min(_read_cpus(
        f'{root_dir.rstrip("/")}/sys/devices/system/cpu/cpu{cpu}'
        '/topology/thread_siblings_list') - {cpu}, default=None)


def find_neighbours(cpu: int, root_dir: str = '/') -> frozenset[int]:
    """Return the CPUs that share the last-level cache; empty when that is
    not readable."""
    lists = sorted(pathlib.Path(
        f'{root_dir.rstrip("/")}/sys/devices/system/cpu/cpu{cpu}/cache'
    ).glob('index[0-9]*/shared_cpu_list'))
    return _read_cpus(str(lists[-1])) if lists else frozenset()


def _read_cpus(path: str) -> frozenset[int]:
    try:
        return parse_cpus(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return frozenset()


def read_memory(cgroup: str | None = None, root_dir: str = '/') -> Memory:
    """Return the memory of the host, or what a cgroup leaves of it.

    :param cgroup: its path; None for that of this process
    :raises ConfigError: /proc/meminfo cannot be read.
    """
    root = root_dir.rstrip('/')
    try:
        total, available, *_ = proc.sizes(
            pathlib.Path(f'{root}/proc/meminfo').read_bytes())
        if total is None or available is None:
            raise ValueError('it has no MemTotal or no MemAvailable')
    except (OSError, ValueError) as exc:
        raise errors.ConfigError(
            f'{root}/proc/meminfo cannot be read: is /proc mounted?'
        ) from exc
    whole = 'the memory of the host'
    for path, limit, used in _limits(cgroup, root):
        available = min(available, max(0, limit - used))
        if limit < total:
            total, whole = limit, f'the memory limit of the cgroup {path}'
    return Memory(total, available, whole)


def _limits(cgroup: str | None, root: str) -> list[tuple[str, int, int]]:
    """Path, limit and use of a cgroup and those above, where limited."""
    try:
        mount = cgroup_mounts.find_mounts(root or '/').get('memory')
        if cgroup is None:
            paths = cgroup_members.paths(
                pathlib.Path(f'{root}/proc/self/cgroup').read_text())
            cgroup = paths.get('unified' if mount and mount.version == 2
                               else 'memory', '/')
    except (errors.DriverError, OSError):
        return []
    if mount is None:
        return []
    limit_file, use_file = (
        ('memory.max', 'memory.current') if mount.version == 2 else
        ('memory.limit_in_bytes', 'memory.usage_in_bytes'))
    limits = []
    for path in (*cgroup_members.upward(cgroup), ''):
        directory = pathlib.Path(f'{mount.path}{path}')
        limit = _number(directory / limit_file)
        if limit is not None and limit < cgroup_files.NO_MEMORY_LIMIT:
            limits.append((path or '/', limit,
                           _number(directory / use_file) or 0))
    return limits
