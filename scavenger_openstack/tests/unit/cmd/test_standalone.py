# SPDX-License-Identifier: Apache-2.0


"""What scavenger-standalone and scavenger-agent have in common."""

from __future__ import annotations

from collections.abc import Callable
import io

import fixtures
import testtools

from scavenger_openstack.cmd import agent
from scavenger_openstack.cmd import standalone


def run(main: Callable[[list[str]], int], *words: str,
        ) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with fixtures.MonkeyPatch('sys.stdout', out), \
            fixtures.MonkeyPatch('sys.stderr', err):
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


class RecordTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        state = f'{self.useFixture(fixtures.TempDir()).path}/state'
        self.commands = (
            (agent.main, 'run', '--state-dir', state),
            (standalone.main, '--state-dir', state))

    def test_no_file_is_no_recording_that_is_left_out(self) -> None:
        """``--record "$UNSET"`` is a fault, and told as one."""
        for main, *words in self.commands:
            code, _, err = run(main, *words, '--record', '')
            self.assertEqual(2, code, f'{main}: {err}')
            self.assertIn('--record', err)

    def test_both_tell_the_same_about_it(self) -> None:
        words = 'every sample and decision goes to this new file'
        for command in ((agent.main, 'run'), (standalone.main,),
                        (standalone.main, 'run')):
            self.assertIn(words, ' '.join(run(*command, '--help')[1].split()))
