# SPDX-License-Identifier: Apache-2.0

"""The second act of the demo: that it goes away, and what it trusts."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.demo.stage import accounting
from scavenger_openstack.demo.stage import disk
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import stage
from scavenger_openstack.demo.who import play
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import demos
from scavenger_openstack.tests.functional.demos import DEADLINE_S
from scavenger_openstack.tests.functional.demos import traces
from scavenger_openstack.tests import tiers

NOBODY = 65534
NAME = 'abcdef'


class WhoTest(demos.DemoTestCase):

    def test_who_did_it(self) -> None:
        """Too short to find out, but all of it is there and goes away."""
        process = self.who('--phase-seconds', '6', '--json')
        name = self.name_of(process)
        out, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(process.returncode, (1, 3), err)
        found = json.loads(out)
        self.assertEqual([], found['knobs_left'])
        self.assertEqual({play.SERVICE, play.LOOKUP}, set(found['victims']))
        for one in found['victims'].values():
            self.assertGreater(one['mean_ms']['alone'], 0)
        self.assertLessEqual(set(found['limited']), {play.CRUNCH, play.SCAN})
        page = (self.output / 'who.html').read_text()
        self.assertIn('<svg', page)
        drawn = self.output / 'who.svg'
        picture = self.start('--who', '--picture', str(drawn))
        _, err = picture.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, picture.returncode, err)
        self.assertIn(drawn.read_text().strip(), page)
        self.assert_gone(name, [])
        self.assertNotIn(name, disk.losetup('--list'))

    @tiers.only_in_all('it plays the second act once more')
    def test_keep(self) -> None:
        """The real commands list what there is, until --clean ends it."""
        try:
            keep.check()
        except errors.DriverError as exc:
            self.skipTest(str(exc))
        process = self.who('--keep', '--phase-seconds', '6')
        name = self.name_of(process)
        assert process.stdout is not None
        told: list[str] = []
        while not told or 'Ctrl-C here' not in told[-1]:
            line = process.stdout.readline()
            self.assertTrue(line, ''.join(told))
            told.append(line)
        text = ''.join(told)
        _, command, listed = text.partition('$ openstack antagonist list')
        self.assertTrue(command, text)
        # So short a play may name one, and may not.
        if 'No incident was reported' not in listed:
            self.assertIn(f'{stage.PREFIX}{name}/background/', listed)
        [line] = [line.strip() for line in told if 'eval' in line]
        done = subprocess.run(
            ['bash', '-c', f'{line} && exec "$@"', 'x', sys.executable, '-W',
             'ignore', '-m', 'openstackclient.shell', 'interference',
             'workload', 'list', '-f', 'json'], capture_output=True,
            text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertLessEqual({play.SERVICE, play.LOOKUP}, {
            re.sub('^/[^/]*', '', one['id'])
            for one in json.loads(done.stdout)})
        pids = self.wait_for_group(name, play.SERVICE)
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn(f'removed what demo {name} left\n', done.stdout)
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(process.returncode, (0, 1, 3), err)
        self.assertIn('everything is removed now', err)
        self.assert_gone(name, pids)
        self.assertNotIn(name, disk.losetup('--list'))

    def test_clean_after_sigkill_of_who(self) -> None:
        process = self.who()
        name = self.name_of(process)
        self.wait_for_group(name, play.LOOKUP)
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        self.assertIn(name, disk.losetup('--list'))
        clean = self.start('--clean')
        _, err = clean.communicate(timeout=DEADLINE_S)
        self.assertEqual(0, clean.returncode, err)
        self.assert_gone(name, [])
        self.assertNotIn(name, disk.losetup('--list'))

    def clean(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, '-m', 'scavenger_openstack.cmd.demo',
             '--clean'], capture_output=True, text=True,
            timeout=DEADLINE_S, check=False)

    def wait_for_disk(self, name: str) -> None:
        """By then it has the switch."""
        path = disk.ROOM / (disk.PREFIX + name) / 'disk'
        self.wait_for('the demo makes its disk', path.exists, DEADLINE_S)

    @tiers.only_in_all('one second act and its end are in the gate')
    def test_one_at_a_time(self) -> None:
        """Delay accounting is one switch, and stays on for the first."""
        before = stage.left_over()
        one = self.who()
        name = self.name_of(one)
        self.wait_for_disk(name)
        two = self.start('--who')
        _, err = two.communicate(timeout=DEADLINE_S)
        self.assertEqual(1, two.returncode, err)
        self.assertIn('another demo plays --who', err)
        self.assertNotIn('Traceback', err)
        self.assertEqual('1', accounting.SWITCH.read_text().strip())
        self.assertEqual({name}, stage.left_over() - before)
        one.send_signal(signal.SIGINT)
        one.communicate(timeout=DEADLINE_S)
        self.assert_gone(name, [])

    @tiers.only_in_all('one second act and its end are in the gate')
    def test_clean_leaves_the_switch_to_a_living_demo(self) -> None:
        killed = self.who()
        first = self.name_of(killed)
        self.wait_for_disk(first)
        killed.kill()
        killed.communicate(timeout=DEADLINE_S)
        other = self.start('--who')
        second = self.name_of(other)
        self.wait_for_disk(second)
        done = self.clean()
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f'demo {first}: another demo plays --who', done.stderr)
        self.assertIn(f'demo {second} (process {other.pid}) is still',
                      done.stdout)
        self.assertEqual('1', accounting.SWITCH.read_text().strip())
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=DEADLINE_S)
        self.assert_gone(second, [])
        done = self.clean()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assert_gone(first, [])

    def test_needs_blkio(self) -> None:
        """Told before anything is made."""
        blkio = base.mounts().get('blkio')
        if blkio is None:
            self.skipTest('needs cgroup v1; for v2 see guest_v2/demo.py')
        done = subprocess.run(
            ['unshare', '--mount', 'sh', '-c', 'umount "$0" && exec "$@"',
             str(blkio), sys.executable, '-m',
             'scavenger_openstack.cmd.demo', '--who', '--phase-seconds', '2',
             '--output', str(self.output / 'made')],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn('controllers blkio, which', done.stderr)
        self.assertFalse((self.output / 'made').exists())

    def test_what_cannot_be_put_back_is_told(self) -> None:
        """And hides nothing else, and the demo lets go of its stage."""
        self.addCleanup(stage.clean)
        made = stage.Stage(memory_bytes=1 << 30, link_bytes_per_s=1e6,
                           cpus=[0], groups=play.GROUPS)
        made.make()
        kept = made.directory / accounting.KEPT
        self.addCleanup(kept.unlink, missing_ok=True)
        kept.write_text('not a number')
        [problem] = made.remove()
        self.assertIn(str(accounting.SWITCH), problem)
        self.assertIn(str(kept), problem)
        lock = stage.take_lock(made.directory)
        assert lock is not None
        os.close(lock)
        self.assertEqual([str(made.directory)], traces(made.name))
        done = self.clean()
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn(f'demo {made.name}: {accounting.SWITCH}', done.stderr)
        self.assertEqual(1, done.stderr.count('\n'))
        kept.write_text(accounting.SWITCH.read_text())
        self.assertEqual(0, self.clean().returncode)
        self.assert_gone(made.name, [])


class TrustTest(base.FunctionalTestCase):
    """What others leave where the demo looks, to be found by root."""

    def setUp(self) -> None:
        super().setUp()
        file = pathlib.Path(self.useFixture(fixtures.TempDir(
            '/var/tmp')).path) / 'precious'
        file.write_bytes(bytes(1 << 20))
        try:
            self.device = disk.losetup('--find', '--show', str(file)).strip()
        except errors.DriverError as exc:
            self.skipTest(f'needs a loop device: {exc}')
        self.addCleanup(disk.losetup, '--detach', self.device)
        self.file = file
        self.addCleanup(shutil.rmtree, stage.RUN / (stage.PREFIX + NAME),
                        ignore_errors=True)

    def directory(self, name: str, *, mode: int = 0o700, owner: int = 0
                  ) -> pathlib.Path:
        path = disk.ROOM / (disk.PREFIX + name)
        path.mkdir(mode=mode)
        self.addCleanup(shutil.rmtree, path, ignore_errors=True)
        os.chown(path, owner, -1)
        path.chmod(mode)
        return path

    def assert_left_alone(self, path: pathlib.Path, words: str = '') -> None:
        """Neither the disk nor the device, nor is the name shown."""
        done = subprocess.run(
            [sys.executable, '-m', 'scavenger_openstack.cmd.demo',
             '--clean'], capture_output=True, text=True,
            timeout=DEADLINE_S, check=False)
        self.assertNotIn('Traceback', done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn('\033', done.stdout + done.stderr)
        self.assertTrue(os.path.lexists(path))
        self.assertIn(str(self.file), disk.losetup('--list', self.device))

    def test_nobody_else_makes_files_there(self) -> None:
        room = disk.ROOM.stat()
        self.assertEqual((0, 0), (room.st_uid, room.st_mode & 0o022))

    def test_somebody_elses_directory(self) -> None:
        path = self.directory(NAME, owner=NOBODY)
        self.assertRaises(errors.DriverError, disk.Disk(NAME).remove)
        self.assertTrue(path.exists())
        (path / 'disk').symlink_to(self.file)
        self.assertEqual(set(), disk.left_over())
        self.assert_left_alone(path / 'disk')
        self.assertRaises(errors.DriverError, disk.Disk(NAME).remove)
        self.assert_left_alone(path / 'disk')

    def test_a_directory_that_others_write_to(self) -> None:
        path = self.directory(NAME, mode=0o777)
        (path / 'disk').symlink_to(self.file)
        self.assertEqual(set(), disk.left_over())
        self.assert_left_alone(path / 'disk')

    def test_a_link_for_a_disk(self) -> None:
        path = self.directory(NAME)
        for make, owner in (((path / 'disk').symlink_to, 0),
                            ((path / 'disk').hardlink_to, NOBODY)):
            make(self.file)
            os.chown(self.file, owner, -1)
            self.assert_left_alone(path / 'disk', 'is not the file that')
            (path / 'disk').unlink()

    def test_a_link_for_a_directory(self) -> None:
        path = disk.ROOM / (disk.PREFIX + NAME)
        path.symlink_to(self.file.parent)
        self.addCleanup(path.unlink)
        (self.file.parent / 'disk').symlink_to(self.file)
        self.assertEqual(set(), disk.left_over())
        self.assert_left_alone(path)
        self.assertRaises(errors.DriverError, disk.Disk(NAME).remove)
        self.assert_left_alone(path)

    def test_names_that_no_demo_has(self) -> None:
        for name in ('\033[31mred', 'abcdef ', 'abcdeg', 'abcdef0'):
            self.assert_left_alone(self.directory(name))
