# SPDX-License-Identifier: Apache-2.0

"""What the watcher publishes, and what of it is believed."""

from __future__ import annotations

from collections.abc import Mapping
import json
import os
import pathlib
import threading

import fixtures
import testtools

from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import records
from scavenger_openstack.restore import watcher
from scavenger_openstack.tests import file_size

KINDS = {'cgroup 29:1 /sys/fs/cgroup/cpu': '', 'net 4026531840 ': 'no tc'}
STALE_S = 5.0


class Published(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.path / watcher.NAME
        self.directory = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, self.directory)
        self.reader = watcher.Reader(self.file)
        self.now = records.now_s()

    def publisher(self) -> watcher.Publisher:
        found = watcher.Publisher(self.directory)
        self.addCleanup(found.close)
        return found

    def look(self, now: float | None = None) -> Mapping[str, str] | None:
        return self.reader.read(self.now if now is None else now, STALE_S)

    def test_what_is_published_is_read(self) -> None:
        self.assertIsNone(self.look())
        publisher = self.publisher()
        self.assertIsNone(self.look())
        for kinds in (KINDS, {}, {**KINDS, 'domain 1 qemu:///system': 'x' *
                                  5000}, KINDS):
            for _ in range(2):
                self.now += 1
                publisher.beat(kinds, self.now)
                self.assertEqual(kinds, self.look())
        self.assertIs(self.look(), self.look())     # not parsed again
        self.assertEqual(0o600, self.file.stat().st_mode & 0o777)

    def test_a_disk_with_room_for_a_part(self) -> None:
        """One write takes what has room, and says so by the count only."""
        before = list(KINDS)
        watcher.write_wanted(self.path, before)
        publisher = self.publisher()
        publisher.beat({}, self.now)
        small = self.useFixture(file_size.FileSize(30))
        self.assertRaises(OSError, watcher.write_wanted, self.path,
                          [*before, 'x' * 99])
        self.assertRaises(OSError, publisher.beat, {}, self.now + 1)
        self.assertRaises(OSError, publisher.beat, KINDS, self.now + 1)
        small.end()
        self.assertEqual(before, watcher.Wanted().read(self.directory))
        self.assertEqual({watcher.NAME, watcher.WANTED},
                         set(os.listdir(self.path)))
        publisher.beat(KINDS, self.now + 1)
        self.assertEqual(KINDS, self.look(self.now + 1))

    def test_as_many_as_are_tried(self) -> None:
        kinds = {f'net 4026531840 {number:064}': 'x' * 199
                 for number in range(abilities.MOST_WANTED)}
        self.publisher().beat(kinds, self.now)
        self.assertEqual(kinds, self.look())
        watcher.write_wanted(self.path, list(kinds))
        self.assertEqual(list(kinds), abilities.valid(
            watcher.Wanted().read(self.directory)))

    def test_only_for_a_while(self) -> None:
        self.publisher().beat(KINDS, self.now)
        self.assertEqual(KINDS, self.look(self.now + STALE_S - 0.1))
        self.assertIsNone(self.look(self.now + STALE_S + 0.1))
        # Of the future: of another clock, or made up.
        self.assertIsNone(self.look(self.now - 5))

    def test_another_boot(self) -> None:
        with fixtures.MonkeyPatch(
                'scavenger_openstack.restore.watcher.boot_id',
                lambda: 'another'):
            self.publisher().beat(KINDS, self.now)
        self.assertIsNone(self.look())

    def test_another_version(self) -> None:
        """It may refuse what this one's leases say."""
        with fixtures.MonkeyPatch(
                'scavenger_openstack.restore.actions.CLOSED_SET', 1):
            self.publisher().beat(KINDS, self.now)
        self.assertEqual(dict.fromkeys(KINDS, watcher.OTHER_VERSION),
                         self.look())
        self.file.write_bytes(self.published(json.dumps({
            'boot_id': records.boot_id(), 'pid': 1, 'kinds': KINDS}
        ).encode()))
        self.assertEqual(dict.fromkeys(KINDS, watcher.OTHER_VERSION),
                         self.look())

    def test_malformed(self) -> None:
        self.publisher().beat(KINDS, self.now)
        sound = self.file.read_bytes()
        body = {'boot_id': records.boot_id(), 'pid': 1, 'kinds': KINDS}
        bodies: list[object] = [
            [], 1, 'x', None, {}, {**body, 'boot_id': 7},
            {**body, 'kinds': []}, {**body, 'kinds': None},
            {**body, 'kinds': {'cgroup': 1}},
            {**body, 'kinds': {'cgroup': None}}]
        for wrong in (
                b'', b'\0' * 100, sound[:37], sound[:-1], sound + b' ',
                sound[:20] + b' 00000000' + sound[29:], b'x' + sound[1:],
                b'nan'.rjust(20) + sound[20:], b'inf'.rjust(20) + sound[20:],
                *(self.published(json.dumps(one).encode())
                  for one in bodies),
                self.published(b'[' * 60000), self.published(b'\xff'),
                self.published(json.dumps(
                    {**body, 'kinds': {'x' * watcher.MAX_BYTES: ''}}
                ).encode())):
            self.file.write_bytes(wrong)
            self.assertIsNone(self.look(), repr(wrong[:200]))
        self.file.write_bytes(sound)
        self.assertEqual(KINDS, self.look())

    def published(self, body: bytes) -> bytes:
        """A body with the line that fits it."""
        return watcher.first_line(self.now, body) + body

    def test_only_a_file_of_ours(self) -> None:
        self.publisher().beat(KINDS, self.now)
        for mode in (0o620, 0o602):
            self.file.chmod(mode)
            self.assertIsNone(self.look(), oct(mode))
        self.file.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(self.file, 12345, -1)
            self.assertIsNone(self.look())
            os.chown(self.file, 0, -1)
        self.assertEqual(KINDS, self.look())
        data = self.file.read_bytes()
        self.file.rename(self.path / 'elsewhere')
        os.mkfifo(self.file)
        self.assertIsNone(self.look())
        self.file.unlink()
        self.file.symlink_to('elsewhere')
        self.assertRaises(OSError, self.look)   # as if out of descriptors
        self.file.unlink()
        self.file.mkdir()
        self.assertIsNone(self.look())
        self.file.rmdir()
        self.file.write_bytes(data)
        self.file.chmod(0o600)
        self.assertEqual(KINDS, self.look())

    def test_root_reads_that_of_another_user(self) -> None:
        """``scavenger-agent status`` does, with the agent's unit."""
        if os.geteuid() != 0:
            self.skipTest('needs root, to give files away')
        os.chown(self.path, 12345, 12345)
        self.publisher().beat(KINDS, self.now)
        self.assertEqual(12345, self.file.stat().st_uid)
        self.assertEqual(KINDS, self.look())

    def test_whose_its_file_is(self) -> None:
        """The agent's, if the watcher makes it; one that is there stays."""
        if os.geteuid() != 0:
            self.skipTest('needs root, to give files away')
        os.chown(self.path, 12345, 12345)
        self.publisher()
        self.assertEqual(12345, self.file.stat().st_uid)
        os.chown(self.file, 0, 0)
        self.publisher()
        self.assertEqual(0, self.file.stat().st_uid)

    def test_the_watcher_writes_into_no_other_file(self) -> None:
        other = self.path / 'other'
        other.write_text('something else')
        os.link(other, self.file)
        self.assertRaises(OSError, watcher.Publisher, self.directory)
        self.file.unlink()
        self.file.symlink_to('other')
        self.assertRaises(OSError, watcher.Publisher, self.directory)
        self.assertEqual('something else', other.read_text())

    def test_read_while_it_is_written(self) -> None:
        """A half of the old and a half of the new is never believed."""
        publisher, ending = self.publisher(), threading.Event()
        some = [{f'net {n} ': 'x' * n * 50 for n in range(m)}
                for m in (1, 9, 4)]

        def write() -> None:
            while not ending.is_set():
                for kinds in some:
                    publisher.beat(kinds, self.now)

        publisher.beat(some[0], self.now)
        thread = threading.Thread(target=write)
        thread.start()
        try:
            seen = [self.look() for _ in range(3000)]
        finally:
            ending.set()
            thread.join()
        self.assertEqual([], [found for found in seen
                              if found is not None and found not in some])
        self.assertLess(len(seen) * 0.5, sum(found in some for found in seen))

    def test_wanted(self) -> None:
        wanted = watcher.Wanted()
        self.assertEqual([], wanted.read(self.directory))
        for kinds in ([], ['net 1 '], ['net 1 ', 'net 1 x']):
            watcher.write_wanted(self.path, kinds)
            self.assertEqual(kinds, wanted.read(self.directory))
            self.assertIs(wanted.read(self.directory),
                          wanted.read(self.directory))
        file = self.path / watcher.WANTED
        for garbage in ('', '{', '[' * 100000, '\0', 'x' * 100000):
            file.unlink()
            file.write_text(garbage)
            self.assertEqual([], wanted.read(self.directory), garbage[:9])
        file.unlink()
        file.mkdir()
        self.assertEqual([], wanted.read(self.directory))


