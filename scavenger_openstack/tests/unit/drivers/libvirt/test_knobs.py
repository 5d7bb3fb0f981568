# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import testtools

from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import disk
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import seen
from scavenger_openstack.types import Knob


class Quota(testtools.TestCase):

    def plan(self, value: float, tune: str = '', vcpus: int = 2
             ) -> tuple[int, int]:
        one = seen(tune=tune, vcpu=f'<vcpu>{vcpus}</vcpu>')
        rule = knobs.RULES[Knob.CPU_CORES]
        found = rule.plan(one, rule.values(one), value)
        return int(found['vcpu_quota']), int(found['vcpu_period'])

    def test_all_vcpus_together_get_the_cap(self) -> None:
        self.assertEqual((25_000, 100_000), self.plan(0.5))
        self.assertEqual((5_000, 50_000),
                         self.plan(0.2, '<period>50000</period>'))

    def test_a_small_cap_has_a_longer_period(self) -> None:
        quota, period = self.plan(0.1, vcpus=64)
        self.assertEqual(640_000, period)
        self.assertEqual(1000, quota)
        self.assertEqual((1000, 1_000_000), self.plan(1e-6))

    def test_never_more_than_the_cap(self) -> None:
        """Or what is read back would be tightened again and again."""
        self.assertEqual((1666, 100_000), self.plan(0.1, vcpus=6))
        self.assertEqual((66_666, 100_000), self.plan(2 / 3, vcpus=1))
        # 0.3 / 3 is a little less than 0.1.
        self.assertEqual((10_000, 100_000), self.plan(0.3, vcpus=3))

    def test_what_libvirt_takes_for_none(self) -> None:
        values = {'vcpu_quota': '-1', 'vcpu_period': '100000'}
        self.assertEqual(values, knobs.for_libvirt(values, -1))
        free = {**values, 'vcpu_quota': '17592186044415'}
        self.assertEqual(free, knobs.for_libvirt(values, 2**44 - 1))
        capped = {**values, 'vcpu_quota': '20000'}
        self.assertEqual(capped,
                         knobs.for_libvirt(capped, 2**44 - 1))

    def test_never_looser_than_the_original(self) -> None:
        tune = '<quota>20000</quota><period>100000</period>'
        self.assertEqual((20_000, 100_000), self.plan(1.0, tune))
        self.assertEqual((10_000, 100_000), self.plan(0.2, tune))

    def test_values(self) -> None:
        rule = knobs.RULES[Knob.CPU_CORES]
        for tune in ('', '<quota>-1</quota>', '<quota>0</quota>',
                     '<quota>17592186044415</quota>'):
            self.assertIsNone(rule.value(seen(tune=tune)))
            self.assertEqual('-1', rule.values(seen(tune=tune))[
                'vcpu_quota'])
        self.assertEqual(0.4, rule.value(seen(
            tune='<quota>20000</quota><period>100000</period>')))
        self.assertRaises(errors.DriverError, self.plan, 'much')


