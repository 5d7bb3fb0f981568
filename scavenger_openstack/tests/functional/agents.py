# SPDX-License-Identifier: Apache-2.0

"""The agent's commands on real cgroups, as an operator types them."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
import pathlib
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.tests.functional import base

BUSY = 'data = bytearray(80 << 20)\nwhile True: pass'


class AgentTestCase(base.FunctionalTestCase):
    """A cgroup tree, a configuration, and the commands that use them."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        self.tree.make('/batch/a')
        self.tree.make('/services/s')
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.state_dir = self.directory / 'state'
        self.config = self.directory / 'scavenger.conf'
        self.configure('[scavenger]\nmode = enforce\nmemory_window_s = 3')

    def configure(self, *lines: str) -> None:
        self.config.write_text('\n'.join((
            '[conductor]', 'enabled = false',
            '[agent]', 'interval_s = 0.2', 'lease_s = 3', '[cgroups]',
            f'background_parents = {self.tree.name}/batch',
            f'foreground_parents = {self.tree.name}/services', *lines)))

    def command(self, module: str, *words: str) -> list[str]:
        return [sys.executable, '-m', f'scavenger_openstack.cmd.{module}',
                *words, '--config-file', str(self.config),
                '--state-dir', str(self.state_dir)]

    def run_agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command('agent', *words), timeout=60,
                              check=False, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)

    def start(self, module: str, *words: str, by: Sequence[str] = ()
              ) -> subprocess.Popen[str]:
        """Start a program, which ends with the test.

        :param by: the beginning of a command line that runs the rest of it
        """
        process = subprocess.Popen(
            [*by, *self.command(module, *words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        return process

    @staticmethod
    def _stop(process: subprocess.Popen[str]) -> None:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            # Not to be read to their ends: a watcher may have them, too.
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def watcher(self) -> int:
        """A pidfd of the watcher, which is ended with the test."""
        pidfd = os.pidfd_open(int(
            (self.state_dir / 'watcher.lock').read_text().split()[0]))
        self.addCleanup(os.close, pidfd)
        self.addCleanup(self._kill, pidfd)
        return pidfd

    @staticmethod
    def _kill(pidfd: int) -> None:
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def leases(self) -> list[pathlib.Path]:
        return list((self.state_dir / 'leases').glob('*.json'))

    def idle(self) -> str:
        return self.tree.get('idle', '/batch')

    def status(self) -> dict[str, object]:
        try:
            found = json.loads((self.state_dir / 'status.json').read_text())
        except FileNotFoundError:
            return {}
        assert isinstance(found, dict)
        return found

    def ticks(self) -> int:
        counters = self.status().get('counters')
        return counters['ticks'] if isinstance(counters, dict) else 0

    def only(self, *processes: subprocess.Popen[str]) -> str:
        """The option by which a command sees only these processes, since
        other tests may run agents, too."""
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        proc = root / 'proc'
        proc.mkdir()
        pids = {str(process.pid) for process in processes}
        (proc / 'locks').write_text(''.join(
            f'{line}\n' for line in pathlib.Path(
                '/proc/locks').read_text().splitlines()
            if pids & set(line.split())))
        for pid in pids:
            (proc / pid).symlink_to(f'/proc/{pid}')
        return f'--root-dir={root}'
