# SPDX-License-Identifier: Apache-2.0


"""What ends the pause of a watcher, and how soon."""

from __future__ import annotations

from collections.abc import Callable
import fcntl
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import fixtures
import testtools

from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import pause
from scavenger_openstack.restore import program
from scavenger_openstack.restore import state_directory

LONG_S = 60.0
SOON_S = 0.9
"""Below a turn: it did not wait for one."""

SLEEP = 'import time; time.sleep(600)'
HOLD = ('import fcntl, os, sys, time\n'
        'fd = os.open(sys.argv[1], os.O_RDWR)\n'
        'fcntl.flock(fd, fcntl.LOCK_EX)\n'
        "os.pwrite(fd, b'%d\\n' % os.getpid(), 0)\n"
        'print(1, flush=True)\n'
        'time.sleep(600)\n')


class PauseTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = root / 'state'
        (self.path / 'leases').mkdir(parents=True, mode=0o700)
        self.path.chmod(0o700)
        (self.path / 'lock').write_text('1\n')
        (root / 'etc').mkdir()
        self.stop = root / 'etc' / 'stop'
        self.heartbeat = heartbeat.Heartbeat(LONG_S)
        self.beat(LONG_S)
        self.addCleanup(self.heartbeat.close)
        self.state = state_directory.StateDir(str(self.path))
        self.addCleanup(self.state.close)
        self.lock = os.open(self.path / 'lock', os.O_RDWR)
        self.turns: list[float] = []

    def beat(self, lease_s: float) -> None:
        self.heartbeat = heartbeat.Heartbeat(lease_s)
        self.heartbeat.open(self.path / 'heartbeat')

    def lease(self) -> None:
        (self.path / 'leases' / 'a.json').write_text('')

    def hold(self) -> None:
        """As an agent, of which the process id is not seen from here."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.truncate(self.path / 'lock', 0)

    def agent(self) -> subprocess.Popen[bytes]:
        found = subprocess.Popen(
            [sys.executable, '-c', HOLD, str(self.path / 'lock')],
            stdout=subprocess.PIPE)
        self.addCleanup(found.communicate)
        self.addCleanup(found.kill)
        assert found.stdout
        found.stdout.readline()
        return found

    def took(self, event: Callable[[], object], *,
             seconds: float = LONG_S, signals: int = -1,
             one: pause.Pause | None = None) -> float:
        """How long after an event the pause ended."""
        one = one or pause.Pause(self.state, str(self.stop), signals)
        one.mark()
        self.assertEqual([], program.restore_due(
            self.state, str(self.stop), messages.Say(print), orphans=True))
        self.assertFalse(self.state.due)
        one.mark()
        at_s: list[float] = []

        def happen() -> None:
            at_s.append(time.monotonic())
            event()

        def turn() -> bool:
            self.turns.append(time.monotonic())
            return False

        # Between two turns, of which the first is made at once.
        timer = threading.Timer(0.1, happen)
        timer.start()
        one.wait(seconds, turn)
        ended_s = time.monotonic()
        timer.join()
        return ended_s - at_s[0]

    def test_the_agent_dies(self) -> None:
        self.lease()
        self.assertLess(self.took(self.agent().kill), SOON_S)

    def test_the_agent_dies_and_its_lock_is_not_free_yet(self) -> None:
        self.lease()
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        agent = subprocess.Popen([sys.executable, '-c', SLEEP])
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        (self.path / 'lock').write_text(f'{agent.pid}\n')
        self.assertLess(self.took(agent.kill), SOON_S)
        self.assertEqual(agent.pid, self.state.died)

    def test_an_agent_with_the_process_id_of_a_dead_one(self) -> None:
        for leases in (0, 1):
            agent = subprocess.Popen([sys.executable, '-c', SLEEP])
            self.addCleanup(agent.wait)
            self.addCleanup(agent.kill)
            self.state.died = agent.pid
            if leases:
                self.lease()
            program.restore_due(self.state, str(self.stop),
                                messages.Say(print), orphans=True)
            self.lease()
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            (self.path / 'lock').write_text(f'{agent.pid}\n')
            self.assertLess(self.took(agent.kill, seconds=3.0), SOON_S)
            fcntl.flock(self.lock, fcntl.LOCK_UN)
            (self.path / 'leases/a.json').unlink()

    def test_the_lock_is_freed(self) -> None:
        """By an agent that is not seen from here, or that lives on."""
        self.lease()
        self.hold()
        self.assertLess(self.took(lambda: os.close(self.lock)), SOON_S)

    def test_the_lock_was_closed_and_is_not_free_yet(self) -> None:
        """The kernel tells before: it is looked at again soon."""
        self.lease()
        self.hold()
        one = pause.Pause(self.state, str(self.stop))
        self.assertLess(self.took(
            lambda: os.close(os.open(self.path / 'lock', os.O_RDWR)),
            one=one), SOON_S)
        before_s = time.monotonic()
        one.wait(LONG_S, bool)
        self.assertLess(time.monotonic() - before_s, SOON_S)

    def test_the_leases_run_out(self) -> None:
        self.lease()
        self.hold()
        self.beat(0.5 / heartbeat.EXPIRY_SHARE)
        self.assertLess(self.took(lambda: None), SOON_S)
        self.assertTrue(self.state.expired())

    def test_the_stop_file(self) -> None:
        for held in (False, True):
            if held:
                self.lease()
                self.hold()
            self.assertLess(self.took(self.stop.touch), SOON_S)
            self.stop.unlink()

    def test_the_stop_file_in_the_state_directory(self) -> None:
        self.stop = self.path / 'stop'
        self.lease()
        self.hold()
        self.assertLess(self.took(self.stop.touch), SOON_S)

    def test_the_first_lease(self) -> None:
        self.assertLess(self.took(self.lease), SOON_S)

    def test_the_first_lease_in_a_new_directory(self) -> None:
        (self.path / 'leases').rmdir()
        self.assertLess(self.took((self.path / 'leases').mkdir), SOON_S)

    def test_another_directory(self) -> None:
        self.lease()
        self.hold()
        other = self.path.with_name('old')
        for stop in (self.stop, self.path / 'stop'):
            self.stop = stop
            self.assertLess(self.took(lambda: self.path.rename(other)),
                            SOON_S)
            other.rename(self.path)

    def test_a_signal(self) -> None:
        self.lease()
        self.hold()
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        self.addCleanup(os.close, writer)
        self.assertLess(self.took(lambda: os.write(writer, b'x'),
                                  signals=reader), SOON_S)

    def test_without_inotify(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.pause.Pause._changes', lambda _: -1))
        self.lease()
        self.hold()
        self.assertLess(self.took(self.stop.touch), SOON_S)
        self.stop.unlink()
        self.assertLess(self.took(lambda: os.close(self.lock)), SOON_S)

    def test_what_changed_before_it_ends_it_at_once(self) -> None:
        self.lease()
        self.hold()
        program.restore_due(self.state, str(self.stop), messages.Say(print))
        one = pause.Pause(self.state, str(self.stop))
        one.mark()
        self.stop.touch()
        before_s = time.monotonic()
        one.wait(LONG_S, bool)
        self.assertLess(time.monotonic() - before_s, SOON_S)

    def test_it_turns_and_nothing_else_ends_it(self) -> None:
        """Other files come and go, also where the stop file may be made."""
        self.lease()
        self.hold()
        self.stop = self.path / 'stop'

        def more() -> None:
            for number in range(20):
                (self.path / 'new').touch()
                (self.path / 'new').rename(self.path / 'status.json')
                (self.path / 'leases' / f'{number}.json').touch()

        self.assertGreater(self.took(more, seconds=2.4), 2.2)
        gaps_s = [b - a for a, b in itertools.pairwise(self.turns)]
        self.assertLess(max(gaps_s), 1.5)

    def test_the_watcher_ends_at_once_when_it_is_told_to(self) -> None:
        self.lease()
        self.hold()
        watcher = subprocess.Popen(
            [sys.executable, '-m', program.__name__, '--watch',
             '--state-dir', str(self.path)], stderr=subprocess.PIPE)
        self.addCleanup(watcher.communicate)
        self.addCleanup(watcher.kill)
        file = self.path / 'watcher'
        for _ in range(4):      # the last is of a pause
            before = file.read_bytes() if file.exists() else b''
            while not file.exists() or file.read_bytes() == before:
                time.sleep(0.02)
        watcher.send_signal(signal.SIGTERM)
        self.assertEqual(0, watcher.wait(SOON_S / 2))
