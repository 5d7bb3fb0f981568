# SPDX-License-Identifier: Apache-2.0

"""Until when writes may start, and what is on disk by then."""

from __future__ import annotations

import json
import os
import pathlib
import time

import fixtures
import testtools

from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack import errors
from scavenger_openstack.restore import records

DEADLINE_S = 30.0


class HeartbeatTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'heartbeat'
        self.settled = True

    def open(self, lease_s: float = 60.0) -> heartbeat.Heartbeat:
        found = heartbeat.Heartbeat(lease_s, lambda: self.settled)
        found.open(self.path)
        self.addCleanup(found.close)
        return found

    def on_disk(self) -> float:
        found = json.loads(self.path.read_text())
        self.assertEqual((records.boot_id(), os.getpid()),
                         (found['boot_id'], found['pid']))
        return float(found['expires_s'])

    def ran_out(self, lease_s: float = 0.1) -> heartbeat.Heartbeat:
        """One whose leases have run out."""
        found = self.open(lease_s)
        deadline = time.monotonic() + DEADLINE_S
        while not found.expired(records.now_s()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        return found

    def test_each_beat_is_one_line_of_the_same_length(self) -> None:
        beat = self.open()
        inode = self.path.stat().st_ino
        for later_s in (1.0, 2.5, 1e5):
            beat.beat(records.now_s() + later_s)
            text = self.path.read_bytes()
            self.assertEqual((heartbeat.SIZE, b'\n', 1), (
                len(text), text[-1:], text.count(b'\n')))
        self.assertEqual((inode, 0o600), (self.path.stat().st_ino,
                                          self.path.stat().st_mode & 0o777))

    def test_it_lasts_nine_tenths_of_a_lease(self) -> None:
        """Writes stop a tenth of it sooner: the watcher begins after."""
        beat, now = self.open(100.0), records.now_s()
        beat.beat(now + 1)
        self.assertAlmostEqual(now + 91, self.on_disk(), places=5)
        self.assertFalse(beat.expired(now + 90.9))
        self.assertTrue(beat.expired(now + 91.1))
        beat.check()

    def test_never_back(self) -> None:
        beat = self.open()
        beat.beat(records.now_s() + 10)
        before = self.on_disk()
        beat.beat(records.now_s() + 5)
        self.assertEqual(before, self.on_disk())

    def test_no_write_starts_once_it_ran_out(self) -> None:
        beat = self.ran_out()
        self.assertIn('ran out', str(self.assertRaises(
            errors.LeaseError, beat.check)))
        beat.beat(records.now_s() + 60)
        beat.check()

    def test_not_while_limits_are_being_restored(self) -> None:
        """The watcher sees that the agent goes on; the agent waits."""
        beat, self.settled = self.ran_out(), False
        now = records.now_s() + 60
        beat.beat(now)
        self.assertGreater(self.on_disk(), now)
        self.assertRaises(errors.LeaseError, beat.check)
        self.settled = True
        beat.beat(now + 1)
        beat.check()

    def test_a_clock_that_was_read_before_a_stop(self) -> None:
        """Even though it moves the expiry, nothing may be written by it."""
        beat = self.open(0.1)
        before = records.now_s()
        deadline = time.monotonic() + DEADLINE_S
        while not beat.expired(records.now_s()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        beat.beat(before + 0.01)
        self.assertRaises(errors.LeaseError, beat.check)

    def test_a_full_disk(self) -> None:
        beat = heartbeat.Heartbeat(60.0)
        self.addCleanup(beat.close)
        self.assertRaises(OSError, beat.open, pathlib.Path('/dev/full'))
        self.assertRaises(errors.LeaseError, beat.check)

    def test_nothing_after_close(self) -> None:
        beat = self.open()
        beat.close()
        beat.close()
        self.assertTrue(beat.expired(records.now_s()))
        self.assertRaises(errors.LeaseError, beat.check)
        self.assertGreater(self.on_disk(), records.now_s())
