# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

from collections.abc import Callable
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack import errors
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import records
from scavenger_openstack.restore import state_directory
from scavenger_openstack.tests import file_size
from scavenger_openstack.tests import watching
from scavenger_openstack.types import Knob

A = '/batch/a', Knob.CPU_CORES
B = '/batch/b', Knob.MEMORY_BYTES
NOBODY = 65534
DEADLINE_S = 30.0
LEASE_S = 1.5
"""Of what is renewed by a thread, three times in it: a busy machine may keep
that waiting for most of a second."""


class LeasesTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        mounts = cgroup.mounts()
        if not mounts:
            self.skipTest('no cgroup is mounted')
        self.steps = [{'do': 'write', 'inode': 7, 'file': 'cpuset.cpus',
                       'dir': f'{mounts[0][0]}/scv-no-such-group',
                       'text': '0'}]
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        self.moved_s, clock = 0.0, time.clock_gettime
        for name in ('time.clock_gettime',
                     'scavenger_openstack.agent.lease.heartbeat._clock'):
            self.useFixture(fixtures.MonkeyPatch(
                name, lambda which: clock(which) + self.moved_s * (
                    which == time.CLOCK_BOOTTIME)))

    def move_to(self, time_s: float) -> None:
        """Move the clock of leases on."""
        self.moved_s += max(0.0, time_s - records.now_s())

    def wait_for(self, condition: Callable[[], object]) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end_s, self.log.output)
            time.sleep(0.01)

    def opened(self, lease_s: float = 60.0) -> leases.Leases:
        found = leases.Leases(self.path, lease_s)
        found.open()
        self.addCleanup(found.close)
        return found

    def on_disk(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes().partition(b'\n')[0])
                for path in sorted((self.path / 'leases').iterdir())]

    def expiry(self) -> float:
        beat = json.loads((self.path / 'heartbeat').read_text())
        self.assertEqual(records.boot_id(), beat['boot_id'])
        self.assertEqual(os.getpid(), beat['pid'])
        return float(beat['expires_s'])


