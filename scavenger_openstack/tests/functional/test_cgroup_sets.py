# SPDX-License-Identifier: Apache-2.0


"""CPU sets of whole subtrees of real cgroups, and the end of all in one."""

from __future__ import annotations

import gc
import os
import pathlib
import resource
import subprocess
import sys
import textwrap

from scavenger_openstack import errors
from scavenger_openstack.tests.functional.cgroup_cases import CgroupsCase
from scavenger_openstack.tests.functional.cgroup_cases import restore
from scavenger_openstack.tests.functional.cgroup_cases import SLEEP
from scavenger_openstack.tests.functional.cgroup_cases import SPIN
from scavenger_openstack.types import Knob


class TestCpuSet(CgroupsCase):

    def cpus(self, *below: str) -> list[str]:
        return [self.tree.read('cpuset', one, 'cpuset.cpus')
                for one in below]

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('for version 2 there is guest_v2/cpu.py')
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        for below in ('/bg/a', '/bg/a/deep', '/bg/b'):
            self.tree.make(below)

    def test_a_whole_subtree_moves(self) -> None:
        driver = self.driver()
        hog = self.job(SPIN, '/bg/a/deep')
        steps = driver.restore_actions(self.parent, Knob.CPU_SET)
        dirs = [step['dir'] for step in steps]
        self.assertEqual(4, len(dirs))
        self.assertEqual(dirs, sorted(dirs, key=lambda d: d.count('/')))
        everywhere = ('/bg', '/bg/a', '/bg/a/deep', '/bg/b')
        before = self.cpus(*everywhere)
        for cpus in ('0', '1', '0-1', '1'):
            self.assertEqual(cpus, driver.write(self.parent, Knob.CPU_SET,
                                                cpus))
            self.assertEqual([cpus] * 4, self.cpus(*everywhere))
        self.assertEqual({1}, os.sched_getaffinity(hog.pid))
        restore(steps)
        self.assertEqual(before, self.cpus(*everywhere))

    def test_one_workload(self) -> None:
        driver = self.driver()
        self.assertEqual('0', driver.write(f'{self.parent}/a', Knob.CPU_SET,
                                           '0'))
        self.assertEqual(['0-1', '0', '0', '0-1'], self.cpus(
            '/bg', '/bg/a', '/bg/a/deep', '/bg/b'))

    def test_own_sets_are_kept_within(self) -> None:
        for below in ('/bg/a/deep', '/bg/b'):
            self.tree.write('cpuset', below, 'cpuset.cpus', '1')
        everywhere = ('/bg', '/bg/a', '/bg/a/deep', '/bg/b')
        before = self.cpus(*everywhere)
        driver = self.driver()
        fast = driver.fast_cpu_set(self.parent)
        steps = driver.restore_actions(self.parent, Knob.CPU_SET)
        for cpus, found in (({0}, ['0', '0', '0', '0']),
                            ({0, 1}, ['0-1', '0-1', '1', '1']),
                            ({1}, ['1', '1', '1', '1']),
                            ({0}, ['0', '0', '0', '0'])):
            fast.set(frozenset(cpus))
            self.assertEqual(found, self.cpus(*everywhere))
        restore(steps)
        self.assertEqual(before, self.cpus(*everywhere))

    def test_restoring_through_a_pinned_cgroup_in_the_middle(self) -> None:
        for below in ('/bg/a/deep', '/bg/a'):
            self.tree.write('cpuset', below, 'cpuset.cpus', '1')
        everywhere = ('/bg', '/bg/a', '/bg/a/deep', '/bg/b')
        before = self.cpus(*everywhere)
        driver = self.driver()
        steps = driver.restore_actions(self.parent, Knob.CPU_SET)
        driver.write(self.parent, Knob.CPU_SET, '0')
        self.assertEqual(['0'] * 4, self.cpus(*everywhere))
        restore(steps)
        self.assertEqual(before, self.cpus(*everywhere))

    def test_others_make_remove_and_write(self) -> None:
        driver = self.driver()
        fast = driver.fast_cpu_set(self.parent)
        one, both = frozenset({0}), frozenset({0, 1})
        # Made behind our back: the parent cannot shrink before it.
        self.tree.make('/bg/new')
        fast.set(one)
        self.assertEqual(['0', '0'], self.cpus('/bg', '/bg/new'))
        # Made while narrow: it took that over, and widens with the rest.
        self.tree.make('/bg/born')
        fast.refresh()
        fast.set(both)
        self.assertEqual(['0-1', '0-1'], self.cpus('/bg/new', '/bg/born'))
        self.tree.delete('/bg/a')
        fast.set(one)
        self.assertEqual(['0', '0'], self.cpus('/bg', '/bg/b'))
        fast.set(both)
        # A set that another program gives a cgroup is its own from then on.
        self.tree.write('cpuset', '/bg/b', 'cpuset.cpus', '1')
        fast.refresh()
        fast.set(one)
        fast.set(both)
        self.assertEqual(['1', '0-1'], self.cpus('/bg/b', '/bg/new'))
        # One that has no set yet is left to its maker.
        self.tree.path('cpuset', '/bg/empty').mkdir()
        fast.refresh()
        fast.set(one)
        self.assertEqual([''], self.cpus('/bg/empty'))
        self.assertNotIn('/bg/empty', str(driver.restore_actions(
            self.parent, Knob.CPU_SET)))

    def test_nothing_is_written_twice(self) -> None:
        driver = self.driver()
        fast = driver.fast_cpu_set(self.parent)
        fast.set(frozenset({0}))
        self.tree.write('cpuset', '/bg/b', 'cpuset.cpus', '\n')
        fast.set(frozenset({0}))
        self.assertEqual([''], self.cpus('/bg/b'))

    def test_gone(self) -> None:
        driver = self.driver()
        fast = driver.fast_cpu_set(self.parent)
        self.tree.delete('/bg')
        self.assertRaises(errors.WorkloadGone, fast.set, frozenset({0}))
        self.assertRaises(errors.WorkloadGone, fast.refresh)
        self.assertRaises(errors.WorkloadGone, driver.write, self.parent,
                          Knob.CPU_SET, '0')
        self.tree.make('/bg')
        self.assertEqual('0', driver.write(self.parent, Knob.CPU_SET, '0'))


