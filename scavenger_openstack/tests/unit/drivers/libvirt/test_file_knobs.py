# SPDX-License-Identifier: Apache-2.0


"""The CPU set of a VM, on file trees of both versions of cgroups."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
from typing import Any

import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.libvirt import file_knobs
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.tests.unit.drivers import domain_cpusets
from scavenger_openstack.tests.unit.drivers.domain_cpusets import ALL
from scavenger_openstack.tests.unit.drivers.domain_cpusets import ONE
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import seen
from scavenger_openstack.types import Knob

class CpuSetCase(domain_cpusets.CpuSetCase):

    def put(self, text: str) -> Sequence[base.RestoreAction]:
        """As the actuator does: what the lease gets, then the value."""
        driver: Any = domain_cpusets.Knobs(self.cpus)
        state = self.state
        for ours in () if state is None else (state.ours, None):
            assert state is not None
            state = originals.follow(driver, 'one', Knob.CPU_SET,
                                     state._replace(ours=ours)).state
        state = state or leased(driver, 'one', Knob.CPU_SET)
        self.assertEqual(text, self.cpus.write(text, state))
        self.state = state._replace(
            ours=leased(driver, 'one', Knob.CPU_SET).original)
        return state.original.actions


class Version1(CpuSetCase):

    def test_set_and_restored(self) -> None:
        taken = self.put('2-3')
        self.assertEqual([{2, 3}] * 4, self.sets())
        # libvirt can still plug in a vCPU, and pin one, wherever it likes.
        self.assertEqual(ALL, self.host.set_of(ONE))
        self.put('1')
        self.restore(taken)
        self.assertEqual([ALL] * 4, self.sets())
        self.assertEqual('0-7', self.cpus.read())

    def test_sets_of_its_own(self) -> None:
        """Pins that libvirt has set: kept, where ours leaves any of them."""
        self.host.set_by_another(f'{ONE}/vcpu0', {2, 3})
        taken = self.put('3-4')
        self.assertEqual([{3, 4}, {3}], self.sets('emulator', 'vcpu0'))
        self.put('4')
        self.assertEqual([{4}] * 4, self.sets())
        self.put('0-3')
        self.assertEqual([{0, 1, 2, 3}, {2, 3}],
                         self.sets('emulator', 'vcpu0'))
        self.restore(taken)
        self.assertEqual([ALL, {2, 3}], self.sets('emulator', 'vcpu0'))

    def test_what_libvirt_allows(self) -> None:
        """No CPU beyond comes of it, then or later."""
        self.cpus.allowed = frozenset((2, 3))
        for part in self.parts:
            self.host.set_by_another(f'{ONE}/{part}', {2, 3})
        self.assertEqual('2-3', self.cpus.read())
        taken = self.put('3')
        self.restore(taken)
        self.assertEqual('2-3', self.cpus.read())
        self.assertEqual([{2, 3}] * 4, self.sets())

    def test_a_pin_that_comes_under_it(self) -> None:
        self.put('3-4')
        self.host.set_by_another(f'{ONE}/vcpu0', {6})
        self.assertEqual('3-4,6', self.cpus.read())
        self.put('4')
        self.assertEqual([{4}] * 4, self.sets())
        self.put('4-7')
        self.assertEqual([{4, 5, 6, 7}, {6}], self.sets('vcpu1', 'vcpu0'))

    def test_the_same_again_over_a_pin(self) -> None:
        self.put('3-4')
        self.host.set_by_another(f'{ONE}/vcpu0', {3, 4, 6})
        self.put('3-4')
        self.assertEqual([{3, 4}], self.sets('vcpu0'))

    def test_a_pin_that_all_together_hide(self) -> None:
        """The CPUs that any of it may use are the same with it."""
        self.put('3-4')
        self.host.set_by_another(f'{ONE}/vcpu0', {3})
        self.put('3-5')
        self.assertEqual([{3, 4, 5}, {3}], self.sets('vcpu1', 'vcpu0'))

    def test_a_vcpu_is_plugged_in(self) -> None:
        """It is set once the lease has its original, and not before."""
        first = self.put('3')
        self.assertFalse(self.cpus.changed())
        self.host.cgroup(f'{ONE}/vcpu2')
        self.assertTrue(self.cpus.changed())
        self.cpus.write('4')
        self.assertEqual([{4}, ALL], self.sets('vcpu1', 'vcpu2'))
        self.assertEqual('4', self.cpus.read())
        self.assertTrue(self.cpus.changed())
        taken = self.put('3')
        self.assertEqual(first[0]['inode'], taken[0]['inode'])
        self.assertEqual([{3}, {3}], self.sets('vcpu1', 'vcpu2'))
        self.assertEqual('0,1,2,3,4,5,6,7', ','.join(map(str, sorted(
            cpusets.cpus_of(taken[-1]['text'])))))
        self.assertFalse(self.cpus.changed())

    def test_64_vcpus_of_which_few_are_left(self) -> None:
        for vcpu in range(2, 64):
            self.host.cgroup(f'{ONE}/vcpu{vcpu}')
        taken = self.put('3')
        self.assertEqual([{3}], self.sets('vcpu63'))
        for vcpu in range(2, 64):
            self.host.delete(f'{ONE}/vcpu{vcpu}')
        self.assertEqual('3', self.cpus.read())
        self.put('4')
        self.assertEqual([{4}] * 4, self.sets())
        self.assertFalse(self.cpus.changed())
        self.restore([step for step in taken
                      if pathlib.Path(step['dir']).exists()])
        self.assertEqual([ALL] * 4, self.sets())

    def test_a_cpu_goes_offline(self) -> None:
        taken = self.put('3-4')
        self.host.take_offline(4)
        self.assertEqual('3-4', self.cpus.read())
        self.host.bring_online(4)
        self.restore(taken)
        self.assertEqual([self.host.set_of(ONE)] * 4, self.sets())

    def test_nonsense(self) -> None:
        for text in ('all', '', '3-'):
            self.assertRaises(errors.DriverError, self.cpus.write, text)
        self.assertEqual('0-7', self.cpus.read())


class SetsOfParts(CpuSetCase):
    """Version 1, where each part of a VM has a set; in version 2 it is one."""

    def test_one_is_refused(self) -> None:
        """Then none is set, and nothing of it counts as another program's."""
        taken = self.put('3-4')
        for before in ([{3, 4}] * 4, [ALL] * 4):
            self.host.refused = {f'{ONE}/vcpu0/cpuset.cpus'}
            self.assertRaises(errors.DriverError, self.cpus.write, '3')
            self.assertEqual(before, self.sets())
            self.host.refused = set()
            self.restore(taken)
        self.put('2')
        self.assertEqual([{2}] * 4, self.sets())

    def test_one_without_cpus_yet(self) -> None:
        """libvirt makes the cgroup first, and then gives it some."""
        self.put('3')
        self.host.cgroup(f'{ONE}/vcpu2')
        self.host.set_by_another(f'{ONE}/vcpu2', ())
        self.put('3')
        self.assertEqual([set()], self.sets('vcpu2'))
        self.assertTrue(self.cpus.changed())
        self.host.set_by_another(f'{ONE}/vcpu2', ALL)
        self.put('3')
        self.assertEqual([{3}], self.sets('vcpu2'))
        self.assertFalse(self.cpus.changed())

    def test_other_cgroups_are_left_alone(self) -> None:
        self.host.cgroup(f'{ONE}/theirs')
        self.put('3')
        self.assertEqual([ALL], self.sets('theirs'))


