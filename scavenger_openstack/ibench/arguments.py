# SPDX-License-Identifier: Apache-2.0

"""What a kernel is started with: its sizes, its end, its levels."""

from __future__ import annotations

from collections.abc import Sequence
import os
import shutil
import stat
from typing import NamedTuple

from scavenger_openstack import amounts
from scavenger_openstack import errors
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench.geometry import Cache
from scavenger_openstack.ibench.geometry import Geometry
from scavenger_openstack.ibench.geometry import Memory

FOOTPRINT_SHARE = 0.1
"""Of memory, at most: "e.g., 10%".  Source: iBench, section III-B."""
FOOTPRINT_CACHES = 4
"""Streams over so many times the LLC go past it."""
FOOTPRINT_BYTES = 256 << 20
"""A footprint of memory need not be larger."""
STORAGE_BANDWIDTH_BYTES = 256 << 20
"""The file that SoI 4 writes once and then reads again and again."""


class Level(NamedTuple):
    """An intensity for some time."""

    percent: float
    seconds: float


class Surroundings(NamedTuple):
    """The caller's choices for the kernels of a run.

    :ivar size_bytes: what 100 % is of, or the footprint of a bandwidth SoI,
        in place of what this host has
    """

    geometry: Geometry
    memory: Memory
    cpus: tuple[int, ...]
    path: str | None = None
    address: str | None = None
    size_bytes: int | None = None
    threads: int | None = None
    seed: int = 1


class Start(NamedTuple):
    """The command and settings that a kernel is started with.

    :ivar words: its KEY=VALUE arguments, without levels
    :ivar whole: what 100 % is of, with its size
    :ivar memory_bytes: what it holds at 100 %, None where that is little
    :ivar disk_bytes: likewise, of the file system of its path
    """

    soi: catalogue.Soi
    words: tuple[str, ...]
    whole: str
    memory_bytes: int | None = None
    disk_bytes: int | None = None


def levels_word(levels: Sequence[Level]) -> str:
    return 'levels=' + ','.join(
        f'{level.percent:g}:{level.seconds:g}' for level in levels)


def plan_start(soi: catalogue.Soi, chosen: Surroundings) -> Start:
    """Return how the kernel of an SoI is started here.

    :raises ConfigError: this host does not have, or does not show, what the
        SoI needs.
    """
    size = chosen.size_bytes
    words = [f'cpus={",".join(map(str, chosen.cpus))}',
             f'seed={chosen.seed}']
    if chosen.threads is not None:
        words.append(f'threads={chosen.threads}')
    if soi.name in ('memory_capacity', 'memory_bandwidth'):
        return _memory(soi, chosen, words)
    if soi.name.startswith('storage_'):
        return _storage(soi, chosen, words)
    if soi.name == 'network_bandwidth':
        if chosen.address is None:
            raise errors.ConfigError(
                'network_bandwidth needs a remote end: name one with '
                '--address IP:PORT, where "scavenger-ibench serve" runs, or '
                'run it as root, which makes a link of its own')
        return Start(soi, (*words, f'address={chosen.address}'),
                     f'{soi.whole}, {chosen.address}')
    if soi.name == 'interconnect' and len(chosen.cpus) < 2:
        raise errors.ConfigError(
            'interconnect passes messages between CPUs: name two or more '
            'with --cpus')
    name = {'llc_capacity': 'llc', 'llc_bandwidth': 'llc',
            'l2_capacity': 'l2', 'l2_bandwidth': 'l2', 'l1i': 'l1i',
            'l1d': 'l1d'}.get(soi.name)
    if name is not None:
        return _cache(soi, name, chosen, words)
    whole = soi.whole
    if soi.name == 'tlb':
        entries = chosen.geometry.tlb_entries
        words += [f'entries={entries}', f'page={chosen.geometry.page_bytes}']
        whole = f'{entries:,} entries of the TLB'
    elif soi.name == 'prefetcher':
        words += _caches(chosen.geometry, 'l1i')
    if size is not None:
        raise errors.ConfigError(f'{soi.name} has no size: --size is for '
                                 'memory, storage and caches')
    return Start(soi, tuple(words), whole)


