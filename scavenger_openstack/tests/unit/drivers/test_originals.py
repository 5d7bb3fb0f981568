# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import originals
from scavenger_openstack.types import Knob


def cpus(text: str, path: str = '/m/a', inode: int = 7) -> dict[str, Any]:
    return {'do': 'write', 'dir': path, 'inode': inode,
            'file': 'cpuset.cpus', 'text': text}


def disk(device: str, text: str) -> dict[str, Any]:
    return {'do': 'write', 'dir': '/m/a', 'inode': 7, 'device': device,
            'file': 'blkio.throttle.read_bps_device', 'text': text}


def limits(text: str) -> dict[str, Any]:
    return {**disk('8:0', text), 'file': 'io.max'}


def bucket(dev: str, ifindex: int) -> dict[str, Any]:
    return {'do': 'tc', 'netns': 'n', 'dev': dev, 'ifindex': ifindex}


class MadeAnew(testtools.TestCase):

    def test_cgroup(self) -> None:
        self.assertFalse(originals.made_again([cpus('0-3')], [cpus('1')]))
        self.assertTrue(originals.made_again([cpus('0-3')],
                                             [cpus('0-3', inode=8)]))

    def test_device_by_any_name(self) -> None:
        self.assertFalse(originals.made_again([bucket('tap1', 3)],
                                              [bucket('tap2', 3)]))
        self.assertTrue(originals.made_again([bucket('tap1', 3)],
                                             [bucket('tap1', 4)]))


class Newborn(testtools.TestCase):
    """The parent had 0-3 before us and has 0 now."""

    def setUp(self) -> None:
        super().setUp()
        self.steps = [cpus('0-3')]

    def born(self, *born: dict[str, Any]) -> list[str]:
        return [step['text'] for step in originals.below(
            self.steps, [cpus('0'), *born])]

    def test_none(self) -> None:
        self.assertEqual(['0-3'], self.born())

    def test_one_that_took_the_cap_over(self) -> None:
        self.assertEqual(['0-3', '0-3'], self.born(cpus('0', '/m/a/b', 8)))

    def test_one_with_a_set_of_its_own(self) -> None:
        self.assertEqual(['0-3', '1'], self.born(cpus('1', '/m/a/b', 8)))

    def test_a_child_of_a_newborn(self) -> None:
        self.assertEqual(['0-3'] * 3, self.born(
            cpus('0', '/m/a/b', 8), cpus('0', '/m/a/b/c', 9)))

    def test_one_that_was_made_again(self) -> None:
        """A vCPU that was unplugged, and then another plugged in."""
        self.steps.append(cpus('2', '/m/a/b', 8))
        self.assertEqual(['0-3', '0-3'], self.born(cpus('0', '/m/a/b', 9)))

    def test_below_a_set_of_its_own(self) -> None:
        """All have the set of the top first, then theirs from the bottom."""
        self.steps.append(cpus('2', '/m/a/b', 8))
        self.assertEqual(['0-3', '0-3', '0-3', '2', '2'], self.born(
            cpus('2', '/m/a/b', 8), cpus('2', '/m/a/b/c', 9)))

    def test_another_disk(self) -> None:
        found = originals.below([disk('8:0', '100')], [
            disk('8:0', '10'), disk('8:16', '0')])
        self.assertEqual(['100', '0'], [step['text'] for step in found])


class Within(testtools.TestCase):

    def test_what_is_below_shrinks_too(self) -> None:
        found = originals.within(
            [cpus('0-3'), cpus('2-3', '/m/a/b', 8), cpus('0', '/m/a/c', 9)],
            {7: frozenset((1, 2))})
        self.assertEqual(['1-2', '2', '1-2'],
                         [step['text'] for step in found])
        self.assertEqual([7, 8, 9], [step['inode'] for step in found])

    def test_the_parts_of_a_vm(self) -> None:
        """One is pinned: the others keep what they had."""
        actions = originals.within(
            [cpus('0-3', '/m/vcpu0', 7), cpus('0-3', '/m/vcpu1', 8)],
            {8: frozenset((5,))})
        self.assertEqual(['0-3', '5'], [step['text'] for step in actions])
        self.assertEqual({0, 1, 2, 3, 5}, originals.cpus_of(actions))


