# SPDX-License-Identifier: Apache-2.0

"""Whose requests a disk served while those of a victim were in flight.

BPF programs on the tracepoints of the block layer note which process queues
a request and since when, and, when it is completed, give its process the time
that passed on this disk since the completion before: the disk's time.  It
needs no past, and a request is in flight while it waits for a place in the
queue, too.

A disk that rotates serves one request after the other, so that this is the
time that it took.  Another one serves many at once, and what completes most
often need not be what holds it: there the time that a victim waited is divided
as what was served meanwhile, in bytes and 16 KiB per request.

Requests are known by disk and first sector, and followed when they are split
and merged.  What threads of the kernel queue counts as theirs: the writeback
of buffered writes, and what dm-crypt, a thin pool, md, a loop device or a
limit such as ``io.max`` passes on.  Disks without a queue of requests of their
own (dm, md, native multipath of NVMe) are left out.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
import heapq
import operator
import os
import struct
import time
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import disk_programs
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel import watched_threads
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

PURPOSE = "tell whose requests a disk serves while another's wait"

MOST_IN_FLIGHT = 16384
"""Requests; of more the oldest are forgotten."""

MOST_SUBMITTERS = 4096
MOST_CGROUPS = 1024
"""On each disk, whose processes have no room among these."""
MOST_PROCESSES = 16384
"""Of the victims."""

MOST_THREADS = 5
"""Of the host, that evidence names."""

_SUBMITTER = struct.Struct('=QII')
_MINOR_BITS = 20


class Submitter(NamedTuple):
    """``device`` is ``major:minor`` of a whole disk, ``process`` an id, 0: any
    of the cgroup, and ``cgroup`` the inode number of its cgroup of version 2.
    """

    device: str
    process: int
    cgroup: int


class Served(NamedTuple):
    """What one process had of one disk.

    ``in_flight_s``: of its requests, added up.  ``served_s``: of the disk's
    time.  ``shortest_s``: the least time of one request.  ``beside_s``: what
    of the disk's time it had while each victim had a request in flight.
    """

    requests: int
    in_flight_s: float
    served_s: float
    shortest_s: float
    beside_s: Mapping[str, float]


class Waits(NamedTuple):
    """The counts of a window.

    ``waited_s``: for how long the newest request of each victim was in
    flight, over all disks; what the disk served since its last completion is
    not known yet.  ``lost``: requests of processes that the table
    had no room for.
    """

    window_s: float
    served: Mapping[Submitter, Served]
    waited_s: Mapping[str, float]
    lost: int


class DiskWaits(watched_threads.Counter):
    """Whose requests disks served while those of victims were in flight."""

    purpose = PURPOSE
    first_number = 1

    def waits(self) -> Waits:
        """Return what was counted so far.

        :raises DriverError: it cannot be read, or was closed.
        """
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        read, maps, victims = (self._programs.entries, self._maps,
                               self._victims)
        waited = dict.fromkeys(victims, 0.0)
        # By disk and place of a victim: seconds for what costs a sector.
        sector_s: dict[tuple[int, int], float] = {}
        disk = struct.Struct(f'={4 * (1 + len(victims))}Q')
        for (index,), values in read(maps.devices, bpf.WORD, disk,
                                     max(1, len(self._devices))):
            for place, workload in enumerate(victims, 1):
                newest_ns, _, waited_ns, cost = values[
                    4 * place:4 * place + 4]
                if self._parallel[index] and cost:
                    sector_s[index, place] = waited_ns / 1e9 / cost
                if newest_ns and os.path.exists(
                        f'/sys/dev/block/{self._devices[index]}'):
                    waited_ns += max(0, now_ns - max(values[0], newest_ns))
                waited[workload] += waited_ns / 1e9
        total = struct.Struct(f'={4 + 2 * len(victims)}Q')
        served = {}
        for (cgroup, process, index), values in (
                read(maps.totals, _SUBMITTER, total, MOST_SUBMITTERS)
                + read(maps.rest, _SUBMITTER, total, MOST_CGROUPS)):
            requests, in_flight, of_disk, shortest, *beside = values
            served[Submitter(self._devices[index], process, cgroup)] = Served(
                requests, in_flight / 1e9, of_disk / 1e9, shortest / 1e9,
                {workload: cost * sector_s.get((index, place), 0.0)
                 if self._parallel[index] else ns / 1e9
                 for place, (workload, ns, cost) in enumerate(zip(
                     victims, beside[::2], beside[1::2], strict=True), 1)
                 if ns})
        (_, (lost,)), = read(maps.lost, bpf.WORD, bpf.NUMBER, 1)
        return Waits((now_ns - self._since_ns) / 1e9, served, waited, lost)

    def _open(self) -> watched_threads.Maps:
        programs, number = self._programs, len(self._victims)
        self._devices = disks()
        self._parallel = [not _rotates(device) for device in self._devices]
        followed = watched_threads.maps(programs, MOST_PROCESSES)
        self._maps = maps = disk_programs.Maps(
            disks=programs.map(bpf.Map.HASH, value_bytes=4,
                               entries=max(1, len(self._devices))),
            victims=followed.watched,
            start=programs.map(bpf.Map.LRU_HASH, key_bytes=16,
                               value_bytes=24, entries=MOST_IN_FLIGHT),
            devices=programs.map(bpf.Map.ARRAY, value_bytes=32 * (1 + number),
                                 entries=max(1, len(self._devices))),
            totals=programs.map(bpf.Map.HASH, key_bytes=_SUBMITTER.size,
                                value_bytes=32 + 16 * number,
                                entries=MOST_SUBMITTERS),
            rest=programs.map(bpf.Map.HASH, key_bytes=_SUBMITTER.size,
                              value_bytes=32 + 16 * number,
                              entries=MOST_CGROUPS),
            lost=programs.map(bpf.Map.ARRAY))
        numbers = {}
        for index, device in enumerate(self._devices):
            major, minor = map(int, device.split(':'))
            numbers[major << _MINOR_BITS | minor] = index
        programs.put(maps.disks, b''.join(map(bpf.WORD.pack, numbers)),
                     b''.join(map(bpf.WORD.pack, numbers.values())),
                     len(numbers))
        watched_threads.attach(programs, followed)
        name = 'sched:sched_wakeup_new'
        event = programs.event(name, {'pid': 4})
        programs.attach(name, event, watched_threads.new_program(
            event, followed, by_thread=False))
        for name, (fields, program) in disk_programs.PROGRAMS.items():
            event = programs.event(name, fields)
            programs.attach(name, event, program(event, maps, number))
        self._since_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return followed


def disks(root_dir: str = '/') -> tuple[str, ...]:
    """``major:minor`` of each disk with a queue of requests of its own."""
    top = f'{root_dir.rstrip("/")}/sys/block'
    # Hidden paths of a multipath disk have no number.
    return tuple(number for name in proc.list_names(top)
                 if os.path.isdir(f'{top}/{name}/mq')
                 and (number := proc.read_text(f'{top}/{name}/dev')))


def _rotates(device: str) -> bool:
    """Return whether a disk serves one request after the other, as the kernel
    says it; so if that is not known."""
    return proc.read_text(f'/sys/dev/block/{device}/queue/rotational') != '0'


def evidence(workload: str, waits: Waits,
             owners: Mapping[tuple[int, int], str],
             names: Mapping[int, str]) -> DirectEvidence:
    """Return which workloads the disks served while this one waited for them.

    :param workload: one of the victims
    :param owners: workloads, or :data:`THE_HOST`, by process and cgroup;
        others are not known
    :param names: of processes of the host
    """
    held: dict[str, float] = collections.defaultdict(float)
    threads: dict[str, float] = collections.defaultdict(float)
    for submitter, served in waits.served.items():
        seconds = served.beside_s.get(workload)
        holder = owners.get((submitter.process, submitter.cgroup))
        if not seconds or holder is None:
            continue
        held[holder] += seconds
        if holder == THE_HOST and (name := names.get(submitter.process)):
            threads[name] += seconds
    return DirectEvidence(
        workload, Resource.DISK, waits.window_s,
        # Two CPUs that complete requests at once count some time twice.
        max(waits.waited_s.get(workload, 0.0), sum(held.values())),
        dict(held), dict(heapq.nlargest(
            MOST_THREADS, threads.items(), key=operator.itemgetter(1))))
