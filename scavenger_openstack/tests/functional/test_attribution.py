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


"""A real agent names and limits a real antagonist, and nobody else.

A service that is due every 10 ms, a job that takes the same CPU for some
seconds and rests, at random, and one that hardly does anything.  The
times are short, so that it takes seconds; all else is as shipped.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import fixtures

from scavenger_openstack.demo import product
from scavenger_openstack.tests.functional import delays

DEADLINE_S = 60.0

CONFIG = """\
[agent]
interval_s = 0.25
controllers = attribution
[cgroups]
background_parents = {name}/back
foreground_parents = {name}/fore
[attribution]
mode = enforce
sample_s = 0.5
window_s = 60
"""

ALONG = '''
import os, random, signal, sys, time
os.sched_setaffinity(0, {{{cpu}}})
def work(cpu_s, every_s):
    print('up')
    due = time.monotonic()
    while True:
        until = time.thread_time() + cpu_s
        while time.thread_time() < until:
            pass
        # Whoever is late catches up: its load does not depend on others.
        due = max(due + every_s, time.monotonic() - 0.1)
        time.sleep(max(0, due - time.monotonic()))
'''

HOG = '''
hogs = []
for _ in range(3):
    hogs.append(os.fork())
    if not hogs[-1]:
        while True:
            pass
rng = random.Random(37)
print('up')
while True:
    for what in (signal.SIGSTOP, signal.SIGCONT):
        for pid in hogs:
            os.kill(pid, what)
        time.sleep(3 * rng.uniform(0.4, 1.6))
'''

QUOTA = 'cpu.cfs_quota_us'


class AttributionTest(delays.DelaysTestCase):

    def setUp(self) -> None:
        super().setUp()
        for below in ('/back/hog', '/back/steady'):
            self.tree.make(below)
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def agent(self) -> product.Status:
        """An agent that turns."""
        with (self.directory / 'agent.log').open('wb') as log:
            self.process = subprocess.Popen(product.command(
                self.directory, CONFIG.format(name=self.tree.name)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(self.stop)
        status = product.Status(self.directory)
        self.wait_for('the agent turns', status.look, 20)
        return status

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def run_along(self, below: str, code: str) -> None:
        cpu = max(os.sched_getaffinity(0))
        self.said(self.spawn(ALONG.format(cpu=cpu) + code, self.tree, below))

    def quota(self, below: str) -> int:
        return int(self.tree.read('cpu', below, QUOTA))

    def test_who_takes_the_cpu_is_limited(self) -> None:
        status = self.agent()
        self.run_along('/fore/victim', 'work(0.0035, 0.01)')
        self.run_along('/back/steady', 'work(0.001, 0.02)')
        self.run_along('/back/hog', HOG)
        hog = f'{self.tree.name}/back/hog'
        victim = f'{self.tree.name}/fore/victim'
        quotas: list[int] = []
        seen: list[dict[str, Any]] = []

        def limited_and_better() -> bool:
            if status.look():
                for one in status.last['incidents']:
                    self.assertEqual((victim, 'run_delay', 'core'), (
                        one['victim'], one['signal'], one['cause']))
                    self.assertLessEqual(set(one['antagonists']), {hog})
                    seen.append(one)
                for cap in status.caps():
                    self.assertEqual((hog, 'cpu_cores'),
                                     (cap['workload'], cap['knob']))
            quotas.append(self.quota('/back/hog'))
            return any(one['outcome'] == 'confirmed' for one in seen)

        self.wait_for('the hog is limited, and the victim better for it',
                      limited_and_better, DEADLINE_S)
        least = min(quota for quota in quotas if quota > 0)
        self.assertLess(least, 50_000)  # it took three fifths of each 100 ms
        self.assertEqual((-1, -1), (self.quota('/back/steady'),
                                    self.quota('/fore/victim')))
        self.stop()
        said = (self.directory / 'agent.log').read_text()
        self.assertEqual(0, self.process.returncode, said)
        self.assertNotIn('Traceback', said)
        self.assertEqual(-1, self.quota('/back/hog'))