def _memory(soi: catalogue.Soi, chosen: Surroundings, words: list[str]
            ) -> Start:
    total = chosen.memory.total_bytes
    page = chosen.geometry.page_bytes
    if soi.kind == catalogue.Kind.CAPACITY:
        size, whole = total, chosen.memory.whole
        if chosen.size_bytes is not None:
            size, whole = chosen.size_bytes, 'the size that was given'
        return Start(soi, (*words, f'size={size}', f'page={page}'),
                     f'{whole}, {amounts.of_bytes(size)}', memory_bytes=size)
    cache = chosen.geometry.caches.get('llc')
    size = chosen.size_bytes or total
    least = FOOTPRINT_CACHES * cache.size_bytes if cache else 0
    footprint = min(int(FOOTPRINT_SHARE * size), max(FOOTPRINT_BYTES, least))
    if footprint < least:
        raise errors.ConfigError(
            f'{FOOTPRINT_SHARE:.0%} of {amounts.of_bytes(size)}, over which '
            f'{soi.name} streams, is less than {FOOTPRINT_CACHES} times the '
            f'LLC, {amounts.of_bytes(least)}: it stays in the cache; give '
            'it a larger --size')
    words += [f'size={size}', f'line={chosen.geometry.line_bytes}',
              *_ways(cache)]
    return Start(soi, tuple(words),
                 f'{soi.whole}, over {amounts.of_bytes(footprint)}',
                 memory_bytes=footprint)


def _ways(cache: Cache | None) -> list[str]:
    if cache is None or not cache.ways or not cache.sets:
        return []
    return [f'ways={cache.ways}', f'sets={cache.sets}']


def _storage(soi: catalogue.Soi, chosen: Surroundings, words: list[str]
             ) -> Start:
    """A directory, in which a file without a name is made, or a device,
    which is only read."""
    path = chosen.path
    if path is None:
        raise errors.ConfigError(
            f'{soi.name} needs --path: a directory, where it makes a file '
            'that is gone with it, or a block device, which it only reads')
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISBLK(mode):
            with open(path, 'rb') as file:
                room = file.seek(0, os.SEEK_END)
        elif stat.S_ISDIR(mode):
            room = shutil.disk_usage(path).free
        else:
            raise errors.ConfigError(
                f'{path} is neither a directory nor a block device: '
                f'{soi.name} changes no file that exists')
    except OSError as exc:
        raise errors.ConfigError(
            f'--path {path}: {exc.strerror}') from exc
    if not room:
        raise errors.ConfigError(f'{path} has no room: {soi.name} needs '
                                 'another --path')
    device = stat.S_ISBLK(mode)
    size = chosen.size_bytes or (
        room if soi.kind == catalogue.Kind.CAPACITY
        else min(room, STORAGE_BANDWIDTH_BYTES))
    if size > room:
        raise errors.ConfigError(
            f'{path} has {amounts.of_bytes(room)} '
            f'{"in all" if device else "free"}, less than the '
            f'{amounts.of_bytes(size)} of --size')
    where = f'the device {path}' if device else f'the file system of {path}'
    whole = (f'{amounts.of_bytes(size)} of {where}'
             if soi.kind == catalogue.Kind.CAPACITY else
             f'the serial rate of {where} when alone')
    return Start(soi, (*words, f'path={path}', f'size={size}'), whole,
                 disk_bytes=None if device else size)


def _cache(soi: catalogue.Soi, name: str, chosen: Surroundings,
           words: list[str]) -> Start:
    if name == 'l2' and name not in chosen.geometry.caches \
            and 'llc' in chosen.geometry.caches:
        raise errors.ConfigError(
            f'{soi.name} is for CPUs with three levels of caches: on CPU '
            f'{chosen.geometry.cpu} the L2 is the last level, use the SoI '
            f'llc_{soi.kind}')
    cache = chosen.geometry.cache(name)
    size = chosen.size_bytes or cache.size_bytes
    words += [f'size={size}', f'line={chosen.geometry.line_bytes}']
    if size == cache.size_bytes:
        words += _ways(cache)
    words += _caches(chosen.geometry, 'l1d', 'l2')
    if name == 'llc' and 'l2' not in chosen.geometry.caches:
        # Two levels: what comes before the last is the L1.
        words.append(f'l2={chosen.geometry.cache("l1d").size_bytes}')
    text = (amounts.of_bytes(size) if size >= 2**20
            else f'{size // 1024} KiB')
    whole = (f'{soi.whole} of CPU {chosen.geometry.cpu}, {text}'
             if soi.kind == catalogue.Kind.CAPACITY
             else f'{soi.whole}, over a part of {text}')
    return Start(soi, tuple(words), whole,
                 memory_bytes=size if name == 'llc' else None)


def _caches(geometry: Geometry, *names: str) -> list[str]:
    return [f'{name}={geometry.caches[name].size_bytes}' for name in names
            if name in geometry.caches]
