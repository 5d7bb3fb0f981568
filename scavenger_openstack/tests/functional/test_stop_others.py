# SPDX-License-Identifier: Apache-2.0

"""The kill switch beside processes that only look like an agent, and beside
agents that name odd files."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from scavenger_openstack.agent import status
from scavenger_openstack.tests.functional import agents

NOBODY = 65534

HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX)
os.setresuid(*3 * [int(sys.argv[2])])
print(flush=True)
sys.stdin.read()
"""


class StopOthersTest(agents.AgentTestCase):

    def pretend(self, path: pathlib.Path, stop_file: object, user: int = 0
                ) -> subprocess.Popen[str]:
        """All that is seen of an agent that has stopped."""
        (path / 'leases').mkdir(parents=True, mode=0o700)
        (path / 'lock').touch()
        (path / 'status.json').write_text(json.dumps(
            {'schema': status.SCHEMA, 'time_s': 1e12, 'stopped': True,
             'stop_file': stop_file}))
        for one in (path, *path.iterdir()):
            os.chown(one, user, user)
            one.chmod(0o700)
        process = subprocess.Popen(
            [sys.executable, '-c', HOLD, str(path / 'lock'), str(user)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        assert process.stdout
        process.stdout.readline()
        return process

    def guessing(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command without a state directory, and with no configuration
        that could be read."""
        self.config.write_text('nonsense')
        return subprocess.run(
            ['unshare', '--mount', '--propagation', 'private', 'sh', '-c',
             'mount -t tmpfs none /run && mount -t tmpfs none /var/lib && '
             'exec "$@"', 'sh', *self.command('agent', *words)[:-2]],
            timeout=60, check=False, text=True, capture_output=True)

    def test_of_another_user(self) -> None:
        """It names a file for root to make, or to delete."""
        made, kept = self.directory / 'made', self.directory / 'kept'
        kept.touch()
        only = self.only(
            self.pretend(self.directory / 'a', str(made), NOBODY),
            self.pretend(self.directory / 'b', str(kept), NOBODY))
        for command in ('stop-all', 'resume'):
            done = self.guessing(command, only)
            self.assertNotIn(str(self.directory), done.stdout)
            self.assertEqual((False, True), (made.exists(), kept.exists()))
            self.assertFalse((self.directory / 'a' / 'stop').exists())

    def test_stop_files_that_cannot_be_made(self) -> None:
        """All the others are made, and the limits looked after."""
        other = self.directory / 'other'
        only = self.only(
            self.pretend(self.state_dir, '/proc/no\0such'),
            self.pretend(self.directory / 'x', '/proc/none/such'),
            self.pretend(self.directory / 'y', str(other)))
        done = self.run_agent('stop-all', only)
        self.assertEqual((1, ''), (done.returncode, done.stderr))
        self.assertIn('the stop file /proc/no\\x00such cannot be made: ',
                      done.stdout)
        self.assertIn(f'stop file made: {self.state_dir}/stop\n', done.stdout)
        self.assertIn('no limit is in force', done.stdout)
        done = self.run_agent('resume', only)
        self.assertEqual((1, ''), (done.returncode, done.stderr))
        self.assertFalse((self.state_dir / 'stop').exists())
        done = self.guessing('stop-all', only)
        self.assertEqual((1, True), (done.returncode, other.exists()),
                         done.stderr)
        self.assertIn('the stop file /proc/none/such cannot be made: ',
                      done.stdout)
        self.guessing('resume', only)
        self.assertFalse(other.exists())

    def test_a_stop_file_that_is_another_file(self) -> None:
        kept = self.directory / 'kept'
        kept.write_text('of use')
        only = self.only(self.pretend(self.state_dir, str(kept)))
        self.run_agent('stop-all', only)
        done = self.run_agent('resume', only)
        self.assertEqual((1, 'of use'), (done.returncode, kept.read_text()))
        self.assertIn(f'the stop file {kept} cannot be removed: it is not an '
                      'empty file', done.stdout)

    def test_a_directory_with_an_odd_name(self) -> None:
        """It makes up no line, and no command."""
        odd = self.directory / 'a\nb; reboot'
        only = self.only(self.pretend(odd, '/x'))
        for command in ('stop-all', 'status'):
            done = self.run_agent(command, only)
            said = done.stdout + done.stderr
            self.assertIn('b; reboot', said)
            for line in said.splitlines():
                self.assertFalse(line.startswith('b; reboot'), said)
            self.assertIn(f"--state-dir '{self.directory}/a", said)
