# SPDX-License-Identifier: Apache-2.0

"""Memory limits, freezing and killing on cgroup v2."""

from __future__ import annotations

from collections.abc import Callable
import mmap
import os
import time

from scavenger_openstack import errors
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests.functional.guest_v2.tree import MIB
from scavenger_openstack.types import Knob


def grow(ready: Callable[[], object]) -> None:
    """Use up to 48 MiB, page by page."""
    kept = mmap.mmap(-1, 48 * MIB)
    ready()
    for place in range(0, len(kept), mmap.PAGESIZE):
        kept[place] = 1
    time.sleep(600)


class Memory(tree.GuestTestCase):

    def files(self) -> list[str]:
        return [self.tree.read('/batch/a', f'memory.{name}')
                for name in ('high', 'max')]

    def oom_kills(self) -> str:
        return self.tree.read('/batch/a', 'memory.events').splitlines()[-2]

    def test_memory_is_reclaimed_to_the_limit(self) -> None:
        self.tree.write('/batch/a', 'memory.high', str(300 * MIB))
        self.tree.write('/batch/a', 'memory.max', str(400 * MIB))
        pid = self.tree.run('/batch/a', tree.hold(16 * MIB, 64 * MIB))
        driver = self.driver()
        used = int(self.tree.read('/batch/a', 'memory.current'))
        self.assertGreater(used, 70 * MIB)
        # The page cache is not part of what it holds.
        held = self.one(driver).memory_bytes
        assert held is not None
        self.assertBetween(16 * MIB, held, 26 * MIB)
        self.assertEqual(300 * MIB, driver.read(self.job, Knob.MEMORY_BYTES))
        state = self.lease(driver, Knob.MEMORY_BYTES)
        self.assertEqual(40 * MIB, driver.write(
            self.job, Knob.MEMORY_BYTES, 40 * MIB, state))
        self.assertEqual([str(40 * MIB), str(109 * MIB)], self.files())
        self.assertLessEqual(
            int(self.tree.read('/batch/a', 'memory.current')), 40 * MIB)
        # Up again: never a memory.high above memory.max on the way.
        self.assertEqual(64 * MIB, driver.write(
            self.job, Knob.MEMORY_BYTES, 64 * MIB, state))
        self.assertEqual([str(64 * MIB), str(136 * MIB)], self.files())
        self.restore()
        self.assertIn(pid, self.tree.pids('/batch/a'))

    def test_growth_is_held_back_and_not_ended(self) -> None:
        driver = self.driver()
        state = self.lease(driver, Knob.MEMORY_BYTES)
        driver.write(self.job, Knob.MEMORY_BYTES, 32 * MIB, state)
        pid = self.tree.run('/batch/a', grow)
        self.wait_for('it grew past its limit', lambda: int(
            self.tree.read('/batch/a', 'memory.current')) > 35 * MIB)
        self.assertRaises(errors.Refused, driver.write, self.job,
                          Knob.MEMORY_BYTES, 32 * MIB, state)
        self.assertEqual('oom_kill 0', self.oom_kills())
        self.assertIn(pid, self.tree.pids('/batch/a'))
        self.restore()

    def test_memory_in_use_is_refused_then_frozen(self) -> None:
        pid = self.tree.run('/batch/a', tree.hold(48 * MIB))
        driver = self.driver()
        state = self.lease(driver, Knob.MEMORY_BYTES)
        refused = self.assertRaises(
            errors.Refused, driver.write, self.job, Knob.MEMORY_BYTES,
            32 * MIB)
        self.assertBetween(16 * MIB, refused.unmet_bytes, 24 * MIB)
        self.assertNotIn('\n', str(refused))
        # It grows slowly at best, but nothing was killed for it.
        self.assertEqual([str(32 * MIB), 'max'], self.files())
        self.assertIsNone(driver.read(self.job, Knob.MEMORY_BYTES, state))
        self.assertEqual('oom_kill 0', self.oom_kills())
        self.lease(driver, Knob.PAUSED)
        driver.write(self.job, Knob.PAUSED, 1)
        self.wait_for('it is frozen', lambda: 'frozen 1' in self.tree.read(
            '/batch/a', 'cgroup.events'))
        self.restore()
        self.assertIn(pid, self.tree.pids('/batch/a'))

    def test_memory_limit_at_what_is_held_is_not_refused(self) -> None:
        """No growth is what a fresh agent wants; nothing shall stand still
        for it because of slab that the kernel does not drop at once."""
        self.tree.run('/batch/a', tree.hold(16 * MIB, 8 * MIB))
        driver = self.driver()
        held = self.one(driver).memory_bytes
        assert held is not None
        self.lease(driver, Knob.MEMORY_BYTES)
        found = driver.write(self.job, Knob.MEMORY_BYTES, held)
        self.assertEqual(held // mmap.PAGESIZE * mmap.PAGESIZE, found)
        self.restore()

    def test_memory_root_plays_the_host(self) -> None:
        self.tree.write('', 'memory.max', str(200 * MIB))
        self.tree.run('/batch/a', tree.hold(16 * MIB, 32 * MIB))
        found = self.driver(memory_root=self.tree.name).memory()
        assert found is not None
        self.assertEqual((200 * MIB, 0), (found.total, found.refaults))
        assert found.available is not None
        self.assertBetween(170 * MIB, found.available, 184 * MIB)


class Paused(tree.GuestTestCase):

    def test_paused_stands_still_and_goes_on(self) -> None:
        self.tree.make('/batch/a/below')
        self.tree.run('/batch/a/below', tree.spin)
        driver = self.driver()
        self.assertEqual(0, driver.read(self.job, Knob.PAUSED))
        self.lease(driver, Knob.PAUSED)
        self.assertEqual(1, driver.write(self.job, Knob.PAUSED, 1))
        self.wait_for('it is frozen', lambda: 'frozen 1' in self.tree.read(
            '/batch/a', 'cgroup.events'))
        self.assertLess(self.rate(driver, 'cpu_s', 0.3), 0.02)
        self.restore()
        self.assertHolds(0.3, lambda: self.rate(driver, 'cpu_s', 0.3), 3)

    def test_paused_leaves_alone_what_others_froze(self) -> None:
        self.tree.write('/batch', 'cgroup.freeze', '1')
        driver = self.driver()
        self.assertEqual(0, driver.read(self.job, Knob.PAUSED))
        self.lease(driver, Knob.PAUSED)
        driver.write(self.job, Knob.PAUSED, 1)
        self.restore()
        self.assertEqual(['1', '0'], [
            self.tree.read(name, 'cgroup.freeze')
            for name in ('/batch', '/batch/a')])
        self.tree.write('/batch', 'cgroup.freeze', '0')


class Kill(tree.GuestTestCase):

    def test_kill_ends_all_below_and_nobody_else(self) -> None:
        for name in ('/batch/a/x', '/batch/a/below', '/batch/b'):
            self.tree.make(name)
        other = self.tree.run('/batch/b', tree.spin)
        self.tree.run('/batch/a/x', tree.hold(MIB))
        for _ in range(2):
            self.tree.run('/batch/a/below', tree.spin)
        # What is frozen has to be killed, too.
        self.tree.write('/batch/a/below', 'cgroup.freeze', '1')
        driver = self.driver(killable_parents=[self.parent])
        self.assertEqual(3, driver.kill(self.job))
        self.wait_for('nothing runs', lambda: not self.running(
            '/batch/a/x', '/batch/a/below'))
        self.assertIn(other, self.tree.pids('/batch/b'))
        self.assertEqual(0, driver.kill(self.job))

    def running(self, *below: str) -> list[int]:
        """Those that do not only wait for us to look at their exit code."""
        found = []
        for pid in set().union(*map(self.tree.pids, below)):
            with open(f'/proc/{pid}/stat') as file:
                if file.read().rpartition(') ')[2][0] not in 'ZX':
                    found.append(pid)
        return found

    def test_kill_needs_consent(self) -> None:
        pid = self.tree.run('/batch/a', tree.spin)
        self.assertRaises(errors.Unsupported, self.driver().kill, self.job)
        time.sleep(0.05)
        self.assertEqual((0, 0), os.waitpid(pid, os.WNOHANG))
