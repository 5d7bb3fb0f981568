# SPDX-License-Identifier: Apache-2.0


"""A real agent records on real cgroups, and the replay decides the same."""

from __future__ import annotations

from collections.abc import Iterator
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import fixtures
from testtools import matchers

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import reporting
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

MIB = 2 ** 20
BUSY = """
import time
data = []
while True:
    data.append(bytearray({mib} << 20))
    for i in range(0, len(data[-1]), 4096): data[-1][i] = 1
    if len(data) > 5: data.clear()
    time.sleep(0.15)
"""
HOLD = """
import time
data = bytearray({mib} << 20)
for i in range(0, len(data), 4096): data[i] = 1
print('holding', flush=True)
time.sleep(600)
"""
PACKAGE = 'scavenger_openstack.cmd'
CHECKOUT = pathlib.Path(reporting.__file__).parents[3]

Limits = dict[tuple[str, str], Any]


class Statuses(fixtures.Fixture):
    """Every ``status.json`` that an agent writes, by time of its tick."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.path = path
        self.found: dict[float, dict[str, Any]] = {}

    def _setUp(self) -> None:
        self._end = threading.Event()
        thread = threading.Thread(target=self._look)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self._end.set)

    def _look(self) -> None:
        while not self._end.wait(0.02):
            try:
                one = json.loads(self.path.read_text())
            except FileNotFoundError:
                continue
            self.found[one['time_s']] = one


class RecordingTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        for below in ('/batch/a', '/batch/b', '/services/s'):
            self.tree.make(below)
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.state_dir = self.directory / 'state'
        self.config = self.directory / 'scavenger.conf'
        self.path = self.directory / 'a.recording'
        self.configure('mode = enforce')

    def configure(self, *lines: str) -> None:
        self.config.write_text('\n'.join((
            '[agent]', 'interval_s = 0.1', 'lease_s = 1.5',
            'write_deadline_s = 5', 'require_watcher = false', '[cgroups]',
            f'background_parents = {self.tree.name}/batch',
            f'foreground_parents = {self.tree.name}/services',
            f'memory_root = {self.tree.name}',
            '[scavenger]', 'memory_window_s = 2', *lines)))

    def command(self, module: str, *words: object) -> list[str]:
        return [sys.executable, '-m', f'{PACKAGE}.{module}',
                *map(str, words), '--config-file', str(self.config),
                *(['--state-dir', str(self.state_dir)]
                  if module != 'replay' else [])]

    def agent(self, *words: object, before: tuple[str, ...] = (),
              module: str = f'{PACKAGE}.agent') -> subprocess.Popen[str]:
        """Start an agent; returns when it has turned.

        :param module: the program
        """
        (self.state_dir / 'status.json').unlink(missing_ok=True)
        command = self.command('agent', 'run', *words)
        command[2] = module
        process = subprocess.Popen(
            [*before, *command], cwd=self.directory,
            env={**os.environ, 'PYTHONPATH': str(CHECKOUT)},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._kill, process)
        self.wait_for('the agent turns',
                      (self.state_dir / 'status.json').exists)
        return process

    def learnt(self) -> None:
        self.wait_for('the memory window is learnt', lambda: json.loads(
            (self.state_dir / 'status.json').read_text())['controllers'][
                'scavenger']['facts']['memory']['rule'] == 'holding')

    @staticmethod
    def _kill(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate(timeout=60)

    def end(self, process: subprocess.Popen[str]) -> str:
        """End an agent cleanly; its log."""
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, err)
        self.assertNotIn('Traceback', err)
        return err

    def replay(self, *words: object, code: int = 0) -> list[str]:
        done = subprocess.run(
            self.command('replay', self.path, *words), timeout=60,
            check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL)
        self.assertEqual((code, ''), (done.returncode, done.stderr),
                         done.stdout)
        return done.stdout.splitlines()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line)
                for line in self.path.read_text().splitlines()]

    def replayed(self) -> Iterator[tuple[float, Limits]]:
        """What the replay limits at each recorded tick, by its time."""
        told: dict[float, list[dict[str, Any]]] = {}
        for line in self.replay('--format', 'json'):
            one = json.loads(line)
            told.setdefault(one['time_s'], []).append(one)
        limits: Limits = {}
        for line_ in self.lines()[1:]:
            if 'sample' not in line_:
                continue
            for one in told.pop(line_['sample']['time_s'], ()):
                if one['type'] == 'cap' and one['mode'] == 'enforce':
                    key = (one['workload'], one['knob'])
                    limits[key] = one['value']
                    if one['value'] is None:
                        del limits[key]
            yield line_['time_s'], dict(limits)
        self.assertEqual({}, told)

    def compare(self, statuses: Statuses) -> set[str]:
        """The replay has the limits that the agent had; which knobs.

        Where the kernel refused or has not answered, what is in force is
        not what was wanted; those ticks are left out.
        """
        knobs: set[str] = set()
        compared = 0
        for time_s, limits in self.replayed():
            status = statuses.found.get(time_s)
            if (status is None or status['unmet_bytes']
                    or status['problems']):
                continue
            self.assertEqual(
                {(cap['workload'], cap['knob']): cap['value']
                 for cap in status['caps']}, limits, f'at {time_s}')
            compared += 1
            knobs |= {knob for _, knob in limits}
        self.assertGreater(compared, 10)
        return knobs

    def hold(self, below: str, mib: int) -> None:
        for _ in range(5):
            process = self.spawn(HOLD.format(mib=mib), self.tree, below)
            assert process.stdout is not None
            if process.stdout.readline() == 'holding\n':
                return
            # Seen half-way it had a limit that fitted what it had then.
            self.assertEqual(-signal.SIGKILL, process.wait(30))
        self.fail(f'{below} never got its {mib} MiB')

    def frozen(self) -> bool:
        return self.tree.get('frozen', '/batch/a') == 'FROZEN'

    def pause(self) -> None:
        """Let some ticks pass."""
        def ticks() -> int:
            return int(json.loads((self.state_dir / 'status.json').read_text()
                                  )['counters']['ticks'])

        last = ticks()
        self.wait_for('eight ticks', lambda: ticks() >= last + 8)


class RecordingTest(RecordingTestCase):

    def test_the_replay_decides_what_the_agent_decided(self) -> None:
        """Refused memory, a stop, a stand-still, a workload that goes and
        comes again, another program's limit, and what was learned before."""
        self.tree.put('memory', '', str(1024 * MIB))
        self.hold('/services/s', 100)
        self.spawn(BUSY.format(mib=2), self.tree, '/batch/b')
        first = self.agent()
        self.learnt()
        self.end(first)                     # it leaves what it has learned
        agent = self.agent('--record', self.path)
        statuses = self.useFixture(Statuses(self.state_dir / 'status.json'))
        self.hold('/batch/a', 400)
        self.pause()
        self.hold('/services/s', 460)
        self.wait_for('memory is refused', self.frozen)
        self.tree.delete('/services/s')
        self.wait_for('it runs again', lambda: not self.frozen())
        (self.state_dir / 'stop').touch()
        self.pause()
        (self.state_dir / 'stop').unlink()
        self.pause()
        agent.send_signal(signal.SIGSTOP)
        time.sleep(2)                       # longer than the leases last
        agent.send_signal(signal.SIGCONT)
        self.pause()
        self.tree.delete('/batch/b')
        self.pause()
        self.tree.make('/batch/b')
        self.tree.put('memory', '/batch/b',
                        str(90 * MIB))
        self.spawn(BUSY.format(mib=2), self.tree, '/batch/b')
        self.pause()
        self.assertIn('the leases ran out', self.end(agent))
        header, *ticks = self.lines()
        self.assertTrue(header['controllers'][0]['state'])
        for field, least in (('stopped', 1), ('reset', 2), ('unmet', 1),
                             ('originals', 1), ('wanted', 10),
                             ('written', 5), ('removed', 2)):
            self.assertGreaterEqual(
                sum(field in tick for tick in ticks), least, field)
        [line] = self.replay('--verify')
        self.assertIn(f'{len(ticks)} ticks', line)
        self.assertLessEqual(
            {Knob.MEMORY_BYTES, Knob.CPU_IDLE, Knob.PAUSED},
            self.compare(statuses))

    def test_a_controller_that_observes(self) -> None:
        self.configure('mode = observe')
        self.spawn(BUSY.format(mib=8), self.tree, '/batch/a')
        agent = self.agent('--record', self.path)
        self.learnt()
        self.pause()
        self.end(agent)
        self.replay('--verify')
        found = [json.loads(line)
                 for line in self.replay('--format', 'json')]
        self.assertEqual({'observe'}, {one['mode'] for one in found})
        self.assertLessEqual({'memory_bytes', 'cpu_idle'},
                             {one['knob'] for one in found})
        enforced = [json.loads(line) for line in self.replay(
            '--format', 'json', '--set', 'scavenger.mode=enforce')]
        self.assertEqual({'enforce'}, {one['mode'] for one in enforced})

    def test_while_operators_change_their_minds(self) -> None:
        """Parameters, modes, overrides and exemptions come as directives."""
        self.configure('mode = enforce', '[DEFAULT]', 'transport_url = fake:/',
                       '[conductor]', 'enabled = true', 'sync_s = 1')
        self.spawn(BUSY.format(mib=8), self.tree, '/batch/a')
        agent = self.agent(
            '--record', self.path, module=reporting.__name__)
        self.learnt()
        batch = f'{self.tree.name}/batch/a'
        for number, wanted in enumerate((
                {'parameters': {'scavenger.use_cpu_idle': 'false',
                                'scavenger.memory_c': 3.0}},
                {'parameters': {'scavenger.memory_c': 5.0,
                                'scavenger.memory_window_s': 60.0},
                 'overrides': [report.Override(
                     id='1', workload=batch, knob='cpu_cores', value=0.5,
                     reason='asked for', expires_s=time.time() + 600)]},
                {'modes': {'scavenger': 'observe'}},
                {'protection': False, 'protection_reason': 'power cut'},
                {})):
            (self.directory / 'draft').write_bytes(codec.encode(
                report.Directives(issued_s=time.time(), digest=str(number),
                                  **wanted)))    # type: ignore[arg-type]
            (self.directory / 'draft').rename(self.directory / 'directives')
            self.wait_for('they are followed', lambda number=number: (
                f'"directives_digest":"{number}"' in
                (self.directory / 'reports').read_text()))
            self.pause()
        self.end(agent)
        header, *ticks = self.lines()
        asked = [tick['orders'] for tick in ticks if 'orders' in tick]
        self.assertLessEqual({'modes', 'overrides'},
                             {part for one in asked for part in one})
        self.assertEqual([3.0, 5.0, header['controllers'][0]['params'][
            'memory_c']], [value for tick in ticks if (
                value := tick.get('params', {}).get('scavenger', {}).get(
                    'memory_c')) is not None])
        self.assertNotIn('memory_window_s', str(
            [tick.get('params') for tick in ticks]))
        self.assertTrue(any('"owner": "operator"' in json.dumps(tick)
                            for tick in ticks))
        [line] = self.replay('--verify')
        self.assertIn(f'{len(ticks)} ticks', line)

    def test_beside_the_fast_loop(self) -> None:
        """It takes the CPU set over and asks for the quota floor."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        self.configure('mode = enforce', '[perfiso]', 'mode = enforce',
                       'buffer_cores = 1')
        cpus = self.tree.get('cpus', '/batch')
        self.tree.put('cpus', '/services/s',
                        cpus.replace('-', ',').split(',')[0])
        for below in ('/batch/a', '/services/s', '/services/s'):
            self.spawn('while True: pass', self.tree, below)
        agent = self.agent('--record', self.path)
        self.wait_for('the set is narrowed', lambda: self.tree.get(
            'cpus', '/batch') != cpus)
        self.pause()
        self.pause()
        self.end(agent)
        self.assertTrue(any(line.get('fast', {}).get('sets')
                            for line in self.lines()))
        self.replay('--verify')

    def test_killed_in_the_middle_all_that_was_seen_is_there(self) -> None:
        self.spawn(BUSY.format(mib=8), self.tree, '/batch/a')
        agent = self.agent('--record', self.path)
        self.learnt()
        self.pause()
        agent.kill()
        agent.communicate(timeout=60)
        again = self.agent()            # restores the originals
        self.end(again)
        [line] = self.replay('--verify')
        self.assertIn(f'{len(self.lines()) - 1} ticks', line)

    def test_who_was_late_does_not_hurry(self) -> None:
        """Rates over a moment would say nothing."""
        self.configure()
        self.config.write_text(self.config.read_text().replace(
            'interval_s = 0.1', 'interval_s = 0.5'))
        process = self.agent('--record', self.path)
        statuses = self.useFixture(Statuses(self.state_dir / 'status.json'))
        for _ in range(3):
            seen = len(statuses.found)
            self.wait_for('a tick', lambda seen=seen: len(
                statuses.found) > seen)
            process.send_signal(signal.SIGSTOP)
            late_s = max(statuses.found) + 0.97 - time.clock_gettime(
                time.CLOCK_BOOTTIME)
            time.sleep(max(0.0, late_s))    # the next is due in 30 ms
            process.send_signal(signal.SIGCONT)
            time.sleep(1.5)
        self.end(process)
        times = [line['sample']['time_s'] for line in self.lines()[1:]
                 if 'sample' in line]
        gaps = [after - before for before, after
                in zip(times, times[1:], strict=False)]
        self.assertThat(max(gaps), matchers.GreaterThan(0.8), str(gaps))
        self.assertThat(min(gaps), matchers.GreaterThan(0.2), str(gaps))

    def test_an_existing_file_is_refused_and_nothing_limited(self) -> None:
        self.path.write_text('precious')
        done = subprocess.run(
            self.command('agent', 'run', '--record', self.path), timeout=60,
            check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL)
        self.assertEqual(2, done.returncode, done.stderr)
        self.assertIn(f'--record {self.path}: it is there already',
                      done.stderr)
        self.assertEqual('precious', self.path.read_text())
        self.assertEqual('0', self.tree.get('idle', '/batch'))
        self.assertEqual([], list((self.state_dir / 'leases').iterdir()))

    def test_a_full_disk_ends_the_recording_and_not_the_agent(self) -> None:
        small = self.directory / 'small'
        small.mkdir()
        self.spawn(BUSY.format(mib=8), self.tree, '/batch/a')
        agent = self.agent(
            '--record', small / 'a', before=(
                'unshare', '-m', '--propagation', 'private', 'sh', '-c',
                f'mount -t tmpfs -o size=20k none {small} || exit 99; "$@"; '
                f'code=$?; cp {small}/a {self.path}; exit $code', 'sh'))
        status = self.state_dir / 'status.json'
        self.wait_for('many ticks', lambda: json.loads(
            status.read_text())['counters']['ticks'] > 40)
        self.assertEqual('1', self.tree.get('idle', '/batch'))
        os.kill(json.loads(status.read_text())['pid'], signal.SIGTERM)
        _, err = agent.communicate(timeout=60)
        self.assertEqual(0, agent.returncode, err)
        self.assertEqual(1, err.count('recording to'), err)
        self.assertIn('less than 5 % of the disk is free', err)
        [line] = self.replay('--verify')
        self.assertIn(f'{len(self.lines()) - 1} ticks', line)
        self.assertGreater(len(self.lines()), 5)
