# SPDX-License-Identifier: Apache-2.0

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


LATE = """
import signal
import time
from scavenger_openstack.agent import unix_signals

signal.signal(signal.SIGALRM, lambda *more: time.sleep(0.1))
signal.setitimer(signal.ITIMER_REAL, 0.08)
unix_signals.StopRequest().wait(0.1)
print('over')
"""


class StopRequest(testtools.TestCase):

    def test_a_signal_at_each_line_of_the_wait(self) -> None:
        requests: list[unix_signals.StopRequest] = []
        lines = 0

        def interrupt(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal lines
            sys.settrace(None)      # a handler is not interrupted by itself
            lines += 1
            requests[-1].request()
            sys.settrace(interrupt)
            return interrupt

        def wait() -> None:
            for _ in range(3):
                requests.append(unix_signals.StopRequest())
                sys.settrace(interrupt)
                requests[-1].wait(0.01)
                sys.settrace(None)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(20)
        self.assertFalse(waiting.is_alive(), f'after {lines} lines')
        self.assertTrue(all(one.requested for one in requests))
        self.assertGreater(lines, 3)

    def test_a_handler_at_work_when_the_time_is_over(self) -> None:
        done = subprocess.run([sys.executable, '-c', LATE], timeout=60,
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual('over\n', done.stdout)

    def test_it_waits_no_longer_than_it_is_told(self) -> None:
        request = unix_signals.StopRequest()
        request.wait(0.0)
        request.wait(0.01)
        self.assertFalse(request.requested)
        threading.Timer(0.05, request.request).start()
        for _ in range(2):
            request.wait(600)
            self.assertTrue(request.requested)
