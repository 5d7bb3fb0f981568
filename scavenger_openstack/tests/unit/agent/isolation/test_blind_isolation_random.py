# SPDX-License-Identifier: Apache-2.0

"""500 random changes of CPUs, guests and cgroups on hosts of plain files.

The fast loop polls when the test says so, with a clock of the test: the same
seed makes the same changes and the same writes.
"""

from __future__ import annotations

import os
import pathlib
import random
import threading
from typing import Any

import fixtures
import testtools
from testtools import content

from scavenger_openstack.agent.isolation import fast_loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.tests import random_changes
from scavenger_openstack.tests.unit import cpusets

SEED = 1
CHANGES = 84        # 504 on six hosts
DEADLINE_S = 30.0


class Clock:
    """Each look at it is 0.4 s later."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 0.4
        return self._now

    def sleep(self, seconds: float) -> None:
        pass

    @staticmethod
    def thread_time() -> float:
        return 0.0


class Turns:
    """Stands for the reader of CPUs: any number of them is idle.

    The loop waits in here for its next turn.
    """

    loop: fast_loop.FastLoop

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._left = 0
        self._waits = False
        self._news = threading.Condition()

    def turn(self, polls: int) -> None:
        """Let the loop poll so many times, and wait until it has."""
        with self._news:
            self._left = polls
            self._news.notify_all()
            if not self._news.wait_for(
                    lambda: self._waits and not self._left, DEADLINE_S):
                raise AssertionError('the fast loop does not poll')

    def idle_count(self, cpus: frozenset[int]) -> int:
        with self._news:
            self._waits = True
            self._news.notify_all()
            while not self._left and not self.loop.stopping:
                self._news.wait(0.001)
            self._waits = False
            self._left = max(0, self._left - 1)
            return self._dice.randint(0, len(cpus))

    def refresh(self) -> None:
        pass

    def observe(self) -> None:
        pass

    def close(self) -> None:
        pass


class Loop(fast_loop.FastLoop):
    """One that its reader knows."""

    def __init__(self, running: Turns, *rest: Any, **options: Any) -> None:
        super().__init__(running, *rest, **options)
        running.loop = self


class TestRandomChanges(testtools.TestCase):

    def play(self, cpus: int, version: int) -> None:
        dice = random.Random(f'{SEED} {cpus} {version}')
        self.useFixture(fixtures.FakeLogger())
        self.turns = Turns(random.Random(f'idle {SEED} {cpus} {version}'))
        for name, value in (('drivers.kernel.sched_switch.SchedSwitch',
                             lambda: self.turns),
                            ('agent.isolation.fast_loop.FastLoop', Loop),
                            ('agent.isolation.fast_loop.RETRY_S', 0.002),
                            ('agent.isolation.fast_loop.time', Clock())):
            self.useFixture(fixtures.MonkeyPatch(
                f'scavenger_openstack.{name}', value))
        self.host = self.useFixture(cpusets.Host(cpus, version))
        changes = random_changes.Changes(self.host, dice)
        driver = Cgroups([random_changes.BATCH], [random_changes.WEB],
                         root_dir=str(self.host.root))
        self.addCleanup(driver.close)
        source = proc.Proc(str(self.host.root))
        self.addCleanup(source.close)
        agent = random_changes.Agent(driver, source, changes, perfiso.Params(
            buffer_cores=1, grow_interval_ms=0.1))
        self.addCleanup(agent.stop)
        observer = random_changes.Observer(self.host)
        given = changes.given()
        agent.tick()
        self.turn(agent, 3)
        done: list[str] = []
        for _ in range(CHANGES):
            done.append(changes.change())
            others = self.others()
            self.turn(agent, 2)     # before the agent has seen the change
            observer.judge(given)
            before, given = given, changes.given()
            agent.tick()
            self.turn(agent, 1)     # may have begun before the tick
            observer.judge(before, given)
            self.turn(agent, 3)
            observer.judge(given)
            if agent.isolates:
                observer.judge_rest(given)
            if observer.faults or others != self.others():
                break
        self.addDetail('changes', content.text_content(
            f'seed {SEED}; {len(done)} changes, {dict(changes.made)}; '
            f'{observer.judged} writes, off: {dict(agent.off)}, '
            f'the last changes {done[-5:]}'))
        self.assertEqual([], observer.faults)
        self.assertEqual(others, self.others())
        self.assertEqual([], agent.adopted)
        self.assertEqual({kind.__name__ for kind in changes.kinds},
                         set(changes.made))
        self.assertGreater(observer.judged, CHANGES if cpus > 2 else 20)

    def turn(self, agent: random_changes.Agent, polls: int) -> None:
        if agent.isolates:
            self.turns.turn(polls)

    def others(self) -> dict[str, str]:
        """All that is not background, but for what the kernel works out."""
        found = {}
        for where, below, names in os.walk(self.host.top):
            if random_changes.BATCH[1:] in below:
                below.remove(random_changes.BATCH[1:])
            for name in names:
                if 'effective' not in name:
                    path = pathlib.Path(where, name)
                    found[str(path)] = path.read_text()
        return found


def _add(cpus: int, version: int) -> None:
    def test(self: TestRandomChanges) -> None:
        self.play(cpus, version)
    setattr(TestRandomChanges, f'test_{cpus}_cpus_version_{version}', test)


for _cpus in (2, 8, 64):
    for _version in (1, 2):
        _add(_cpus, _version)
