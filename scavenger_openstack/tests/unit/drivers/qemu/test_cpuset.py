# SPDX-License-Identifier: Apache-2.0

"""The CPU set of a VM that the fast loop moves, on file trees of both
versions of cgroups."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import originals
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack import errors
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.tests.unit.drivers import domain_cpusets
from scavenger_openstack.tests.unit.drivers.domain_cpusets import ALL
from scavenger_openstack.tests.unit.drivers.domain_cpusets import ONE
from scavenger_openstack.types import Knob


class FastCase(domain_cpusets.CpuSetCase):

    def setUp(self) -> None:
        super().setUp()
        self.cpus.begin()
        self.due = self.tick()

    def tick(self) -> bool:
        """As the slow loop does: the lease, then the set follows it."""
        driver: Any = domain_cpusets.Knobs(self.cpus)
        theirs = (self.unleased() if self.state is not None else None) or {}
        state = (leased(driver, 'one', Knob.CPU_SET) if self.state is None
                 else originals.follow(driver, 'one', Knob.CPU_SET,
                                       self.state).state)
        self.state = base.KnobState(base.Setting(
            None, originals.within(state.original.actions, theirs)))
        return self.cpus.refresh(self.taken)

    def unleased(self) -> Mapping[int, frozenset[int]] | None:
        """As of the tick in which it is read."""
        answers = (self.cpus.unleased() for _ in range(cpuset.READ_TICKS))
        return next((sets for sets in answers if sets is not None), None)

    @property
    def taken(self) -> Sequence[base.RestoreAction]:
        assert self.state is not None
        return self.state.original.actions

    def move(self, *cpus: int) -> None:
        """As the fast loop does."""
        self.cpus.set(frozenset(cpus))

    def end(self) -> list[set[int]]:
        """What is there once the lease has ended."""
        self.restore(self.taken)
        return self.sets()


class Version1(FastCase):

    written = f'{ONE}/vcpu0'

    def test_all_of_it_moves(self) -> None:
        self.assertTrue(self.due)
        for cpus in ({3}, {2, 3}, {4, 5}, {5}):
            self.move(*cpus)
            self.assertEqual([cpus] * 4, self.sets())
            self.assertFalse(self.tick())
        self.assertEqual([ALL] * 4, self.end())

    def test_libvirt_may_pin_to_other_cpus(self) -> None:
        """Since the set of the machine stays."""
        self.move(3)
        self.assertEqual(ALL, self.host.set_of(ONE))
        self.assertEqual(4, len(self.host.written))

    def test_pins_from_before(self) -> None:
        self.host.set_by_another(f'{ONE}/vcpu0', {2, 3})
        self.state = None
        self.cpus.begin()
        self.tick()
        for cpus, pinned in (({3, 4}, {3}), ({4}, {4}), ({1, 2, 3}, {2, 3})):
            self.move(*cpus)
            self.assertEqual([cpus, pinned], self.sets('vcpu1', 'vcpu0'))
        self.assertEqual([ALL, ALL, {2, 3}, ALL], self.end())

    def test_a_pin_that_comes(self) -> None:
        """It stays until the lease has it, and is then what is restored."""
        self.move(3, 4)
        self.host.set_by_another(f'{ONE}/vcpu0', {4, 6})
        for cpus in ({4}, {4, 5}):
            self.move(*cpus)
            self.assertEqual([cpus, {4, 6}], self.sets('vcpu1', 'vcpu0'))
        self.assertTrue(self.tick())
        self.move(4, 5)
        self.assertEqual([{4, 5}, {4}], self.sets('vcpu1', 'vcpu0'))
        self.assertFalse(self.tick())
        self.assertEqual([ALL, ALL, {4, 6}, ALL], self.end())

    def test_a_pin_that_comes_while_it_is_leased(self) -> None:
        """In a tick, after it was asked what others wrote."""
        self.move(3, 4)
        theirs = self.cpus.unleased()
        self.host.set_by_another(f'{ONE}/vcpu0', {6})
        self.cpus.actions()
        self.cpus.refresh(self.taken)
        self.move(4)
        self.assertEqual([{4}, {6}], self.sets('vcpu1', 'vcpu0'))
        self.assertFalse(theirs)
        self.tick()
        self.move(4)
        self.assertEqual([{4}], self.sets('vcpu0'))
        self.assertEqual([ALL, ALL, {6}, ALL], self.end())

    def test_a_pin_that_comes_before_the_first_move(self) -> None:
        """As of a vCPU that is plugged in: libvirt pins it a little later."""
        self.host.set_by_another(f'{ONE}/vcpu0', {4, 6})
        self.move(3, 4)
        self.assertEqual([{3, 4}, {4, 6}], self.sets('vcpu1', 'vcpu0'))
        self.assertTrue(self.tick())
        self.move(4, 5)
        self.assertEqual([{4, 5}, {4}], self.sets('vcpu1', 'vcpu0'))
        self.assertEqual([ALL, ALL, {4, 6}, ALL], self.end())

    def test_read_in_turn(self) -> None:
        """In one tick of eight, but in the next where a move met another
        program's set: of a hundred VMs all took 3.5 ms in each tick."""
        self.move(3)
        turns = []
        for number in range(2 * cpuset.READ_TICKS):
            self.host.set_by_another(self.written, {number % 7})
            if self.cpus.unleased() is not None:
                turns.append(number)
                self.cpus.refresh(self.taken)
        self.assertEqual([turns[0], turns[0] + cpuset.READ_TICKS], turns)
        for cpu in (7, 5, 7, 5):
            self.host.set_by_another(self.written, {6})
            self.move(cpu)
            self.assertEqual([{6}], [
                *map(set, (self.cpus.unleased() or {}).values())])
            self.cpus.refresh(self.taken)
            self.move(cpu)

    def turn_over(self) -> None:
        """Until the sets are not read for some ticks."""
        self.move(3)
        self.assertIsNone(self.unleased())
        while self.cpus._tick % cpuset.READ_TICKS:
            self.cpus.unleased()

    def test_another_run_of_it(self) -> None:
        """It is noticed in the next tick: nothing limits that one."""
        self.turn_over()
        self.assertIsNone(self.cpus.unleased())
        for part in (*self.parts, ''):
            self.host.delete(f'{ONE}/{part}')
        self.assertRaises(errors.WorkloadGone, self.cpus.unleased)

    def test_a_plugged_vcpu_is_noticed_in_the_next_tick(self) -> None:
        """Version 2 bounds it already."""
        self.turn_over()
        self.assertIsNone(self.cpus.unleased())
        self.host.cgroup(f'{ONE}/vcpu2')
        self.assertEqual({1: {}, 2: None}[self.version],
                         self.cpus.unleased())
        for _ in range(2):
            self.cpus.refresh(self.taken)
            self.cpus.unleased()
        self.tick()
        self.turn_over()
        self.assertIsNone(self.cpus.unleased())

    def test_what_is_set(self) -> None:
        """What another program has written since is in the way."""
        self.move(3)
        self.host.set_by_another(self.written, {4})
        for cpus, is_set in ((3, True), (5, False)):    # as it was read last
            self.assertEqual(is_set, self.cpus.has(frozenset({cpus})))
        self.move(5)
        self.assertFalse(self.cpus.has(frozenset({5})))
        self.tick()
        self.move(4, 5)
        self.assertTrue(self.cpus.has(frozenset({4, 5})))
        self.cpus.begin()
        self.assertFalse(self.cpus.has(frozenset({4, 5})))

    def test_a_pin_to_what_was_set_last(self) -> None:
        self.move(3)
        for pin in {4}, {3}:
            self.host.set_by_another(f'{ONE}/vcpu0', pin)
            self.move(5)
            self.assertEqual([{5}, pin], self.sets('vcpu1', 'vcpu0'))
        self.tick()
        self.assertEqual([ALL, ALL, {3}, ALL], self.end())

    def test_restored_by_another(self) -> None:
        """As by the watcher: it is set again in the next tick."""
        self.move(3)
        self.restore(self.taken)
        self.assertTrue(self.tick())
        self.move(3)
        self.assertEqual([{3}] * 4, self.sets())
        self.assertEqual([ALL] * 4, self.end())

    def test_a_vcpu_is_plugged_in(self) -> None:
        self.move(3)
        self.host.cgroup(f'{ONE}/vcpu2')
        for _ in range(2):
            self.assertIsNotNone(self.unleased())
            self.cpus.refresh(self.taken)
        self.move(4)        # it has no lease yet
        self.assertEqual([{4}, ALL], self.sets('vcpu1', 'vcpu2'))
        self.assertTrue(self.tick())
        self.assertIsNone(self.unleased())
        self.move(4)
        self.assertEqual([{4}], self.sets('vcpu2'))
        self.assertFalse(self.tick())
        self.end()
        self.assertEqual([ALL], self.sets('vcpu2'))

    def test_a_vcpu_is_unplugged(self) -> None:
        self.move(3)
        self.host.delete(f'{ONE}/vcpu1')
        self.move(4)
        self.tick()
        self.move(5)
        self.assertEqual([{5}] * 3, self.sets(*self.parts[:3]))

    def test_it_ends(self) -> None:
        self.move(3)
        for part in (*self.parts, ''):
            self.host.delete(f'{ONE}/{part}')
        self.assertRaises(errors.WorkloadGone, self.move, 4)
        self.assertRaises(errors.WorkloadGone, self.tick)

    def test_a_cpu_goes_offline(self) -> None:
        """No program's write."""
        self.move(3, 4)
        self.host.take_offline(4)
        self.assertFalse(self.unleased())
        self.tick()
        self.move(3, 5)
        self.assertEqual([{3, 5}] * 4, self.sets())

    def test_begun_again(self) -> None:
        """What is there then is no write of another program."""
        self.move(3)
        self.end()
        self.state = None
        self.cpus.begin()
        self.tick()
        self.move(4)
        self.assertEqual([{4}] * 4, self.sets())
        self.assertEqual([ALL] * 4, self.end())