class Disks(testtools.TestCase):
    rule = knobs.RULES[Knob.IO_BYTES_PER_S]

    def plan(self, value: float, *limits: str) -> dict[str, str]:
        one = seen(disks=disk('vda', *limits))
        found = self.rule.plan(one, self.rule.values(one), value)
        return {key[4:]: text for key, text in found.items()}

    def test_without_a_limit_it_is_a_total(self) -> None:
        self.assertEqual({'total_bytes_sec': '5', 'read_bytes_sec': '0',
                          'write_bytes_sec': '0'}, self.plan(5))

    def test_each_direction(self) -> None:
        self.assertEqual({'total_bytes_sec': '0', 'read_bytes_sec': '3',
                          'write_bytes_sec': '5'},
                         self.plan(5, 'read_bytes_sec=3'))

    def groups(self, *disks: str, knob: Knob = Knob.IO_BYTES_PER_S,
               **original: str) -> dict[str, str]:
        return knobs.groups(
            seen(disks=''.join(disks)), knob,
            {f'{disk}.read_bytes_sec': text
             for disk, text in original.items()})

    def test_who_shares_a_cap(self) -> None:
        ours = f'group_name={knobs.GROUP}'
        self.assertEqual(
            {'vda': knobs.GROUP, 'vdb': knobs.GROUP},
            self.groups(disk('vda'), disk('vdb', 'total_bytes_sec=5', ours)))
        # None that has a limit of its own, of either kind, or a group.
        for limit in ('read_bytes_sec=3', 'total_iops_sec=3',
                      'group_name=theirs'):
            self.assertEqual({'vdb': knobs.GROUP}, self.groups(
                disk('vda', limit), disk('vdb')), limit)
        # One that got one since leaves; the others do not take it over.
        self.assertEqual(
            {'vda': 'vda', 'vdb': knobs.GROUP},
            self.groups(disk('vda', ours), disk('vdb', ours), vda='3'))

    def test_a_new_disk_must_not_remove_the_other_limit(self) -> None:
        ours = f'group_name={knobs.GROUP}'
        one = disk('vda', 'total_iops_sec=5', ours)
        self.assertEqual({'vda': knobs.GROUP},
                         self.groups(one, disk('vdb')))
        self.assertEqual(
            {'vda': knobs.GROUP, 'vdb': knobs.GROUP},
            self.groups(one, disk('vdb'), knob=Knob.IO_OPS_PER_S))

    def test_a_total_stays_one(self) -> None:
        for there, wanted in (('9', '5'), ('3', '3')):
            self.assertEqual(
                {'total_bytes_sec': wanted, 'read_bytes_sec': '0',
                 'write_bytes_sec': '0'},
                self.plan(5, f'total_bytes_sec={there}'))

    def test_bursts_go_while_the_cap_is_tighter(self) -> None:
        burst = ('total_bytes_sec=9', 'total_bytes_sec_max=90',
                 'total_bytes_sec_max_length=2')
        found = self.plan(5, *burst)
        self.assertEqual(('5', '0', '0'), (
            found['total_bytes_sec'], found['total_bytes_sec_max'],
            found['total_bytes_sec_max_length']))
        found = self.plan(9, *burst)
        self.assertEqual('90', found['total_bytes_sec_max'])

    def test_value_is_the_loosest_disk(self) -> None:
        self.assertIsNone(self.rule.value(seen(
            disks=disk('vda', 'read_bytes_sec=3'))))
        self.assertIsNone(self.rule.value(seen(
            disks=disk('vda', 'total_bytes_sec=3') + disk('vdb'))))
        self.assertEqual(7, self.rule.value(seen(
            disks=disk('vda', 'total_bytes_sec=3')
            + disk('vdb', 'read_bytes_sec=7', 'write_bytes_sec=6'))))

    def test_none(self) -> None:
        for call in (self.rule.value, self.rule.values):
            self.assertRaises(errors.Unsupported, call, seen())

    def test_unplugged_since(self) -> None:
        one = seen(disks=disk('vdb'))
        both = {f'{name}.{way}_bytes_sec': '1' for name in ('vda', 'vdb')
                for way in ('total', 'read', 'write')}
        self.assertEqual(
            ({key: '1' for key in both if 'vdb' in key}, set()),
            knobs.recorded(one, Knob.IO_BYTES_PER_S, both))

    def test_plugged_since(self) -> None:
        """What the record says of one disk says nothing of another."""
        one = seen(disks=disk('vda') + disk('vdb', 'read_bytes_sec=3'))
        record = {f'vda.{way}_bytes_sec': '0'
                  for way in ('total', 'read', 'write')}
        self.assertEqual((record, set()), knobs.recorded(
            one, Knob.IO_BYTES_PER_S, record))


class Others(testtools.TestCase):

    def test_balloon(self) -> None:
        rule = knobs.RULES[Knob.MEMORY_BYTES]
        one = seen(more='<currentMemory>512</currentMemory>')
        self.assertEqual(512 * 1024, rule.value(one))
        whole = seen()
        self.assertEqual(whole.domain.memory_allotment_bytes,
                         rule.value(whole))
        self.assertEqual({'balloon_kib': '256'}, rule.plan(
            one, rule.values(one), 256 * 1024))
        self.assertEqual({'balloon_kib': '512'}, rule.plan(
            one, rule.values(one), 4096 * 1024))

    def test_memory_that_cannot_be_given_back(self) -> None:
        rule = knobs.RULES[Knob.MEMORY_BYTES]
        for one in (
                seen(more='<memoryBacking><hugepages/></memoryBacking>'),
                seen(disks='<hostdev mode="subsystem" type="pci"/>')):
            for ask in (rule.values, rule.value):
                error = self.assertRaises(errors.Unsupported, ask, one)
                self.assertIn('its memory is not limited', str(error))
            # A limit that it came with is removed all the same.
            self.assertEqual({'balloon_kib': '1024'}, knobs.in_force(
                one, Knob.MEMORY_BYTES))
            self.assertEqual({'balloon_kib': '1024'}, knobs.free(
                one, Knob.MEMORY_BYTES))

    def test_realtime_vcpus_heed_no_quota(self) -> None:
        rule = knobs.RULES[Knob.CPU_CORES]
        one = seen(tune='<quota>20000</quota><period>100000</period>'
                        '<vcpusched vcpus="1" scheduler="fifo" '
                        'priority="1"/>')
        for ask in (rule.values, rule.value):
            error = self.assertRaises(errors.Unsupported, ask, one)
            self.assertIn('real-time vCPUs (fifo)', str(error))
        self.assertEqual({'vcpu_quota': '20000', 'vcpu_period': '100000'},
                         knobs.in_force(one, Knob.CPU_CORES))
        self.assertEqual(2, rule.value(seen(
            tune='<quota>100000</quota><period>100000</period>'
                 '<vcpusched vcpus="1" scheduler="batch"/>')))

    def test_pause(self) -> None:
        rule = knobs.RULES[Knob.PAUSED]
        self.assertEqual([0, 1], [rule.value(seen(paused=paused))
                                  for paused in (False, True)])
        one = seen(paused=True)
        self.assertEqual({'state': 'paused'}, rule.plan(
            one, rule.values(one), 0))
