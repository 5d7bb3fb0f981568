# SPDX-License-Identifier: Apache-2.0

"""Why a workload was limited can be asked later, and asking is optional."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

from scavenger_openstack.tests.functional import agents


class HistoryTest(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.configure('[scavenger]', 'mode = enforce',
                       'use_cpu_leftover = false')

    def limited(self) -> subprocess.Popen[str]:
        standalone = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        self.wait_for('it is written', lambda: 'limit set' in
                      self.history())
        return standalone

    def history(self, *words: str) -> str:
        return self.run_agent('history', *words).stdout

    def test_limits_of_several_agents(self) -> None:
        knob = f'{self.tree.name}/batch cpu_idle'
        first = self.limited()
        watcher = self.watcher()
        first.kill()
        signal.pidfd_send_signal(watcher, signal.SIGKILL)
        first.communicate(timeout=60)
        self.wait_for('its watcher has ended', lambda: not self.watched())
        second = self.start('standalone')
        self.wait_for('two have set it', lambda: self.history().count(
            f'limit set: {knob} = 1, before: 0: ') == 2)
        second.terminate()
        _, err = second.communicate(timeout=60)
        lines = self.history().splitlines()
        order = [next(index for index, line in enumerate(lines) if re.match(
            rf'\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d  {words}', line))
            for words in (rf'agent started: .*\(process {first.pid}\)',
                          rf'agent started: .*\(process {second.pid}\)',
                          f'limit removed: {knob} is 0 again; it was 1 for '
                          r'\d+ s: the agent ends',
                          rf'agent ended \(process {second.pid}\)')]
        self.assertEqual(sorted(order), order)
        self.assertEqual(1, err.count(f'limit set: {knob}'), err)
        self.assertEqual(1, err.count(f'limit removed: {knob}'), err)
        found = [json.loads(line) for line
                 in self.history('--json', '--since', '1h').splitlines()]
        self.assertEqual(len(lines), len(found))
        self.assertIn(('limit', 'removed', 'cpu_idle', 0, 1), [
            (one['type'], one.get('what'), one.get('knob'),
             one.get('original'), one.get('value')) for one in found])
        done = self.run_agent('history', '--since', '0s')
        self.assertEqual((0, ''), (done.returncode, done.stdout))
        self.assertIn('nothing since 0s', done.stderr)

    def watched(self) -> bool:
        done = subprocess.run(
            ['flock', '--nonblock', self.state_dir / 'watcher.lock', 'true'],
            check=False)
        return done.returncode != 0

    def test_why_they_are_removed(self) -> None:
        standalone = self.limited()
        self.run_agent('stop-all', self.only(standalone))
        self.wait_for('it is written', lambda: 's: stopped: the stop file is '
                      'there' in self.history())
        self.assertIn('agent state: stopped: the stop file is there',
                      self.history())

    def in_vain(self, make: str, error: str) -> None:
        """The agent goes on where the history cannot be written."""
        place = self.directory / 'disk'
        place.mkdir()
        self.configure('[scavenger]', 'mode = enforce', '[agent]',
                       f'history_dir = {place}/history')
        process = subprocess.Popen(
            ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             f'cd {place} && mount -t tmpfs -o size=16k none . && cd . && '
             f'{make} && exec "$@"', 'sh', *self.command('standalone')],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        self.wait_for('it turns', lambda: self.ticks() > 5)
        fault = self.status()['history']['fault']  # type: ignore[index]
        self.assertIn(error, fault)
        self.assertIn('history    ', self.run_agent('status').stdout)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual((0, '0'), (process.returncode, self.idle()), err)
        self.assertEqual(1, err.count('the history is not written'), err)
        self.assertNotIn('Traceback', err)

    def test_on_a_full_disk(self) -> None:
        self.in_vain(f'! dd if=/dev/zero of={self.directory}/disk/x bs=4k '
                     '2>/dev/null', 'No space left')

    def test_on_a_disk_that_cannot_be_written(self) -> None:
        self.in_vain(f'mount -o remount,ro {self.directory}/disk',
                     'Read-only file system')

    def test_of_another_user(self) -> None:
        directory = self.state_dir / 'history'
        directory.mkdir(mode=0o700, parents=True)
        file = directory / f'{1:010}-{"0" * 32}-{1:016}.events'
        file.write_text('')
        os.chown(file, 65534, 65534)
        done = self.run_agent('history')
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('owner 65534', done.stderr)
