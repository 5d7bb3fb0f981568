# SPDX-License-Identifier: Apache-2.0

"""Which CPUs a VM has to itself, and pins that no host can have."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import tracemalloc

import fixtures
import testtools

from scavenger_openstack.algorithms.scavenger import pins
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import tracked
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import domain
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import nova
from scavenger_openstack.types import WorkloadRates

Specs = Mapping[str, str]


def parse(*cpus: str, emulator: str = '', specs: Specs | None = None,
          image: Specs | None = None, cpuset: str = '') -> xml.Domain:
    """A VM whose vCPUs are pinned to these CPUs."""
    tune = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{one}'/>"
                   for vcpu, one in enumerate(cpus))
    if emulator:
        tune += f"<emulatorpin cpuset='{emulator}'/>"
    where = f" cpuset='{cpuset}'" if cpuset else ''
    return xml.parse(domain(
        nova(specs, image), vcpu=f'<vcpu{where}>{len(cpus) or 2}</vcpu>',
        tune=f'<cputune>{tune}</cputune>'))


class Reserved(testtools.TestCase):

    def dedicated(self, *cpus: str, emulator: str = '',
                  specs: Specs | None = None, image: Specs | None = None,
                  cpuset: str = '') -> set[int] | None:
        vm = parse(*cpus, emulator=emulator, specs=specs, image=image,
                   cpuset=cpuset)
        found = set(vm.workload(created_s=1.0).dedicated_cpus or ())
        self.assertTrue(vm.dedicated or not found)
        return found if vm.dedicated else None

    def test_emulator_in_isolation(self) -> None:
        """What is left to the background of CPUs 0-7."""
        isolate = {'hw:cpu_policy': 'dedicated',
                   'hw:emulator_threads_policy': 'isolate'}
        for specs, left in (
                (isolate, {0, 1, 2, 3, 7}),
                ({**isolate, 'hw:emulator_threads_policy': 'share'},
                 {0, 1, 2, 3, 6, 7}),
                ({'resources:PCPU': '3',
                  'hw:emulator_threads_policy': 'isolate'}, {0, 1, 2, 3, 7}),
                (None, {0, 1, 2, 3, 7})):       # by the form of the pins
            vm = parse('4', '5', emulator='6', specs=specs)
            found = pins.of([WorkloadRates(vm.workload(created_s=1.0), 1.0)],
                            range(8))
            self.assertEqual(left, found.allowed, str(specs))

    def test_emulator_that_floats(self) -> None:
        self.assertEqual({4, 5}, self.dedicated('4', '5', emulator='4-5'))
        self.assertEqual({4, 5}, self.dedicated('4', '5', emulator='0-3'))
        # A CPU that only the emulator has, of an instance that shares CPUs.
        self.assertIsNone(self.dedicated('0-3', '0-3', emulator='6'))

    def test_first_of_flavor_image_and_resources(self) -> None:
        mixed = '0-3', '4', '5'
        mask = {'hw:cpu_dedicated_mask': '1-2'}
        for specs, image, wanted in (
                (mask, {'hw_cpu_policy': 'mixed'}, {4, 5}),
                ({}, {'hw_cpu_policy': 'dedicated'}, {4, 5}),
                ({'hw:cpu_policy': 'mixed', **mask}, {}, {4, 5}),
                ({'resources1:PCPU': '2', 'resources:VCPU': '1'}, {}, {4, 5}),
                ({'resources:PCPU': '2'}, {}, {4, 5}),
                ({'resources_FAST-1:PCPU': '2'}, {}, {4, 5}),
                # The first that says anything is followed.
                ({'hw:cpu_policy': 'shared', 'resources1:PCPU': '2'},
                 {'hw_cpu_policy': 'dedicated'}, None),
                ({'resources1:PCPU': '2'}, {'hw_cpu_policy': 'shared'}, None),
                ({'hw:cpu_policy': 'dedicated'},
                 {'hw_cpu_policy': 'shared'}, {4, 5}),
                # What says nothing.
                ({}, {}, None), (mask, {}, None),
                ({'hw:cpu_policy': 'own'}, {'hw_cpu_policy': ''}, None),
                ({'resources:PCPU': '0', 'resources1:PCPU': 'two'}, {}, None),
                ({'resources:PCPUS': '2', 'resources1:VCPU': '2'}, {}, None),
                ({'xresources:PCPU': '2'}, {}, None)):
            self.assertEqual(wanted, self.dedicated(
                *mixed, specs=specs, image=image), str((specs, image)))

    def test_form_of_the_pins_where_nothing_is_said(self) -> None:
        self.assertEqual({4, 5}, self.dedicated('4', '5', specs={}))
        self.assertEqual({4}, self.dedicated('0-3', '4'))
        # A host may share one CPU of each NUMA node.
        self.assertIsNone(self.dedicated(
            '4', '5', specs={'hw:cpu_policy': 'shared'}))

    def test_masks(self) -> None:
        """Also where a node shares one CPU, which looks like a dedicated
        one."""
        mixed = {'hw:cpu_policy': 'mixed'}
        realtime = {**mixed, 'hw:cpu_realtime': 'yes'}
        for specs, image, wanted in (
                ({'hw:cpu_dedicated_mask': '1-2', **mixed}, {}, {4, 5}),
                ({'hw:cpu_dedicated_mask': '^0', **mixed}, {}, {4, 5}),
                ({'hw:cpu_dedicated_mask': '0-2, ^0-1', **mixed}, {}, {5}),
                ({'hw:cpu_realtime_mask': '2', **realtime}, {}, {5}),
                ({'hw:cpu_realtime_mask': '2', **realtime},
                 {'hw_cpu_realtime_mask': '^0'}, {4, 5}),
                # Real time is the flavor's to say.
                ({'hw:cpu_realtime_mask': '2', **mixed},
                 {'hw_cpu_realtime': 'yes'}, {3, 4, 5}),
                (realtime, {}, {3, 4, 5}),
                # Masks that Nova does not take.
                *(({'hw:cpu_dedicated_mask': mask, **mixed}, {}, {3, 4, 5})
                  for mask in ('', '7', '2-1', 'x', '^0-2', '99999999999',
                               '0-65535', ',' * 100_000)),
                # A mask is none of a policy that gives them all.
                ({'hw:cpu_dedicated_mask': '2',
                  'hw:cpu_policy': 'dedicated'}, {}, {3, 4, 5})):
            self.assertEqual(wanted, self.dedicated(
                '3', '4', '5', specs=specs, image=image), str((specs, image)))

    def test_nothing_is_pinned(self) -> None:
        """An operator's word is followed; a tenant's reserves nothing."""
        for specs, image, wanted in (
                ({'hw:cpu_policy': 'dedicated'}, {}, {0, 1, 2, 3}),
                ({}, {'hw_cpu_policy': 'dedicated'}, None),
                # Nova books such CPUs and pins nothing to them.
                ({'resources_X:PCPU': '2'}, {}, set())):
            self.assertEqual(wanted, self.dedicated(
                cpuset='0-3', specs=specs, image=image))

    def test_cores_with_nothing_beside(self) -> None:
        """Nova leaves the other threads of such cores free as well."""
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for cpu in range(8):
            where = root / f'sys/devices/system/cpu/cpu{cpu}/topology'
            where.mkdir(parents=True)
            (where / 'thread_siblings_list').write_text(
                f'{cpu % 4},{cpu % 4 + 4}\n')
        allowed = tracked.Allowed(root_dir=str(root))
        dedicated = {'hw:cpu_policy': 'dedicated',
                     'hw:emulator_threads_policy': 'isolate'}
        alone = {1, 2, 3, 5, 6, 7}
        for specs, image, wanted in (
                ({'hw:cpu_thread_policy': 'isolate'}, {}, alone),
                ({}, {'hw_cpu_thread_policy': 'isolate'}, alone),
                ({'trait:HW_CPU_HYPERTHREADING': 'forbidden'}, {}, alone),
                ({'trait1:HW_CPU_HYPERTHREADING': 'forbidden'}, {}, alone),
                ({'trait:HW_CPU_HYPERTHREADING': 'required'}, {}, {1, 2, 3}),
                ({'hw:cpu_thread_policy': 'prefer'},
                 {'hw_cpu_thread_policy': 'isolate'}, {1, 2, 3})):
            vm = parse('1', '2', emulator='3', image=image,
                       specs={**dedicated, **specs})
            self.assertEqual(wanted, allowed.workload(
                Snapshot(vm, 5, 77, False)).dedicated_cpus, str(specs))


class Bounds(testtools.TestCase):

    def refused(self, text: str) -> None:
        tracemalloc.start()
        try:
            exc = self.assertRaises(errors.DriverError, xml.parse, text)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        self.assertIn('at most', str(exc))
        self.assertLess(peak, 64 * 2 ** 20)

    def test_more_vcpus_than_there_can_be(self) -> None:
        for vcpus in ('4294967295', '30000000', '999999999999999999'):
            for vcpu in (f'<vcpu>{vcpus}</vcpu>',
                         f"<vcpu current='{vcpus}'>2</vcpu>"):
                for pin in ('', "<vcpupin vcpu='0' cpuset='0'/>"):
                    self.refused(domain(
                        vcpu=vcpu, tune=f'<cputune>{pin}</cputune>'))

    def test_more_pins_than_a_host_has(self) -> None:
        """Each of many pins is another large set."""
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{vcpu}-65535'/>"
                         for vcpu in range(400))
        self.refused(domain(vcpu='<vcpu>400</vcpu>',
                            tune=f'<cputune>{pinned}</cputune>'))

    def test_as_many_as_there_may_be(self) -> None:
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{vcpu}-511'/>"
                         for vcpu in range(512))
        one = xml.parse(domain(vcpu='<vcpu>512</vcpu>',
                               tune=f'<cputune>{pinned}</cputune>'))
        self.assertEqual(512, len(one.allowed_cpus or ()))
        # As many as they are, they are one set.
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='0-65535'/>"
                         for vcpu in range(4000))
        one = xml.parse(domain(vcpu='<vcpu>4000</vcpu>',
                               tune=f'<cputune>{pinned}</cputune>'))
        self.assertEqual(65536, len(one.allowed_cpus or ()))
