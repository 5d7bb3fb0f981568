# SPDX-License-Identifier: Apache-2.0

"""A standalone with conductor and API, and ``openstack`` for it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
from typing import Any

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional import openstack_shell

SYNC_S = 1.0
START_S = 60.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        port: int = found.getsockname()[1]
        return port


def processes(*words: str) -> list[int]:
    """Those whose command lines have all these words."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
        try:
            command = path.read_text().split('\0')
        except OSError:
            continue
        if set(words) <= set(command):
            found.append(int(path.parent.name))
    return found


class EmbeddedTestCase(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        # The API's user has to come to the database.
        self.directory.chmod(0o755)
        self.port = free_port()
        self.configure('[scavenger]', 'mode = enforce',
                       'use_cpu_leftover = false', '[conductor]',
                       'enabled = true', f'sync_s = {SYNC_S}',
                       '[api]', f'port = {self.port}')
        self.place = self.directory / 'state-standalone'
        self.addCleanup(self.end_api)

    def end_api(self) -> None:
        """What is left of it where a test has failed."""
        for pid in self.api():
            with contextlib.suppress(ProcessLookupError):   # it has ended
                os.kill(pid, signal.SIGKILL)

    def api(self) -> list[int]:
        return processes('scavenger_openstack.cmd.api',
                         str(self.place / 'scavenger.conf'))

    def begin(self) -> subprocess.Popen[str]:
        """Start all of it, and let ``openstack`` find it."""
        process = self.start('standalone')
        self.wait_for('what a shell needs', lambda: self.api()
                      and not self.env().returncode, START_S)
        variables = dict(
            word.partition('=')[::2]
            for line in self.env().stdout.splitlines()
            if line.startswith('export ')
            for word in shlex.split(line)[1:])
        self.useFixture(openstack_shell.Environment(self.directory,
                                                    **variables))
        self.wait_for('the API', lambda: not self.openstack(
            'interference', 'host', 'list').status, START_S)
        return process

    def env(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command('standalone', 'env', *words),
                              timeout=60, check=False, capture_output=True,
                              text=True)

    @staticmethod
    def openstack(*words: str) -> openstack_shell.Result:
        return openstack_shell.openstack(*words)

    def text(self, *words: str) -> str:
        done = self.openstack(*words)
        self.assertEqual(0, done.status, str(done))
        return done.out

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, '-f', 'json'))
