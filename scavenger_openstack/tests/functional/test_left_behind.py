# SPDX-License-Identifier: Apache-2.0

"""A functional test that leaves something running fails, and it ends."""

from __future__ import annotations

from collections.abc import Callable
import subprocess
import sys
import threading

import testtools

from scavenger_openstack.tests.functional import base


class LeftBehindTest(base.FunctionalTestCase):

    def play(self, body: Callable[[], object]) -> str:
        """Return the failures of a test with this body."""
        class Played(base.FunctionalTestCase):
            def runTest(self) -> None:
                body()

        result = testtools.TestResult()
        Played('runTest').run(result)
        return '\n'.join(text for _, text in result.failures)

    def test_a_process(self) -> None:
        processes = []
        failures = self.play(lambda: processes.append(subprocess.Popen(
            [sys.executable, '-c', 'import time; time.sleep(600)'])))
        self.assertIn('time.sleep(600)', failures)
        process, = processes
        self.assertEqual(-9, process.wait(30))

    def test_a_thread(self) -> None:
        end = threading.Event()
        self.addCleanup(end.set)
        self.patch(base, 'THREADS_END_S', 0.1)
        self.assertIn('its threads have ended', self.play(
            threading.Thread(target=end.wait).start))

    def test_a_thread_that_waits_for_a_process(self) -> None:
        """Both are reported, and the process ends."""
        self.patch(base, 'THREADS_END_S', 0.1)
        processes = []

        def body() -> None:
            process = subprocess.Popen(
                [sys.executable, '-c', 'import time; time.sleep(600)'])
            self.addCleanup(process.kill)
            processes.append(process)
            threading.Thread(target=process.wait).start()

        failures = self.play(body)
        self.assertIn('its threads have ended', failures)
        self.assertIn('time.sleep(600)', failures)
        self.assertEqual(-9, processes[0].wait(30))

    def test_a_process_may_have_any_name(self) -> None:
        process = self.spawn('import ctypes, time\n'
                             'ctypes.CDLL(None).prctl(15, b"\\xff")\n'
                             'print(flush=True)\n'
                             'time.sleep(600)')
        assert process.stdout is not None
        process.stdout.readline()
        self.assertIn(process.pid, base.children())

    def test_nothing(self) -> None:
        self.assertEqual('', self.play(lambda: subprocess.run(
            [sys.executable, '-c', ''], check=True)))
