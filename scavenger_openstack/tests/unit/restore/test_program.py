# SPDX-License-Identifier: Apache-2.0


"""The program on a state directory, once and as a watcher."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import fcntl
import functools
import io
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import program
from scavenger_openstack.restore import records
from scavenger_openstack.restore import state_directory
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.restore.sample_leases import lease
from scavenger_openstack.tests.unit.restore.sample_leases import TC
from scavenger_openstack.tests.unit.restore.sample_leases import WRITE
from scavenger_openstack import version

PARENT = '''
import os, subprocess, sys, time
watcher = subprocess.Popen(
    [sys.executable, '-m', 'scavenger_openstack.restore.program', '--watch',
     '--with-parent', str(os.getpid()), '--state-dir', sys.argv[1]],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.path.exists(sys.argv[1] + '/watcher'):
    time.sleep(0.01)
print(watcher.pid)
'''
"""Ends once the watcher that it started turns."""


class StateDirectory(testtools.TestCase):
    """The program on a state directory, without root."""

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        (self.path / 'leases').mkdir(parents=True, mode=0o700)
        self.path.chmod(0o700)
        mounts = cgroup.mounts()
        self.mount = mounts[0][0] if mounts else None

    def put(self, name: str, lease_: records.Lease) -> pathlib.Path:
        path = self.path / 'leases' / name
        path.write_bytes(records.dump(lease_))
        path.chmod(0o600)
        return path

    def gone(self) -> dict[str, Any]:
        """A step whose cgroup is no longer there."""
        if self.mount is None:
            self.skipTest('no cgroup is mounted')
        return {**WRITE, 'dir': f'{self.mount}/scv-no-such-group',
                'file': 'cpuset.cpus', 'text': '0'}

    def run_main(self, *args: str) -> tuple[int, str]:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = program.main(['--state-dir', str(self.path), *args])
        return code, errors.getvalue()

    def beat(self, text: object) -> None:
        if isinstance(text, float):
            text = json.dumps({'boot_id': records.boot_id(), 'pid': 1,
                               'expires_s': text}).ljust(127) + '\n'
        (self.path / 'heartbeat').write_text(str(text))

    def test_usage(self) -> None:
        for words, what in (
                (('--all', '--watch'), '--watch: not allowed with'),
                (('--with-parent', '1'), '--with-parent goes with --watch'),
                (('--wibble',), 'unrecognized arguments: --wibble')):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                exit_ = self.assertRaises(SystemExit, program.main, words)
            self.assertEqual((2, 1), (exit_.code,
                                      said.getvalue().count('\n')))
            self.assertIn(what, said.getvalue())
            self.assertIn('see scavenger-restore --help', said.getvalue())

    def test_version(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exit_ = self.assertRaises(SystemExit, program.main,
                                      ['--version'])
        self.assertEqual((0, f'scavenger-restore {version()}\n'),
                         (exit_.code or 0, said.getvalue()))

    def test_nothing_there(self) -> None:
        self.assertEqual((0, ''), self.run_main('--all'))
        (self.path / 'leases').rmdir()
        self.assertEqual((0, ''), self.run_main())
        shutil.rmtree(self.path)
        self.assertEqual((0, ''), self.run_main('--all'))

    def test_others_may_write_the_directory(self) -> None:
        path = self.put('a.json', lease(self.gone()))
        self.path.chmod(0o770)
        code, text = self.run_main('--all')
        self.assertEqual(1, code)
        self.assertIn('chmod 700', text)
        self.assertTrue(path.exists())

    def test_bad_leases_are_refused_one_by_one(self) -> None:
        """Each gives one line, once, and stops no other."""
        good = self.put('e.json', lease(self.gone()))
        stale = self.put('d.json', lease(WRITE, boot_id='another'))
        bad = [self.put('a.json', lease({**WRITE, 'dir': '/etc'})),
               self.put('b.json', lease(TC, {**TC, 'dev': 'x;reboot'})),
               self.path / 'leases' / 'c.json']
        bad[2].write_text('garbage')
        (self.path / 'leases' / 'f.tmp').write_text('half a lea')
        code, text = self.run_main('--all')
        self.assertEqual(1, code)
        for path in bad:
            self.assertEqual(1, text.count(path.name), text)
            self.assertFalse(path.exists())
            self.assertTrue(path.with_suffix('.json.refused').exists())
        self.assertIn("'/etc' is not below a cgroup mount", text)
        self.assertIn("dev 'x;reboot' is not allowed", text)
        self.assertIn('stale lease of another boot', text)
        self.assertIn('no longer there', text)
        self.assertIn('/leases: 3; ', text)
        self.assertEqual(7, len(text.splitlines()), text)
        self.assertFalse(good.exists() or stale.exists())
        self.assertFalse((self.path / 'leases' / 'f.tmp').exists())
        code, text = self.run_main('--all')
        self.assertEqual(1, code)
        self.assertIn('/leases: 3; ', text)
        self.assertIn('records refused', text)
        for path in bad:
            path.with_suffix('.json.refused').unlink()
        self.assertEqual((0, ''), self.run_main('--all'))

    def test_a_mount_that_is_missing(self) -> None:
        """The lease stays, with its name, for as long as that lasts."""
        path = self.put('a.json', lease({**WRITE, 'dir': '/cg/cpu/batch/a'}))
        good = self.put('b.json', lease(self.gone()))
        with fixtures.MonkeyPatch(
                'scavenger_openstack.restore.program.RETRIES', 2):
            code, text = self.run_main('--all')
        self.assertEqual(1, code)
        self.assertIn('below no cgroup mount now', text)
        self.assertTrue(path.exists())
        self.assertFalse(good.exists())

    def test_out_of_descriptors(self) -> None:
        """What cannot be read now is no lease to refuse."""
        path = self.put('a.json', lease(self.gone()))
        code = textwrap.dedent(f"""
            import os, resource
            from scavenger_openstack.restore import records
            here = os.open({str(path.parent)!r}, os.O_RDONLY)
            resource.setrlimit(resource.RLIMIT_NOFILE, (here + 1, here + 1))
            try:
                records.load(here, 'a.json', {{os.geteuid()}})
            except OSError as exc:
                print(exc.strerror)
            """)
        said = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, check=True).stdout
        self.assertEqual('Too many open files\n', said)

    def test_systemd_is_not_told_without_descriptors(self) -> None:
        """That must not end the watcher's pass."""
        code = textwrap.dedent(f"""
            import os, resource, socket
            from scavenger_openstack.restore import messages as say
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
                ear.bind({str(self.path / 'notify')!r})
                os.environ['NOTIFY_SOCKET'] = ear.getsockname()
                say.notify(b'READY=1')
                print(ear.recv(99))
                last = os.open('.', os.O_RDONLY)
                resource.setrlimit(resource.RLIMIT_NOFILE, (last, last))
                say.notify(b'WATCHDOG=1')
                print('goes on')
            """)
        said = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, check=True).stdout
        self.assertEqual("b'READY=1'\ngoes on\n", said)

    def test_only_what_has_run_out(self) -> None:
        path = self.put('a.json', lease(self.gone()))
        self.beat(records.now_s() + 60)
        code, text = self.run_main()
        self.assertEqual(1, code)
        self.assertIn('limits in force: 1, no agent runs', text)
        self.assertIn('scavenger-restore --all restores them now', text)
        self.assertTrue(path.exists())
        self.beat(records.now_s() - 0.001)
        self.assertEqual(0, self.run_main()[0])
        self.assertFalse(path.exists())

    def test_stop_file_is_an_order_to_restore(self) -> None:
        path = self.put('a.json', lease(self.gone()))
        self.beat(records.now_s() + 60)
        (self.path / 'stop').touch()
        self.assertIn('stop file', self.run_main()[1])
        self.assertFalse(path.exists())

    def test_a_living_agent(self) -> None:
        """Its leases are never deleted, and --all needs the stop file."""
        path = self.put('a.json', lease(self.gone()))
        bad = self.put('b.json', lease(boot_id='another'))
        with open(self.path / 'lock', 'w') as lock:
            lock.write('4242\n')
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.beat(records.now_s() + 60)
            code, text = self.run_main('--all')
            self.assertEqual(1, code)
            self.assertIn('agent 4242 is running', text)
            code, text = self.run_main()
            self.assertEqual(1, code)
            self.assertIn('limits in force: 2, held by agent 4242', text)
            self.assertIn('scavenger-agent stop-all', text)
            for prepare in (lambda: (self.path / 'stop').touch(),
                            lambda: self.beat(records.now_s() - 1)):
                prepare()
                self.assertEqual(0, self.run_main()[0])
                self.assertEqual(0, self.run_main('--all')[0])
                self.assertTrue(path.exists() and bad.exists())
        self.assertEqual(0, self.run_main('--all')[0])
        self.assertFalse(path.exists() or bad.exists())

    def test_another_restorer(self) -> None:
        """It is waited for, and not taken for an agent."""
        path = self.put('a.json', lease(self.gone()))
        with open(self.path / 'lock', 'w') as lock:
            lock.write('4242 restorer\n')
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            ends = threading.Timer(0.3, fcntl.flock, (lock, fcntl.LOCK_UN))
            ends.start()
            self.assertEqual(0, self.run_main('--all')[0])
            ends.join()
            self.assertFalse(path.exists())
            self.put('a.json', lease(self.gone()))
            self.beat(records.now_s() + 60)
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.patch(program, 'BUSY_TRIES', 2)
            self.patch(program, 'RETRIES', 2)
            for words in ((), ('--all',)):
                code, text = self.run_main(*words)
                self.assertEqual(1, code)
                self.assertIn('such as another scavenger-restore', text)
                self.assertNotIn('held by', text)
                self.assertNotIn('is running', text)
            fcntl.flock(lock, fcntl.LOCK_UN)
        self.assertEqual(0, self.run_main('--all')[0])

    def test_a_parent_that_was_gone_before_it_began(self) -> None:
        gone = subprocess.Popen(['true'])
        gone.wait()
        subprocess.run(
            [sys.executable, '-m', 'scavenger_openstack.restore.program',
             '--watch', '--with-parent', str(gone.pid), '--state-dir',
             str(self.path)], check=True, timeout=30,
            stdin=subprocess.DEVNULL)

    def test_a_parent_is_gone_and_its_lock_is_not_free_yet(self) -> None:
        """A killed process lets go of it a moment after its children have
        another parent."""
        path = self.put('a.json', lease(self.gone()))
        self.beat(records.now_s() + 60)
        with open(self.path / 'lock', 'w') as lock:
            lock.write(f'{os.getpid()}\n')
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = subprocess.run(
                [sys.executable, '-c', PARENT, str(self.path)], check=True,
                capture_output=True, text=True, timeout=60)
            watcher = os.pidfd_open(int(done.stdout))
            self.addCleanup(os.close, watcher)
            try:
                self.assertEqual([], select.select([watcher], [], [], 1)[0])
                self.assertTrue(path.exists())
                fcntl.flock(lock, fcntl.LOCK_UN)
                self.assertEqual([watcher],
                                 select.select([watcher], [], [], 30)[0])
            finally:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(watcher, signal.SIGKILL)
        self.assertFalse(path.exists())

    def test_an_agent_that_goes_on(self) -> None:
        """What is not restored by then is left to it."""
        for name in 'abc':
            self.put(f'{name}.json', lease(self.gone(), workload=name))
        state = state_directory.StateDir(str(self.path))
        self.addCleanup(state.close)
        stop = self.path / 'stop'
        said: list[str] = []
        with open(self.path / 'lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for begin, go_on in (
                    (lambda: self.beat(records.now_s() - 1),
                     lambda: self.beat(records.now_s() + 60)),
                    (stop.touch, stop.unlink)):
                begin()
                said.clear()
                self.assertEqual([], program.restore_due(
                    state, str(stop), messages.Say(said.append),
                    progress=go_on))
                self.assertEqual(2, len(said), str(said))
                self.assertIn('cpu_cores of a: nothing to restore', said[1])

    def test_a_heartbeat_that_is_renewed_while_it_is_read(self) -> None:
        state = state_directory.StateDir(str(self.path))
        self.addCleanup(state.close)
        state.open()
        self.beat(records.now_s() + 0.1)
        read = os.read

        def slow(fd: int, size: int) -> bytes:
            data = read(fd, size)
            time.sleep(0.2)
            return data

        with fixtures.MonkeyPatch('os.read', slow):
            self.assertFalse(state.expired())
        self.assertTrue(state.expired())

    def test_heartbeat(self) -> None:
        state = state_directory.StateDir(str(self.path))
        self.addCleanup(state.close)
        state.open()
        self.assertTrue(state.expired())
        now = records.now_s()
        self.beat(now + 10)
        self.assertFalse(state.expired())
        self.assertEqual(now + 10, state.expires_s)
        self.beat(now)
        self.assertTrue(state.expired())
        other = json.dumps({'boot_id': 'another', 'expires_s': now + 10})
        self.beat(other)
        self.assertTrue(state.expired())
        for garbage in ('', '{}', '[]', 'nonsense', '\0' * 128,
                        other[:20], other.replace('another', 'x')
                        .replace(str(now + 10), '"x"'),
                        json.dumps({'boot_id': records.boot_id(),
                                    'expires_s': now + 1e6}),
                        json.dumps({'boot_id': records.boot_id(),
                                    'expires_s': float('nan')})):
            self.beat(garbage)
            self.assertEqual([False, False, True, True],
                             [state.expired() for _ in range(4)], garbage)
            self.beat(now + 10)
            self.assertFalse(state.expired())

    def test_directory_made_again(self) -> None:
        state = state_directory.StateDir(str(self.path))
        self.addCleanup(state.close)
        self.assertTrue(state.open())
        self.path.rename(self.path.with_name('old'))
        self.assertFalse(state.open())
        self.path.mkdir(mode=0o700)
        self.assertTrue(state.open())
        self.assertEqual(self.path.stat().st_ino, os.fstat(state.fd).st_ino)