class Records(LeasesTestCase):
    """What is on disk while a lease is held."""

    def test_hold_remove(self) -> None:
        held = self.opened()
        before = held.held()
        held.hold(*A, self.steps, 1.5)
        self.assertEqual({}, before)
        self.assertEqual({A: (1.5, self.steps)}, {
            key: (one.original.value, one.original.actions)
            for key, one in held.held().items()})
        self.assertEqual(1.5, held.held()[A].original.value)
        self.assertNotIn(B, held.held())
        record, = self.on_disk()
        self.assertEqual(
            {'schema': 1, 'workload': '/batch/a', 'knob': 'cpu_cores',
             'boot_id': records.boot_id(), 'pid': os.getpid(),
             'original': 1.5, 'steps': self.steps},
            {k: v for k, v in record.items() if k != 'created_s'})
        held.hold(*A, [], 'something else')
        self.assertEqual([record], self.on_disk())
        held.remove(*A)
        held.remove(*A)
        self.assertEqual([], self.on_disk())
        self.assertEqual({}, held.held())

    def test_replace(self) -> None:
        held = self.opened()
        self.assertRaises(errors.LeaseError, held.replace, *A, self.steps, 1)
        held.hold(*A, self.steps, None)
        held.replace(*A, self.steps * 2, '0-1')
        self.assertEqual(('0-1', self.steps * 2), (
            held.held()[A].original.value, held.held()[A].original.actions))
        record, = self.on_disk()
        self.assertEqual('0-1', record['original'])
        self.assertEqual(self.steps * 2, record['steps'])

    def test_what_was_written(self) -> None:
        """It is in memory only, and gone when all was restored."""
        held, ours = self.opened(), Setting(0.5, self.steps)
        held.hold(*A, self.steps, 1.5)
        before, record = held.held(), self.on_disk()
        for key in A, B:
            held.wrote(*key, ours)
        self.assertIsNone(before[A].ours)
        self.assertEqual({A: ours}, {
            key: state.ours for key, state in held.held().items()})
        self.assertEqual(record, self.on_disk())
        held.replace(*A, self.steps, 2.5)
        self.assertEqual(KnobState(Setting(2.5, self.steps), ours),
                         held.held()[A])
        held.reopen()
        self.assertIsNone(held.held()[A].ours)

    def test_steps_outside_the_closed_set_are_no_lease(self) -> None:
        held = self.opened()
        for wrong in ([], [{**self.steps[0], 'dir': '/etc'}],
                      [{**self.steps[0], 'text': 'x'}],
                      [*self.steps, {'do': 'exec'}]):
            self.assertRaises(errors.LeaseError, held.hold, *A, wrong, None)
        huge = self.steps * (records.MAX_BYTES // 50)
        self.assertIn('bytes', str(self.assertRaises(
            errors.LeaseError, held.hold, *A, huge, None)))
        self.assertEqual([], self.on_disk())
        self.assertEqual({}, held.held())

    def test_modes(self) -> None:
        self.path.mkdir(mode=0o755)
        self.opened().hold(*A, self.steps, None)
        for path in (self.path, self.path / 'leases'):
            self.assertEqual(0o700, path.stat().st_mode & 0o777)
        for path in self.path.rglob('*'):
            self.assertEqual(0, path.stat().st_mode & 0o077, str(path))

    def test_cannot_be_recorded(self) -> None:
        held = self.opened()
        held.hold(*A, self.steps, 1)
        (self.path / 'leases').rename(self.path / 'elsewhere')
        self.assertRaises(errors.LeaseError, held.renew, records.now_s())
        target = self.path / 'elsewhere' / 'x'
        target.mkdir()      # a name that cannot be renamed over
        name = self.lease_name(B)
        target.rename(self.path / 'elsewhere' / name)
        text = str(self.assertRaises(errors.LeaseError, held.hold, *B,
                                     self.steps, None))
        self.assertIn('memory_bytes of /batch/b', text)
        self.assertIn('it is not limited', text)
        self.assertEqual({A}, set(held.held()))
        self.assertEqual([], list(self.path.rglob('*.tmp')))

    def test_what_may_not_be_on_the_disk_is_no_lease(self) -> None:
        """A power cut could leave a limit that nothing restores."""
        held = self.opened()
        held.hold(*A, self.steps, 1.5)
        before = self.on_disk()

        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with fixtures.MonkeyPatch('os.fsync', fail):
            for call, key in ((held.hold, B), (held.replace, A)):
                self.assertRaises(errors.LeaseError, call, *key, self.steps,
                                  2.5)
        self.assertEqual((before, {A: 1.5}), (self.on_disk(), {
            key: one.original.value for key, one in held.held().items()}))

    def lease_name(self, key: tuple[str, Knob]) -> str:
        other = leases.Leases(self.path.with_name('other'))
        other.open()
        other.hold(*key, self.steps, None)
        name, = os.listdir(other.state_dir / 'leases')
        other.close()
        return name

    def test_state_directory_cannot_be_used(self) -> None:
        self.path.write_text('a file')
        text = str(self.assertRaises(errors.LeaseError,
                                     leases.Leases(self.path).open))
        self.assertIn(str(self.path), text)

    def test_close(self) -> None:
        held = self.opened()
        held.hold(*A, self.steps, None)
        held.close()
        held.close()
        self.assertEqual([], self.on_disk())
        self.assertFalse((self.path / 'heartbeat').exists())
        self.assertTrue(held.expired())
        self.opened()

    def test_leftovers_of_an_earlier_agent(self) -> None:
        first = self.opened()
        first.hold(*A, self.steps, None)
        first.hold(*B, self.steps, None)
        (self.path / 'leases' / 'x.tmp').write_text('half')
        first.close_files()        # as if killed
        self.assertEqual({}, self.opened().held())
        self.assertEqual([], list((self.path / 'leases').iterdir()))

    def test_a_record_that_cannot_be_read_now(self) -> None:
        """What it is about may hold a limit: it is no original."""
        if os.geteuid():
            self.skipTest('takes root')
        first = self.opened()
        first.hold(*A, self.steps, None)
        first.close_files()        # as if killed
        self.path.parent.chmod(0o711)
        for path in (self.path, *self.path.rglob('*')):
            if path.suffix != '.json':
                os.chown(path, NOBODY, NOBODY)
        self.addCleanup(os.seteuid, 0)
        os.seteuid(NOBODY)
        self.assertIn('cannot be read now', str(self.assertRaises(
            errors.LeaseError, leases.Leases(self.path).open)))
        os.seteuid(0)
        self.assertEqual(1, len(self.on_disk()))

    def test_systemd_waits_for_what_an_earlier_agent_left(self) -> None:
        first = self.opened()
        first.hold(*A, self.steps, None)
        first.close_files()        # as if killed
        path = self.path.parent / 'notify'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(path))
            listener.settimeout(DEADLINE_S)
            self.useFixture(fixtures.EnvironmentVariable('NOTIFY_SOCKET',
                                                         str(path)))
            self.opened()
            for _ in range(2):      # before it, and after it
                self.assertIn(b'EXTEND_TIMEOUT_USEC=', listener.recv(100))


