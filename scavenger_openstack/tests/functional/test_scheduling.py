# SPDX-License-Identifier: Apache-2.0

"""What runs before ordinary processes: an agent that enforces, its watcher."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional import base

WITHOUT_SYS_NICE = ('setpriv', '--inh-caps=-sys_nice',
                    '--bounding-set=-sys_nice')

THREADS = """
import os, threading
from scavenger_openstack.restore import scheduling
wait = threading.Event()
threading.Thread(target=wait.wait).start()
print(scheduling.process())
threading.Thread(target=wait.wait).start()
print(*(os.sched_getscheduler(int(task))
        for task in os.listdir('/proc/self/task')))
wait.set()
"""
RUNAWAY = """
from scavenger_openstack.restore import scheduling
scheduling.RUNAWAY_S = 0.1
scheduling.process()
while True: pass
"""


def need_real_time(test: base.FunctionalTestCase) -> None:
    """Skip the test where the machine gives root no real-time priority."""
    done = subprocess.run(
        [sys.executable, '-c', 'import os; os.sched_setscheduler('
         '0, os.SCHED_RR, os.sched_param(1))'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        test.skipTest('needs real-time priority, which is refused here: '
                      + done.stderr.strip().splitlines()[-1])


def policies(pid: int) -> set[int]:
    """Those of all threads of a process."""
    return {os.sched_getscheduler(int(task))
            for task in os.listdir(f'/proc/{pid}/task')}


class SchedulingTest(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        need_real_time(self)

    @staticmethod
    def python(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, '-c', program], timeout=60,
                              check=False, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL)

    def test_all_threads_and_those_to_come(self) -> None:
        done = self.python(THREADS)
        self.assertEqual(f'real-time\n{" ".join(3 * [str(os.SCHED_RR)])}\n',
                         done.stdout, done.stderr)

    def test_one_that_spins_is_ended(self) -> None:
        self.assertEqual(-signal.SIGXCPU, self.python(RUNAWAY).returncode)


class AgentTest(agents.AgentTestCase):

    def start_both(self, *lines: str) -> tuple[int, int]:
        """Process ids of an agent that turns and of its watcher."""
        self.configure(*lines)
        process = self.start('standalone')
        self.wait_for('it turns', self.ticks)
        return process.pid, int(pathlib.Path(
            self.state_dir / 'watcher.lock').read_text().split()[0])

    def test_one_that_enforces(self) -> None:
        need_real_time(self)
        agent, watcher = self.start_both('[scavenger]', 'mode = enforce')
        self.assertEqual({os.SCHED_RR}, policies(agent))
        self.assertEqual({os.SCHED_RR}, policies(watcher))
        self.assertEqual('real-time', self.status()['scheduled'])

    def test_one_that_observes(self) -> None:
        agent, _ = self.start_both('[scavenger]', 'mode = observe')
        self.assertEqual({os.SCHED_OTHER}, policies(agent))
        self.assertEqual('normal', self.status()['scheduled'])

    def test_by_the_limit_of_a_unit(self) -> None:
        """LimitRTPRIO=1, and no CAP_SYS_NICE."""
        need_real_time(self)
        if subprocess.run(['prlimit', '--rtprio=1', 'true'],
                          check=False).returncode:
            self.skipTest('needs CAP_SYS_RESOURCE')
        self.configure('[scavenger]', 'mode = enforce')
        process = self.start('standalone', by=('prlimit', '--rtprio=1',
                                               *WITHOUT_SYS_NICE))
        self.wait_for('it turns', self.ticks)
        self.assertEqual({os.SCHED_RR}, policies(process.pid))

    def test_a_host_that_refuses_it(self) -> None:
        self.configure('[scavenger]', 'mode = enforce')
        process = self.start('standalone', by=WITHOUT_SYS_NICE)
        self.wait_for('it turns', self.ticks)
        self.assertEqual({os.SCHED_OTHER}, policies(process.pid))
        process.terminate()
        said = process.communicate(timeout=60)[1]
        self.assertIn('real-time priority 1 is refused', said)
