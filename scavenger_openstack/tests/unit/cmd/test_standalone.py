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


"""What scavenger-standalone and scavenger-agent have in common."""

import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack.cmd import agent

TIMEOUT_S = 30.0


def run(*words: str) -> tuple[int, str]:
    """Exit code and standard error of a command."""
    done = subprocess.run(
        [sys.executable, '-m', *words], capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stderr


class RecordTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        state = f'{self.useFixture(fixtures.TempDir()).path}/state'
        self.commands = {
            'agent': ('scavenger_openstack.cmd.agent', 'run',
                      '--state-dir', state),
            'standalone': ('scavenger_openstack.cmd.standalone',
                           '--state-dir', state)}

    def test_no_file_is_no_recording_that_is_left_out(self) -> None:
        """``--record "$UNSET"`` is a fault, and told as one."""
        for name, command in self.commands.items():
            code, err = run(*command, '--record', '')
            self.assertEqual(2, code, f'{name}: {err}')
            self.assertIn('--record', err)

    def test_both_tell_the_same_about_it(self) -> None:
        words = ' '.join(str(agent.RECORD_OPT.help).split())
        for command in self.commands.values():
            done = subprocess.run(
                [sys.executable, '-m', command[0], '--help'],
                capture_output=True, text=True, timeout=TIMEOUT_S,
                check=False)
            self.assertIn(words, ' '.join(done.stdout.split()))
