# SPDX-License-Identifier: Apache-2.0

"""What is said to be missing for each resource."""

from __future__ import annotations

from collections.abc import Sequence

import testtools

from scavenger_openstack.drivers import prerequisites
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

BACK, FORE = Priority.BACKGROUND, Priority.FOREGROUND


def samples(priority: Priority, *names: str) -> list[WorkloadSample]:
    return [WorkloadSample(Workload(name, priority)) for name in names]


class TestPrerequisites(testtools.TestCase):

    def missing(self, protect: Sequence[Resource],
                cgroups: Sequence[WorkloadSample] = (),
                domains: Sequence[WorkloadSample] = (), *,
                lacks: tuple[Knob, ...] = (), delays_off: str = '',
                direct_off: str = '', counters_off: str = '',
                llc_off: str = '', links: bool = True, refaults: bool = True,
                interfaces: Sequence[str] = (), libvirt: bool = False
                ) -> tuple[str, ...]:
        always, *missing = prerequisites.Prerequisites(
            protect, ['always'],
            lambda workload, knob: f'{workload} {knob}' if knob in lacks
            else '', delays_off, dict.fromkeys(Resource, direct_off),
            counters_off, llc_off, links, refaults, interfaces,
            libvirt).missing(cgroups, domains)
        self.assertEqual('always', always)
        return tuple(missing)

    def test_nothing_is_missing_without_background(self) -> None:
        self.assertEqual((), self.missing(
            list(Resource), samples(FORE, '/s/f'), lacks=tuple(Knob),
            delays_off='off', links=False))

    def test_files_of_one_cgroup_per_parent(self) -> None:
        cgroups = samples(BACK, '/batch/a', '/batch/b', '/more/c')
        self.assertEqual(
            ('cpu: /batch/a cpu_set', 'cpu: /more/c cpu_set'),
            self.missing([Resource.CPU, Resource.MEMORY], cgroups,
                         lacks=(Knob.CPU_SET, Knob.IO_OPS_PER_S),
                         libvirt=True))

    def test_direct_evidence(self) -> None:
        """That of the cache belongs to the CPUs."""
        batch, service = samples(BACK, '/b/a'), samples(FORE, '/s/f')
        for why, cgroups, domains, protect, count in (
                ('no BPF', batch, [], [Resource.CPU], 2),
                ('no BPF', service, samples(BACK, 'vm'), [Resource.CPU], 2),
                ('no BPF', batch, [], [Resource.CPU, Resource.DISK], 3),
                ('', batch, [], [Resource.CPU, Resource.DISK], 0),
                ('no BPF', service, [], [Resource.CPU], 0),
                ('no BPF', batch, [], [Resource.MEMORY], 1)):
            missing = [line for line in self.missing(
                protect, cgroups, domains, direct_off=why)
                if 'no BPF' in line]
            self.assertEqual(count, len(missing), str(missing))

    def test_memory_of_virtual_machines(self) -> None:
        def vm(name: str, floor: float, kept: str = '',
               priority: Priority = BACK) -> WorkloadSample:
            return WorkloadSample(Workload(
                name, priority, memory_allotment_bytes=2.0 ** 30,
                floor={Knob.MEMORY_BYTES: floor}, memory_kept=kept))

        for protect, domains, words in (
                # Nothing is asked of these.
                ([Resource.MEMORY], [vm('a', 2.0 ** 30), vm('b', 2.0 ** 30,
                                                            'no balloon')],
                 []),
                ([Resource.MEMORY], [vm('a', 2.0 ** 20)], []),
                ([Resource.MEMORY], [vm('a', 2.0 ** 20, 'no balloon'),
                                     vm('b', 2.0 ** 20, 'silent'),
                                     vm('c', 2.0 ** 30)],
                 ['no balloon', 'silent']),
                ([Resource.MEMORY], [vm('a', 2.0 ** 30, 'no', FORE)], []),
                ([Resource.CPU], [vm('a', 2.0 ** 30, 'no')], [])):
            missing = [line for line in self.missing(protect, (), domains)
                       if line.startswith('memory: ')]
            self.assertEqual(len(words), len(missing), str(missing))
            for word, line in zip(words, missing, strict=True):
                self.assertIn(word, line)

    def test_page_cache_that_is_read_again(self) -> None:
        for protect, refaults, priority, count in (
                (Resource.MEMORY, False, BACK, 1),
                (Resource.MEMORY, True, BACK, 0),
                (Resource.MEMORY, False, FORE, 0),
                (Resource.CPU, False, BACK, 0)):
            missing = self.missing([protect], samples(priority, '/a/b'),
                                   refaults=refaults, libvirt=True)
            self.assertEqual(count, missing.count(prerequisites.NO_REFAULTS))

    def test_counters_belong_to_the_cpus(self) -> None:
        batch, service = samples(BACK, '/b/a'), samples(FORE, '/s/f')
        for protect, cgroups, count in (
                ([Resource.CPU], batch, 1), ([Resource.CPU], service, 0),
                ([Resource.MEMORY], batch, 0)):
            missing = [line for line in self.missing(
                protect, cgroups, counters_off='no PMU', libvirt=True)
                if line.startswith('cache: ') and 'no PMU' in line]
            self.assertEqual(count, len(missing), str(missing))

    def test_caches_that_are_not_divided(self) -> None:
        """Nor could they be without the counters that say when."""
        for protect, counters_off, text in (
                ([Resource.CPU], '', 'mount it'),
                ([Resource.CPU], 'no PMU', 'no PMU'),
                ([Resource.MEMORY], '', '')):
            missing = [line for line in self.missing(
                protect, samples(BACK, '/b/a'), llc_off='mount it',
                counters_off=counters_off) if line.startswith('cache: ')]
            self.assertEqual([text] * bool(text), [
                line.rpartition(': ')[2] for line in missing])

    def test_each_resource_that_is_not_measured(self) -> None:
        """Delay accounting has the waits for CPUs, too."""
        missing = self.missing(
            list(Resource), samples(BACK, '/b/a') + samples(FORE, '/s/f'),
            delays_off='type "x"', interfaces=['/b/a'])
        self.assertEqual(['cpu', 'disk'],
                         [line.partition(':')[0] for line in missing])
        for line in missing:
            self.assertIn('no incident begins', line)
            self.assertTrue(line.endswith(': type "x"'), line)

    def test_waits_for_disks(self) -> None:
        batch, service = samples(BACK, '/b/a'), samples(FORE, '/s/f')
        cases: tuple[tuple[list[WorkloadSample], list[WorkloadSample], str,
                           str | None], ...] = (
                (batch + service, [], 'delays are off', 'delays are off'),
                (batch + service, [], '', None),
                # libvirt measures those of VMs.
                (batch, samples(FORE, 'uuid'), 'delays are off', None),
                # Also where there is no foreground VM at the moment.
                ([], samples(BACK, 'uuid'), 'delays are off', None),
                (service, samples(BACK, 'uuid'), 'delays are off',
                 'delays are off'),
                (batch, [], 'delays are off', 'foreground_parents'))
        for cgroups, domains, off, words in cases:
            found = self.missing([Resource.DISK], cgroups, domains,
                                 delays_off=off, libvirt=bool(domains))
            self.assertEqual(words is not None, bool(found))
            if words:
                self.assertIn(words, found[0])
                self.assertTrue(found[0].startswith('disk: '))
        self.assertEqual((), self.missing(
            [Resource.MEMORY], batch + service, delays_off='off'))

    def test_network(self) -> None:
        batch = samples(BACK, '/b/a', '/b/c')
        found, = self.missing([Resource.NETWORK], batch, links=False)
        self.assertIn('[network] links', found)
        found, = self.missing([Resource.NETWORK], batch, interfaces=['/b/a'])
        self.assertIn('1 background cgroup may send', found)
        self.assertIn('/b/c', found)
        self.assertEqual((), self.missing(
            [Resource.NETWORK], samples(BACK), samples(BACK, 'uuid')))