class Signals(testtools.TestCase):
    """To a watcher that turns."""

    def setUp(self) -> None:
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.state, self.said = top / 'state', top / 'said'
        self.state.mkdir(mode=0o700)
        self.command = [sys.executable, '-m', program.__name__, '--watch',
                        '--state-dir', str(self.state)]

    def start(self, **more: Any) -> subprocess.Popen[bytes]:
        with self.said.open('wb') as stderr:
            found = subprocess.Popen(self.command, stdin=subprocess.DEVNULL,
                                     stderr=stderr, **more)
        self.addCleanup(found.wait)
        self.addCleanup(found.kill)
        self.until('it turns', self.beats)
        return found

    def beats(self) -> bytes:
        try:
            return (self.state / 'watcher').read_bytes()
        except FileNotFoundError:
            return b''

    def until(self, what: str, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def wrote(self, times: int) -> bool:
        return self.said.read_text().count('in watch') == times

    def check_it_turns(self) -> None:
        before = self.beats()
        self.until('it turns on', lambda: self.beats() != before)

    def test_stacks_and_nothing_to_read_again(self) -> None:
        watcher = self.start()
        for times in (1, 2):
            watcher.send_signal(signal.SIGUSR2)
            self.until('stacks', functools.partial(self.wrote, times))
            watcher.send_signal(signal.SIGHUP)
            self.check_it_turns()
        watcher.send_signal(signal.SIGTERM)
        self.assertEqual(0, watcher.wait(30))

    def test_stacks_that_cannot_be_written(self) -> None:
        """Standard error is closed."""
        watcher = self.start(preexec_fn=functools.partial(os.close, 2))
        watcher.send_signal(signal.SIGUSR2)
        self.check_it_turns()
        watcher.send_signal(signal.SIGTERM)
        self.assertEqual(0, watcher.wait(30))

    def test_a_terminal_that_is_closed(self) -> None:
        pid, terminal = pty.fork()
        if not pid:
            try:    # nohup and some runners have it ignored
                signal.signal(signal.SIGHUP, signal.SIG_DFL)
                os.execv(self.command[0], self.command)
            finally:
                os._exit(127)
        self.addCleanup(self.end, pid)
        self.until('it turns', self.beats)
        os.close(terminal)      # the kernel sends SIGHUP
        self.until('it ends', lambda: os.waitid(
            os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))

    def end(self, pid: int) -> None:
        """It ended by itself, and well."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)    # one that has ended stays so
        self.assertEqual(0, os.waitstatus_to_exitcode(
            os.waitpid(pid, 0)[1]))


class Watch(testtools.TestCase):

    @tiers.only_in_all('a figure under load')
    def test_leases_that_have_to_stay(self) -> None:
        """An agent that hangs keeps them; the watcher looks at them again and
        again, and rests in between."""
        count, seconds = 4000, 4.0
        state = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's')
        (state / 'leases').mkdir(parents=True, mode=0o700)
        state.chmod(0o700)
        mounts = cgroup.mounts()
        if not mounts:
            self.skipTest('needs a cgroup tree: mount one')
        for number in range(count):
            found = lease({**WRITE, 'file': 'cpu.idle', 'text': '0',
                           'dir': f'{mounts[0][0]}/scv-none/{number}'},
                          name=f'{number:032}.json')
            path = state / 'leases' / found.name
            path.write_bytes(records.dump(found))
            path.chmod(0o600)
        with open(state / 'lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(f'{os.getpid()}\n')
            lock.flush()
            watcher = subprocess.Popen(
                [sys.executable, '-m', program.__name__, '--watch',
                 '--state-dir', str(state)], stderr=subprocess.PIPE)
            self.addCleanup(watcher.communicate)
            self.addCleanup(watcher.kill)
            assert watcher.stderr is not None
            for line in watcher.stderr:
                count -= b'nothing to restore' in line
                if not count:
                    break
            clock = ~watcher.pid << 3 | 2   # clock_getcpuclockid(3)
            before_s = time.clock_gettime(clock)
            time.sleep(seconds)
            share = (time.clock_gettime(clock) - before_s) / seconds
        self.assertLess(share, 0.3)
