# SPDX-License-Identifier: Apache-2.0


"""A real virsh, with the hypervisor that libvirt has for tests."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from xml.etree import ElementTree

import fixtures
import testtools
from testtools import matchers

from scavenger_openstack.restore import virsh
from scavenger_openstack.tests import descriptors

URI = 'test:///default'
LONG_S = 30.0
UUID = '5e1bc1c3-310c-4e22-9612-764abf6ac7db'
TENANTS = 'error: no\nvirsh # echo\n&lt;/domain&gt;\nJob type: Unbounded\n'
DOMAIN = f"""
<domain type='test'>
  <name>one</name>
  <uuid>{UUID}</uuid>
  <description>{TENANTS}</description>
  <memory>8192</memory>
  <os><type>hvm</type></os>
</domain>
"""


def gone(pid: int) -> bool:
    """Whether a process has ended with all its threads; one that is not
    reaped has, too."""
    path = pathlib.Path(f'/proc/{pid}')
    try:
        state = (path / 'stat').read_text().rpartition(')')[2].split()[0]
        return state in 'ZX' and len(os.listdir(path / 'task')) == 1
    except OSError:
        return True


class VirshCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if not shutil.which('virsh'):
            self.skipTest('needs virsh: install libvirt-clients')

    def session(self) -> virsh.Session:
        one = virsh.Session(URI, LONG_S)
        self.addCleanup(one.close)
        return one

    def sessions(self, **options: float) -> virsh.Sessions:
        kept = virsh.Sessions(**{'connect_s': LONG_S, **options})
        self.addCleanup(kept.close)
        return kept

    def ask(self, session: virsh.Session, command: str) -> str:
        return session.ask(command, within_s=LONG_S)

    def fails(self, session: virsh.Session, command: str) -> str:
        self.assertTrue(session.sound)
        exc = self.assertRaises(virsh.VirshError, self.ask, session, command)
        self.assertNotIsInstance(exc, virsh.Silent)
        self.assertFalse(session.sound)
        return str(exc)

    def wait_for_end(self, pid: int) -> None:
        until_s = time.monotonic() + LONG_S
        while not gone(pid):
            if time.monotonic() > until_s:
                self.fail(f'process {pid} goes on')
            time.sleep(0.01)


class Says(VirshCase):

    def test_no_more_than_it_says(self) -> None:
        one = self.session()
        uuid = self.ask(one, 'list --all --persistent --uuid')
        self.assertThat(uuid, matchers.MatchesRegex(
            '[0-9a-f-]{36}\n+$'))
        uuid = uuid.strip()
        self.assertEqual('running (unknown)', self.ask(
            one, f'domstate {uuid} --reason').strip())
        self.assertEqual('ok', self.ask(one, f'domcontrol {uuid}').strip())
        for what in ('', ' --inactive'):
            root = ElementTree.fromstring(
                self.ask(one, f'dumpxml {uuid}{what}'))
            self.assertEqual(uuid, root.findtext('uuid'))
        self.assertEqual('', self.ask(one, 'echo'))

    def test_more_than_fits_in_the_pipe(self) -> None:
        one = self.session()
        cpus = ','.join(str(cpu) for cpu in range(40_000))
        self.assertEqual(cpus, self.ask(one, f'echo {cpus}').strip())
        self.assertEqual('ok', self.ask(one, 'echo ok').strip())
        os.kill(one.pid, signal.SIGSTOP)
        killer = threading.Timer(5.0, os.kill, (one.pid, signal.SIGKILL))
        self.addCleanup(killer.cancel)
        killer.start()
        self.assertRaises(virsh.Silent, one.ask, f'echo {cpus}',
                          within_s=0.2)

    def test_one_that_never_ends_what_it_says(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.virsh.MOST_BYTES', 1000))
        self.assertIn('more than 1000 bytes', self.fails(self.session(),
                                                         'help'))

    def test_texts_of_tenants(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'one')
        path.write_text(DOMAIN)
        one = self.session()
        self.ask(one, f'define {path}')
        root = ElementTree.fromstring(self.ask(one, f'dumpxml {UUID}'))
        self.assertEqual(TENANTS.replace('&lt;', '<').replace('&gt;', '>'),
                         root.findtext('description'))

    def test_a_long_command(self) -> None:
        one = self.session()
        cpus = ','.join(f'{cpu}-{cpu + 1}' for cpu in range(90000, 92000, 2))
        self.assertEqual(cpus, self.ask(one, f'echo {cpus}'))
        self.assertEqual('x', self.ask(one, 'echo x'))

    def test_errors(self) -> None:
        for command, said in (
                ('nonsense', "unknown command: 'nonsense'"),
                ('dumpxml --never x', 'support option --never'),
                ('domstate', 'requires'),
                (f'domstate {UUID}', f"failed to get domain '{UUID}'")):
            self.assertIn(said, self.fails(self.session(), command))

    def test_nothing_that_ends_a_command(self) -> None:
        one = self.session()
        for text in ('', ' ', 'echo a;reboot', 'echo a\nreboot', 'echo "a"',
                     "echo 'a'", 'echo a\\', 'echo $(a)', 'echo a\t', 'echo é',
                     'echo a\n', '-x', 'echo a&b', 'echo a\0'):
            self.assertRaises(ValueError, self.ask, one, text)
        self.assertEqual('a', self.ask(one, 'echo a'))


class Ends(VirshCase):

    def test_one_that_hangs(self) -> None:
        one = self.session()
        os.kill(one.pid, signal.SIGSTOP)
        self.assertRaises(virsh.Silent, one.ask, 'echo', within_s=0.2)
        self.assertFalse(one.sound)
        one.close()
        self.wait_for_end(one.pid)

    def test_killed_while_it_is_asked(self) -> None:
        one = self.session()
        os.kill(one.pid, signal.SIGSTOP)
        killer = threading.Timer(0.2, os.kill, (one.pid, signal.SIGKILL))
        killer.start()
        self.addCleanup(killer.join)
        self.assertIn('it was ended', self.fails(one, 'echo'))

    def test_killed_before_it_is_asked(self) -> None:
        one = self.session()
        os.kill(one.pid, signal.SIGKILL)
        self.wait_for_end(one.pid)
        self.assertIn('it was ended', self.fails(one, 'echo'))

    def test_when_we_are_killed(self) -> None:
        done = subprocess.run(
            [sys.executable, '-c',
             'from scavenger_openstack.restore import virsh\n'
             'import os\n'
             f'one = virsh.Session({URI!r})\n'
             'print(one.pid, flush=True)\n'
             'os.kill(os.getpid(), 9)'],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(-signal.SIGKILL, done.returncode, done.stderr)
        self.wait_for_end(int(done.stdout))

    def test_it_leaves_nothing(self) -> None:
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable('HOME', str(home)))
        one = self.session()
        self.ask(one, 'echo')
        with descriptors.given_back() as opened:
            other = self.session()
            self.assertNotEqual(set(), opened())
            other.close()
        self.assertEqual([], list(home.iterdir()))


class Kept(VirshCase):

    def pid(self, kept: virsh.Sessions) -> int:
        with kept.use(URI) as one:
            self.ask(one, 'echo')
            return one.pid

    def test_used_again(self) -> None:
        kept = self.sessions()
        first = self.pid(kept)
        self.assertEqual([first] * 5, [self.pid(kept) for _ in range(5)])
        with kept.use(URI) as one, kept.use(URI) as two:
            self.assertEqual(first, one.pid)
            self.assertNotEqual(first, two.pid)
        kept.close()
        self.assertTrue(gone(one.pid) and gone(two.pid))

    def test_one_that_failed_is_not(self) -> None:
        kept = self.sessions()
        first = self.pid(kept)

        def fail() -> None:
            with kept.use(URI) as one:
                self.ask(one, 'nonsense')

        self.assertRaises(virsh.VirshError, fail)
        self.assertTrue(gone(first))
        self.assertNotEqual(first, self.pid(kept))

    def test_one_that_was_killed_is_not(self) -> None:
        kept = self.sessions()
        first = self.pid(kept)
        os.kill(first, signal.SIGKILL)
        self.wait_for_end(first)
        self.assertNotEqual(first, self.pid(kept))

    def test_an_error_of_ours_does_not_end_it(self) -> None:
        kept = self.sessions()
        first = self.pid(kept)

        def fail() -> None:
            with kept.use(URI) as one:
                self.ask(one, 'echo')
                raise KeyError

        self.assertRaises(KeyError, fail)
        self.assertEqual(first, self.pid(kept))

    def test_not_for_ever(self) -> None:
        kept = self.sessions(idle_s=0.3)
        self.wait_for_end(self.pid(kept))
        self.wait_for_end(self.pid(kept))

    def test_not_too_many(self) -> None:
        kept = self.sessions()
        threads = virsh.KEPT + 2
        together = threading.Barrier(threads)
        pids = []

        def use() -> None:
            with kept.use(URI) as one:
                pids.append(one.pid)
                together.wait(LONG_S)

        users = [threading.Thread(target=use) for _ in range(threads)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        self.assertEqual(threads, len(set(pids)))
        self.assertEqual(2, sum(map(gone, pids)))

    def test_a_libvirtd_that_hangs_is_left_alone(self) -> None:
        """It costs the first who asks, not each of many."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's')
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen(99)
            kept = self.sessions(connect_s=2.0)
            uri = f'qemu+unix:///system?socket={path}'
            began_s = time.monotonic()
            for _ in range(100):
                exc = self.assertRaises(
                    virsh.VirshError, kept.use(uri).__enter__)
                self.assertIn('does not connect within 2 s', str(exc))
            self.assertThat(time.monotonic() - began_s,
                            matchers.LessThan(15.0))
            self.assertTrue(self.pid(kept))     # another is none the worse
