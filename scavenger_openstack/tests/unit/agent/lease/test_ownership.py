# SPDX-License-Identifier: Apache-2.0

"""One agent for one state directory."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.agent.lease import ownership
from scavenger_openstack import errors
from scavenger_openstack.tests import watching


class OwnershipTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'a' / 'state'
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.lease.ownership.LOCK_TIMEOUT_S', 0.05))

    def owner(self) -> ownership.Ownership:
        found = ownership.Ownership(self.path)
        self.addCleanup(found.release)
        return found

    def taken(self) -> ownership.Ownership:
        found = self.owner()
        found.take()
        return found

    def test_it_is_made_for_one_user(self) -> None:
        owner = self.taken()
        self.assertEqual([0o700] * 2, [
            path.stat().st_mode & 0o777
            for path in (self.path, self.path / 'leases')])
        self.assertEqual(f'{os.getpid()}\n',
                         (self.path / 'lock').read_text())
        self.assertEqual((self.path / 'leases').stat().st_ino,
                         os.fstat(owner.records).st_ino)

    def test_one_that_others_may_read_is_closed(self) -> None:
        (self.path / 'leases').mkdir(parents=True)
        for path in (self.path, self.path / 'leases'):
            path.chmod(0o755)
        self.taken()
        self.assertEqual([0o700] * 2, [
            path.stat().st_mode & 0o777
            for path in (self.path, self.path / 'leases')])

    def test_one_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('only root can give directories away')
        self.path.mkdir(parents=True)
        os.chown(self.path, 65534, 65534)
        self.assertIn('belongs to user 65534', str(self.assertRaises(
            errors.LeaseError, self.owner().take)))

    def test_only_one_has_it(self) -> None:
        first, second = self.taken(), self.owner()
        self.assertIn(f"held by process '{os.getpid()}'", str(
            self.assertRaises(errors.AlreadyRunning, second.take)))
        first.release()
        second.take()
        self.assertRaises(errors.AlreadyRunning, first.take)

    def test_a_restorer_is_named_as_one(self) -> None:
        self.taken()
        (self.path / 'lock').write_text('7 restorer\n')
        self.assertIn('it restores what an earlier agent left', str(
            self.assertRaises(errors.AlreadyRunning, self.owner().take)))

    def test_a_lock_that_is_kept(self) -> None:
        """While a write is on its way: until the process is dead."""
        first = self.taken()
        first.release(keep_lock=True)
        self.assertEqual(-1, first.records)
        self.assertRaises(errors.AlreadyRunning, self.owner().take)
        first.release()
        self.owner().take()

    def test_moved(self) -> None:
        owner = self.taken()
        beat = os.open(self.path / 'heartbeat', os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, beat)
        self.assertFalse(owner.moved(beat))
        for name in ('lock', 'heartbeat', 'leases'):
            file = self.path / name
            file.rename(self.path / 'old')
            self.assertTrue(owner.moved(beat), name)
            (file.mkdir if name == 'leases' else file.touch)()
            self.assertTrue(owner.moved(beat), name)
            file.rmdir() if name == 'leases' else file.unlink()
            (self.path / 'old').rename(file)
            self.assertFalse(owner.moved(beat), name)
        self.path.rename(self.path.with_name('old'))
        self.assertTrue(owner.moved(beat))

    def test_whether_a_watcher_turns(self) -> None:
        owner = self.taken()
        self.assertIsNone(owner.watched(60.0))
        (self.path / 'watcher.lock').touch()        # of one that is dead
        self.assertIsNone(owner.watched(60.0))
        with watching.Watching(self.path) as watcher:
            watcher.kinds = {'cgroup /x': '', 'network': 'no tc'}
            self.assertEqual({'cgroup /x': '', 'network': 'no tc'},
                             owner.watched(60.0))
        self.assertIsNone(owner.watched(60.0))
