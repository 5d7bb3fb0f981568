# SPDX-License-Identifier: Apache-2.0

"""What the agent does on SIGHUP and SIGUSR2."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess
import sys
import time

from scavenger_openstack.tests.functional import agents

WAIT_S = 30.0


class Signals(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        # What is started below nohup would ignore it.
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        self.log = self.directory / 'log'
        self.configure('[scavenger]', 'mode = enforce')

    def run_logged(self) -> subprocess.Popen[str]:
        with self.log.open('w') as log:
            process = subprocess.Popen(
                self.command('standalone'), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, text=True)
        self.addCleanup(self._stop, process)
        self.until('started: ')
        self.until(lambda: self.ticks() > 2)
        return process

    def until(self, wanted: object) -> None:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if wanted() if callable(wanted) else (
                    str(wanted) in self.log.read_text()):
                return
            time.sleep(0.05)
        self.fail(f'{wanted} not within {WAIT_S} s:\n{self.log.read_text()}')

    def mode(self, name: str) -> str:
        controllers = self.status().get('controllers')
        return (controllers[name]['mode'] if isinstance(controllers, dict)
                else '')

    def hang_up(self, process: subprocess.Popen[str], *lines: str) -> None:
        """Change the file, and wait until it was read."""
        self.configure(*lines)
        before = self.log.read_text().count('the configuration')
        process.send_signal(signal.SIGHUP)
        self.until(lambda: self.log.read_text().count('the configuration')
                   > before)

    def test_modes_and_log_level(self) -> None:
        agent = self.run_logged()
        self.assertEqual('enforce', self.mode('scavenger'))
        self.until(lambda: self.leases())
        self.hang_up(agent, '[scavenger]', 'mode = observe', '[attribution]',
                     'mode = enforce', '[DEFAULT]', 'debug = true')
        self.until(lambda: self.mode('scavenger') == 'observe')
        self.until(lambda: self.idle() == '0')
        text = self.log.read_text()
        self.assertIn('scavenger observe', text)
        self.assertIn('but not [attribution] mode = enforce', text)
        self.assertEqual('observe', self.mode('attribution'))
        # A wrong file changes nothing, and says why in one line.
        self.hang_up(agent, '[scavenger]', 'mode = enforced')
        last = self.log.read_text().splitlines()
        found = [line for line in last if 'what was read before holds' in line]
        self.assertEqual(1, len(found), '\n'.join(last))
        self.assertIn('[scavenger] mode', found[0])
        ticks = self.ticks()
        self.until(lambda: self.ticks() > ticks + 1)
        self.assertEqual('observe', self.mode('scavenger'))
        # Back to what it started with.
        self.hang_up(agent, '[scavenger]', 'mode = enforce')
        self.until(lambda: self.mode('scavenger') == 'enforce')
        self.until(lambda: self.idle() == '1')
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(0, agent.wait(WAIT_S))
        self.assertEqual('0', self.idle())

    def test_stacks(self) -> None:
        agent = self.run_logged()
        agent.send_signal(signal.SIGUSR2)
        self.until('SIGUSR2: the stacks of all threads')
        text = self.log.read_text()
        self.assertRegex(text, r'thread 0x[0-9a-f]+ \(most recent call')
        self.assertIn('service.py', text)
        self.assertTrue(re.search(r'\d+ ticks, the last ended \d', text))
        agent.send_signal(signal.SIGUSR2)
        self.until(lambda: self.log.read_text().count('SIGUSR2: ') == 2)
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(0, agent.wait(WAIT_S))

    def test_hangup_of_a_terminal_ends_it(self) -> None:
        done = subprocess.run(
            [sys.executable, '-c', 'import pty, os, sys\n'
             'pid, fd = pty.fork()\n'
             'if not pid:\n'
             '    os.execv(sys.argv[1], sys.argv[1:])\n'
             'seen = b""\n'
             'while b"started: " not in seen:\n'
             '    seen += os.read(fd, 4096)\n'
             'os.close(fd)\n'      # the kernel sends SIGHUP
             'sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))',
             *self.command('agent', 'run')], timeout=60)
        self.assertEqual(0, done.returncode)
        self.assertFalse(pathlib.Path(self.state_dir, 'status.json').exists())