class AfterDrift(testtools.TestCase):
    """Two disks at 100 and 200 before us, both at 10 by us."""

    def test_each_part_for_itself(self) -> None:
        found = originals.after_drift(
            [disk('8:0', '100'), disk('8:16', '200')],
            [disk('8:0', '10'), disk('8:16', '10')],
            [disk('8:0', '10'), disk('8:16', '15')])
        self.assertEqual(['100', '15'], [step['text'] for step in found])

    def test_a_new_part_is_theirs(self) -> None:
        found = originals.after_drift(
            [disk('8:0', '100')], [disk('8:0', '10')],
            [disk('8:0', '10'), disk('8:32', '0')])
        self.assertEqual(['100', '0'], [step['text'] for step in found])

    def test_one_direction_of_a_disk(self) -> None:
        """Version 2 tells all limits of a disk in one line."""
        found = originals.after_drift(
            [limits('rbps=max wbps=300')], [limits('rbps=10 wbps=10')],
            [limits('rbps=5 wbps=10')])
        self.assertEqual([limits('rbps=5 wbps=300')], found)

    def several(self, before: str, ours: str, now: str) -> list[str]:
        """Files of one cgroup, ``file=text`` each."""
        found = originals.after_drift(*(
            [{**cpus(text), 'file': file} for file, _, text in (
                part.partition('=') for part in parts.split())]
            for parts in (before, ours, now)))
        self.value = originals.value_of(found, -5)
        return [f'{action["file"]}={action["text"]}' for action in found]

    def test_one_of_two_files(self) -> None:
        """A limit of 100 before us, 50 by us, and another of 200."""
        self.assertEqual(
            ['memory.max=200', 'memory.high=max'],
            self.several('memory.max=100 memory.high=max',
                         'memory.max=50 memory.high=50',
                         'memory.max=200 memory.high=50'))
        self.assertEqual(200, self.value)
        self.several('memory.max=max memory.high=max',
                     'memory.max=50 memory.high=50',
                     'memory.max=50 memory.high=max')
        self.assertIsNone(self.value)

    def test_a_quota_in_another_period(self) -> None:
        for before, quota, value in (('50000', '25000', 0.5),
                                     ('-1', '-1', None),
                                     ('1500', '1000', 0.02)):
            self.assertEqual(
                ['cpu.cfs_period_us=50000', f'cpu.cfs_quota_us={quota}'],
                self.several(
                    f'cpu.cfs_period_us=100000 cpu.cfs_quota_us={before}',
                    'cpu.cfs_period_us=100000 cpu.cfs_quota_us=10000',
                    'cpu.cfs_period_us=50000 cpu.cfs_quota_us=10000'))
            self.assertEqual(value, self.value)

    def test_a_quota_in_another_period_of_version_2(self) -> None:
        for before, now, restored, value in (
                ('50000 100000', '10000 50000', '25000 50000', 0.5),
                ('max 100000', '10000 50000', 'max 50000', None),
                ('50000 100000', '20000 50000', '20000 50000', 0.4),
                ('50000 100000', 'max 100000', 'max 100000', None)):
            found = originals.after_drift(*(
                [{**cpus(text), 'file': 'cpu.max'}]
                for text in (before, '10000 100000', now)))
            self.assertEqual([restored],
                             [action['text'] for action in found])
            self.assertEqual(value, originals.value_of(found, -5))

    def test_a_weight_that_the_kernel_reset(self) -> None:
        for file, reset in (('cpu.shares', '1024'), ('cpu.weight', '100')):
            for now, kept in ((reset, '77'), ('5', '5')):
                self.assertEqual(
                    ['cpu.idle=0', f'{file}={kept}'],
                    self.several(f'cpu.idle=0 {file}=77', 'cpu.idle=1',
                                 f'cpu.idle=0 {file}={now}'))
                self.assertEqual(-5, self.value)    # cpu.idle alone

    def test_what_tells_all(self) -> None:
        for actions, whole in (
                ([cpus('1')], True),
                ([cpus('1'), cpus('1', '/m/a/c')], False),
                ([{**cpus('1'), 'file': 'memory.max'},
                  {**cpus('1'), 'file': 'memory.high'}], False),
                ([disk('8:0', '1')], False),
                ([{'values': {'a': '1'}}], False),
                ([bucket('eth0', 3)], True)):
            self.assertEqual(whole, originals.has_one_text(actions))

    def test_which_part_is_said(self) -> None:
        """A limit of 4 MB/s in both directions, of which one was changed."""
        def said(before: dict[str, Any], now: dict[str, Any],
                 value: float = 4e6) -> str:
            return originals.difference(
                Knob.IO_BYTES_PER_S, base.Setting(4e6, [before]),
                base.Setting(value, [now]))
        self.assertEqual(
            'in part: vda.read_bytes_sec from 4 MB/s to 2 MB/s',
            said({'values': {'vda.read_bytes_sec': '4000000',
                             'vda.write_bytes_sec': '4000000'}},
                 {'values': {'vda.read_bytes_sec': '2000000',
                             'vda.write_bytes_sec': '4000000'}}))
        self.assertEqual(
            'in part: 8:0 wbps from 4 MB/s to no limit',
            said(limits('rbps=4000000 wbps=4000000'),
                 limits('rbps=4000000 wbps=max')))
        self.assertEqual(
            'in part: 8:0 blkio.throttle.read_bps_device from 4 MB/s to '
            '1 MB/s', said(disk('8:0', '4000000'), disk('8:0', '1000000')))
        self.assertEqual(
            'from 4 MB/s to 1 MB/s',
            said(disk('8:0', '4000000'), disk('8:0', '1000000'), 1e6))


