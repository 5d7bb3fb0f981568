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

"""Signals of the agent, where there is nothing to write to."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

import testtools

from scavenger_openstack.agent import unix_signals

CODE = """
from oslo_config import cfg
from scavenger_openstack.agent import unix_signals

unix_signals.Signals(cfg.ConfigOpts(), {}).install(lambda *more: None)
print('they are taken')
"""


class Signals(testtools.TestCase):

    def test_standard_error_is_closed(self) -> None:
        """As with a supervisor that leaves nothing open."""
        done = subprocess.run(
            [sys.executable, '-c', CODE], stdout=subprocess.PIPE,
            preexec_fn=functools.partial(os.close, 2), timeout=60, text=True)
        self.assertEqual((0, 'they are taken\n'),
                         (done.returncode, done.stdout))


class Ending(testtools.TestCase):

    def test_a_signal_at_each_line_of_the_wait(self) -> None:
        ending = unix_signals.Ending()
        lines = 0

        def interrupt(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            sys.settrace(None)      # a handler is not interrupted by itself
            lines += 1
            ending.ask()
            sys.settrace(interrupt)
            return interrupt

        def wait() -> None:
            sys.settrace(interrupt)
            for _ in range(3):
                ending.wait(0.01)
            sys.settrace(None)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(20)
        self.assertFalse(waiting.is_alive(), f'after {lines} lines')
        self.assertTrue(ending.asked)
        self.assertGreater(lines, 3)

    def test_it_waits_no_longer_than_it_is_told(self) -> None:
        ending = unix_signals.Ending()
        ending.wait(0.0)
        ending.wait(0.01)
        self.assertFalse(ending.asked)
        threading.Timer(0.05, ending.ask).start()
        ending.wait(60)
        self.assertTrue(ending.asked)
