# SPDX-License-Identifier: Apache-2.0

"""The real loop over real cgroups, one tick at a time."""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from typing import Any

import fixtures

from scavenger_openstack.agent.apply.actuator import READ_TICKS
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision.controller import DETECTOR
from scavenger_openstack.decision.orders import NO_ORDERS
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision.orders import Override
from scavenger_openstack.decision.orders import Overrides
from scavenger_openstack.restore import abilities
from scavenger_openstack.tests.functional.loops import LoopTestCase
from scavenger_openstack.tests.functional.loops import Wish
from scavenger_openstack.tests import watching
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

MIB = 2**20


class Faulty(Wish):
    """A detector that fails when it is told to."""

    name = 'faulty'
    kind = DETECTOR
    fails = False

    def compare(self, specs: object) -> None:
        """It has none."""

    def allow(self, budget: object) -> None:
        """It limits all the same."""

    def evidence(self, incident: object) -> tuple[()]:
        return ()

    def step(self, now: float, rates: Rates) -> Decision:
        if self.fails:
            raise ZeroDivisionError
        return super().step(now, rates)


class LoopTest(LoopTestCase):

    def test_caps_are_set_changed_and_removed(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        quotas = []
        for cores in (None, 0.5, 0.25, 0.75, None):
            wish.want(*([(self.id('/batch/a'), Knob.CPU_CORES, cores)]
                        if cores else []))
            loop.tick(self.now)
            quotas.append(self.quota('/batch/a'))
        self.assertEqual(['-1', '50000', '25000', '75000', '-1'], quotas)
        self.assertEqual({}, dict(self.leases.held()))

    def test_observe_touches_nothing_and_says_what_it_would(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.OBSERVE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        tick = loop.tick(self.now)
        self.assertEqual('-1', self.quota('/batch/a'))
        self.assertEqual([0.5], [cap.value for cap in tick.would])
        self.assertEqual({}, dict(self.leases.held()))

    def test_a_detector_that_fails_loses_its_caps_alone(self) -> None:
        detector, wish = Faulty(), Wish()
        loop = self.loop((detector, Mode.ENFORCE), (wish, Mode.ENFORCE))
        detector.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        wish.want((self.id('/batch/b'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        self.assertEqual('50000', self.quota('/batch/a'))
        logs = self.useFixture(fixtures.FakeLogger())
        detector.fails = True
        for _ in range(3):
            self.now += 1
            loop.tick(self.now)
        self.assertEqual(('-1', '50000'), (self.quota('/batch/a'),
                                           self.quota('/batch/b')))
        self.assertEqual(1, logs.output.count('faulty failed; its limits'))
        self.assertIn('ZeroDivisionError', logs.output)

    def test_the_stop_file_takes_all_back(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        (self.state_dir / 'stop').touch()
        self.assertTrue(loop.tick(self.now).stopped)
        self.assertEqual('-1', self.quota('/batch/a'))
        (self.state_dir / 'stop').unlink()
        loop.tick(self.now)
        self.assertEqual('50000', self.quota('/batch/a'))

    def test_a_stop_file_between_two_ticks_takes_all_back(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        (self.state_dir / 'stop').touch()
        (self.state_dir / 'stop').unlink()
        tick = loop.tick(self.now)
        self.assertEqual('the stop file was made and is removed again',
                         tick.why_stopped)
        self.assertEqual('-1', self.quota('/batch/a'))
        self.assertEqual({}, self.leases.held())
        self.assertFalse(loop.tick(self.now).stopped)
        self.assertEqual('50000', self.quota('/batch/a'))

    def test_nothing_is_set_without_a_watcher(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE), watched=False)
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        self.assertTrue(loop.tick(self.now).unwatched)
        self.assertEqual('-1', self.quota('/batch/a'))
        # A watcher that died leaves its files, but no lock.
        watcher = watching.Watching(self.state_dir)
        with watcher:
            self.assertFalse(loop.tick(self.now).unwatched)
            self.assertEqual('50000', self.quota('/batch/a'))
        self.assertTrue(loop.tick(self.now).unwatched)
        self.assertEqual('-1', self.quota('/batch/a'))

    def test_only_what_the_watcher_can_restore(self) -> None:
        """The others go on; what it can no longer restore is removed."""
        self.needs_v1('version 2 has one mount for all limits')
        logs = self.useFixture(fixtures.FakeLogger())
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE), watched=False)
        watcher = self.useFixture(watching.Watching(self.state_dir))
        memory = abilities.of_mount(str(self.tree.mounts['memory']))
        watcher.kinds = {**watcher.kinds, memory: 'read-only; mount it rw'}
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5),
                  (self.id('/batch/a'), Knob.MEMORY_BYTES, 64 * MIB),
                  (self.id('/batch/b'), Knob.MEMORY_BYTES, 64 * MIB))
        unlimited = self.limit('/batch/a')
        tick = loop.tick(self.now)
        self.assertEqual(('50000', unlimited),
                         (self.quota('/batch/a'), self.limit('/batch/a')))
        self.assertEqual(1, len(tick.outcome.problems))
        self.assertIn('read-only; mount it rw', tick.outcome.problems[0])
        loop.tick(self.now)
        self.assertEqual(1, logs.output.count('mount it rw'), logs.output)
        self.assertIn('no limits below ', logs.output)

        watcher.kinds = {**watcher.kinds, memory: ''}
        loop.tick(self.now)
        self.assertEqual(('50000', 64 * MIB),
                         (self.quota('/batch/a'), self.limit('/batch/a')))
        self.assertIn('may be set', logs.output)

        watcher.kinds = {**watcher.kinds, memory: 'read-only again'}
        for _ in range(2):
            tick = loop.tick(self.now)
            self.assertEqual(
                ('50000', unlimited),
                (self.quota('/batch/a'), self.limit('/batch/a')))
        self.assertEqual({(self.id('/batch/a'), Knob.CPU_CORES)},
                         set(self.leases.held()))

    def test_never_below_the_floor_nor_above_the_own_limit(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        self.tree.put('quota', '/batch/b', '20000')
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.01),
                  (self.id('/batch/b'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        self.assertEqual(('10000', '20000'),
                         (self.quota('/batch/a'), self.quota('/batch/b')))

    def test_what_another_program_writes_becomes_the_original(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        # Looser than ours: ours stays in force, theirs is restored.
        self.tree.put('quota', '/batch/a', '90000')
        self.look(loop)
        self.assertEqual('50000', self.quota('/batch/a'))
        wish.want()
        loop.tick(self.now)
        self.assertEqual('90000', self.quota('/batch/a'))
        # Tighter than ours: theirs is in force.
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        self.tree.put('quota', '/batch/a', '30000')
        self.look(loop)
        self.assertEqual('30000', self.quota('/batch/a'))
        wish.want()
        loop.tick(self.now)
        self.assertEqual('30000', self.quota('/batch/a'))

    def test_another_program_makes_groups_idle(self) -> None:
        """The one above, then ours before we do, then ours under our limit."""
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        idle = self.id('/batch'), Knob.CPU_IDLE, 1
        where = '', '/batch', '/services'

        def turn(*wishes: tuple[str, Knob, int]) -> list[str]:
            wish.want(*wishes)
            self.look(loop)
            return [self.tree.get('idle', below) for below in where]

        self.tree.put('idle', '', '1')
        self.assertEqual(['1', '1', '0'], turn(idle))
        self.assertEqual(['1', '0', '0'], turn())
        self.tree.put('idle', '', '0')
        self.tree.put('idle', '/batch', '1')
        self.assertEqual(['0', '1', '0'], turn(idle))
        self.assertEqual({}, dict(self.leases.held()))
        self.assertEqual(['0', '1', '0'], turn())
        self.tree.put('idle', '/batch', '0')
        turn(idle)
        # It takes ours back, gives a weight, and is idle again.
        self.tree.put('idle', '/batch', '0')
        self.tree.put('weight', '/batch', '50')
        self.assertEqual(['0', '1', '0'], turn(idle))
        self.assertEqual(['0', '0', '0'], turn())
        self.assertEqual('50', self.tree.get('weight', '/batch'))

    def test_a_group_born_under_a_cap_is_freed_too(self) -> None:
        """A child that inherits a capped CPU set gets the real one back."""
        self.needs_v1('in version 2 nothing copies a set')
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        before = self.tree.get('cpus', '/batch')
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch'), Knob.CPU_SET, '0'))
        loop.tick(self.now)
        self.tree.make('/batch/c')
        self.assertEqual('0', self.tree.get('cpus', '/batch/c'))
        wish.want((self.id('/batch'), Knob.CPU_SET, '1'))
        loop.tick(self.now)
        self.assertEqual('1', self.tree.get('cpus', '/batch/c'))
        wish.want()
        loop.tick(self.now)
        self.assertEqual([before] * 3, [
            self.tree.get('cpus', below)
            for below in ('/batch', '/batch/a', '/batch/c')])

    def test_a_workload_that_vanishes_does_not_hurt_the_others(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5),
                  (self.id('/batch/b'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        self.tree.delete('/batch/a')
        self.look(loop)
        tick = loop.tick(self.now)
        self.assertEqual([], tick.outcome.problems)
        self.assertEqual([self.id('/batch/b')],
                         [key[0] for key in self.leases.held()])
        # What is still there is regulated on, though the other is wanted.
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5),
                  (self.id('/batch/b'), Knob.CPU_CORES, 0.25))
        self.assertEqual([], loop.tick(self.now).outcome.problems)
        self.assertEqual('25000', self.quota('/batch/b'))
        self.tree.make('/batch/a')
        self.look(loop)
        self.assertEqual('50000', self.quota('/batch/a'))
        wish.want()
        loop.tick(self.now)
        self.assertEqual('-1', self.quota('/batch/a'))

    def test_odd_names_are_limited_like_others(self) -> None:
        """A tenant's choice of a name prevents no limit."""
        names = ['/batch/a\udcff', '/batch/b\x1b[2J', '/batch/c\u200b d']
        for name in names:
            self.tree.make(name)
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want(*((self.id(name), Knob.CPU_CORES, 0.5) for name in names))
        tick = loop.tick(self.now)
        self.assertEqual([], tick.outcome.problems)
        self.assertEqual(['50000'] * 3, [self.quota(name) for name in names])
        wish.want()
        loop.tick(self.now)
        self.assertEqual(['-1'] * 3, [self.quota(name) for name in names])

    def test_a_group_made_again_between_two_ticks(self) -> None:
        wish = Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        wish.want((self.id('/batch/a'), Knob.CPU_CORES, 0.5))
        loop.tick(self.now)
        self.tree.delete('/batch/a')
        self.tree.make('/batch/a')
        self.tree.put('quota', '/batch/a', '70000')
        self.look(loop)
        loop.tick(self.now)
        self.assertEqual('50000', self.quota('/batch/a'))
        wish.want()
        loop.tick(self.now)
        self.assertEqual('70000', self.quota('/batch/a'))

    def test_a_group_made_again_as_its_limits_change(self) -> None:
        """No lease on the old group counts for a write to the new one."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        name, wish = self.id('/batch/a'), Wish()
        loop = self.loop((wish, Mode.ENFORCE))
        before = self.tree.get('cpus', '/batch/a')

        def limits() -> tuple[str, str]:
            return self.quota('/batch/a'), self.tree.get('cpus', '/batch/a')

        # Five ticks each time: in some of them knobs are not read first.
        for _ in range(READ_TICKS):
            wish.want((name, Knob.CPU_CORES, 0.5), (name, Knob.CPU_SET, '0'))
            loop.tick(self.now)
            self.tree.delete('/batch/a')
            self.tree.make('/batch/a')
            self.tree.put('quota', '/batch/a', '70000')
            wish.want((name, Knob.CPU_CORES, 0.25), (name, Knob.CPU_SET, '1'))
            for _ in range(3):
                loop.tick(self.now)
            self.assertEqual(('25000', '1'), limits())
            wish.want()
            loop.tick(self.now)
            self.assertEqual(('70000', before), limits())

    def test_the_fast_loop_ends_before_all_is_removed(self) -> None:
        """Else it takes away again what has no lease any more."""
        before, busy, loop = self.narrowed()
        self.assertEqual([], loop.close())
        # Room, and none again: it would answer that in milliseconds.
        for process in busy:
            process.kill()
            process.wait(30)
        time.sleep(0.3)
        self.keep_busy()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            self.assertEqual(before, self.cpu_set())
            time.sleep(0.01)

    def test_the_stop_file_ends_the_fast_loop(self) -> None:
        before, _, loop = self.narrowed()
        (self.state_dir / 'stop').touch()
        self.assertTrue(loop.tick(self.now).stopped)
        self.assertEqual((before, {}),
                         (self.cpu_set(), dict(self.leases.held())))
        # It would answer the busy CPUs in milliseconds.
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            self.assertEqual(before, self.cpu_set())
            time.sleep(0.01)

    def test_the_fast_loop_ends_where_the_host_cannot_be_read(self) -> None:
        """Else its limits come back without a lease when all is stopped."""
        others = set(threading.enumerate())
        before, _, loop = self.narrowed()
        self.driver.blind = True
        loop.tick(self.now)
        self.assertNotEqual(before, self.cpu_set())
        (self.state_dir / 'stop').touch()
        loop.tick(self.now)
        self.assertEqual((before, {}),
                         (self.cpu_set(), dict(self.leases.held())))
        self.assertNotIn('fast-loop', [
            thread.name for thread in {*threading.enumerate()} - others])

    def narrowed(self) -> tuple[str, list[subprocess.Popen[str]],
                                loop_.Loop]:
        """Return the CPU set before, what keeps the CPUs busy, and a loop
        whose fast loop has narrowed the set."""
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        before = self.cpu_set()
        busy = self.keep_busy()
        loop = self.loop(isolated=True)
        self.addCleanup(loop.close)
        loop.tick(self.now)
        self.wait_for('the set is narrowed',
                      lambda: self.cpu_set() != before)
        return before, busy, loop

    def keep_busy(self) -> list[subprocess.Popen[str]]:
        return [self.spawn('while True: pass', self.tree, '/batch/a')
                for _ in os.sched_getaffinity(0)]

    def cpu_set(self) -> str:
        return self.tree.get('cpus', '/batch')


class MemoryTest(LoopTestCase):
    """A foreground jump is answered in the tick that sees it."""

    def settle(self, *options: str, **words: Any) -> loop_.Loop:
        """A 1 GiB host with a learnt foreground and a batch job of 400 MiB.

        """
        self.tree.put('memory', '', str(1024 * MIB))
        self.hold_memory('/services/s', 100)
        self.hold_memory('/batch/a', 400)
        controller = scavenger.Controller(
            scavenger.Params(memory_window_s=4))
        loop = self.loop((controller, Mode.ENFORCE), options=(
            f'memory_root = {self.tree.name}', *options), **words)
        for _ in range(8):
            tick = self.turn(loop)
        self.assertEqual({}, tick.outcome.unmet)
        return loop

    def turn(self, loop: loop_.Loop) -> loop_.Tick:
        self.now += 1
        return loop.tick(self.now)

    def test_the_limit_follows_the_foreground_within_a_tick(self) -> None:
        loop = self.settle()
        before = self.limit('/batch/a') + self.limit('/batch/b')
        self.hold_memory('/services/s', 200)
        self.turn(loop)
        after = self.limit('/batch/a') + self.limit('/batch/b')
        self.assertGreater(before - after, 190 * MIB)
        self.assertLess(after, (1024 - 300) * MIB)
        self.assertGreater(self.limit('/batch/a'), 400 * MIB)

    def test_refused_memory_freezes_without_consent(self) -> None:
        loop = self.settle()
        self.hold_memory('/services/s', 520)
        tick = self.turn(loop)
        self.assertIn(self.id('/batch/a'), tick.outcome.unmet)
        self.turn(loop)
        self.assertEqual('FROZEN', self.tree.get('frozen', '/batch/a'))
        self.assertEqual(0, loop.counters['kills'])
        # The foreground goes: the job may run again.
        self.tree.delete('/services/s')
        for _ in range(6):
            self.turn(loop)
        self.assertEqual('THAWED', self.tree.get('frozen', '/batch/a'))

    def test_what_becomes_foreground_runs_in_the_same_tick(self) -> None:
        found = NO_ORDERS
        loop = self.settle(orders=lambda: found)
        self.hold_memory('/services/s', 520)
        self.turn(loop)
        self.turn(loop)
        self.assertEqual('FROZEN', self.tree.get('frozen', '/batch/a'))
        found = Orders(foreground=frozenset(('',)))     # no VM: all
        self.turn(loop)
        self.assertEqual('THAWED', self.tree.get('frozen', '/batch/a'))
        self.assertEqual({}, self.leases.held())

    def test_an_operators_limit_that_is_refused_pauses_nothing(self) -> None:
        found = NO_ORDERS
        loop = self.settle(f'killable_parents = {self.tree.name}/batch',
                           orders=lambda: found)
        name = self.id('/batch/a')
        found = Orders(overrides=Overrides([Override(
            '7', name, '', Knob.MEMORY_BYTES, 100 * MIB, 'a test',
            math.inf)]))
        for _ in range(3):
            tick = self.turn(loop)
            self.assertGreater(tick.outcome.unmet[name], 290 * MIB)
            self.assertEqual('THAWED', self.tree.get('frozen', '/batch/a'))
        [why] = tick.outcome.problems
        self.assertIn(f'{name}: memory limit of 100 MiB not in force', why)
        self.assertIn('a test (override 7)', why)
        # Nor where the foreground needs what it has.
        self.hold_memory('/services/s', 520)
        self.turn(loop)
        self.turn(loop)
        self.assertEqual('THAWED', self.tree.get('frozen', '/batch/a'))
        self.assertEqual(0, loop.counters['kills'])
        # Without it, the foreground's need counts.
        found = NO_ORDERS
        self.wait_for('it is killed', lambda: self.turn(loop)
                      and loop.counters['kills'], 8)
        self.assertEqual(1, loop.counters['kills'])

    def test_refused_memory_kills_with_consent_in_the_next_tick(self) -> None:
        loop = self.settle(f'killable_parents = {self.tree.name}/batch')
        self.hold_memory('/services/s', 520)
        self.turn(loop)
        self.assertEqual(0, loop.counters['kills'])
        self.turn(loop)
        self.wait_for('the memory is free', lambda: int(
            self.tree.get('memory_use', '/batch/a')) < 10 * MIB, 8)
        _, action, count = loop.actions[-1]
        self.assertEqual(('kill', self.id('/batch/a'), 1),
                         (action.kind, action.workload, count))
        self.turn(loop)
        self.assertLess(self.limit('/batch/a'), 400 * MIB)
