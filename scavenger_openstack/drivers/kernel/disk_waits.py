# SPDX-License-Identifier: Apache-2.0

"""Whose requests a disk served while those of a victim were in flight.

BPF programs on the tracepoints of the block layer note which process queues
a request and since when, and, when it is completed, give its process the time
that passed on this disk since the completion before: the disk's time.  It
needs no past, and a request is in flight while it waits for a place in the
queue, too.

Requests are known by disk and first sector, and followed when they are split
and merged.  What threads of the kernel queue counts as theirs: the writeback
of buffered writes, and what dm-crypt, a thin pool, md, a loop device or a
limit such as ``io.max`` passes on.  Disks without a queue of requests of their
own (dm, md, native multipath of NVMe) are left out.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import heapq
import itertools
import operator
import os
import struct
import time
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import disk_programs
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

PURPOSE = "tell whose requests a disk serves while another's wait"

MOST_IN_FLIGHT = 16384
"""Requests; of more the oldest are forgotten."""

MOST_SUBMITTERS = 4096
MOST_VICTIMS = 8
MOST_PROCESSES = 16384
"""Of the victims."""

MOST_THREADS = 5
"""Of the host, that evidence names."""

_WORD, _NUMBER = struct.Struct('=I'), struct.Struct('=Q')
_SUBMITTER = struct.Struct('=QII')
_MINOR_BITS = 20


class Submitter(NamedTuple):
    """``device`` is ``major:minor`` of a whole disk, ``process`` an id, and
    ``cgroup`` the inode number of its cgroup of version 2."""

    device: str
    process: int
    cgroup: int


class Served(NamedTuple):
    """What one process had of one disk.

    ``in_flight_s``: of its requests, added up.  ``served_s``: of the disk's
    time.  ``shortest_s``: the least time of one request.  ``beside_s``: of
    ``served_s``, what passed while each victim had a request in flight.
    """

    requests: int
    in_flight_s: float
    served_s: float
    shortest_s: float
    beside_s: Mapping[str, float]


class Waits(NamedTuple):
    """What was counted.

    ``waited_s``: for how long the newest request of each victim was in
    flight, over all disks; what the disk served since its last completion is
    not known yet.  ``lost``: requests of processes that the table
    had no room for.
    """

    window_s: float
    served: Mapping[Submitter, Served]
    waited_s: Mapping[str, float]
    lost: int


class DiskWaits:
    """Counts from now on until it is closed.

    :param victims: the workloads that wait, with the ids of their processes
    :raises Unsupported: this kernel does not let us, or cannot, or this
        process would take the process ids for others.
    """

    def __init__(self, victims: Mapping[str, Iterable[int]]) -> None:
        if len(victims) > MOST_VICTIMS:
            raise ValueError(f'more than {MOST_VICTIMS} victims')
        self._victims = tuple(victims)
        self._watched: set[int] = set()
        self._programs = bpf.Programs(PURPOSE, initial_pids=True)
        try:
            self._open()
            self.watch(victims)
        except BaseException:
            self.close()
            raise

    def watch(self, victims: Mapping[str, Iterable[int]]) -> None:
        """Count for further processes of the victims, too."""
        new = dict(itertools.islice(
            ((process, index)
             for index, workload in enumerate(self._victims, 1)
             for process in victims.get(workload, ())
             if process not in self._watched),
            MOST_PROCESSES - len(self._watched)))
        self._watched |= new.keys()
        self._put(self._maps.victims, new)

    def waits(self) -> Waits:
        """What was counted so far.

        :raises DriverError: it cannot be read, or was closed.
        """
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        read, maps, victims = (self._programs.entries, self._maps,
                               self._victims)
        total = struct.Struct(f'={4 + len(victims)}Q')
        served = {}
        for (cgroup, process, index), values in read(
                maps.totals, _SUBMITTER, total, MOST_SUBMITTERS):
            requests, in_flight, of_disk, shortest, *beside = values
            served[Submitter(self._devices[index], process, cgroup)] = Served(
                requests, in_flight / 1e9, of_disk / 1e9, shortest / 1e9,
                {workload: ns / 1e9 for workload, ns in zip(
                    victims, beside, strict=True) if ns})
        waited = dict.fromkeys(victims, 0.0)
        disk = struct.Struct(f'={4 * (1 + len(victims))}Q')
        for (index,), values in read(maps.devices, _WORD, disk,
                                     max(1, len(self._devices))):
            for place, workload in enumerate(victims, 1):
                newest_ns, _, waited_ns, _ = values[4 * place:4 * place + 4]
                if newest_ns and os.path.exists(
                        f'/sys/dev/block/{self._devices[index]}'):
                    waited_ns += max(0, now_ns - max(values[0], newest_ns))
                waited[workload] += waited_ns / 1e9
        (_, (lost,)), = read(maps.lost, _WORD, _NUMBER, 1)
        return Waits((now_ns - self._since_ns) / 1e9, served, waited, lost)

    def close(self) -> None:
        """Take the programs out of the kernel; twice does no harm."""
        self._programs.close()

    def _put(self, fd: int, entries: Mapping[int, int]) -> None:
        self._programs.put(fd, b''.join(map(_WORD.pack, entries)),
                           b''.join(map(_WORD.pack, entries.values())),
                           len(entries))

    def _open(self) -> None:
        programs, number = self._programs, len(self._victims)
        self._devices = disks()
        self._maps = maps = disk_programs.Maps(
            disks=programs.map(bpf.Map.HASH, value_bytes=4,
                               entries=max(1, len(self._devices))),
            victims=programs.map(bpf.Map.HASH, value_bytes=4,
                                 entries=MOST_PROCESSES),
            start=programs.map(bpf.Map.LRU_HASH, key_bytes=16,
                               value_bytes=24, entries=MOST_IN_FLIGHT),
            devices=programs.map(bpf.Map.ARRAY, value_bytes=32 * (1 + number),
                                 entries=max(1, len(self._devices))),
            totals=programs.map(bpf.Map.HASH, key_bytes=_SUBMITTER.size,
                                value_bytes=32 + 8 * number,
                                entries=MOST_SUBMITTERS),
            lost=programs.map(bpf.Map.ARRAY))
        numbers = [tuple(map(int, device.split(':')))
                   for device in self._devices]
        self._put(maps.disks, {
            major << _MINOR_BITS | minor: index
            for index, (major, minor) in enumerate(numbers)})
        for name, (fields, program) in disk_programs.PROGRAMS.items():
            event = programs.event(name, fields)
            programs.attach(name, event, program(event, maps, number))
        self._since_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def disks(root_dir: str = '/') -> tuple[str, ...]:
    """``major:minor`` of each disk with a queue of requests of its own."""
    top = f'{root_dir.rstrip("/")}/sys/block'
    numbers = []
    for name in os.listdir(top) if os.path.isdir(top) else ():
        if os.path.isdir(f'{top}/{name}/mq'):
            # Hidden paths of a multipath disk have no number.
            with contextlib.suppress(OSError), open(
                    f'{top}/{name}/dev') as file:
                numbers.append(file.read().strip())
    return tuple(numbers)


def evidence(workload: str, waits: Waits,
             workload_of: Callable[[int], str | None], *,
             cgroups: Mapping[int, str] | None = None,
             name_of: Callable[[int], str] = str) -> DirectEvidence:
    """Which workloads the disks served while this one waited for them.

    :param workload: one of the victims
    :param workload_of: the workload of a process, :data:`THE_HOST`, or
        ``None``: not known, because it has ended
    :param cgroups: workloads by the inode number of their cgroup of version
        2, for processes that have ended
    :param name_of: the name of a process of the host; '' is not shown
    """
    held: dict[str, float] = collections.defaultdict(float)
    threads: dict[str, float] = collections.defaultdict(float)
    for submitter, served in waits.served.items():
        seconds = served.beside_s.get(workload)
        if not seconds:
            continue
        holder = workload_of(submitter.process)
        if holder is None:
            holder = (cgroups or {}).get(submitter.cgroup)
        if holder is None:
            continue
        held[holder] += seconds
        if holder == THE_HOST and (name := name_of(submitter.process)):
            threads[name] += seconds
    return DirectEvidence(
        workload, Resource.DISK, waits.window_s,
        # Two CPUs that complete requests at once count some time twice.
        max(waits.waited_s.get(workload, 0.0), sum(held.values())),
        dict(held), dict(heapq.nlargest(
            MOST_THREADS, threads.items(), key=operator.itemgetter(1))))

