# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pathlib
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

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import program
from scavenger_openstack.restore import records
from scavenger_openstack.restore import state_directory
from scavenger_openstack import version

MOUNTS = [('/cg/cpu', 'cgroup', 1), ('/cg/two', 'cgroup2', 2)]
WRITE = {'do': 'write', 'dir': '/cg/cpu/batch/a', 'inode': 7,
         'file': 'cpu.cfs_quota_us', 'text': '-1'}
LIMIT = {**WRITE, 'file': 'blkio.throttle.read_bps_device', 'text': '0',
         'device': '8:0'}
IO_MAX = {**WRITE, 'dir': '/cg/two/a', 'file': 'io.max', 'device': '8:0',
          'text': 'rbps=max wbps=1048576 riops=max wiops=max'}
TC = {'do': 'tc', 'netns': '', 'dev': 'tap0', 'ifindex': 5}
PARENT = '''
import os, subprocess, sys, time
watcher = subprocess.Popen(
    [sys.executable, '-m', 'scavenger_openstack.restore.program', '--watch',
     '--with-parent', '--state-dir', sys.argv[1]],
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while not os.path.exists(sys.argv[1] + '/watcher'):
    time.sleep(0.01)
print(watcher.pid)
'''
"""Ends once the watcher that it started turns."""


def lease(*steps_: dict[str, Any], **changes: Any) -> records.Lease:
    fields = {'workload': '/batch/a', 'knob': 'cpu_cores',
              'boot_id': records.boot_id(),
              'actions': list(steps_ or (WRITE,)),
              'name': '0' * 32 + '.json', **changes}
    return records.Lease(**fields)


class Steps(testtools.TestCase):
    """What a lease may hold, and what not."""

    def test_allowed(self) -> None:
        for step in (
                WRITE, LIMIT, IO_MAX, TC, {**TC, 'netns': 'ns-1.x'},
                {**WRITE, 'file': 'cpuset.cpus', 'text': '0-1,4'},
                {**WRITE, 'file': 'cpuset.cpus', 'text': ''},
                {**WRITE, 'file': 'freezer.state', 'text': 'THAWED'},
                {**WRITE, 'dir': '/cg/two/a', 'file': 'cpu.max',
                 'text': 'max 100000'}):
            actions.validate(step, MOUNTS)

    def test_refused(self) -> None:
        for wrong in (
                {'dir': '/cg/cpu'}, {'dir': '/cg/cpu/'}, {'dir': '/etc'},
                {'dir': '/cg/cpu/../../etc'},
                {'dir': '/cg/cpu/a/..'}, {'dir': '/cg/cpu/./a'},
                {'dir': '/cg/cpu//a'}, {'dir': '/cg/cpu/a/'},
                {'dir': 'cg/cpu/a'}, {'dir': '/cg/cpu/a\0b'},
                {'dir': '/cg/cpu/a\nb'}, {'dir': None}, {'dir': ['/cg/cpu']},
                {'file': 'cgroup.procs'}, {'file': 'tasks'}, {'file': ''},
                {'file': '../cpu.shares'}, {'file': 'a/cpu.shares'},
                {'file': 'release_agent'}, {'file': 'notify_on_release'},
                {'file': 'cpu.max'},                # v2, in a v1 tree
                {'file': 'cpu.shares\n'}, {'file': None},
                {'text': '-2'}, {'text': '-1\n'}, {'text': ''},
                {'text': '0x10'}, {'text': '1 1'}, {'text': '١'},
                {'text': -1}, {'text': None},
                {'file': 'freezer.state', 'text': 'FREEZING'},
                {'file': 'cpuset.cpus', 'text': '0-'},
                {'inode': 0}, {'inode': '7'}, {'inode': True},
                {'inode': None}, {'device': '8:0'}, {'more': 1},
                {'do': 'exec'}, {'do': None}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**WRITE, **wrong}, MOUNTS)
        for wrong in ({'device': '8:0 1'}, {'device': ''}, {'device': None},
                      {'device': '8'}, {'text': '0 0'}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**LIMIT, **wrong}, MOUNTS)
        for text in ('rbps=max;', 'rbps=-1', 'max', 'bps=1', ''):
            self.assertRaises(actions.Refused, actions.validate,
                              {**IO_MAX, 'text': text}, MOUNTS)
        for wrong in ({'dev': 'a;reboot'}, {'dev': '$(id)'}, {'dev': '-b'},
                      {'dev': 'a b'}, {'dev': '../a'}, {'dev': ''},
                      {'dev': 'a' * 16}, {'dev': 'a\n'}, {'dev': None},
                      {'netns': '/proc/1/ns/net'}, {'netns': '..'},
                      {'netns': '-a'}, {'netns': 'a;b'}, {'netns': None},
                      {'ifindex': 0}, {'ifindex': '5'}, {'argv': ['sh']}):
            self.assertRaises(actions.Refused, actions.validate,
                              {**TC, **wrong}, MOUNTS)
        nothings: list[Any] = [None, 1, 'write', [], {}, [WRITE]]
        for nothing in nothings:
            self.assertRaises(actions.Refused, actions.validate, nothing,
                              MOUNTS)

    def test_a_mount_that_is_missing_is_no_reason_to_refuse(self) -> None:
        """It may come back; until then there is nothing to write."""
        for path in ('/cg/cpux/a', '/cg/memory/batch/a', '/cg/a'):
            step = {**WRITE, 'dir': path}
            actions.validate(step, MOUNTS)
            for mounts in (MOUNTS, []):
                self.assertIn('below no cgroup mount now', str(
                    self.assertRaises(actions.RestoreError, actions.run, step,
                                      mounts)))

    def test_same(self) -> None:
        for changes, got, expected in (
                ({}, '-1', True), ({}, '100000', False),
                ({'file': 'cpuset.cpus', 'text': '0,1,2'}, '0-2', True),
                ({'file': 'cpuset.cpus', 'text': '0-2'}, '0-1', False),
                ({'file': 'memory.limit_in_bytes', 'text': '-1'},
                 '9223372036854771712', True),
                ({'file': 'memory.limit_in_bytes', 'text': '1048577'},
                 '1048576', True),
                ({'file': 'memory.limit_in_bytes', 'text': '1048576'},
                 '1052672', False),
                ({'file': 'memory.max', 'text': 'max'}, 'max', True),
                ({'file': 'memory.max', 'text': 'max'}, '4096', False),
                ({'file': 'memory.max', 'text': '4096'}, 'max', False),
                (LIMIT, '', True), (LIMIT, '8:16 5', True),
                (LIMIT, '8:16 5\n8:0 7', False),
                ({**LIMIT, 'text': '7'}, '8:0 7', True),
                (IO_MAX, '8:0 rbps=max wbps=1048576 riops=max wiops=max',
                 True),
                (IO_MAX, '8:0 rbps=1 wbps=1048576 riops=max wiops=max',
                 False),
                ({**IO_MAX, 'text': 'rbps=max'}, '', True)):
            self.assertEqual(
                expected, cgroup.same({**WRITE, **changes}, got),
                f'{changes} {got}')