class OneRefused(FastCase):
    """Version 1, where each part of a VM has a set; in version 2 it is one."""

    def test_the_others_move(self) -> None:
        self.host.refused = {f'{ONE}/vcpu1/cpuset.cpus'}
        self.assertRaises(errors.DriverError, self.move, 3)
        self.assertEqual([{3}, {3}, {3}, ALL], self.sets())
        self.host.refused = set()
        self.move(3)
        self.assertEqual([{3}] * 4, self.sets())


class Version2(Version1):
    """Only the machine's own cgroup is written."""

    version = 2
    line = '0::'
    written = ONE

    def sets(self, *parts: str) -> list[set[int]]:
        """As the kernel works it out: within the set of the machine."""
        own = self.host.set_of(ONE) or set(ALL)
        return [self.host.set_of(f'{ONE}/{part}') & own or own
                for part in parts or self.parts]

    def test_libvirt_may_pin_to_other_cpus(self) -> None:
        self.move(3)
        self.assertEqual([f'{ONE}/cpuset.cpus'],
                         [write.path for write in self.host.written])

    def test_a_pin_that_comes(self) -> None:
        """libvirt's are below: there is nothing of ours to follow."""
        self.move(3, 4)
        self.host.set_by_another(f'{ONE}/vcpu0', {4, 6})
        self.assertFalse(self.tick())
        for cpus in ({4}, {4, 5}):
            self.move(*cpus)
            self.assertEqual([cpus, {4}], self.sets('vcpu1', 'vcpu0'))
        self.assertEqual([ALL, ALL, {4, 6}, ALL], self.end())

    def test_a_pin_that_comes_before_the_first_move(self) -> None:
        self.host.set_by_another(ONE, {4, 6})
        self.move(3, 4)
        self.assertEqual({4, 6}, self.host.set_of(ONE))
        self.tick()
        self.move(4, 5)
        self.assertEqual({4}, self.host.set_of(ONE))
        self.assertEqual([{4, 6}] * 4, self.end())

    def test_a_pin_to_what_was_set_last(self) -> None:
        self.move(3)
        for cpus in {4}, {3}:
            self.host.set_by_another(ONE, cpus)
            self.move(5)
            self.assertEqual(cpus, self.host.set_of(ONE))
        self.tick()
        self.assertEqual([{3}] * 4, self.end())

    def test_another_program_sets_it(self) -> None:
        """As systemd does for set-property AllowedCPUs."""
        self.move(3, 4)
        self.host.set_by_another(ONE, {2, 3})
        self.move(3)
        self.assertEqual({2, 3}, self.host.set_of(ONE))
        self.assertTrue(self.tick())
        self.move(3)
        self.assertEqual({3}, self.host.set_of(ONE))
        self.assertEqual([{2, 3}] * 4, self.end())

    def test_a_pin_that_comes_while_it_is_leased(self) -> None:
        self.move(3, 4)
        self.assertFalse(self.unleased())
        self.host.set_by_another(ONE, {6})
        self.cpus.actions()
        self.cpus.refresh(self.taken)
        self.move(4)
        self.assertEqual({6}, self.host.set_of(ONE))
        self.tick()
        self.assertEqual([{6}] * 4, self.end())

    def test_a_vcpu_is_plugged_in(self) -> None:
        self.move(3)
        self.host.cgroup(f'{ONE}/vcpu2')
        self.assertFalse(self.tick())
        self.assertEqual([{3}], self.sets('vcpu2'))
        self.assertEqual([str(pathlib.Path(self.host.sets, ONE[1:]))],
                         [action['dir'] for action in self.taken])