class TestKill(CgroupsCase):

    def test_opted_in(self) -> None:
        self.tree.make('/bg/a')
        self.tree.make('/bg/a/deep')
        driver = self.driver('b', killable_parents=[self.parent])
        beside = '/bg/a'
        if self.tree.version == 2:      # none has processes and children
            beside = '/bg/a/beside'
            self.tree.make(beside)
        inside = [self.up(SLEEP, beside), self.up(SLEEP, '/bg/a/deep'),
                  self.up(SLEEP, '/bg/a/deep')]
        outside = self.up(SLEEP, '/bg/b')
        driver.write(f'{self.parent}/a', Knob.PAUSED, 1)
        self.assertEqual(3, driver.kill(f'{self.parent}/a'))
        self.assertEqual([-9] * 3, [p.wait(30) for p in inside])
        self.assertIsNone(outside.poll())
        self.wait_for('nothing is left to kill', lambda: driver.kill(
            f'{self.parent}/a') == 0)
        self.assertRaises(errors.WorkloadGone, driver.kill,
                          f'{self.parent}/c')
        for name in (self.parent, self.tree.name, '/', f'{self.parent}/a/b'):
            self.assertRaises(errors.Unsupported, driver.kill, name)

    def test_those_that_multiply(self) -> None:
        driver = self.driver('a', killable_parents=[self.parent])
        self.up(textwrap.dedent('''
            import os, signal, time
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            print("up")
            for _ in range(200):
                if not os.fork():
                    time.sleep(60)
                time.sleep(0.0005)
            time.sleep(60)
            '''), '/bg/a')
        self.assertGreaterEqual(driver.kill(f'{self.parent}/a'), 1)
        self.wait_for('all have ended', lambda: not [
            pid for pid in self.tree.read(
                'memory', '/bg/a', 'cgroup.procs').split()
            if self.lives(pid)])

    def test_an_agent_that_dies_meanwhile(self) -> None:
        """No lease says that it has frozen what it ends."""
        self.needs_v1('version 2 has a call that ends all')
        self.tree.make('/bg/a')
        self.up(SLEEP, '/bg/a')
        code = textwrap.dedent(f"""
            import os
            from scavenger_openstack.drivers.cgroup import cgroups, kill
            kill._signal = lambda *args: os.kill(os.getpid(), 9)
            parents = [{self.parent!r}]
            cgroups.Cgroups(parents, killable_parents=parents).kill(
                {self.parent!r} + '/a')
            """)
        self.assertEqual(-9, subprocess.run(
            [sys.executable, '-c', code], timeout=60,
            check=False).returncode)
        self.assertEqual('THAWED', self.tree.get('frozen', '/bg/a'))

    @staticmethod
    def lives(pid: str) -> bool:
        """Whether it is more than a process that init has yet to reap."""
        try:
            text = pathlib.Path(f'/proc/{pid}/stat').read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return text.rpartition(') ')[2][0] not in 'ZX'

    def test_those_that_froze_themselves(self) -> None:
        self.tree.make('/bg/a')
        self.tree.make('/bg/a/deep')
        driver = self.driver(killable_parents=[self.parent])
        process = self.up(SLEEP, '/bg/a/deep')
        self.tree.put('frozen', '/bg/a/deep', 'FROZEN')
        self.assertEqual(1, driver.kill(f'{self.parent}/a'))
        self.assertEqual(-9, process.wait(30))

    def test_not_permitted(self) -> None:
        driver = self.driver('a', killable_parents=[self.parent])
        process = self.up(SLEEP, '/bg/a')
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        driver.sample()
        gc.collect()    # else it may give some back between
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE,
                        (soft, hard))
        for spare in range(8):
            # Each call of the kernel runs out of descriptors in turn.
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            taken = [int(name) for name in os.listdir('/proc/self/fd')]
            resource.setrlimit(resource.RLIMIT_NOFILE,
                               (max(taken) + spare, hard))
            full: list[int] = []
            try:
                while len(full) < 4096:
                    full.append(os.open('/dev/null', os.O_RDONLY))
            except OSError:
                pass
            for _ in range(min(spare, len(full))):
                os.close(full.pop())
            try:
                driver.kill(f'{self.parent}/a')
            except errors.DriverError as exc:
                self.assertIn('LimitNOFILE', str(exc))
            else:
                break
            finally:
                for fd in full:
                    os.close(fd)
        self.assertGreater(spare, 0)
        self.assertEqual(-9, process.wait(30))

    def test_not_opted_in(self) -> None:
        driver = self.driver('a')
        process = self.up(SLEEP, '/bg/a')
        exc = self.assertRaises(errors.Unsupported, driver.kill,
                                f'{self.parent}/a')
        self.assertIn('killable_parents', str(exc))
        self.assertIsNone(process.poll())