class Version2(Version1):

    version = 2
    line = '0::'

    def sets(self, *parts: str) -> list[set[int]]:
        """As the kernel works it out: within the set of the machine."""
        own = self.host.set_of(ONE) or set(ALL)
        return [self.host.set_of(f'{ONE}/{part}') & own or own
                for part in parts or self.parts]

    def test_set_and_restored(self) -> None:
        self.assertIsNone(self.cpus.read())
        taken = self.put('2-3')
        self.assertEqual([{2, 3}] * 4, self.sets())
        self.put('1')
        self.assertEqual([ONE], list({
            path.rpartition('/cpuset')[0] for path, *_ in self.host.written}))
        self.restore(taken)
        self.assertEqual([set(ALL)] * 4, self.sets())
        # The kernel does not take it away again: the same effect.
        self.assertEqual('0-7', self.cpus.read())

    def test_a_pin_that_comes_under_it(self) -> None:
        self.put('3-4')
        self.host.set_by_another(f'{ONE}/vcpu0', {6})
        self.assertEqual('3-4', self.cpus.read())
        self.assertEqual([{3, 4}], self.sets('vcpu0'))

    def test_a_pin_that_all_together_hide(self) -> None:
        self.put('3-4')
        self.host.set_by_another(f'{ONE}/vcpu0', {3})
        self.put('3-5')
        self.assertEqual([{3, 4, 5}, {3}], self.sets('vcpu1', 'vcpu0'))

    def test_a_vcpu_is_plugged_in(self) -> None:
        self.put('3')
        self.host.cgroup(f'{ONE}/vcpu2')
        self.assertFalse(self.cpus.changed())
        self.assertEqual([{3}], self.sets('vcpu2'))

    def test_nonsense(self) -> None:
        for text in ('all', '', '3-'):
            self.assertRaises(errors.DriverError, self.cpus.write, text)
        self.assertIsNone(self.cpus.read())


class Which(testtools.TestCase):

    def files(self) -> file_knobs.Files:
        return file_knobs.Files(None, '/')

    def test_one_with_cpus_of_its_own(self) -> None:
        pinned = ('<vcpupin vcpu="0" cpuset="0"/>'
                  '<vcpupin vcpu="1" cpuset="1"/>')
        numa = '<numatune><memory mode="strict" nodeset="0"/></numatune>'
        for one in (seen(tune=pinned), seen(more=numa)):
            exc = self.assertRaises(errors.Unsupported, self.files().of,
                                    Knob.CPU_SET, one.domain)
            self.assertIn('NUMA nodes of its own', str(exc))

    def test_one_without_cgroups(self) -> None:
        for knob in file_knobs.KNOBS:
            exc = self.assertRaises(errors.Unsupported, self.files().of,
                                    knob, seen().domain)
            self.assertIn('cgroup_controllers', str(exc))