class Alone(LeasesTestCase):
    """One agent per state directory."""

    def test_second_agent(self) -> None:
        self.opened()
        second = leases.Leases(self.path)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.lease.ownership.LOCK_TIMEOUT_S', 0.1))
        text = str(self.assertRaises(errors.AlreadyRunning, second.open))
        self.assertIn(f"process '{os.getpid()}'", text)
        self.assertIn('one agent per host', text)

    def test_waits_for_a_restorer(self) -> None:
        self.path.mkdir()
        code = ('import fcntl, os, sys, time\n'
                f'f = open({str(self.path / "lock")!r}, "w")\n'
                'fcntl.flock(f, fcntl.LOCK_EX)\n'
                'f.write("%d restorer\\n" % os.getpid()); f.flush()\n'
                'print("locked", flush=True)\n'
                'sys.stdin.readline()\n')
        with subprocess.Popen([sys.executable, '-c', code], text=True,
                              stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            assert process.stdin and process.stdout
            self.addCleanup(process.kill)
            process.stdout.readline()
            with fixtures.MonkeyPatch(
                    'scavenger_openstack.agent.lease.ownership.LOCK_TIMEOUT_S',
                    0.1):
                text = str(self.assertRaises(
                    errors.AlreadyRunning, leases.Leases(self.path).open))
            self.assertIn('restores what an earlier agent left', text)
            timer = threading.Timer(0.2, process.stdin.write, ['\n'])
            timer.start()
            self.addCleanup(timer.join)
            threading.Timer(0.25, process.stdin.flush).start()
            self.opened()
            self.assertEqual(f'{os.getpid()}\n',
                             (self.path / 'lock').read_text())

    def test_watched(self) -> None:
        held = self.opened()
        self.assertFalse(held.watched())
        with open(self.path / 'watcher.lock', 'w') as lock:
            self.assertFalse(held.watched())
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertFalse(held.watched())    # it has not said a thing
        with watching.Watching(self.path):
            self.assertTrue(held.watched())
        self.assertFalse(held.watched())

    def test_a_watcher_that_cannot(self) -> None:
        """One kind that it cannot restore keeps no other from being held."""
        held = self.opened()
        watcher = self.useFixture(watching.Watching(self.path))
        kind = abilities.of_action(self.steps[0], cgroup.mounts())
        self.assertTrue(held.watched())
        held.hold(*A, self.steps, '0')
        watcher.kinds = {**watcher.kinds, kind: 'the mount is read-only'}
        self.assertTrue(held.watched())
        self.assertEqual({A}, held.lost())
        text = str(self.assertRaises(errors.NotRestorable, held.hold, *B,
                                     self.steps, '0'))
        self.assertIn('the mount is read-only', text)
        self.assertEqual({A}, set(held.held()))
        # What another program writes is noted all the same.
        held.replace(*A, self.steps, '0-1')
        bucket = {'do': 'tc', 'netns': '', 'dev': 'scv-none', 'ifindex': 9}
        held.hold(*B, [bucket], None)
        self.assertEqual({A}, held.lost())
        held.remove(*A)
        self.assertEqual(set(), held.lost())

    def test_what_it_has_not_tried_it_is_asked_to_try(self) -> None:
        held = self.opened()
        watcher = self.useFixture(watching.Watching(self.path))
        watcher.kinds = {}
        held.watched()
        for _ in range(2):
            text = str(self.assertRaises(errors.NotRestorable, held.hold, *A,
                                         self.steps, '0'))
            self.assertIn('has not tried yet', text)
        kind = abilities.of_action(self.steps[0], cgroup.mounts())
        self.assertEqual(
            [kind], json.loads((self.path / 'wanted').read_text()))
        watcher.kinds = {kind: ''}
        held.watched()
        held.hold(*A, self.steps, '0')
        self.assertEqual('', self.log.output)

    def test_what_could_not_be_asked_for_is_asked_for_later(self) -> None:
        held = self.opened()
        self.useFixture(watching.Watching(self.path)).kinds = {}
        held.watched()
        small = self.useFixture(file_size.FileSize(4096))
        kind = 'net 4026531840 ' + 'x' * 4096
        held.want([kind])
        held.watched()
        small.end()
        self.assertEqual(1, self.log.output.count('wanted cannot be written'))
        self.assertEqual('[]', (self.path / 'wanted').read_text())
        held.watched()
        self.assertEqual([kind],
                         json.loads((self.path / 'wanted').read_text()))

    def test_more_kinds_than_it_tries(self) -> None:
        held = self.opened()
        self.useFixture(watching.Watching(self.path)).kinds = {}
        held.watched()
        held.want(f'net {number} ' for number in range(1000))
        self.assertIn('tries the first 1000 kinds of limits', str(
            self.assertRaises(errors.NotRestorable, held.hold, *A,
                              self.steps, '0')))

    def test_a_lease_that_was_found_and_leads_nowhere_now(self) -> None:
        """Its mount is missing: it is kept, and not written to."""
        (self.path / 'leases').mkdir(parents=True)
        left = records.Lease(*A, records.boot_id(), [
            {**self.steps[0], 'dir': '/nowhere/cgroup/batch/a'}],
            name='left.json')
        path = self.path / 'leases/left.json'
        path.write_bytes(records.dump(left))
        path.chmod(0o600)
        held = self.opened()
        self.assertEqual({A}, set(held.held()))
        self.assertEqual(['left.json'],
                         [one.name for one in path.parent.iterdir()])
        self.useFixture(watching.Watching(self.path))
        held.watched()
        self.assertEqual({A}, held.lost())
        path.unlink()


class Time(LeasesTestCase):
    """Nothing is written when the lease is over, or nearly."""

    def test_heartbeat_and_renewal(self) -> None:
        held = self.opened(lease_s=60)
        now = records.now_s()
        path = self.path / 'heartbeat'
        self.assertTrue(now + 53 < self.expiry() <= now + 54)
        self.assertEqual(128, path.stat().st_size)
        inode = path.stat().st_ino
        held.renew(now + 10)
        self.assertAlmostEqual(now + 64, self.expiry(), places=4)
        held.renew(now + 5)         # never back
        self.assertAlmostEqual(now + 64, self.expiry(), places=4)
        self.assertEqual((128, inode),
                         (path.stat().st_size, path.stat().st_ino))
        self.assertEqual(b'\n', path.read_bytes()[-1:])

    def test_end(self) -> None:
        """Writes end a tenth before the lease, renewals with it."""
        lease_s = 60.0
        held = self.opened(lease_s)
        held.hold(*A, self.steps, None)
        expires_s = self.expiry()
        held.check()
        self.assertFalse(held.expired())
        self.move_to(expires_s - 0.1 * lease_s)
        self.assertTrue(held.expired())
        self.assertIn('ran out', str(self.assertRaises(
            errors.LeaseError, held.check)))
        self.move_to(expires_s)
        self.assertRaises(errors.LeaseError, held.renew, records.now_s())
        held.reopen()
        held.check()
        held.renew(records.now_s())
        self.assertEqual({A}, set(held.held()))
        self.assertEqual(1, len(self.on_disk()))

    def test_stopped_within_a_renewal(self) -> None:
        """The clock was read before the stop, the write came after it."""
        held = self.opened()
        before = self.expiry() - 0.01
        self.move_to(before + 0.02)
        held.renew(before)
        self.assertTrue(self.expiry() > records.now_s())
        self.assertRaises(errors.LeaseError, held.check)
        held.reopen()
        held.check()

    def test_state_directory_removed_or_made_again(self) -> None:
        held = self.opened()
        held.hold(*A, self.steps, 3)
        self.path.rename(self.path.with_name('old'))
        for _ in range(2):
            self.assertIn('was removed', str(self.assertRaises(
                errors.LeaseError, held.renew, records.now_s())))
            self.path.mkdir(exist_ok=True)
        held.reopen()
        held.renew(records.now_s())
        record, = self.on_disk()
        self.assertEqual(3, record['original'])
        self.assertRaises(errors.AlreadyRunning, self.quick_second)

    def quick_second(self) -> None:
        with fixtures.MonkeyPatch(
                'scavenger_openstack.agent.lease.ownership.LOCK_TIMEOUT_S',
                0.05):
            leases.Leases(self.path).open()

    def test_writing(self) -> None:
        held = self.opened()
        with testtools.ExpectedException(errors.LeaseError, '.*has no lease'):
            with held.writing(*A):
                self.fail('no lease')
        held.hold(*A, self.steps, None)
        with held.writing(*A):
            self.assertRaises(errors.DriverError, held.remove, *A)
            self.assertEqual(1, len(held.remove_all()))
            self.assertEqual(1, len(self.on_disk()))
        with testtools.ExpectedException(errors.LeaseError, '.*ran out'):
            with held.writing(*A):
                self.move_to(self.expiry())
        held.remove(*A)
        self.assertEqual([], self.on_disk())

    def test_all_are_removed_while_another_thread_removes_one(self) -> None:
        held = self.opened()
        held.hold(*A, self.steps, None)
        begun, go_on = threading.Event(), threading.Event()

        def slow(*args: Any, **kwargs: Any) -> None:
            begun.set()
            go_on.wait(2 * DEADLINE_S)

        with fixtures.MonkeyPatch(
                'scavenger_openstack.restore.restoration.restore', slow):
            other = threading.Thread(target=held.remove, args=A)
            other.start()
            self.addCleanup(other.join)
            self.addCleanup(go_on.set)
            self.assertTrue(begun.wait(DEADLINE_S))
            self.assertRaises(errors.LeaseError, held.hold, *A, self.steps,
                              None)
            threading.Timer(0.2, go_on.set).start()
            self.assertEqual([], held.remove_all())
        self.assertEqual([], self.on_disk())

    def test_close_while_a_write_is_on_its_way(self) -> None:
        """The record stays, and the lock until the process is dead."""
        held = self.opened()
        held.hold(*A, self.steps, None)
        self.addCleanup(held.close_files)
        with contextlib.suppress(errors.LeaseError), held.writing(*A):
            held.close()
            self.assertEqual(1, len(self.on_disk()))
            self.assertRaises(errors.AlreadyRunning, self.quick_second)


class Restored(LeasesTestCase):
    """Leases that ran out, and a restorer that is still at work."""

    def setUp(self) -> None:
        super().setUp()
        self.held = self.opened()
        self.held.hold(*A, self.steps, 3)
        self.move_to(self.expiry())

    def test_it_is_waited_for(self) -> None:
        here = os.open(self.path / 'leases', os.O_RDONLY)
        self.addCleanup(os.close, here)
        with state_directory.restoring(here):
            for _ in range(2):
                self.held.reopen()
                self.assertTrue(self.held.expired())
                # The others see that the agent goes on, and begin no more.
                self.assertGreater(self.expiry(), records.now_s())
                self.moved_s += 0.01
        self.held.reopen()
        self.held.check()

    def test_what_it_wrote_is_no_original(self) -> None:
        self.assertIn('ran out', str(self.assertRaises(
            errors.LeaseError, self.held.replace, *A, self.steps, 4)))
        self.assertEqual(3, self.held.held()[A].original.value)
        self.held.reopen()
        self.held.replace(*A, self.steps, 4)
        self.assertEqual(4, self.held.held()[A].original.value)


class Renewing(LeasesTestCase):
    """The thread that renews, and when it must not."""

    def renewer(self, held: leases.Leases, age_s: float) -> None:
        renewer = heartbeat.Renewer(
            held, lambda: records.now_s() - age_s, interval_s=0.01)
        renewer.start()
        self.addCleanup(renewer.stop)

    def test_renews(self) -> None:
        held = self.opened(lease_s=LEASE_S)
        before = self.expiry()
        self.renewer(held, 0.0)
        self.wait_for(lambda: self.expiry() > before + LEASE_S)
        held.check()

    def test_does_not_renew_for_a_hanging_loop(self) -> None:
        held = self.opened(lease_s=LEASE_S)
        before = self.expiry()
        self.renewer(held, LEASE_S + 0.01)
        self.wait_for(lambda: 'no tick has ended' in self.log.output)
        time.sleep(LEASE_S)     # more than one renewal
        self.assertRaises(errors.LeaseError, held.check)
        self.assertEqual(before, self.expiry())
        self.assertEqual(1, self.log.output.count('no tick has ended'))

    def test_expired_leases_stay_expired(self) -> None:
        held = self.opened(lease_s=LEASE_S)
        self.move_to(self.expiry())
        self.renewer(held, 0.0)
        self.wait_for(lambda: 'ran out' in self.log.output)
        time.sleep(LEASE_S)     # more than one renewal
        self.assertRaises(errors.LeaseError, held.check)
        self.assertEqual(1, self.log.output.count('ran out'))
        held.reopen()
        before = self.expiry()
        self.wait_for(lambda: self.expiry() > before)
        held.check()
