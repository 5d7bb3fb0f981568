# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import time
from typing import Any
from xml.etree import ElementTree

import fixtures
import testtools

from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import domain
from scavenger_openstack.restore import records
from scavenger_openstack.tests.unit.drivers.libvirt import seen_domains
from scavenger_openstack.types import Knob

STEP: dict[str, Any] = {
    'do': 'domain', 'uri': 'qemu:///system',
    'uuid': '5e1bc1c3-310c-4e22-9612-764abf6ac7db', 'pid': 5, 'started': 77,
    'knob': 'cpu_cores',
    'values': {'vcpu_quota': '-1', 'vcpu_period': '100000'}}

VALUES: dict[str, dict[str, str]] = {
    'memory_bytes': {'balloon_kib': '65536'},
    'io_bytes_per_s': {'vda.total_bytes_sec': '0',
                       'sdaa.read_bytes_sec_max_length': '3'},
    'io_ops_per_s': {'vda.write_iops_sec_max': '100'},
    'paused': {'state': 'running'}}


KEYS = ('vcpu_quota', 'vcpu_period', 'vcpupin.0', 'vcpupin.12345', 'vcpupin',
        'emulatorpin', 'emulatorpin.0', 'balloon_kib', 'state', '', 'vda',
        *(f'{disk}.{way}_{what}_sec{burst}' for disk, way, what, burst
          in itertools.product(('vda', '--x'), ('total', 'read'),
                               ('bytes', 'iops'),
                               ('', '_max', '_max_length', '_min'))),
        'vda.group_name')
TEXTS = ('', '-1', '-2', '0', '1', '9' * 18, '9' * 19, '1.5', '1\n', '0-3,7',
         '0 1', ',', 'running', 'paused', 'shutoff', '1;reboot')
URIS = ('', 'qemu', 'qemu:///system', 'qemu:///session', 'qemu:///system\n',
        'qemu+unix:///system', 'qemu+ssh://h/system', 'qemu+tcp:///system',
        'qemu+ext:///system?command=/bin/sh', 'xen:///system',
        'qemu:///system?socket=/run/libvirt/libvirt-sock',
        'qemu+unix:///system?socket=/a_b@c.d-e', 'qemu:///system?socket=',
        'qemu:///system?socket=a', 'qemu:///system?socket=/a;b',
        'qemu:///system?socket=/a/', 'qemu:///system?socket=/a&mode=direct')


def step(**changes: Any) -> dict[str, Any]:
    return {**STEP, **changes}


def connects(uri: str) -> bool:
    """Whether the driver would connect to it."""
    try:
        client.Libvirt(uri)
    except client.Missing:
        return True
    except errors.ConfigError:
        return False
    return True


