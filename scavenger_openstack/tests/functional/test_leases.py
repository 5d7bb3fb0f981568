# SPDX-License-Identifier: Apache-2.0


"""Kill it, stop it, starve it: every knob is back at its original."""

from __future__ import annotations

import json
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from typing import Any

import fixtures

from scavenger_openstack.agent.lease import leases
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Knob

LEASE_S = 2.0 * base.pace()
SLACK_S = 2.0
"""For a machine that runs other tests as well."""
MIB = 2 ** 20

AGENT = """
import os, pathlib, random, signal, sys, time
from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease import leases
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

random.seed({seed})
held = leases.Leases(pathlib.Path({state!r}), {lease_s})
held.open()
ticked = [time.clock_gettime(time.CLOCK_BOOTTIME)]
heartbeat.Renewer(held, lambda: ticked[0], 0.1).start()
KNOBS = [('/a', Knob.CPU_CORES, {quota!r}, ['10000', '20000']),
         ('/a', Knob.CPU_SET, {cpus!r}, ['0', '1']),
         ('/a', Knob.MEMORY_BYTES, {memory!r}, ['33554432', '67108864'])]

def write(path, text):
    with open(path, 'w') as file:
        file.write(text)

def hold(workload, knob, path, values):
    with open(path) as file:
        now = file.read().strip()
    directory, file = os.path.split(path)
    held.hold(workload, knob, [
        {{'do': 'write', 'dir': directory, 'file': file, 'text': now,
          'inode': os.stat(directory).st_ino}}], now)

"""
"""A small agent: it takes for the original whatever it finds."""

RANDOM = """
print('turning', flush=True)
while True:
    workload, knob, path, values = random.choice(KNOBS)
    try:
        hold(workload, knob, path, values)
        held.check()
        write(path, random.choice(values))
        held.check()
        if random.random() < 0.3:
            held.remove(workload, knob)
    except errors.LeaseError:
        held.reopen()
        print('reopened', flush=True)
    ticked[0] = time.clock_gettime(time.CLOCK_BOOTTIME)
"""

LATE = """
workload, knob, path, values = KNOBS[0]
hold(*KNOBS[0])
write(path, values[1])
held.check()
print('stops', flush=True)
os.kill(os.getpid(), signal.SIGSTOP)        # checked, not yet written
write(path, values[0])
"""

HANGS = """
for knob in KNOBS:
    hold(*knob)
    write(knob[2], knob[3][0])
print('capped', flush=True)
while True:                                 # ignores the stop file
    ticked[0] = time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(0.05)
"""

FILL = """
def fill(state):
    try:
        with open(state / 'filler', 'wb', buffering=0) as file:
            while file.write(bytes(1024)):
                pass
    except OSError as exc:
        return exc.strerror
"""


class LeaseTestCase(base.FunctionalTestCase):

    lease_s = LEASE_S

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        self.tree.make('/a')
        self.state = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        self.files = {name: self.tree.file(name, '/a')
                      for name in ('quota', 'cpus', 'memory')}
        self.tree.put('quota', '/a', '150000')
        self.originals = self.look()
        self.random = random.Random(1)

    def look(self) -> dict[str, str]:
        return {name: self.tree.get(name, '/a') for name in self.files}

    def back(self) -> bool:
        return self.look() == self.originals

    def code(self, rest: str) -> str:
        paths = {name: str(path) for name, path in self.files.items()}
        return AGENT.format(
            state=str(self.state), lease_s=self.lease_s,
            seed=self.random.randrange(2 ** 32), **paths) + rest

    def agent(self, rest: str) -> subprocess.Popen[str]:
        process = self.spawn(self.code(rest))
        self.read(process)
        return process

    def read(self, process: subprocess.Popen[str]) -> str:
        """The next line that a process prints."""
        assert process.stdout
        if not select.select([process.stdout], [], [], 60)[0]:
            self.fail('the process says nothing')
        return process.stdout.readline().strip()

    def watcher(self, **more: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.restore.program',
             '--watch', '--state-dir', str(self.state)], text=True,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **more)
        self.addCleanup(self.finish, process)
        return process

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> str:
        """End a watcher; what it said."""
        assert process.stderr
        if process.stderr.closed:
            return ''
        process.terminate()
        return process.communicate(timeout=60)[1]

    def records(self) -> list[str]:
        return [name for name in os.listdir(self.state / 'leases')
                if name.endswith('.json')]

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait(30)

    def wait_back(self, timeout_s: float = LEASE_S + SLACK_S) -> None:
        self.wait_for('every knob is back', self.back, timeout_s)

    def wait_no_records(self) -> None:
        self.wait_for('no lease is left', lambda: not self.records(),
                      LEASE_S + SLACK_S)

    def wait_stopped(self, process: subprocess.Popen[str]) -> None:
        status = pathlib.Path(f'/proc/{process.pid}/stat')
        self.wait_for('it is stopped', lambda: status.read_text().rpartition(
            ')')[2].split()[0] == 'T')