class Kinds(testtools.TestCase):

    def test_only_kinds_are_tried(self) -> None:
        good = ['cgroup 29:1 /sys/fs/cgroup/cpu', 'net 4026531840 ',
                'net 4026531840 ns-1.x', 'domain 4026531836 qemu:///system',
                'domain 1 qemu+unix:///system?socket=/run/x/libvirt-sock']
        self.assertEqual(good, abilities.valid(good))
        wrongs: list[object] = [
            None, 1, 'net 1 ', {}, [None], [[]], [{}], [''],
            ['domain 1 qemu+ssh://host/system'], ['domain 1 test:///default'],
            ['net 1 ../x'], ['net 1 -a'], ['net 1 \n'],
            ['cgroup 29:1 relative'], ['cgroup 1 /x'], ['exec 1 /bin/sh'],
            ['cgroup 1:1 /' + 'x' * 5000]]
        for wrong in wrongs:
            self.assertEqual([], abilities.valid(wrong), repr(wrong))
        self.assertEqual(abilities.MOST_WANTED, len(abilities.valid(
            [f'net {n} ' for n in range(2000)])))

    def test_of_steps(self) -> None:
        mounts = cgroup.mounts()
        if not mounts:
            self.skipTest('no cgroup is mounted')
        point = mounts[0][0]
        found = os.stat(point)
        self.assertEqual(
            f'cgroup {found.st_dev}:{found.st_ino} {point}',
            abilities.of_action({'do': 'write', 'dir': f'{point}/batch/a'},
                                mounts))
        self.assertRaises(actions.RestoreError, abilities.of_action,
                          {'do': 'write', 'dir': '/nowhere/batch/a'}, mounts)
        kinds = [abilities.of_action(step, mounts) for step in (
            {'do': 'domain', 'uri': 'qemu:///system'},
            {'do': 'tap', 'netns': ''}, {'do': 'tc', 'netns': 'x'})]
        self.assertEqual(['domain', 'net', 'net'],
                         [kind.partition(' ')[0] for kind in kinds])
        self.assertEqual(kinds, abilities.valid(kinds))
        self.assertEqual('limits of VMs at qemu:///system',
                         abilities.named(kinds[0]))

    def test_another_namespace_is_another_kind(self) -> None:
        for kind in ('domain 1 qemu:///system', 'net 1 ', 'net 1 x'):
            self.assertIn('namespace', abilities.why_not(kind))
        self.assertIn('that hierarchy',
                      abilities.why_not('cgroup 1:1 /nowhere'))


class Fresh(testtools.TestCase):

    def test_well_below_the_leases(self) -> None:
        self.assertEqual([2.0, 2.0, 2.0, 5.0, 5.0], [
            watcher.stale_s(lease_s) for lease_s in (1, 2, 6, 15, 600)])
        self.assertLess(watcher.BEAT_S, watcher.stale_s(1))
