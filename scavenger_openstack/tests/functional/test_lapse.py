# SPDX-License-Identifier: Apache-2.0

"""The agent and the watcher agree on what is in force, on real cgroups."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time

from scavenger_openstack.restore.records import now_s
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional import base

PARENTS = [f'/batch{number:02}' for number in range(24)]
LEASE_S = 2
ROUNDS = 10
LOOK_S = 1.0
"""Five ticks: what is in force is read back in one of four."""


class Lapse(agents.AgentTestCase):
    """The agent is stopped until its leases have run out, and continued while
    the watcher is in the middle of restoring its limits."""

    def setUp(self) -> None:
        super().setUp()
        for parent in PARENTS:
            self.tree.make(f'{parent}/a')
        self.configure(
            '[scavenger]', 'mode = enforce', 'use_memory = false',
            '[agent]', f'lease_s = {LEASE_S}', 'require_watcher = false',
            '[cgroups]', 'background_parents = '
            + ','.join(self.tree.name + parent for parent in PARENTS))

    def watching(self) -> subprocess.Popen[bytes]:
        self.state_dir.mkdir(mode=0o700)
        watcher = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.restore.program',
             '--watch', '--state-dir', str(self.state_dir)],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(watcher.wait, 30)
        self.addCleanup(watcher.kill)
        self.wait_for('it watches', (self.state_dir / 'watcher').exists)
        return watcher

    def idle_ones(self) -> int:
        return sum(self.tree.get('idle', parent) == '1'
                   for parent in PARENTS)

    def all_set(self) -> bool:
        return self.idle_ones() == len(PARENTS)

    def in_force(self, since_s: float) -> set[str]:
        """Of which the status of a later tick says that they are limited."""
        status = self.status()
        if float(str(status.get('time_s', -1))) < since_s:
            return set()
        return {cap['workload'] for cap in status['caps']  # type: ignore
                if cap['knob'] == 'cpu_idle'}

    def expiry(self) -> float:
        beat = json.loads((self.state_dir / 'heartbeat').read_text())
        return float(beat['expires_s'])

    def disagreed(self, since_s: float) -> set[str]:
        """What was at its original though the status said otherwise."""
        expires_s = self.expiry()
        before = self.in_force(since_s)
        originals = {self.tree.name + parent for parent in PARENTS
                     if self.tree.get('idle', parent) == '0'}
        found = before & originals & self.in_force(since_s)
        return found if now_s() < expires_s else set()

    def lapse(self, agent: subprocess.Popen[str],
              watcher: subprocess.Popen[bytes], chance: random.Random
              ) -> set[str]:
        """One stop of the agent, and one of the watcher at work."""
        time.sleep(chance.uniform(0, 0.5))
        agent.send_signal(signal.SIGSTOP)
        time.sleep(max(0.0, self.expiry() - now_s()))
        deadline = time.monotonic() + 30
        while self.all_set():       # and no pause: a pass is a few ms
            self.assertLess(time.monotonic(), deadline)
        time.sleep(chance.uniform(0, 0.003))
        watcher.send_signal(signal.SIGSTOP)
        since_s = now_s()
        agent.send_signal(signal.SIGCONT)
        wrong: set[str] = set()
        late_s = time.monotonic() + chance.uniform(0.2, 0.6)
        until_s = late_s + LOOK_S
        while time.monotonic() < until_s or not self.all_set():
            self.assertLess(time.monotonic(), until_s + 30)
            if time.monotonic() > late_s:
                watcher.send_signal(signal.SIGCONT)
            wrong |= self.disagreed(since_s)
            time.sleep(0.01)
        return wrong

    def test_past_its_leases(self) -> None:
        watcher = self.watching()
        agent = self.start('agent', 'run')
        self.addCleanup(agent.send_signal, signal.SIGCONT)
        self.wait_for('all limits are set', self.all_set)
        wrong = {}
        for seed in range(ROUNDS):
            with contextlib.ExitStack() as continued:
                continued.callback(watcher.send_signal, signal.SIGCONT)
                found = self.lapse(agent, watcher, random.Random(seed))
            if found:
                wrong[seed] = found
        agent.terminate()
        log = agent.communicate(timeout=60)[1]
        self.assertEqual({}, wrong, log)
        told = log.count('stood still: all limits')
        self.assertLessEqual(ROUNDS, told, log)
        if base.pace() < base.EMULATED:     # else some leases lapse besides
            self.assertEqual(ROUNDS, told, log)
        self.assertNotIn('another program', log)
        self.assertNotIn('Traceback', log)
        self.assertEqual(0, self.idle_ones())
