# SPDX-License-Identifier: Apache-2.0

"""On which disks files and devices are, by trees of files."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.kernel import disk_places

MOUNTS = (
    '22 1 8:2 / / rw - ext4 /dev/sda2 rw',
    '23 22 0:22 / /proc rw - proc proc rw',
    '24 22 253:0 / /var/lib/nova/instances rw,noatime shared:1 - xfs '
    '/dev/mapper/vg-nova rw',
    r'25 22 0:51 / /srv/two\040words rw - nfs4 server:/export rw',
    '26 22 9:0 /a /raid rw - ext4 /dev/md0 rw',
    '27 22 7:0 / /loop rw - ext4 /dev/loop0 rw',
    '28 22 253:1 / /san rw - xfs /dev/mapper/mpatha rw',
    '29 22 8:16 / /raid/over rw - ext4 /dev/sdb rw',
    '32 22 8:48 / /var rw - ext4 /dev/sdd rw',
    'garbage', '30 22 - ext4', '')


class PlacesTest(testtools.TestCase):
    """Disks sda to sdd; a logical volume on sda3 and sdb; a RAID of sdc and
    sdd; a loop device in the volume; a multipath disk."""

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.write('proc/self/mountinfo', '\n'.join(MOUNTS))
        for name, number, slaves in (
                ('sda', '8:0', ()), ('sda/sda2', '8:2', None),
                ('sda/sda3', '8:3', None), ('sdb', '8:16', ()),
                ('sdc', '8:32', ()), ('sdd', '8:48', ()),
                ('dm-0', '253:0', ('sda/sda3', 'sdb')),
                ('md0', '9:0', ('sdc', 'sdd')), ('loop0', '7:0', ()),
                ('dm-1', '253:1', ('sdc', 'sdd'))):
            self.write(f'sys/devices/{name}/dev', f'{number}\n')
            if slaves is None:
                self.write(f'sys/devices/{name}/partition', '2\n')
            else:
                (self.root / f'sys/devices/{name}/slaves').mkdir()
            for slave in slaves or ():
                self.link(f'sys/devices/{slave}',
                          f'sys/devices/{name}/slaves/{slave[-4:]}')
            self.link(f'sys/devices/{name}', f'sys/dev/block/{number}')
        self.write('sys/devices/loop0/loop/backing_file',
                   '/var/lib/nova/instances/image')
        (self.root / 'sys/devices/dm-1/mq').mkdir()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def link(self, target: str, path: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path.replace('/sda/', '/')).symlink_to(
            self.root / target)

    def of(self, path: str) -> tuple[str, ...]:
        return disk_places.of(path, str(self.root))

    def test_files(self) -> None:
        for path, wanted in (
                ('/disk', ('8:0',)), ('/', ('8:0',)),
                ('/var/lib/nova/instances/uuid/disk', ('8:0', '8:16')),
                ('/var/lib/nova/instances', ('8:0', '8:16')),
                ('/var/lib/nova/instances-2/disk', ('8:48',)),
                ('/var/lib/../../x', ('8:0',)),
                ('/raid/disk', ('8:32', '8:48')),
                ('/raid/over/disk', ('8:16',)),
                ('/loop/disk', ('8:0', '8:16')),
                ('/san/disk', ('253:1',))):
            self.assertEqual(wanted, self.of(path), path)

    def test_links(self) -> None:
        """As that of instances_path to another disk; none is followed below a
        mount of a network file system."""
        for path, target in (
                ('instances', 'var/lib/nova/instances'), ('far', '/raid'),
                ('var/nova', '../raid/over'), ('loop1', 'loop2'),
                ('loop2', '/loop1'), ('srv/two words/near', '/raid'),
                ('volume', '/dev/none')):
            link = self.root / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        for path, wanted in (
                ('/instances/uuid/disk', ('8:0', '8:16')),
                ('/far/disk', ('8:32', '8:48')), ('/far', ('8:32', '8:48')),
                ('/var/nova/disk', ('8:16',)), ('/var/disk', ('8:48',)),
                ('/loop1/disk', ('8:0',)), ('/volume', ('',)),
                ('/srv/two words/near/disk', ('',))):
            self.assertEqual(wanted, self.of(path), path)

    def test_in_a_container(self) -> None:
        """Where the root is on no disk, but what a link leads to is."""
        (self.root / 'instances').symlink_to('/raid')
        self.write('proc/self/mountinfo', '\n'.join((
            '22 1 0:40 / / rw - overlay overlay rw', *MOUNTS[1:])))
        for path, wanted in (('/disk', ('',)),
                             ('/instances/disk', ('8:32', '8:48')),
                             ('/var/disk', ('8:48',))):
            self.assertEqual(wanted, self.of(path), path)

    def test_what_is_not_told(self) -> None:
        for path in ('/srv/two words/disk', '/proc/x', 'disk', '', '/dev/none',
                     '/dev/x\0y'):
            self.assertEqual(('',), self.of(path), repr(path))
        self.write('dev/file', '')
        self.assertEqual(('',), self.of('/dev/file'))
        (self.root / 'proc/self/mountinfo').unlink()
        self.assertEqual(('',), self.of('/disk'))

    def test_a_volume_on_another_host(self) -> None:
        """Two of these may be one disk there."""
        remote = 'host2/session1/target2:0:0/2:0:0:1/block/sde'
        self.write(f'sys/devices/{remote}/dev', '8:64\n')
        self.link(f'sys/devices/{remote}', 'sys/dev/block/8:64')
        self.link(f'sys/devices/{remote}', 'sys/devices/dm-1/slaves/sde')
        rows = [f'4{number} 22 {device} / {path} rw - xfs /dev/x rw'
                for number, (device, path) in enumerate((
                    ('8:64', '/iscsi'), ('259:1', '/nvme'), ('252:0', '/rbd'),
                    ('43:0', '/nbd')))]
        self.write('proc/self/mountinfo', '\n'.join((*MOUNTS, *rows)))
        for device, number in (
                ('virtual/nvme-fabrics/ctl/nvme1/nvme1n1', '259:1'),
                ('rbd/0/block/rbd0', '252:0'),
                ('virtual/block/nbd0', '43:0')):
            self.write(f'sys/devices/{device}/dev', f'{number}\n')
            self.link(f'sys/devices/{device}', f'sys/dev/block/{number}')
        for path in '/iscsi', '/nvme', '/rbd', '/nbd', '/san':
            self.assertEqual(('',), self.of(f'{path}/disk'), path)

    def test_a_device_without_a_place_in_sys(self) -> None:
        (self.root / 'sys/dev/block/8:2').unlink()
        self.assertEqual(('',), self.of('/disk'))

    def test_a_mount_over_another(self) -> None:
        self.write('proc/self/mountinfo', '\n'.join((
            *MOUNTS, '31 24 0:60 / /var/lib/nova/instances rw - nfs4 '
            'server:/export rw')))
        self.assertEqual(('',), self.of('/var/lib/nova/instances/disk'))

    def test_loops_of_devices_end(self) -> None:
        self.write('sys/devices/loop0/loop/backing_file', '/loop/disk')
        self.assertEqual(('7:0',), self.of('/loop/disk'))

    def test_devices(self) -> None:
        for path, number in (('lv', os.makedev(253, 0)),
                             ('sda2', os.makedev(8, 2))):
            (self.root / 'dev').mkdir(exist_ok=True)
            try:
                os.mknod(self.root / 'dev' / path, 0o60600, number)
            except PermissionError:
                self.skipTest('it takes root to make a device')
        self.assertEqual(('8:0', '8:16'), self.of('/dev/lv'))
        self.assertEqual(('8:0',), self.of('/dev/sda2'))
        self.write('proc/self/mountinfo',
                   '22 1 0:30 / / rw - btrfs /dev/sda2 rw')
        self.assertEqual(('8:0',), self.of('/disk'))