class Closed(testtools.TestCase):
    """What a lease may hold about a domain, and what not."""

    def test_allowed(self) -> None:
        actions.validate(STEP, [])
        for knob, values in VALUES.items():
            actions.validate(step(knob=knob, values=values), [])
        for uri in ('qemu+unix:///system',
                    'qemu+unix:///system?socket=/run/libvirt/libvirt-sock'):
            actions.validate(step(uri=uri), [])

    def test_refused(self) -> None:
        odds: list[Any] = [
            {}, None, [], 'x', {'vcpu_quota': '-1'},
            {**STEP['values'], 'x': '1'},
            {**STEP['values'], 'vcpu_quota': -1},
            {**STEP['values'], 'vcpu_quota': '1;reboot'},
            {**STEP['values'], 'vcpu_quota': '-2'},
            {**STEP['values'], 'vcpu_period': '1\n'}]
        wrongs: list[dict[str, Any]] = [
            *({'uri': uri} for uri in (
                '', None, ['qemu:///system'], 'qemu:///session',
                'qemu+ext:///system?command=/bin/sh',
                'qemu+ssh://root@host/system', 'qemu+libssh2://h/system',
                'qemu:///system?socket=/a;b', 'qemu:///system?socket=/a b',
                'qemu:///system?socket=/a&command=/bin/sh',
                'qemu:///system?socket=a', 'qemu:///system\n',
                'xen:///system', 'qemu:///system?mode=direct')),
            *({'uuid': uuid} for uuid in (
                '', None, 'one', '--all', STEP['uuid'] + ';reboot',
                STEP['uuid'].upper(), STEP['uuid'] + '\n')),
            *({name: value} for name in ('pid', 'started')
              for value in (0, -1, True, '5', 5.0, None)),
            *({'knob': knob} for knob in (
                'cpu_idle', 'egress_bytes_per_s', '', None, ['paused'])),
            *({'values': odd} for odd in odds),
            {'argv': ['sh']}, {'do': 'virsh'}, {'do': 'Domain'}]
        for knob, values in (
                ('cpu_set', {'vcpupin.0': '0'}),
                ('memory_bytes', {'hard_limit_kib': '1'}),
                ('io_bytes_per_s', {'vda;x.read_bytes_sec': '1'}),
                ('io_bytes_per_s', {'--a.read_bytes_sec': '1'}),
                ('io_bytes_per_s', {'vda.read_iops_sec': '1'}),
                ('io_ops_per_s', {'vda.group_name': 'x'}),
                ('paused', {'state': 'shutoff'})):
            wrongs.append({'knob': knob, 'values': values})
        for wrong in wrongs:
            self.assertRaises(actions.Refused, actions.validate,
                              {**STEP, **wrong}, [])
        for missing in STEP:
            self.assertRaises(actions.Refused, actions.validate, {
                key: value for key, value in STEP.items()
                if key != missing}, [])

    def allowed(self, **changes: Any) -> bool:
        try:
            actions.validate(step(**changes), [])
        except actions.Refused:
            return False
        return True

    def test_quotas_of_another_program(self) -> None:
        """They are not as they were, and no fault of ours."""
        for tune in ('<quota>x</quota><period>100000</period>',
                     f'<quota>{"9" * 5000}</quota>'):
            root = ElementTree.fromstring(
                f'<domain><cputune>{tune}</cputune></domain>')
            self.assertFalse(domain.is_same(root, step()))

    def test_what_it_shares_with_the_driver(self) -> None:
        """What one side writes the other takes, and no more."""
        for uri in URIS:
            self.assertEqual(connects(uri), self.allowed(uri=uri), uri)
        for knob in Knob:
            name = str(knob)
            for key, value in itertools.product(KEYS, TEXTS):
                # A quota comes with its period.
                values = {**(STEP['values'] if key in STEP['values'] else {}),
                          key: value}
                self.assertEqual(metadata.fits(knob, key, value),
                                 self.allowed(knob=name, values=values),
                                 f'{knob}: {key}={value!r}')

    def test_what_the_driver_describes_is_allowed(self) -> None:
        seen = seen_domains.seen(
            tune='<quota>5</quota>',
            disks=seen_domains.disk('vda', 'read_bytes_sec=7',
                                  'read_bytes_sec_max=8',
                                  'total_iops_sec=9'))
        for knob, rule in knobs.RULES.items():
            self.assertTrue(self.allowed(knob=str(knob),
                                         values=rule.values(seen)), knob)


class Identity(testtools.TestCase):

    def of(self, *arguments: str, **changes: Any) -> dict[str, Any]:
        """A step on a process that lives, with these arguments."""
        self.process = subprocess.Popen(
            ['sh', '-c', 'read _', *arguments], stdin=subprocess.PIPE)
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        pid = self.process.pid
        line = pathlib.Path(f'/proc/{pid}/cmdline')
        while not line.read_bytes():
            time.sleep(0.001)       # it is there a little after the start
        return step(pid=pid, started=proc.started_ticks(pid), uri=(
            'qemu+unix:///system?socket=/nonexistent/socket'), **changes)

    def test_gone(self) -> None:
        one = self.of('-uuid', STEP['uuid'])
        for wrong in ({'pid': 2**22 - 1, 'started': 1},
                      {'started': one['started'] + 1}):
            self.assertRaises(actions.Gone, actions.run, {**one, **wrong}, [])
        self.process.kill()
        os.waitid(os.P_PID, one['pid'], os.WEXITED | os.WNOWAIT)
        self.assertRaises(actions.Gone, actions.run, one, [])

    def test_not_the_qemu_of_the_domain(self) -> None:
        other = STEP['uuid'].replace('5', '6')
        for arguments in ((), ('-uuid', other), ('-name', STEP['uuid']),
                          (f'-uuid {STEP["uuid"]}',),
                          ('-append', f'-uuid={STEP["uuid"]}')):
            exc = self.assertRaises(actions.Refused, actions.run,
                                    self.of(*arguments), [])
            self.assertIn('is not the QEMU of', str(exc))
        # As long as it lives: what has ended is no matter.
        self.assertRaises(actions.Gone, actions.run,
                          {**self.of(), 'started': 1}, [])

    def test_no_libvirt(self) -> None:
        """It may come back, and the cap is still there: try again."""
        exc = self.assertRaises(actions.RestoreError, actions.run,
                                self.of('-uuid', STEP['uuid']), [])
        self.assertRegex(str(exc), 'libvirtd runs|install libvirt-clients')

    def test_made_again(self) -> None:
        self.assertFalse(originals.made_again([STEP], [step()]))
        self.assertTrue(originals.made_again([STEP], [step(pid=6)]))
        self.assertTrue(originals.made_again([STEP], [step(started=78)]))


