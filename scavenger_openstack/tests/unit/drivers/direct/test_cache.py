# SPDX-License-Identifier: Apache-2.0

"""Whose misses and bytes a last-level cache and a memory bus serve."""

from __future__ import annotations

import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.direct import cache
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.tests.unit.drivers.resctrl.files import Resctrl
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

TOPOLOGY = {cpu: Cpu(cpu, cpu // 2, cpu // 2) for cpu in range(4)}
"""Two caches, each with a memory bus of its own."""

NEAR, FAR = frozenset((0, 1)), frozenset((2, 3))


def one(name: str, cpu_s: float | None, misses: int | None = None,
        cpus: frozenset[int] | None = None, running_s: float | None = None,
        ) -> WorkloadSample:
    return WorkloadSample(
        Workload(name, Priority.FOREGROUND, allowed_cpus=cpus,
                 created_s=1.0), cpu_s=cpu_s, llc_misses=misses,
        counter_enabled_s=None if running_s is None else cpu_s,
        counter_running_s=running_s)


def host(time_s: float, *samples: WorkloadSample) -> HostSample:
    return HostSample('h', 'b', time_s, time_s, samples, topology=TOPOLOGY)


class SharesTest(testtools.TestCase):

    def held(self, first: HostSample, last: HostSample) -> dict[str, float]:
        answer, = shares.of_caches(first, last, {'v'})
        self.assertEqual((Resource.CACHE, True),
                         (answer.resource, answer.shared))
        return {name: round(seconds, 9)
                for name, seconds in answer.holders.items()}

    def test_by_misses(self) -> None:
        self.assertEqual({'v': 0.2, 'hog': 1.8}, self.held(
            host(10, one('v', 0, 0), one('hog', 0, 0)),
            host(12, one('v', 2, 100), one('hog', 8, 900))))

    def test_those_that_share_no_cache_have_no_part(self) -> None:
        self.assertEqual({'v': 0.5, 'hog': 1.5}, self.held(
            host(10, one('v', 0, 0, NEAR), one('hog', 0, 0, NEAR),
                 one('far', 0, 0, FAR)),
            host(12, one('v', 2, 100, NEAR), one('hog', 2, 300, NEAR),
                 one('far', 2, 999, FAR))))

    def test_counters_that_ran_for_a_part_of_the_time(self) -> None:
        self.assertEqual({'v': 0.4, 'hog': 1.6}, self.held(
            host(10, one('v', 0, 0), one('hog', 0, 0, running_s=0)),
            host(12, one('v', 2, 100), one('hog', 2, 100, running_s=0.5))))

    def test_misses_that_are_not_known_are_not_0(self) -> None:
        """So much less is known as its CPU time is of all."""
        self.assertEqual({'v': 0.1, 'hog': 0.9}, self.held(
            host(10, one('v', 0, 0), one('hog', 0, 0), one('dark', 0)),
            host(12, one('v', 2, 100), one('hog', 2, 900), one('dark', 4))))

    def test_nothing_is_told(self) -> None:
        for first, last in (
                (host(10, one('v', 0)), host(12, one('v', 2))),
                (host(10, one('v', 1, 0)), host(12, one('v', 1, 0))),
                (host(10, one('v', 0, 0)), host(12, one('v', 1, 0))),
                (host(10, one('v', 0, 9)), host(12, one('v', 1, 0))),
                (host(10, one('v', None, 0)), host(12, one('v', 1, 9))),
                (host(10), host(12, one('v', 1, 9))),
                (host(10, one('v', 0, 0)), host(10, one('v', 1, 9)))):
            self.assertEqual([], list(shares.of_caches(first, last, {'v'})))


class WindowTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.root / 'proc').mkdir()
        self.filesystems('nodev\tproc\n')
        for name, tids in (('v', '11\n12\n'), ('hog', '21\n'),
                           ('far', '31\n')):
            (self.root / 'cpu' / name).mkdir(parents=True)
            (self.root / 'cpu' / name / 'tasks').write_text(tids)
        mounts = {'cpu': Mount(f'{self.root}/cpu', 1)}
        self.evidence = cache.CacheEvidence(mounts, DomainCgroups(mounts),
                                            str(self.root))
        self.addCleanup(self.evidence.close)

    def filesystems(self, text: str) -> None:
        (self.root / 'proc/filesystems').write_text(text)

    def mount(self) -> Resctrl:
        return self.useFixture(Resctrl(root=self.root))

    def sample(self, time_s: float, misses: int) -> None:
        self.evidence.follow(host(
            time_s, one('/v', time_s, 100, NEAR),
            one('/hog', 2 * time_s, 100 + 3 * misses, NEAR),
            one('/far', time_s, misses, FAR)))

    def answers(self) -> tuple[DirectEvidence, ...]:
        self.sample(12, 100)
        self.evidence.ask((), 12.0)
        return self.evidence.answers(13.0)

    def test_a_cpu_that_cannot_monitor(self) -> None:
        """Misses are what there is, and nothing is missing."""
        self.sample(10, 0)
        self.evidence.ask(['/v'], 10.0)
        answer, = self.answers()
        self.assertEqual({'/v': 0.0, '/hog': 2.0}, answer.holders)
        self.assertEqual(('', ''), (self.evidence.why, self.log.output))

    def test_bytes_over_the_bus(self) -> None:
        """Groups are there in the window alone."""
        resctrl = self.mount()
        self.sample(10, 0)
        self.assertEqual([], resctrl.names())
        self.evidence.ask(['/v'], 10.0)
        victim, hog, far = resctrl.names()      # the busiest come first
        tids = (resctrl.top / 'mon_groups' / victim / 'tasks').read_text()
        self.assertEqual({'11', '12'}, set(tids.split()))
        for group, text in ((victim, '100'), (hog, '700'), (far, '999'),
                            ('', '1999')):
            resctrl.count(group, text)
        answer, = self.answers()
        self.assertEqual((Resource.CACHE, 2.0, 2.0, True), (
            answer.resource, answer.window_s, answer.waited_s,
            answer.shared))
        self.assertEqual({'/v': 0.2, '/hog': 1.4}, {
            name: round(seconds, 9)
            for name, seconds in answer.holders.items()})
        self.evidence.close()
        self.assertEqual([], resctrl.names())

    def test_bytes_that_are_not_known(self) -> None:
        resctrl = self.mount()
        self.sample(10, 0)
        self.evidence.ask(['/v'], 10.0)
        for group in resctrl.names():
            resctrl.count(group, '700')
        resctrl.count('', 'Unavailable')
        self.assertEqual((), self.answers())

    def test_what_would_help(self) -> None:
        """Until then the misses have to do."""
        self.filesystems('nodev\tresctrl\n')
        self.sample(10, 0)
        self.evidence.ask(['/v'], 10.0)
        self.assertIn('mount -t resctrl', self.evidence.why)
        self.assertIs(False, self.evidence.facts()['on'])
        answer, = self.answers()
        self.assertEqual({'/v': 0.0, '/hog': 2.0}, answer.holders)