class Death(LeaseTestCase):
    """The agent dies or stops at any instant; the watcher is the real one."""

    def test_killed(self) -> None:
        """Every next agent starts clean and finds the true originals."""
        self.watcher()
        for _ in range(20):
            process = self.agent(RANDOM)
            time.sleep(self.random.uniform(0, 0.1))
            self.end(process)
            self.wait_back()
            self.wait_no_records()

    def test_killed_long_before_the_leases_run_out(self) -> None:
        self.lease_s = 600.0
        self.watcher()
        process = self.agent(HANGS)
        time.sleep(0.5)
        self.assertFalse(self.back())
        self.end(process)
        self.wait_back()

    def test_killed_and_started_at_once(self) -> None:
        """The next agent or the watcher restores, whichever is first."""
        self.watcher()
        for _ in range(10):
            process = self.agent(RANDOM)
            time.sleep(self.random.uniform(0, 0.05))
            self.end(process)
        self.wait_back()

    def test_killed_without_a_watcher(self) -> None:
        """An agent restores what the one before it left, before all else."""
        self.end(self.agent(HANGS))
        self.assertFalse(self.back())
        held = leases.Leases(self.state, LEASE_S)
        held.open()
        self.addCleanup(held.close)
        self.assertTrue(self.back())
        self.assertEqual({}, held.held())
        self.assertEqual([], self.records())

    def test_stopped_and_continued(self) -> None:
        watcher = self.watcher()
        for _ in range(3):
            process = self.agent(RANDOM)
            time.sleep(self.random.uniform(0, 0.1))
            process.send_signal(signal.SIGSTOP)
            self.wait_stopped(process)
            time.sleep(LEASE_S)
            self.wait_back(SLACK_S)
            for _ in range(30):
                self.assertTrue(self.back())
                time.sleep(0.01)
            process.send_signal(signal.SIGCONT)
            self.assertEqual('reopened', self.read(process))
            self.wait_for('it caps again', lambda: not self.back())
            self.end(process)
            self.wait_back()
        text = self.finish(watcher)
        self.assertIn('has not renewed its leases', text)
        self.assertNotIn('Traceback', text)

    def late(self, after: str) -> subprocess.Popen[str]:
        """An agent that stops between check and write, and is continued."""
        process = self.agent(LATE + textwrap.dedent(after))
        self.wait_stopped(process)
        self.wait_back()
        self.assertEqual(1, len(self.records()))
        process.send_signal(signal.SIGCONT)
        return process

    def test_late_write_put_right_by_the_agent(self) -> None:
        watcher = self.watcher()
        self.addCleanup(watcher.send_signal, signal.SIGCONT)
        process = self.agent(LATE + textwrap.dedent("""
            with open(path) as file:
                print('wrote', file.read().split()[0], flush=True)
            try:
                held.check()
            except errors.LeaseError:
                held.reopen()
            with open(path) as file:
                print('now', file.read().split()[0], flush=True)
            held.check()
            held.remove(workload, knob)
            held.close()
            """))
        self.wait_stopped(process)
        self.wait_back()
        time.sleep(0.1)     # it has let go of what the agent waits for
        watcher.send_signal(signal.SIGSTOP)     # so that it does not help
        self.wait_stopped(watcher)
        process.send_signal(signal.SIGCONT)
        self.assertEqual('wrote 10000', self.read(process))
        self.assertEqual('now 150000', self.read(process))
        self.assertEqual(0, process.wait(30))
        self.assertTrue(self.back())
        self.assertEqual([], self.records())

    def test_late_write_put_right_by_the_watcher(self) -> None:
        """The agent hangs after it: the lease is still there to restore by."""
        self.watcher()
        process = self.late("""
            print('wrote', flush=True)
            time.sleep(60)
            """)
        self.assertEqual('wrote', self.read(process))
        self.wait_back()
        self.assertEqual(1, len(self.records()))
        self.end(process)
        self.wait_no_records()
        self.assertTrue(self.back())

    def test_hangs_with_the_stop_file(self) -> None:
        """Restored again and again while it lives, its lease never deleted."""
        self.watcher()
        process = self.agent(HANGS)
        time.sleep(0.4)
        self.assertFalse(self.back())
        (self.state / 'stop').touch()
        self.wait_back()
        self.tree.put('quota', '/a', '10000')
        self.wait_back()
        self.assertEqual(3, len(self.records()))
        self.end(process)
        self.wait_no_records()
        self.assertTrue(self.back())


