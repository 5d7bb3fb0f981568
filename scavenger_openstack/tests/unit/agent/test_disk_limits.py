# SPDX-License-Identifier: Apache-2.0

"""A limit of a VM with several disks, of which one cannot have it."""

from __future__ import annotations

from collections.abc import Mapping

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.tests.unit.agent.limits import LimitsTestCase
from scavenger_openstack.tests.unit.agent.limits import OPS
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.tests.unit.libvirtd import UUID
from scavenger_openstack.types import Knob

BYTES = (UUID, Knob.IO_BYTES_PER_S)


class DisksTestCase(LimitsTestCase):

    def begin(self, *disks: str) -> None:
        self.start()
        self.machine.disks.update({disk: {} for disk in disks})
        self.libvirtd.tell(until=lambda: len(
            self.libvirtd.snapshot.domain.disks) == 1 + len(disks))

    def refuse(self, disk: str, code: str, *, above: int = -1) -> None:
        """Let libvirt refuse what a disk is to hold, if it is so much."""
        number = int(getattr(self.libvirtd.library, code))

        def refuse(limits: Mapping[str, int | str]) -> None:
            if above < int(limits.get('total_bytes_sec', 0)):
                raise libvirtd.libvirtError(f'{disk}: no', number)

        self.machine.refusals[disk] = refuse

    def held(self, disk: str) -> int:
        return int(self.machine.disks[disk].get('total_bytes_sec', 0))


class Cannot(DisksTestCase):

    def test_the_others_are_limited(self) -> None:
        for disks in (('vdb',), ('vdb', 'vdc')):
            self.begin(*disks)
            self.refuse('vdb', 'VIR_ERR_CONFIG_UNSUPPORTED')
            for limit in (5_000_000, 4_000_000):
                for _ in range(2 * actuator.READ_TICKS):
                    self.assertEqual([], self.tick((BYTES, limit)).problems)
                self.assertEqual(limit, self.libvirtd.driver.read(*BYTES))
                self.assertEqual([BYTES], list(self.actuator.in_force))
                self.assertEqual([BYTES], list(self.leases.held()))
                self.assertEqual([limit] * len(disks), [
                    self.held(disk) for disk in ('vda', 'vdc')
                    if disk in self.machine.disks])
            self.assertEqual({}, self.machine.disks['vdb'])
            # The other limit does not try it once more.
            tried = self.machine.calls['iotune']
            self.assertEqual(1, self.tick((BYTES, limit),
                                          (OPS, 100)).written)
            self.assertEqual(tried + len(disks),
                             self.machine.calls['iotune'])
            self.assertEqual(1, self.logs.output.count(
                'disk vdb is left out of its limits'))
            self.assertNotIn('another program', self.logs.output)
            self.machine.stop()

    def test_both_limits_at_once(self) -> None:
        self.begin('vdb')
        self.refuse('vdb', 'VIR_ERR_OPERATION_UNSUPPORTED')
        for _ in range(2):
            done = self.tick((BYTES, 5_000_000), (OPS, 100))
        self.assertEqual([], done.problems)
        self.assertEqual({BYTES: 5_000_000, OPS: 100}, {
            key: self.libvirtd.driver.read(*key)
            for key in self.actuator.in_force})
        self.assertEqual(1, self.logs.output.count('is left out'))

    def test_none_of_them(self) -> None:
        """Then there is no limit."""
        self.begin('vdb')
        for disk in ('vda', 'vdb'):
            self.refuse(disk, 'VIR_ERR_CONFIG_UNSUPPORTED')
        for _ in range(2):
            self.assertIn('no disks that libvirt can limit',
                          str(self.tick((BYTES, 5_000_000)).problems))
        self.assertEqual({}, self.actuator.in_force)

    def test_another_disk_of_that_name(self) -> None:
        """It was taken out, and another one plugged in."""
        self.begin('vdb')
        self.refuse('vdb', 'VIR_ERR_CONFIG_UNSUPPORTED')
        self.tick((BYTES, 5_000_000))
        self.assertEqual({'vdb'}, self.libvirtd.snapshot.unlimited)
        for there in (1, 2):
            if there == 1:
                del self.machine.disks['vdb']
            else:
                self.machine.disks['vdb'] = {}
            self.libvirtd.tell(until=lambda there=there: len(  # type: ignore[misc]
                self.libvirtd.snapshot.domain.disks) == there)
        self.assertEqual(set(), self.libvirtd.snapshot.unlimited)


class Fails(DisksTestCase):

    def test_nothing_is_half_set(self) -> None:
        for before in ({}, {'total_bytes_sec': 9_000_000}):
            self.begin('vdb', 'vdc')
            self.machine.disks['vda'].update(before)
            self.libvirtd.tell(until=lambda before=before: (  # type: ignore[misc]
                self.libvirtd.snapshot.domain.disks[0].iotune == before))
            self.refuse('vdc', 'VIR_ERR_OPERATION_FAILED')
            for _ in range(3):
                problem, = self.tick((BYTES, 5_000_000)).problems
                self.assertIn('vdc', problem)
                self.assertEqual({}, self.actuator.in_force)
                self.assertEqual(before.get('total_bytes_sec', 0),
                                 self.held('vda'))
                self.assertEqual(0, self.held('vdb'))
            self.machine.refusals.clear()
            self.assertEqual(1, self.tick((BYTES, 5_000_000)).written)
            self.assertEqual([5_000_000] * 3, [
                self.held(disk) for disk in ('vda', 'vdb', 'vdc')])
            self.assertNotIn('is left out', self.logs.output)
            self.assertNotIn('another program', self.logs.output)
            self.machine.stop()

    def test_a_value_that_one_of_them_does_not_take(self) -> None:
        """It can be limited, though libvirt words it as if it could not."""
        self.begin('vdb')
        self.refuse('vdb', 'VIR_ERR_CONFIG_UNSUPPORTED', above=4_000_000)
        problem, = self.tick((BYTES, 5_000_000)).problems
        self.assertIn('vdb', problem)
        self.assertEqual([0, 0], [self.held('vda'), self.held('vdb')])
        self.assertEqual(set(), self.libvirtd.snapshot.unlimited)