class OfTwoTexts(testtools.TestCase):
    """A quota and its period, a limit and its burst: one value each."""

    def after(self, before: dict[str, str], ours: dict[str, str],
              now: dict[str, str]) -> dict[str, str]:
        step, = originals.after_drift(*([
            {'do': 'domain', 'uuid': 'u', 'values': values}]
            for values in (before, ours, now)))
        found: dict[str, str] = step['values']
        return found

    def test_quota(self) -> None:
        def quota(quota: int, period: int) -> dict[str, str]:
            return {'vcpu_quota': str(quota), 'vcpu_period': str(period)}
        before, ours = quota(25_000, 50_000), quota(1000, 600_000)
        for now, wanted in (
                (quota(300_000, 600_000), quota(300_000, 600_000)),
                (quota(-1, 600_000), quota(-1, 600_000)),
                (quota(70_000, 100_000), quota(70_000, 100_000)),
                # Half of our limit is not theirs.
                (quota(1000, 100_000), before), (ours, before)):
            self.assertEqual(wanted, self.after(before, ours, now))

    def test_bursts(self) -> None:
        def disk(name: str, total: int, burst: int | None = None
                 ) -> dict[str, str]:
            found = {f'{name}.total_bytes_sec': str(total)}
            if burst is not None:
                found[f'{name}.total_bytes_sec_max'] = str(burst)
            return found
        before, ours = disk('vda', 100, 200), disk('vda', 50)
        for now, wanted in (
                (disk('vda', 300), disk('vda', 300)),
                (disk('vda', 80, 90), disk('vda', 80, 90)),
                (disk('vda', 50, 60), before), (ours, before)):
            self.assertEqual(wanted, self.after(before, ours, now))
        # Where there was no burst before, none is set again.
        self.assertEqual(disk('vda', 0, 0), self.after(
            disk('vda', 0), ours, disk('vda', 50, 60)))
        # Of another disk it is no matter.
        self.assertEqual({**before, **disk('vdb', 7)}, self.after(
            {**before, **disk('vdb', 0)}, {**ours, **disk('vdb', 50)},
            {**ours, **disk('vdb', 7)}))
        # Nor of one that is gone.
        self.assertEqual(disk('vdb', 0), self.after(
            {**before, **disk('vdb', 0)}, {**ours, **disk('vdb', 50)},
            disk('vdb', 50)))
