# SPDX-License-Identifier: Apache-2.0


"""Whose delays are looked at, where there are more processes than allowed."""

from __future__ import annotations

from collections import Counter
import os
import pathlib
import signal

from scavenger_openstack.drivers.delay.accounting import Settings
from scavenger_openstack.drivers.delay.accounting import TURN_TICKS
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import delays
from scavenger_openstack.types import WorkloadSample

SLEEPERS = '''
import os, time
pages = bytearray(1 << 16)
def copy():
    for page in range(0, len(pages), 4096):
        pages[page] = 1
        until = time.monotonic() + 0.0006
        while time.monotonic() < until:
            pass
other = os.fork()
if not other:
    time.sleep(600)
copy()
os.kill(other, 9)
os.wait()
for _ in range({more}):
    if not os.fork():
        copy()
        break
else:
    print('up')
time.sleep(600)
'''
"""Each copies pages that it shares, by which it is known as accounted; some
milliseconds long, for an emulated clock may stand still from tick to tick."""


class TurnsTest(delays.DelaysTestCase):

    def idle(self, below: str, processes: int) -> None:
        """A workload of so many processes that do nothing."""
        self.tree.make(below)
        self.said(self.spawn(SLEEPERS.format(more=processes - 1), self.tree,
                             below))
        self.wait_for('all are there', lambda: len(self.pids(
            below)) == processes)
        # One that has not run yet has nothing by which it could be known.
        self.wait_for('all sleep', lambda: {'S'} == {
            pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(
                ') ')[2][0] for pid in self.pids(below)})

    def limited(self, v1: int, v2: int, cpu_s: float = 1.0) -> None:
        """A new agent with so many tasks.  With version 2 a workload costs
        half as many: its threads need not be asked."""
        self.tasks = v1 if self.tree.version == 1 else v2
        self.new(Settings(tasks=self.tasks, cpu_s=cpu_s))

    def pids(self, below: str) -> list[str]:
        return self.tree.read('blkio', below, 'cgroup.procs').split()

    def known(self, ticks: int) -> Counter[str]:
        """In how many of some ticks each workload had both signals."""
        found: Counter[str] = Counter()
        for _ in range(ticks):
            found.update(name for name, sample in self.look().items()
                         if None not in (sample.io_wait_s,
                                         sample.run_delay_s))
        return found

    def test_turns(self) -> None:
        for name in ('one', 'two', 'three'):
            self.idle(f'/back/{name}', 10)
        self.limited(45, 25)
        self.known(2)       # the first ticks cost more
        first = self.known(1)
        half = TURN_TICKS // 2
        found = self.known(half)
        self.assertEqual({half}, set(found.values()))   # none changes
        self.assertEqual(set(first), set(found))
        self.assertLess(len(found), 4)
        self.assertEqual({'back/one', 'back/two', 'back/three',
                          'fore/victim'}, set(self.known(3 * TURN_TICKS)))
        self.assertEqual(1, self.logs.output.count('in turns of'))

    def test_the_foreground_comes_first(self) -> None:
        for number in range(10):
            self.idle(f'/back/batch{number}', 25)
        self.idle('/fore/victim', 3)
        ticks = 3 * TURN_TICKS
        self.limited(100, 60)
        found = self.known(ticks)
        self.assertEqual(ticks, found['fore/victim'])
        self.assertGreater(len(found), 2)
        self.new(Settings(cpu_s=1e-9))      # for one a tick
        found = self.known(ticks)
        self.assertEqual(ticks, found.pop('fore/victim'))
        if base.pace() < base.EMULATED:     # else its clock is too coarse
            self.assertLess(sum(found.values()), ticks // 10, str(found))

    def test_small_ones_do_not_wait_for_large_ones(self) -> None:
        """Nor these for ever for room beside the small ones."""
        large = [f'back/a{number}' for number in range(3)]
        small = [f'back/b{number}' for number in range(20)]
        for name in large:
            self.idle(f'/{name}', 78)
        for name in small:
            self.idle(f'/{name}', 4)
        self.limited(240, 160)      # each process costs twice at first
        self.known(TURN_TICKS)      # how large all are has to be seen first
        turns = 2 * (len(large) + 1)
        found = self.known(turns * TURN_TICKS)
        for name in small:
            self.assertGreater(found[name], 0.49 * turns * TURN_TICKS,
                               str(found))
        for name in large:
            self.assertGreaterEqual(found[name], TURN_TICKS, str(found))

    def test_too_many_processes(self) -> None:
        def one() -> WorkloadSample:
            return self.look()['back/one']

        self.idle('/back/one', 10)
        self.limited(20, 15)
        for _ in range(3):
            self.assertEqual((None, None),
                             (one().io_wait_s, one().run_delay_s))
        words = 'io_wait and run_delay are unknown: it has more than ' \
                f'[cgroups] delay_tasks = {self.tasks}'
        self.assertEqual(1, self.logs.output.count(words))
        # Another one of that name is told about again.
        self.tree.delete('/back/one')
        self.look()
        self.idle('/back/one', 10)
        self.look()
        self.assertEqual(2, self.logs.output.count(words))
        # Fewer are seen with the next turn.
        self.tree.delete('/back/one')
        self.look()
        self.idle('/back/one', 9)
        pids = self.pids('/back/one')
        self.look()
        self.assertIsNone(one().run_delay_s)
        for pid in pids[3:]:
            os.kill(int(pid), signal.SIGKILL)
        self.wait_for('these are dead', lambda: len(self.pids(
            '/back/one')) == 3)
        self.known(TURN_TICKS)
        self.assertIsNotNone(one().run_delay_s)
        self.new(Settings(tasks=0))
        self.assertIsNone(self.victim().io_wait_s)
        self.assertIn('is 0', self.io.facts()['why'])
