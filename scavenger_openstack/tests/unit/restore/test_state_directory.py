# SPDX-License-Identifier: Apache-2.0

"""Agents are found by their locks, and nothing else is taken for one."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import fixtures
import testtools

from scavenger_openstack.restore import state_directory

NOBODY = 65534

HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
os.setresuid(*map(int, sys.argv[2:]))
print(flush=True)
sys.stdin.read()
"""


class AgentsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.state = self.top / 'state'
        (self.state / 'leases').mkdir(parents=True)
        self.lock = self.state / 'lock'
        self.proc = self.top / 'proc'
        self.proc.mkdir()

    def hold(self, path: pathlib.Path) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.addCleanup(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def look(self, pid: int = 0, owner: int = 0
             ) -> list[state_directory.Agent]:
        """Of one process, with a device that is not that of its files, as
        the kernel lists those on btrfs."""
        pid = pid or os.getpid()
        (self.proc / 'locks').write_text(
            f'1: FLOCK  ADVISORY  WRITE {pid} 00:ff:1 0 EOF\n')
        if not (self.proc / str(pid)).is_symlink():
            (self.proc / str(pid)).symlink_to(f'/proc/{pid}')
        return state_directory.agents(str(self.proc), owner)

    def of(self, pid: int) -> list[state_directory.Agent]:
        return [state_directory.Agent(pid, str(self.state), str(self.state))]

    def test_a_file_system_with_devices_of_its_own(self) -> None:
        self.hold(self.lock)
        self.assertEqual(self.of(os.getpid()), self.look())

    def test_other_files(self) -> None:
        self.hold(self.top / 'another')
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT)
        self.addCleanup(os.close, fd)
        self.assertEqual([], self.look())       # open, and not locked
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.assertEqual(self.of(os.getpid()), self.look())
        os.write(fd, b'7 restorer\n')
        self.assertEqual([], self.look())
        os.truncate(self.lock, 0)
        (self.state / 'leases').rmdir()
        self.assertEqual([], self.look())

    def test_it_never_waits(self) -> None:
        """For a FIFO that only its maker writes to."""
        os.mkfifo(self.lock)
        fifo = self.hold(self.lock)
        self.addCleanup(os.write, fifo, b'\n' * 99)
        found: list[list[state_directory.Agent]] = []
        thread = threading.Thread(
            target=lambda: found.append(self.look()), daemon=True)
        thread.start()
        thread.join(20)
        self.assertEqual([[]], found)

    def holder(self, users: tuple[int, int, int], *before: str) -> int:
        """Another process, with its real, effective and saved user ids."""
        self.lock.touch()
        process = subprocess.Popen(
            [*before, sys.executable, '-c', HOLD, str(self.lock),
             *map(str, users)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    def test_other_users(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root, to become another user')
        pid = self.holder((NOBODY, NOBODY, NOBODY))
        self.assertEqual([], self.look(pid))
        self.assertEqual(self.of(pid), self.look(pid, NOBODY))

    def test_programs_that_any_user_starts_as_root(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root, to become another user')
        self.assertEqual([], self.look(self.holder((NOBODY, 0, 0))))

    def test_a_directory_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root, to give a directory away')
        self.hold(self.lock)
        os.chown(self.state, NOBODY, NOBODY)
        self.assertEqual([], self.look())

    def test_another_user_that_may_limit(self) -> None:
        if os.geteuid() != 0 or not shutil.which('setpriv'):
            self.skipTest('needs root, and setpriv (package util-linux)')
        pid = self.holder(
            (NOBODY, NOBODY, NOBODY), 'setpriv', f'--reuid={NOBODY}',
            '--clear-groups', '--inh-caps=+dac_override',
            '--ambient-caps=+dac_override')
        self.assertEqual(self.of(pid), self.look(pid))


class StateDirTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('needs root, to give files away')
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = self.top / 'state'
        self.path.mkdir(mode=0o700)
        os.chown(self.path, NOBODY, NOBODY)
        self.state = state_directory.StateDir(str(self.path))
        self.addCleanup(self.state.close)

    def test_whose_its_locks_are(self) -> None:
        """Those that root makes are the agent's; one that is there stays."""
        self.state.open()
        for user in (NOBODY, 0):
            fd = self.state.take('lock')
            os.close(fd)
            self.assertEqual(user, (self.path / 'lock').stat().st_uid)
            os.chown(self.path / 'lock', 0, 0)

    def test_directories_above_it(self) -> None:
        """Of root, of us, and of no other user however far up."""
        path = self.path / 'a' / 'b' / 'state'
        path.mkdir(mode=0o700, parents=True)
        state = state_directory.StateDir(str(path))
        self.addCleanup(state.close)
        with testtools.ExpectedException(
                OSError, f'{self.path} belongs to user {NOBODY}, .*'):
            state.open()
        os.chown(self.path, 0, 0)
        self.assertTrue(state.open())
        os.chown(path, NOBODY, NOBODY)      # the agent's own
        self.assertTrue(state.open())