class Files(testtools.TestCase):
    """Lease files that are sound, and those that are not."""

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.dir = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, self.dir)

    def load(self, name: str = 'a.json') -> records.Lease:
        return records.load(self.dir, name, {os.geteuid()})

    def refused(self, *args: Any, **kwargs: Any) -> str:
        return str(self.assertRaises(actions.Refused, *args, **kwargs))

    def test_round_trip_and_note(self) -> None:
        before = lease(WRITE, TC, original='0-1', created_s=1.5, pid=9)
        (self.path / 'a.json').write_bytes(records.dump(before))
        before.name = 'a.json'
        self.assertEqual(before, self.load())
        size = (self.path / 'a.json').stat().st_size
        for cpus in ('0-1,5', '3'):
            records.remember(before, 1, self.dir, cpus)
            after = self.load()
            self.assertEqual((1, cpus), after.note)
            self.assertEqual(before, after)
        self.assertEqual(size, (self.path / 'a.json').stat().st_size)

    def test_a_torn_note_harms_nothing(self) -> None:
        data = records.dump(lease())
        for note in (b'0 0-', b'\xff\xff', b'{"', b'0'):
            torn = data[:-256] + note.ljust(255) + b'\n'
            self.assertIsNone(records.parse(torn).note)
        self.assertIsNone(records.parse(data.partition(b'\n')[0]).note)

    def test_a_note_does_not_land_in_another_record(self) -> None:
        old = lease()
        records.dump(old)
        other = records.dump(lease(workload='/batch/longer'))
        (self.path / old.name).write_bytes(other)
        records.remember(old, 0, self.dir, '0')
        self.assertEqual(other, (self.path / old.name).read_bytes())

    def test_garbage(self) -> None:
        record = json.loads(records.dump(lease()).partition(b'\n')[0])
        for data in (b'', b'\n', b'\0' * 4096, b'\xff\xfe', b'{}', b'[]',
                     b'null', b'1', b'"x"', b'{"schema": 1}', b'[' * 100000,
                     records.dump(lease())[:40]):
            self.refused(records.parse, data)
        wrongs: list[dict[str, Any]] = [
            {'schema': 2}, {'steps': []}, {'steps': {}}, {'steps': None},
            {'workload': 1}, {'knob': None}, {'workload': 'a\nfake line'},
            {'boot_id': 3}, {'created_s': 'x'}, {'pid': None},
            {'pid': 1e999}]
        for wrong in wrongs:
            self.refused(records.parse,
                         json.dumps({**record, **wrong}).encode())

    def test_only_plain_files_of_ours(self) -> None:
        path = self.path / 'a.json'
        data = records.dump(lease())
        path.write_bytes(data)
        self.assertIn('owner', self.refused(
            records.load, self.dir, 'a.json', {os.geteuid() + 1}))
        for mode in (0o620, 0o602, 0o666):
            path.chmod(mode)
            self.assertIn(f'{mode:o}', self.refused(self.load))
        path.write_bytes(data.ljust(records.MAX_BYTES + 1))
        path.chmod(0o600)
        self.assertIn('bytes', self.refused(self.load))
        path.rename(self.path / 'b.json')
        path.symlink_to('b.json')
        self.assertIn('cannot be opened', self.refused(self.load))
        path.unlink()
        os.mkfifo(path)
        self.assertIn('not a regular file', self.refused(self.load))
        path.unlink()
        path.mkdir()
        self.assertIn('not a regular file', self.refused(self.load))
        path.rmdir()
        self.assertRaises(FileNotFoundError, self.load)


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
                (('--with-parent',), '--with-parent goes with --watch'),
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
        self.assertIn('3 records in', text)
        self.assertEqual(7, len(text.splitlines()), text)
        self.assertFalse(good.exists() or stale.exists())
        self.assertFalse((self.path / 'leases' / 'f.tmp').exists())
        code, text = self.run_main('--all')
        self.assertEqual(1, code)
        self.assertIn('3 records in', text)
        self.assertIn('were refused', text)
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
        self.assertIn('1 limits are in force, no agent runs', text)
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
            self.assertIn('2 limits are in force, held by agent 4242', text)
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


class Watch(testtools.TestCase):

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
