# SPDX-License-Identifier: Apache-2.0

"""Shares of the use in place of what cannot be seen."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

TOPOLOGY = {cpu: Cpu(cpu, 0, 0) for cpu in range(4)}


def sample(name: str, cpu_s: float | None, run_delay_s: float | None = None,
           cpus: frozenset[int] | None = None, throttled_s: float = 0.0,
           created_s: float = 1.0) -> WorkloadSample:
    return WorkloadSample(
        Workload(name, Priority.BACKGROUND, allowed_cpus=cpus,
                 created_s=created_s),
        cpu_s=cpu_s, run_delay_s=run_delay_s, throttled_s=throttled_s)


def host(time_s: float, *samples: WorkloadSample,
         busy: tuple[float, ...] = ()) -> HostSample:
    return HostSample('h', 'b', time_s, time_s, samples, topology=TOPOLOGY,
                      cpu_busy_s=dict(enumerate(busy)))


class TestCpus(testtools.TestCase):

    def one(self, first: HostSample, last: HostSample) -> DirectEvidence:
        answer, = shares.of_cpus(first, last, {'v'})
        self.assertTrue(answer.shared)
        return answer

    def test_by_what_each_used(self) -> None:
        answer = self.one(
            host(10, sample('v', 1, 5), sample('hog', 0), sample('b', 7)),
            host(12, sample('v', 2, 9), sample('hog', 6), sample('b', 8)))
        self.assertEqual(('v', 2.0, 4.0),
                         (answer.workload, answer.window_s, answer.waited_s))
        self.assertEqual({'v': 0.5, 'hog': 3.0, 'b': 0.5}, answer.holders)

    def test_only_on_the_cpus_of_the_victim(self) -> None:
        cpus = frozenset((0, 1))
        answer = self.one(
            host(10, sample('v', 0, 0, cpus), sample('a', 0, None, cpus),
                 sample('b', 0, None, frozenset((1, 2))),
                 sample('c', 0, None, frozenset((2, 3)))),
            host(11, sample('v', 1, 4, cpus), sample('a', 1, None, cpus),
                 sample('b', 2, None, frozenset((1, 2))),
                 sample('c', 2, None, frozenset((2, 3)))))
        self.assertEqual({'v': 1.0, 'a': 1.0, 'b': 2.0}, answer.holders)

    def test_what_is_no_workload_has_its_part(self) -> None:
        """It is nobody's: which of it ran there is not known."""
        answer = self.one(
            host(10, sample('v', 0, 0), sample('a', 0), busy=(0, 0, 0, 0)),
            host(11, sample('v', 1, 4), sample('a', 1), busy=(2, 2, 2, 2)))
        self.assertEqual({'v': 0.5, 'a': 0.5}, answer.holders)

    def test_own_throttling_is_no_wait_for_others(self) -> None:
        answer = self.one(
            host(10, sample('v', 0, 0)),
            host(11, sample('v', 1, 4, throttled_s=3.0)))
        self.assertEqual(1.0, answer.waited_s)

    def test_what_is_not_known(self) -> None:
        quiet = sample('v', 0, 0)
        for first, last in (
                (host(10, sample('v', 0)), host(11, sample('v', 1))),
                (host(10), host(11, quiet)), (host(10, quiet), host(11)),
                (host(10, quiet), host(10, quiet)),
                (host(10, quiet), host(11, sample('v', 1, 1, created_s=2)))):
            self.assertEqual([], list(shares.of_cpus(
                first, last, {'v'})))
        answer = self.one(
            host(10, sample('v', 0, 0), sample('new', None), sample('r', 5)),
            host(11, sample('v', 0, 4), sample('new', 1), sample('r', 1),
                 sample('later', 3)))
        self.assertEqual((4.0, {}), (answer.waited_s, answer.holders))


def disk_sample(name: str, io_bytes: int | None, io_ops: int | None = None,
                io_wait_s: float | None = None, disks: tuple[str, ...] = (),
                created_s: float = 1.0) -> WorkloadSample:
    return WorkloadSample(
        Workload(name, Priority.BACKGROUND, disks=disks,
                 created_s=created_s),
        io_bytes=io_bytes, io_ops=io_ops, io_wait_s=io_wait_s)


class TestDisks(testtools.TestCase):

    def one(self, first: HostSample, last: HostSample) -> DirectEvidence:
        answer, = shares.of_disks(first, last, {'v'})
        self.assertEqual((Resource.DISK, True),
                         (answer.resource, answer.shared))
        return answer

    def test_bytes_and_operations(self) -> None:
        answer = self.one(
            host(10, disk_sample('v', 0, 0, 5.0),
                 disk_sample('large', 0, 0), disk_sample('small', 0, 7),
                 disk_sample('bytes', 100), disk_sample('idle', 5, 5)),
            host(12, disk_sample('v', 16384, 1, 6.6),
                 disk_sample('large', 49152, 1),
                 disk_sample('small', 0, 13),
                 disk_sample('bytes', 65636), disk_sample('idle', 5, 5)))
        self.assertEqual(('v', 2.0), (answer.workload, answer.window_s))
        self.assertAlmostEqual(1.6, answer.waited_s)
        self.assertEqual(
            {'v': 0.2, 'large': 0.4, 'small': 0.6, 'bytes': 0.4},
            {name: round(seconds, 9)
             for name, seconds in answer.holders.items()})

    def test_only_on_the_disks_of_the_victim(self) -> None:
        def at(time_s: float, moved: int) -> HostSample:
            return host(time_s, *(
                disk_sample(name, moved, None, time_s, disks)
                for name, disks in (
                    ('v', ('8:0',)), ('same', ('8:16', '8:0')),
                    ('other', ('8:16',)), ('anywhere', ()),
                    ('somewhere', ('',)))))

        self.assertEqual({'v': 0.25, 'same': 0.25, 'anywhere': 0.25,
                          'somewhere': 0.25},
                         self.one(at(10, 0), at(11, 4096)).holders)

    def test_what_is_not_known(self) -> None:
        quiet = disk_sample('v', 0, 0, 0.0)
        for first, last in (
                (host(10, disk_sample('v', 0)), host(11, disk_sample('v', 1))),
                (host(10), host(11, quiet)), (host(10, quiet), host(11)),
                (host(10, quiet), host(10, quiet)),
                (host(10, quiet),
                 host(11, disk_sample('v', 1, 1, 1.0, created_s=2)))):
            self.assertEqual([], list(shares.of_disks(first, last, {'v'})))
        answer = self.one(
            host(10, quiet, disk_sample('new', None), disk_sample('r', 5)),
            host(11, disk_sample('v', 0, 0, 4.0), disk_sample('new', 1),
                 disk_sample('r', 1), disk_sample('later', 3)))
        self.assertEqual((4.0, {}), (answer.waited_s, answer.holders))
