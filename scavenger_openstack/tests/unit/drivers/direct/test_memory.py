# SPDX-License-Identifier: Apache-2.0

"""Which workloads take memory while others wait for it, on files as the
kernel has them in both versions of cgroups."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.direct import memory
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

PAGE = os.sysconf('SC_PAGE_SIZE')


class Version2(testtools.TestCase):

    version = 2

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.names = ['/v', '/hog', '/still']
        for name in self.names:
            self.use(name)
        mounts = self.mounts()
        self.evidence = memory.MemoryEvidence(mounts, DomainCgroups(mounts))

    def mounts(self) -> dict[str, Mount]:
        mount = Mount(str(self.top), 2)
        return {'unified': mount, 'cpu': mount, 'memory': mount}

    def write(self, name: str, text: str) -> None:
        path = self.top / name.lstrip('/')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def use(self, name: str, taken: int = 0, waited_s: float = 0.0,
            limited: int = 0) -> None:
        """So many pages, of which all but 100 were reclaimed again."""
        self.write(f'{name}/memory.current', f'{PAGE * min(taken, 100)}\n')
        self.write(f'{name}/memory.stat', 'anon 4096\npgsteal '
                   f'{max(0, taken - 100)}\npgsteal_kswapd 7\n')
        self.write(f'{name}/memory.events',
                   f'low 5\nhigh {limited}\nmax 0\noom 0\n')
        self.press(name, waited_s)

    def press(self, name: str, waited_s: float) -> None:
        self.write(f'{name}/memory.pressure',
                   'some avg10=0.00 avg60=0.00 avg300=0.00 total='
                   f'{waited_s * 1e6:.0f}\nfull avg10=0.00 avg60=0.00 '
                   'avg300=0.00 total=1\n')

    def begin(self, *victims: str) -> None:
        self.evidence.follow(HostSample('h', 'b', 10, 10, tuple(
            WorkloadSample(Workload(name, Priority.FOREGROUND))
            for name in self.names)))
        self.evidence.ask(victims or ('/v',), 10.0)

    def answers(self) -> tuple[DirectEvidence, ...]:
        self.evidence.ask((), 12.0)
        return self.evidence.answers(13.0)

    def test_by_what_each_took(self) -> None:
        """Page cache that was reclaimed again counts."""
        self.begin()
        self.use('/v', 100, 1.5)
        self.use('/hog', 300)
        answer, = self.answers()
        self.assertEqual(('/v', 'memory', 2.0, 1.5, True), (
            answer.workload, answer.resource, answer.window_s,
            answer.waited_s, answer.shared))
        self.assertEqual({'/v': 0.375, '/hog': 1.125}, answer.holders)

    def test_what_meets_its_own_limit_waits_for_itself(self) -> None:
        self.begin()
        self.use('/v', 100, 1.5, limited=3)
        self.use('/hog', 300)
        answer, = self.answers()
        self.assertEqual({'/v': 1.5}, answer.holders)

    def test_what_gave_memory_back_took_none(self) -> None:
        self.use('/hog', 90)
        self.begin()
        self.use('/v', 10, 1.0)
        self.use('/hog', 20)
        answer, = self.answers()
        self.assertEqual({'/v': 1.0}, answer.holders)

    def test_what_is_not_known_took_nothing_that_is_told(self) -> None:
        self.begin()
        self.use('/v', 10, 1.0)
        self.write('/hog/memory.stat', 'nothing\n')
        answer, = self.answers()
        self.assertEqual({'/v': 1.0}, answer.holders)

    def test_a_victim_that_is_gone(self) -> None:
        self.begin('/v', '/gone')
        (self.top / 'v/memory.pressure').unlink()
        self.assertEqual((), self.answers())

    def test_without_pressure(self) -> None:
        """How long it waits is not known, which is not 0; logged once."""
        (self.top / 'v/memory.pressure').unlink()
        for _ in range(3):
            self.begin()
            self.assertEqual((), self.answers())
        self.assertIn('psi=1', self.evidence.why)
        self.assertEqual(1, self.log.output.count('psi=1'))
        self.assertIs(False, self.evidence.facts()['on'])

    def test_nothing_is_read_before_it_is_asked(self) -> None:
        for name in self.names:
            self.write(f'{name}/memory.pressure', 'x')
        self.evidence.ask((), 10.0)
        self.assertEqual((), self.answers())
        self.assertEqual('', self.log.output)


class Version1(Version2):
    """Pressure is in the tree of version 2 beside it."""

    version = 1

    def mounts(self) -> dict[str, Mount]:
        return {'unified': Mount(f'{self.top}/unified', 2),
                'cpu': Mount(str(self.top), 1),
                'memory': Mount(str(self.top), 1)}

    def use(self, name: str, taken: int = 0, waited_s: float = 0.0,
            limited: int = 0) -> None:
        self.write(f'{name}/memory.stat',
                   f'pgpgin 1\ntotal_pgpgin {taken}\ntotal_pgpgout 7\n')
        self.write(f'{name}/memory.failcnt', f'{limited}\n')
        self.write(f'unified{name}/memory.pressure',
                   f'some avg10=0.00 total={waited_s * 1e6:.0f}\n')

    def test_what_gave_memory_back_took_none(self) -> None:
        """Version 1 counts what was taken alone."""

    def test_a_victim_that_is_gone(self) -> None:
        self.begin('/v', '/gone')
        (self.top / 'unified/v/memory.pressure').unlink()
        self.assertEqual((), self.answers())

    def test_without_pressure(self) -> None:
        (self.top / 'unified/v/memory.pressure').unlink()
        self.begin()
        self.assertEqual((), self.answers())
        self.assertIn('psi=1', self.evidence.why)


class WithoutController(testtools.TestCase):

    def test_it_says_what_is_missing(self) -> None:
        evidence = memory.MemoryEvidence({'cpu': Mount('/none', 1)},
                                         DomainCgroups({}))
        self.useFixture(fixtures.FakeLogger())
        evidence.ask(['/v'], 1.0)
        self.assertIn('no controller for memory', evidence.why)