class Large(testtools.TestCase):

    def test_many_disks(self) -> None:
        """One lease holds them all, and each is a command of its own."""
        values = {f'vd{disk}.{way}_iops_sec': '12345' for disk in range(512)
                  for way in ('total', 'read', 'write')}
        one = step(knob='io_ops_per_s', values=values)
        actions.validate(one, [])
        directory = os.open(self.useFixture(fixtures.TempDir()).path,
                            os.O_RDONLY)
        self.addCleanup(os.close, directory)
        records.save(directory, records.Lease('w', 'io_ops_per_s', 'b', [one],
                                              name='a.json'))
        self.assertEqual([one], records.load(
            directory, 'a.json', {os.geteuid()}).actions)
        root = ElementTree.fromstring('<domain><devices>' + ''.join(
            f'<disk><target dev="vd{disk}"/></disk>' for disk in range(512))
            + '</devices></domain>')
        found = list(domain.commands(one, root, '--live'))
        self.assertEqual(512, len(found))
        self.assertEqual(
            f'blkdeviotune {STEP["uuid"]} vd511 --total-iops-sec 12345 '
            '--read-iops-sec 12345 --write-iops-sec 12345 --live', found[511])


class NoQuota(testtools.TestCase):

    def test_each_way_to_write_it(self) -> None:
        """And the lease says which of them this libvirtd takes."""
        for wanted in ('-1', '17592186044415'):
            one = step(values={**STEP['values'], 'vcpu_quota': wanted})
            actions.validate(one, [])
            for text, same in (('', True), ('<quota>-1</quota>', True),
                               ('<quota>17592186044415</quota>', True),
                               ('<quota>20000</quota>', False),
                               ('<quota>17592186044414</quota>', False)):
                root = ElementTree.fromstring(
                    f'<domain><cputune>{text}</cputune></domain>')
                self.assertEqual(same, domain.is_same(root, one), text)
                self.assertEqual(
                    [f'schedinfo {STEP["uuid"]} --live '
                     f'vcpu_quota={wanted} vcpu_period=100000'],
                    list(domain.commands(one, root, '--live')))


class Drift(testtools.TestCase):

    def test_what_is_ours_keeps_its_original(self) -> None:
        def limits(vda: str, vdb: str) -> dict[str, Any]:
            return step(knob='io_bytes_per_s', values={
                'vda.read_bytes_sec': vda, 'vdb.read_bytes_sec': vdb})

        self.assertEqual(
            [limits('0', '9')], originals.after_drift(
                [limits('0', '0')], [limits('5', '5')], [limits('5', '9')]))
        self.assertEqual(
            [limits('0', '0')], originals.after_drift(
                [limits('0', '0')], [limits('5', '5')], [limits('5', '5')]))
        plugged = step(knob='io_bytes_per_s', values={
            'vda.read_bytes_sec': '5', 'vdc.read_bytes_sec': '0'})
        self.assertEqual(
            [{**plugged, 'values': {'vda.read_bytes_sec': '0',
                                    'vdc.read_bytes_sec': '0'}}],
            originals.after_drift([limits('0', '0')], [limits('5', '5')],
                                  [plugged]))