class Watcher(LeaseTestCase):
    """The watcher survives whatever lies in the state directory."""

    def watched(self) -> bool:
        return leases.Leases(self.state).watched()

    def test_one_is_enough(self) -> None:
        self.state.mkdir(mode=0o700)
        self.watcher()
        self.wait_for('it watches', self.watched)
        second = self.watcher()
        self.assertEqual(1, second.wait(30))
        self.assertIn('one is enough', self.finish(second))

    def test_waits_for_the_directory_and_follows_it(self) -> None:
        first = self.watcher()
        time.sleep(0.5)
        self.assertIsNone(first.poll())
        for name in ('one', 'two'):
            self.state.mkdir(mode=0o700)
            self.wait_for('it watches', self.watched)
            self.state.rename(self.state.with_name(name))

    def test_ready_for_systemd(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.settimeout(30)
            path = self.state.with_name('notify')
            listener.bind(str(path))
            self.watcher(env={**os.environ, 'NOTIFY_SOCKET': str(path)})
            for word in (b'READY=1\nWATCHDOG=1', b'WATCHDOG=1'):
                self.assertEqual(word, listener.recv(100))

    def test_garbage(self) -> None:
        """It is said once, and what is sound is restored all the same."""
        self.end(self.agent(HANGS))
        (self.state / 'leases' / 'x.json').write_text('garbage')
        (self.state / 'leases' / 'y.json').mkdir()
        (self.state / 'heartbeat').write_text('garbage')
        (self.state / 'lock').write_text('garbage')
        watcher = self.watcher()
        self.wait_for('no lease is left', lambda: not self.records())
        self.assertTrue(self.back())
        time.sleep(0.6)
        text = self.finish(watcher)
        self.assertEqual(0, watcher.returncode)
        for name in ('x.json', 'y.json'):
            self.assertEqual(1, text.count(f'lease {name} refused'), text)
        self.assertNotIn('Traceback', text)

    def test_garbage_heartbeat_of_a_living_agent(self) -> None:
        self.watcher()
        process = self.agent(HANGS)
        process.send_signal(signal.SIGSTOP)
        (self.state / 'heartbeat').write_text('garbage'.ljust(128))
        self.wait_back()
        self.assertEqual(3, len(self.records()))

    def test_what_does_not_come_back_is_tried_until_it_does(self) -> None:
        self.needs_v1('version 2 refuses no memory limit')
        hog = self.spawn(
            f'x = bytearray({96 * MIB})\n'
            'for i in range(0, len(x), 4096): x[i] = 1\n'
            'print("full"); import time; time.sleep(60)\n', self.tree, '/a')
        self.read(hog)
        log = self.useFixture(fixtures.FakeLogger())
        key = '/a', Knob.MEMORY_BYTES
        path = self.files['memory'].parent
        before = leases.Leases(self.state, LEASE_S)
        before.open()
        before.hold(*key, [
            {'do': 'write', 'dir': str(path), 'text': str(64 * MIB),
             'file': 'memory.limit_in_bytes',
             'inode': path.stat().st_ino}], 64.0 * MIB)
        before.close()
        self.assertIn('not removed, scavenger-restore tries again', log.output)
        self.assertEqual(1, len(self.records()))

        after = leases.Leases(self.state, LEASE_S)
        after.open()
        self.assertEqual(64.0 * MIB, after.held()[key].original.value)
        self.assertRaises(errors.DriverError, after.remove, *key)
        after.close()

        watcher = self.watcher()
        self.wait_for('it watches', self.watched)
        time.sleep(0.8)
        self.assertEqual(1, len(self.records()))
        self.end(hog)
        self.wait_for('no lease is left', lambda: not self.records())
        self.assertEqual(str(64 * MIB), self.look()['memory'])
        text = self.finish(watcher)
        self.assertEqual(1, text.count('NOT restored'), text)
        self.assertIn('Device or resource busy', text)

    def test_last_round_at_the_end(self) -> None:
        """SIGTERM right after the agent's death loses nothing."""
        process = self.agent(HANGS)
        watcher = self.watcher()
        self.wait_for('it watches', self.watched)
        watcher.send_signal(signal.SIGSTOP)
        self.wait_stopped(watcher)
        self.end(process)
        watcher.terminate()
        watcher.send_signal(signal.SIGCONT)
        self.assertEqual(0, watcher.wait(30))
        self.assertTrue(self.back())
        self.assertEqual([], self.records())


class FullDisk(LeaseTestCase):
    """A tmpfs of 64 KiB under the lease store, full."""

    def private(self, code: str) -> list[str]:
        """Run code with the small tmpfs in a mount namespace of its own."""
        self.state.mkdir(mode=0o700)
        script = (f'mount -t tmpfs -o size=64k,mode=700 none {self.state} && '
                  f'exec {sys.executable} -c "$CODE" {self.state} '
                  f'{self.files["quota"]}')
        result = subprocess.run(
            ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             script], env={**os.environ, 'CODE': FILL + code}, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
            check=False)
        self.assertEqual(0, result.returncode, result.stderr)
        return result.stdout.splitlines()

    def test_no_lease_no_cap_and_none_lost(self) -> None:
        line, = self.private("""
import json, os, pathlib, sys
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.restore import records
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

state, quota = map(pathlib.Path, sys.argv[1:])
out = {}
step = {'do': 'write', 'dir': str(quota.parent), 'file': quota.name,
        'inode': quota.parent.stat().st_ino,
        'text': quota.read_text().strip()}
held = leases.Leases(state, 60)
held.open()
held.hold('/a', Knob.CPU_CORES, [step], 1.5)
record = next((state / 'leases').iterdir())
quota.write_text('10000')
out['filled'] = fill(state)

def attempt(name, call, *args):
    try:
        call(*args)
        out[name] = ''
    except errors.LeaseError as exc:
        out[name] = str(exc)

before = record.read_bytes()
attempt('hold', held.hold, '/b', Knob.CPU_CORES, [step], 1.5)
attempt('replace', held.replace, '/a', Knob.CPU_CORES, [step] * 9, 2.5)
out['same'] = (record.read_bytes() == before
               and held.held()['/a', Knob.CPU_CORES].original.value == 1.5)
out['files'] = len(list((state / 'leases').iterdir()))
attempt('renew', held.renew, records.now_s() + 1)
held.remove('/a', Knob.CPU_CORES)
out['removed'] = quota.read_text().split()[0]
held.close()
fill(state)
attempt('open', leases.Leases(state / 'other').open)
print(json.dumps(out))
""")
        found = json.loads(line)
        self.assertEqual('No space left on device', found['filled'])
        for name in ('hold', 'replace', 'open'):
            self.assertIn('No space left on device', found[name])
            self.assertIn('free space', found[name])
        self.assertTrue(found['same'])
        self.assertEqual(1, found['files'])
        self.assertEqual('', found['renew'])
        self.assertEqual('150000', found['removed'])

    def test_watcher(self) -> None:
        """The agent dies; restoring and deleting need no room."""
        lines = self.private(f"""
import os, pathlib, subprocess, sys, time
state, quota = map(pathlib.Path, sys.argv[1:])
agent = subprocess.Popen([sys.executable, '-c', {self.code(HANGS)!r}],
                         stdout=subprocess.PIPE, text=True)
agent.stdout.readline()
print(fill(state))
watcher = subprocess.Popen(
    [sys.executable, '-m', 'scavenger_openstack.restore.program', '--watch',
     '--state-dir', str(state)])
time.sleep(0.5)
print(quota.read_text().split()[0])
agent.kill()
agent.wait()
deadline = time.monotonic() + 30
while os.listdir(state / 'leases') and time.monotonic() < deadline:
    time.sleep(0.01)
print(quota.read_text().split()[0], os.listdir(state / 'leases'))
watcher.terminate()
sys.exit(watcher.wait(30))
""")
        self.assertEqual(
            ['No space left on device', '10000', '150000 []'], lines)
        self.assertTrue(self.back())

    def test_half_a_status_is_none(self) -> None:
        line, = self.private("""
import json, pathlib, sys
from scavenger_openstack.agent import status

state = pathlib.Path(sys.argv[1])
status.write(state / 'status.json', {'schema': 1, 'text': 'whole'})
fill(state)
filler = state / 'filler'
with filler.open('r+b') as file:
    file.truncate(filler.stat().st_size - 4096)     # one page is left
try:
    status.write(state / 'status.json', {'schema': 1, 'text': 'x' * 20000})
    said = 'nothing'
except OSError as exc:
    said = exc.strerror
print(json.dumps([said, json.loads((state / 'status.json').read_text())]))
""")
        self.assertEqual(['No space left on device',
                          {'schema': 1, 'text': 'whole'}], json.loads(line))
