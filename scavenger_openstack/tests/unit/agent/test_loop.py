# SPDX-License-Identifier: Apache-2.0

"""The loop with its driver, leases and actuator, on a host of plain files."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import time

import fixtures

from scavenger_openstack.agent.apply.actuator import READ_TICKS
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.restore import records
from scavenger_openstack.tests.unit.agent.loops import A
from scavenger_openstack.tests.unit.agent.loops import B
from scavenger_openstack.tests.unit.agent.loops import LoopTestCase
from scavenger_openstack.tests.unit.agent.loops import SERVICE
from scavenger_openstack.tests.unit import host_tree
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

CORES, MEMORY = Knob.CPU_CORES, Knob.MEMORY_BYTES
FREE = 'max 100000'
LIMIT = 256 * host_tree.MIB
DEADLINE_S = 30.0


class LoopTest(LoopTestCase):

    def quota(self, path: str = A) -> str:
        return self.host.read(path, 'cpu.max')

    def test_limits_are_set_changed_and_removed(self) -> None:
        loop = self.loop()
        tick = self.turn(loop, (A, CORES, 0.5), (B, MEMORY, LIMIT))
        self.assertEqual((2, []), (tick.outcome.written,
                                   tick.outcome.problems))
        self.assertEqual({A, B, SERVICE}, set(self.wish.seen))
        self.assertEqual('50000 100000', self.quota())
        self.assertEqual(FREE, self.quota(B))
        self.assertIn(str(LIMIT), (self.host.read(B, 'memory.high'),
                                          self.host.read(B, 'memory.max')))
        self.assertEqual({(A, CORES), (B, MEMORY)},
                         set(self.leases.held()))
        before = self.records()
        self.turn(loop, (A, CORES, 0.25), (B, MEMORY, LIMIT))
        self.assertEqual('25000 100000', self.quota())
        self.assertEqual(before, self.records())
        tick = self.turn(loop, (A, CORES, 0.25))
        self.assertEqual(1, tick.outcome.removed)
        self.assertEqual(('max', 'max'), (
            self.host.read(B, 'memory.high'),
            self.host.read(B, 'memory.max')))
        self.turn(loop)
        self.assertEqual((FREE, []), (self.quota(), self.records()))

    def test_the_lease_is_there_before_the_limit(self) -> None:
        """And as long as it is: it goes after the last write."""
        loop = self.loop()
        found: list[list[str]] = []
        self.host.before_write = lambda: found.append(
            [one['workload'] for one in self.records()])
        self.turn(loop, (A, CORES, 0.5))
        self.turn(loop)
        self.assertEqual([[A], [A]], found)
        self.assertEqual([], self.records())

    def test_no_limit_while_leases_do_not_reach_the_disk(self) -> None:
        def fail(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        loop = self.loop()
        before = self.files()
        with fixtures.MonkeyPatch('os.fsync', fail):
            tick = self.turn(loop, (A, CORES, 0.5))
        self.assertEqual((before, []), (self.files(), self.records()))
        self.assertEqual((0, 1), (tick.outcome.written,
                                  len(tick.outcome.problems)))
        self.turn(loop, (A, CORES, 0.5))
        self.assertEqual('50000 100000', self.quota())

    def test_no_limit_once_the_leases_have_run_out(self) -> None:
        """Nor for a moment, where they do between decision and write."""
        clock, step = time.clock_gettime, self.wish.step
        moved_s = 0.0

        def late(now: float, rates: Rates) -> Decision:
            nonlocal moved_s
            moved_s = 600.0
            return step(now, rates)

        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.lease.heartbeat._clock',
            lambda which: clock(which) + moved_s))
        loop = self.loop()
        quotas = []
        self.host.before_write = lambda: quotas.append(self.quota())
        with fixtures.MonkeyPatch('time.clock_gettime',
                                  lambda which: clock(which) + moved_s):
            self.wish.step = late   # type: ignore[method-assign]
            self.turn(loop, (A, CORES, 0.5))
        self.assertEqual({FREE}, {*quotas, self.quota()})

    def test_observing_touches_nothing(self) -> None:
        before = self.files()
        tick = self.turn(self.loop(Mode.OBSERVE), (A, CORES, 0.5))
        self.assertEqual([(A, CORES, 0.5)],
                         [cap[:3] for cap in tick.would])
        self.assertEqual(before, self.files())
        self.assertEqual([], self.records())

    def files(self) -> dict[str, str]:
        return {str(path): path.read_text().strip()
                for path in self.host.top.rglob('*') if path.is_file()}

    def test_the_stop_file_takes_all_back(self) -> None:
        loop = self.loop()
        before = self.files()
        limits = (A, CORES, 0.5), (B, CORES, 0.5)
        self.turn(loop, *limits)
        (self.state_dir / 'stop').touch()
        tick = self.turn(loop, *limits)
        self.assertTrue(tick.stopped)
        self.assertEqual((before, []), (self.files(), self.records()))
        (self.state_dir / 'stop').unlink()
        self.turn(loop, *limits)
        self.assertEqual('50000 100000', self.quota(B))

    def test_nothing_is_set_without_a_watcher(self) -> None:
        tick = self.turn(self.loop(watched=False), (A, CORES, 0.5))
        self.assertTrue(tick.unwatched)
        self.assertEqual((FREE, []), (self.quota(), self.records()))
        self.assertIn('no scavenger-restore --watch', self.log.output)

    def test_what_another_program_sets_is_restored(self) -> None:
        """Ours stays in force while it is the tighter one."""
        loop = self.loop()
        self.turn(loop, (A, CORES, 0.5))
        self.host.write(A, 'cpu.max', '150000 100000')
        self.turn(loop, (A, CORES, 0.5), ticks=READ_TICKS + 1)
        self.assertEqual('50000 100000', self.quota())
        self.host.write(A, 'cpu.max', '30000 100000')
        self.turn(loop, (A, CORES, 0.5), ticks=READ_TICKS + 1)
        self.assertEqual('30000 100000', self.quota())
        self.turn(loop)
        self.assertEqual(('30000 100000', []), (self.quota(),
                                                self.records()))

    def test_never_below_the_floor_nor_foreground(self) -> None:
        loop = self.loop()
        self.turn(loop, (A, CORES, 0.001), (SERVICE, CORES, 0.5))
        self.assertEqual('10000 100000', self.quota())
        self.assertEqual(FREE, self.quota(SERVICE))

    def test_the_floor_that_the_configuration_sets(self) -> None:
        self.turn(self.loop(options=['floor_cpu_cores = 0.3']),
                  (A, CORES, 0.001))
        self.assertEqual('30000 100000', self.quota())

    def test_memory_that_cannot_be_reclaimed_pauses(self) -> None:
        """Without its parent's consent nothing is killed."""
        loop = self.loop()
        tick = self.turn(loop, (B, MEMORY, 64 * host_tree.MIB))
        self.assertEqual(36 * host_tree.MIB, tick.outcome.unmet[B])
        tick = self.turn(loop, (B, MEMORY, 64 * host_tree.MIB))
        self.assertEqual(36 * host_tree.MIB, tick.unmet[B])
        self.assertEqual('1', self.host.read(B, 'cgroup.freeze'))
        self.assertEqual(0, loop.counters['kills'])
        self.turn(loop, (B, MEMORY, LIMIT), ticks=2)
        self.assertEqual('0', self.host.read(B, 'cgroup.freeze'))
        self.turn(loop)
        self.assertEqual([], self.records())

    def test_page_cache_is_taken_and_restored(self) -> None:
        """While the service reads again what it had in its page cache."""
        mib = host_tree.MIB
        self.host.put('proc/meminfo', 'MemTotal: 4194304 kB\nMemFree: 9 kB\n'
                                      'MemAvailable: 3145728 kB')
        self.host.write(A, 'memory.current', str(800 * mib))
        self.host.write(A, 'memory.stat', f'inactive_file {700 * mib}\n'
                                          'workingset_refault_file 5')
        loop = self.loop(controller=scavenger.Controller(
            scavenger.Params(use_memory=False)))
        highs = []
        for tick in range(8):
            self.host.put('proc/vmstat',
                          f'workingset_refault_file {5000 * tick}')
            self.now += 1.0
            done = loop.tick(self.now)
            highs.append(self.host.read(A, 'memory.high'))
        assert done.sample is not None
        page = os.sysconf('SC_PAGE_SIZE')
        by_id = {one.workload.id: one for one in done.sample.workloads}
        self.assertEqual((700 * mib, 5 * page), (
            by_id[A].page_cache_bytes, by_id[A].refault_bytes))
        self.assertIsNone(by_id[SERVICE].refault_bytes)
        # A tenth of it in each tick; here none is dropped.
        self.assertGreater(int(highs[2]), 800 * mib)
        self.assertEqual([str(size * mib) for size in (730, 660, 590)],
                         highs[3:6])
        # Below what it has now, it would be killed.
        self.assertEqual(str(660 * mib * 9 // 8 + 64 * mib),
                         self.host.read(A, 'memory.max'))
        self.assertEqual('max', self.host.read(SERVICE, 'memory.high'))
        self.assertNotIn((A, Knob.PAUSED), self.leases.held())
        self.assertEqual([], loop.close())
        self.assertEqual(('max', 'max'), (self.host.read(A, 'memory.high'),
                                          self.host.read(A, 'memory.max')))

    def test_a_kill_is_leased_as_a_pause(self) -> None:
        """It freezes first where the kernel has no call for it, and may end
        half-way."""
        child = subprocess.Popen(['sleep', '600'])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        loop = self.loop(options=['killable_parents = /batch'])
        self.host.write(B, 'cgroup.procs', str(child.pid))
        self.host.write(B, 'cgroup.kill', '')
        found: list[list[str]] = []
        self.host.before_write = lambda: found.append(
            [one['knob'] for one in self.records()])
        self.wish.shortage_bytes = 1.0
        self.turn(loop, (B, MEMORY, 64 * host_tree.MIB), ticks=2)
        self.assertEqual((1, '1'), (loop.counters['kills'],
                                    self.host.read(B, 'cgroup.kill')))
        self.assertIn(Knob.PAUSED, found[-1])

    def test_a_workload_that_vanishes(self) -> None:
        """The others keep their limits, and its lease goes."""
        loop = self.loop()
        self.turn(loop, (A, CORES, 0.5), (B, CORES, 0.5))
        self.host.delete(A)
        self.turn(loop, (B, CORES, 0.5), ticks=2)
        self.assertEqual('50000 100000', self.quota(B))
        self.assertEqual([B], [one['workload'] for one in self.records()])

    def test_one_that_is_made_again(self) -> None:
        """Its original is that of the new one."""
        loop = self.loop()
        self.turn(loop, (A, CORES, 0.5))
        self.host.delete(A)
        self.host.cgroup(A)
        self.host.write(A, 'cpu.max', '80000 100000')
        self.turn(loop, (A, CORES, 0.5), ticks=READ_TICKS + 1)
        self.assertEqual('50000 100000', self.quota())
        self.turn(loop)
        self.assertEqual('80000 100000', self.quota())

    def test_a_lease_that_was_left_is_of_the_cgroup_that_it_names(self
                                                                  ) -> None:
        """An earlier agent's limit could not be restored at the start, and
        then the cgroup was made again: the new one has a lease of its own."""
        here = self.host.top / 'batch/a'
        self.leave_a_lease(here)
        (here / 'cpu.max').unlink()
        (here / 'cpu.max').mkdir()      # neither read nor written
        loop = self.loop()
        self.assertIn((A, CORES), self.leases.held())
        here.rename(self.state_dir.parent / 'gone')     # keeps its inode
        self.host.cgroup(A)
        leased: list[list[int]] = []
        self.host.before_write = lambda: leased.append(
            [step['inode'] for one in self.records() for step in one['steps']])
        self.turn(loop, (A, CORES, 0.5), ticks=3)
        self.assertEqual('50000 100000', self.quota())
        self.assertEqual([[here.stat().st_ino]], leased)

    def leave_a_lease(self, path: pathlib.Path) -> None:
        (self.state_dir / 'leases').mkdir(mode=0o700, parents=True)
        self.state_dir.chmod(0o700)
        directory = os.open(self.state_dir / 'leases', os.O_RDONLY)
        self.addCleanup(os.close, directory)
        records.save(directory, records.Lease(
            A, str(CORES), records.boot_id(), [
                {'do': 'write', 'dir': str(path), 'file': 'cpu.max',
                 'inode': path.stat().st_ino, 'text': FREE}], name='a.json'))

    def test_a_limit_is_no_original_after_a_standstill(self) -> None:
        """Nothing restored it; the agent begins again, and limits at once."""
        loop = self.loop(lease_s=3.0)
        self.turn(loop, (A, CORES, 0.5))
        deadline = time.monotonic() + DEADLINE_S
        while not self.leases.expired():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        tick = self.turn(loop, (A, CORES, 0.25))
        self.assertTrue(tick.reset)
        self.assertIn('stood still', self.log.output)
        self.assertEqual('25000 100000', self.quota())
        loop.close()
        self.assertEqual((FREE, []), (self.quota(), self.records()))

    def test_close_takes_all_back(self) -> None:
        loop = self.loop()
        before = self.files()
        self.turn(loop, (A, CORES, 0.5), (B, MEMORY, LIMIT))
        self.assertEqual([], loop.close())
        self.assertEqual(before, self.files())
