# SPDX-License-Identifier: Apache-2.0

"""The way back where our record in a domain says too little, or nothing."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.drivers.libvirt import adopt
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import disk
from scavenger_openstack.tests.unit.drivers.libvirt.seen_domains import seen
from scavenger_openstack.types import Knob

VCPUS = '<vcpu cpuset="0-3">2</vcpu>'
QUOTA = '<quota>1000</quota><period>50000</period>'


def record(knob: Knob, values: dict[str, str]) -> str:
    return metadata.build(knob, values).replace(
        '<lease>', f'<lease xmlns="{metadata.uri(knob)}">')


def base(target: str, what: str = 'bytes', value: str = '0'
         ) -> dict[str, str]:
    return {f'{target}.{way}_{what}_sec': value
            for way in ('total', 'read', 'write')}


class Interrupted(str):
    """A name at whose comparison another thread has the CPU."""

    remover: adopt.Remover

    def __eq__(self, other: object) -> bool:
        self.remover.astray(f'{other}, too', Knob.PAUSED)
        return str(self) == other

    __ne__ = object.__ne__
    __hash__ = str.__hash__


class ForgetTest(testtools.TestCase):

    def test_while_other_threads_set_limits(self) -> None:
        none: Any = None        # no call is made
        remover = adopt.Remover(none, none, none, none)
        for name in 'one', 'two':
            remover.astray(name, Knob.PAUSED)
        ended = Interrupted('one')
        ended.remover = remover
        remover.forget(ended)
        self.assertEqual({'two', 'one, too', 'two, too'}, {
            name for name, _ in remover._astray})


class WayBack(testtools.TestCase):

    def back(self, knob: Knob, live: Snapshot, saved: Snapshot | None = None
             ) -> tuple[dict[str, str], str]:
        return adopt.way_back(knob, live, saved)

    def free(self, knob: Knob, live: Snapshot, values: dict[str, str],
             saved: Snapshot | None = None) -> None:
        """These come out, and the log says that it is no limit."""
        found, guess = self.back(knob, live, saved)
        self.assertEqual(values, found)
        self.assertIn('it has no limit now', guess)
        self.assertIn('reboot --hard', guess)

    def test_all_is_told(self) -> None:
        values = {'vcpu_quota': '70000', 'vcpu_period': '100000'}
        one = seen(tune=QUOTA, metadata=record(Knob.CPU_CORES, values))
        self.assertEqual((values, ''), self.back(Knob.CPU_CORES, one))

    def test_half_a_quota(self) -> None:
        none = {'vcpu_quota': '-1', 'vcpu_period': '100000'}
        for half in ({'vcpu_quota': '20000'}, {'vcpu_period': '100000'}, {}):
            self.free(Knob.CPU_CORES, seen(
                tune=QUOTA, metadata=record(Knob.CPU_CORES, half)), none)

    def test_a_value_that_another_version_wrote(self) -> None:
        text = record(Knob.CPU_CORES, {
            'vcpu_quota': '-1', 'vcpu_period': '100000'}).replace(
                '</lease>', '<original knob="cpu_cores" '
                'key="emulator_quota" value="-1"/></lease>')
        self.free(Knob.CPU_CORES, seen(tune=QUOTA, metadata=text),
                  {'vcpu_quota': '-1', 'vcpu_period': '100000'})

    def test_disks(self) -> None:
        """A disk of which too little is told, beside one of which all is."""
        told = base('vda', value='0') | {'vda.read_bytes_sec': '9'}
        disks = (disk('vda', 'read_bytes_sec=5', 'write_bytes_sec=5')
                 + disk('vdb', 'read_bytes_sec=5', 'write_bytes_sec=5',
                        'write_bytes_sec_max=7'))
        self.free(Knob.IO_BYTES_PER_S, seen(disks=disks, metadata=record(
            Knob.IO_BYTES_PER_S, {**told, 'vdb.read_bytes_sec': '9'})),
            {**told, **base('vdb'), 'vdb.write_bytes_sec_max': '0'})
        self.free(Knob.IO_BYTES_PER_S, seen(disks=disks, metadata=record(
            Knob.IO_BYTES_PER_S, {})),
            {**base('vda'), **base('vdb'), 'vdb.write_bytes_sec_max': '0'})

    def test_balloon_and_pause(self) -> None:
        self.free(Knob.MEMORY_BYTES, seen(
            more='<currentMemory>512</currentMemory>',
            metadata=record(Knob.MEMORY_BYTES, {})), {'balloon_kib': '1024'})
        self.free(Knob.PAUSED, seen(paused=True, metadata=record(
            Knob.PAUSED, {})), {'state': 'running'})

    def test_where_there_is_no_limit_nothing_is_said(self) -> None:
        empty = ''.join(record(knob, {}) for knob in metadata.GRAMMAR)
        one = seen(disks=disk('vda'), metadata=empty)
        bare = seen(metadata=empty)
        for knob in metadata.GRAMMAR:
            self.assertEqual(({}, ''), self.back(knob, one), knob)
            self.assertEqual(({}, ''), self.back(knob, bare), knob)

    def test_the_other_definition_knows(self) -> None:
        """By what it holds, if no cap of ours can be in it; by its record,
        if that is whole."""
        live = seen(tune=QUOTA, metadata=record(Knob.CPU_CORES, {}))
        theirs = {'vcpu_quota': '70000', 'vcpu_period': '100000'}
        tune = '<quota>70000</quota><period>100000</period>'
        for saved in (seen(tune=tune),
                      seen(tune=QUOTA, metadata=record(Knob.CPU_CORES,
                                                       theirs))):
            values, guess = self.back(Knob.CPU_CORES, live, saved)
            self.assertEqual(theirs, values)
            self.assertIn('the other definition of the domain says', guess)
        self.free(Knob.CPU_CORES, live,
                  {'vcpu_quota': '-1', 'vcpu_period': '100000'},
                  saved=seen(tune=tune, metadata=record(
                      Knob.CPU_CORES, {'vcpu_quota': '5'})))
        disks = (disk('vda', 'read_bytes_sec=5', 'write_bytes_sec=5')
                 + disk('vdb', 'read_bytes_sec=5'))
        values, _ = self.back(Knob.IO_BYTES_PER_S, seen(
            disks=disks, metadata=record(Knob.IO_BYTES_PER_S, {})),
            seen(disks=disk('vda', 'total_bytes_sec=8',
                            'total_bytes_sec_max=9')))
        self.assertEqual({
            **base('vda'), 'vda.total_bytes_sec': '8',
            'vda.total_bytes_sec_max': '9', **base('vdb')}, values)
