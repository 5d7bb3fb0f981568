# SPDX-License-Identifier: Apache-2.0

"""Status and history of what a real agent saw in a recording."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent import status
from scavenger_openstack.cmd import agent as agent_command
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.tests.unit import recordings
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class AgentTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def words(self, *words: str) -> list[str]:
        return [*words, f'--config-file={self.directory}/conf',
                f'--state-dir={self.directory}/state']

    def run_agent(self, *words: str) -> str:
        """What one of the commands that look at it prints."""
        out, err = io.StringIO(), io.StringIO()
        with fixtures.MonkeyPatch('sys.stdout', out), \
                fixtures.MonkeyPatch('sys.stderr', err):
            code = agent_command.main(self.words(*words))
        self.assertEqual((0, ''), (code, err.getvalue()))
        return out.getvalue()

    def test_a_status_that_is_not_understood(self) -> None:
        """One line, not a traceback."""
        (self.directory / 'conf').touch()
        (self.directory / 'state').mkdir()
        good = {**statuses.document(), 'schema': status.SCHEMA,
                'stopped': False}
        odds: tuple[dict[str, Any], ...] = (
            {'caps': 5}, {'caps': [5]}, {'instances': [{}]},
            {'instances': 5}, {'instances': [{'uuid': [], 'name': 3}]},
            {'time_s': 10 ** 400}, {'time_s': float('nan')})
        for odd in odds:
            (self.directory / 'state' / 'status.json').write_text(json.dumps(
                {**good, **odd}))
            for words, codes in (('status --json', (1,)), ('status', (1,)),
                                 ('status --check', (2, 3))):
                out, err = io.StringIO(), io.StringIO()
                with fixtures.MonkeyPatch('sys.stdout', out), \
                        fixtures.MonkeyPatch('sys.stderr', err):
                    code = agent_command.main(self.words(*words.split()))
                said = err.getvalue() + out.getvalue()
                self.assertIn(code, codes, f'{odd} {words}: {said}')
                self.assertEqual(1, said.count('\n'), said)

    def record(self) -> pathlib.Path:
        """A host whose background was promised more memory than there is:
        an incident for which nobody is named."""
        path = self.directory / 'recording'
        host = recordings.Host(path)
        host.workloads = [dataclasses.replace(
            one, floor={Knob.MEMORY_BYTES: 64 * recordings.GIB})
            if one.priority is Priority.BACKGROUND else one
            for one in host.workloads]
        host.ticks(400)
        host.recorder.close()
        return path

    def test_an_incident_without_antagonists(self) -> None:
        (self.directory / 'conf').write_text(
            '[agent]\ndriver = replay\ninterval_s = 0.1\n[scavenger]\n'
            'memory_window_s = 4\n[replay]\n'
            f'file = {self.record()}\n')
        agent = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.agent',
             *self.words('run')], text=True, stderr=subprocess.PIPE)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.terminate)
        deadline = time.monotonic() + 60
        path = self.directory / 'state' / 'status.json'
        while not (path.exists() and status.read(path)['incidents']):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        document = status.read(path)
        self.assertEqual(status.SCHEMA, document['schema'])
        self.assertEqual(os.path.abspath(f'{self.directory}/state/stop'),
                         document['stop_file'])
        self.assertIn('incident: victim foreground, cause overcommitted: ',
                      status.table(document, document['time_s']))
        self.assertIn('agent      ', self.run_agent('status'))
        json.loads(self.run_agent('status', '--json'))
        agent.terminate()
        err = agent.communicate(timeout=60)[1]
        self.assertEqual(0, agent.returncode, err)
        text = self.run_agent('history')
        line = re.compile(r'incident began( \d s ago)? \(scavenger\): victim '
                          'foreground, cause overcommitted: .*; antagonists: '
                          'none named; action: would limit all background to '
                          'its floors')
        self.assertRegex(text, line)
        self.assertRegex(err, line)
