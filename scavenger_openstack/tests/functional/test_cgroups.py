# SPDX-License-Identifier: Apache-2.0


"""Cgroups of the real machine as workloads with counters."""

from __future__ import annotations

import os
import pathlib
import resource
import subprocess
import textwrap
import time

import fixtures

from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.cgroup import discovery
from scavenger_openstack.drivers.cgroup import kill
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.cgroup_cases import CgroupsCase
from scavenger_openstack.tests.functional.cgroup_cases import HOLD
from scavenger_openstack.tests.functional.cgroup_cases import MIB
from scavenger_openstack.tests.functional.cgroup_cases import restore
from scavenger_openstack.tests.functional.cgroup_cases import SLEEP
from scavenger_openstack.tests.functional.cgroup_cases import SPIN
from scavenger_openstack.tests.unit import mount_files
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class TestSample(CgroupsCase):

    def test_counters(self) -> None:
        driver = self.driver('a')
        self.up(HOLD.format(size=40 * MIB), '/bg/a')
        first = self.one(driver, f'{self.parent}/a')
        self.assertEqual(0, first.throttled_s)
        self.assertIsNone(first.run_delay_s)
        self.assertIsNone(first.net_tx_bytes)
        self.job(SPIN, '/bg/a')
        self.wait_for('its CPU time is seen', lambda: self.cores(
            driver, f'{self.parent}/a', 0.3) > 0.2)

    def test_working_set_is_without_page_cache(self) -> None:
        driver = self.driver('a')
        folder = self.useFixture(fixtures.TempDir(
            rootdir='/var/tmp')).path
        self.up(textwrap.dedent(f'''
            import os, time
            kept = bytearray(b"x") * {40 * MIB}
            with open({folder!r} + "/cache", "wb") as file:
                for _ in range(30):
                    file.write(os.urandom({MIB}))
                file.flush()
                os.fsync(file.fileno())
            print("up")
            time.sleep(60)
            '''), '/bg/a')
        usage = int(self.tree.get('memory_use', '/bg/a'))
        self.assertGreater(usage, 65 * MIB)

        def settled() -> bool:
            held = self.one(driver, f'{self.parent}/a').memory_bytes
            return held is not None and 40 * MIB < held < 55 * MIB

        self.wait_for('40 MiB and some for Python', settled)

    def test_who_it_is(self) -> None:
        self.tree.make('/fg')
        self.tree.make('/fg/web')
        self.tree.make('/bg/b')
        self.tree.make('/bg/b/deeper')
        self.tree.put('memory', '/bg/b',
                        str(64 * MIB))
        self.tree.put('quota', '/bg/b', '50000')
        driver = self.driver('c', foreground_parents=[f'{self.tree.name}/fg'],
                             killable_parents=[self.parent])
        found = {s.workload.id: s.workload for s in driver.sample()}
        self.assertEqual({f'{self.parent}/b', f'{self.parent}/c',
                          f'{self.tree.name}/fg/web'}, set(found))
        b, c = found[f'{self.parent}/b'], found[f'{self.parent}/c']
        web = found[f'{self.tree.name}/fg/web']
        self.assertEqual((Priority.BACKGROUND, 'parent', self.parent, 0.5,
                          64 * MIB, None, True),
                         (b.priority, b.source, b.group, b.vcpus,
                          b.memory_allotment_bytes, b.allowed_cpus,
                          b.killable))
        self.assertEqual((Priority.FOREGROUND, web.id, False, None),
                         (web.priority, web.group, web.killable,
                          web.memory_allotment_bytes))
        self.assertEqual(os.cpu_count(), c.vcpus)
        # b was made before c, though both were found at the same instant.
        self.assertLess(b.created_s, c.created_s)
        again = {s.workload.id: s.workload for s in driver.sample()}
        self.assertIs(b, again[b.id])

    def test_group_is_configured(self) -> None:
        """What is above may come to hold others."""
        self.tree.make('/bg/inner')
        self.tree.make('/bg/inner/x')
        for groups, expected in (((), f'{self.parent}/inner'),
                                 ((self.parent,), self.parent)):
            driver = Cgroups([f'{self.parent}/inner'],
                             background_groups=groups)
            self.addCleanup(driver.close)
            self.assertEqual(expected, driver.sample()[0].workload.group)
        driver.write(self.parent, Knob.CPU_IDLE, 1)
        self.assertRaises(errors.Unsupported, driver.write, self.tree.name,
                          Knob.CPU_IDLE, 1)

    def test_group_leaves_room_for_foreground_that_comes_later(self) -> None:
        self.tree.make('/bg/inner')
        self.tree.make('/bg/inner/x')
        driver = Cgroups([f'{self.parent}/inner'],
                         foreground_parents=[f'{self.parent}/late'])
        self.addCleanup(driver.close)
        group = driver.sample()[0].workload.group
        self.assertEqual(f'{self.parent}/inner', group)
        driver.write(group, Knob.CPU_CORES, 0.5)

    def test_parent_with_tasks_and_no_children_is_a_workload(self) -> None:
        driver = self.driver()
        self.assertEqual((), driver.sample())
        self.job(SLEEP, '/bg')
        self.assertEqual([self.parent],
                         [s.workload.id for s in driver.sample()])
        self.tree.make('/bg/child')
        self.assertEqual([f'{self.parent}/child'],
                         [s.workload.id for s in driver.sample()])

    def test_parent_that_comes_later(self) -> None:
        late = f'{self.tree.name}/late'
        self.tree.make('/bg/a')
        driver = Cgroups([late, self.parent])
        self.addCleanup(driver.close)
        for _ in range(3):
            self.assertEqual([f'{self.parent}/a'],
                             [s.workload.id for s in driver.sample()])
        lines = [line for line in self.logs.output.splitlines()
                 if f'cannot read the cgroup {late}' in line]
        self.assertEqual(1, len(lines), self.logs.output)
        self.tree.make('/late')
        self.tree.make('/late/b')
        self.assertEqual({f'{self.parent}/a', f'{late}/b'},
                         {s.workload.id for s in driver.sample()})

    def test_vanished_in_the_middle(self) -> None:
        self.needs_v1('a cgroup of version 2 vanishes as a whole')
        driver = self.driver('a', 'b')
        self.assertEqual(2, len(driver.sample()))
        # Gone where it is read, still there where it is looked for.
        self.tree.path('cpuacct', '/bg/a').rmdir()
        self.assertEqual([f'{self.parent}/b'],
                         [s.workload.id for s in driver.sample()])
        self.tree.delete('/bg/a')
        self.assertEqual([f'{self.parent}/b'],
                         [s.workload.id for s in driver.sample()])
        self.assertRaises(errors.WorkloadGone, driver.read,
                          f'{self.parent}/a', Knob.CPU_CORES)
        self.assertNotIn('WARNING', self.logs.output)

    def test_made_anew_is_another_workload(self) -> None:
        driver = self.driver('a')
        self.job(SPIN, '/bg/a')
        time.sleep(0.1)
        old = self.one(driver, f'{self.parent}/a')
        self.tree.delete('/bg/a')
        self.tree.make('/bg/a')
        driver.sample()     # the old one is gone
        new = self.one(driver, f'{self.parent}/a')
        assert old.cpu_s and new.cpu_s is not None
        self.assertLess(new.cpu_s, old.cpu_s)
        self.assertGreater(new.workload.created_s, old.workload.created_s)

    def test_the_same_after_a_restart(self) -> None:
        found: list[dict[str, float]] = []
        for _ in range(2):
            driver = self.driver() if found else self.driver('a', 'b')
            found.append({s.workload.id: s.workload.created_s
                          for s in driver.sample()})
            driver.close()
            time.sleep(1.0)
        self.assertEqual(found[0], found[1])
        self.assertEqual(2, len(set(found[0].values())))

    def test_out_of_descriptors_is_not_no_workloads(self) -> None:
        driver = self.driver('a')
        self.assertEqual(1, len(driver.sample()))
        self.tree.make('/bg/b')     # has to be looked for
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            exc = self.assertRaises(errors.DriverError, driver.sample)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertIn('LimitNOFILE', str(exc))
        self.assertEqual(2, len(driver.sample()))

    def test_foreground_that_is_pinned_later(self) -> None:
        self.tree.make('/fg')
        names = [self.tree.make(f'/fg/{name}') for name in ('web', 'db')]
        driver = self.driver(foreground_parents=[f'{self.tree.name}/fg'])
        for _ in range(5):
            before = driver.sample()[0].workload
        self.assertIs(before, driver.sample()[0].workload)
        self.tree.put('cpus', '/fg/web', '1')
        for _ in range(4):
            driver.sample()
        self.assertEqual(frozenset({1}),
                         self.one(driver, names[0]).workload.allowed_cpus)

    def test_quota_of_somebody_else_is_noticed(self) -> None:
        driver = self.driver('a')
        for _ in range(5):
            driver.sample()
        self.tree.put('quota', '/bg/a', '10000')
        self.job(SPIN, '/bg/a')
        self.wait_for('it is throttled', lambda: self.one(
            driver, f'{self.parent}/a').throttled_s)

    def test_hierarchies_that_fill_one_by_one(self) -> None:
        self.needs_v1('version 2 has one hierarchy')
        driver = self.driver()
        self.tree.path('cpu', '/bg/slow').mkdir()
        self.assertIsNone(self.one(driver, f'{self.parent}/slow').cpu_s)
        self.tree.make('/bg/slow')
        self.tree.put('memory', '/bg/slow',
                        str(32 * MIB))
        found = self.one(driver, f'{self.parent}/slow')
        self.assertEqual(0, found.cpu_s)
        self.assertEqual(32 * MIB, found.workload.memory_allotment_bytes)

    def test_own_limits_are_not_taken_from_our_caps(self) -> None:
        driver = self.driver('a')
        name = f'{self.parent}/a'
        before = self.one(driver, name).workload
        driver.restore_actions(name, Knob.MEMORY_BYTES)
        driver.write(name, Knob.MEMORY_BYTES, 32 * MIB)
        driver.restore_actions(name, Knob.CPU_CORES)
        driver.write(name, Knob.CPU_CORES, 0.2)
        for _ in range(5):
            self.assertIs(before, self.one(driver, name).workload)
        # One that is born below a narrowed group has the group's full set.
        driver.write(self.parent, Knob.CPU_SET, '0')
        self.tree.make('/bg/newborn')
        born = self.one(driver, f'{self.parent}/newborn').workload
        self.assertIsNone(born.allowed_cpus)

    def test_pinned_workload(self) -> None:
        self.tree.make('/bg/pinned')
        self.tree.put('cpus', '/bg/pinned', '1')
        driver = self.driver()
        found = self.one(driver, f'{self.parent}/pinned').workload
        self.assertEqual((frozenset({1}), 1.0),
                         (found.allowed_cpus, found.vcpus))

    def test_memory_that_a_cgroup_plays(self) -> None:
        self.tree.put('memory', '',
                        str(200 * MIB))
        driver = self.driver('a', memory_root=self.tree.name)
        self.up(HOLD.format(size=50 * MIB), '/bg/a')
        found = driver.memory()
        assert found is not None
        self.assertEqual(200 * MIB, found.total)
        assert found.available is not None and found.free is not None
        self.assertTrue(130 * MIB < found.available < 150 * MIB, found)
        self.assertTrue(100 * MIB < found.free <= found.available, found)
        self.assertIsNone(self.driver().memory())

    def test_memory_root_without_a_limit(self) -> None:
        driver = self.driver(memory_root=self.tree.name)
        for _ in range(2):
            self.assertIsNone(driver.memory())
        self.assertEqual(1, self.logs.output.count('sets no limit'))

    def test_pressure_where_the_v2_tree_has_the_same_path(self) -> None:
        self._make_unified('/bg/a')
        driver = self.driver('a', 'b')
        procs = f'/sys/fs/cgroup/unified{self.parent}/a/cgroup.procs'
        for _ in range(3):
            spinner = self.job(SPIN, '/bg/a')
            pathlib.Path(procs).write_text(str(spinner.pid))
        driver.write(f'{self.parent}/a', Knob.CPU_SET, '0')
        before = self.one(driver, f'{self.parent}/a').psi_cpu_s
        time.sleep(0.5)
        after = self.one(driver, f'{self.parent}/a').psi_cpu_s
        assert before is not None and after is not None
        self.assertTrue(0.1 < after - before < 5, after - before)
        self.assertIsNone(self.one(driver, f'{self.parent}/b').psi_cpu_s)

    def _make_unified(self, below: str) -> None:
        unified = pathlib.Path('/sys/fs/cgroup/unified')
        if not unified.is_dir():
            self.skipTest('needs the v2 tree beside v1')
        path = unified
        for part in f'{self.tree.name}{below}'.strip('/').split('/'):
            path = path / part
            path.mkdir()
            self.addCleanup(base.remove_cgroup, path)


class TestUnified(base.FunctionalTestCase):
    """What the v2 tree beside v1 can do here: a driver that sees only it."""

    def setUp(self) -> None:
        super().setUp()
        unified = pathlib.Path('/sys/fs/cgroup/unified')
        if not (unified / 'cgroup.controllers').exists():
            self.skipTest('needs the v2 tree beside v1')
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'sys').symlink_to('/sys')
        mount_files.mount(root, '/sys/fs/cgroup/unified cgroup2 rw')
        self.parent = f'/scv-test-v2-{os.getpid()}'
        self.top = pathlib.Path(f'{unified}{self.parent}')
        self.top.mkdir()
        self.addCleanup(base.remove_cgroup, self.top)
        self.job = self.top / 'job'
        self.job.mkdir()
        self.addCleanup(self.end)
        self.driver = Cgroups([self.parent], killable_parents=[self.parent],
                              root_dir=str(root))
        self.addCleanup(self.driver.close)
        self.name = f'{self.parent}/job'

    def end(self) -> None:
        if self.job.exists():
            (self.job / 'cgroup.kill').write_text('1')
            base.remove_cgroup(self.job)

    def start(self) -> subprocess.Popen[str]:
        return self.spawn(
            f'open("{self.job}/cgroup.procs", "w").write("0")\n'
            'print("up")\n' + SPIN)

    def wait_until_frozen(self) -> None:
        """A thread may run on until its next way into the kernel."""
        deadline = time.monotonic() + 30
        while 'frozen 1' not in (self.job / 'cgroup.events').read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_all_that_is_there(self) -> None:
        process = self.start()
        assert process.stdout is not None
        process.stdout.readline()
        self.wait_for('its CPU time', lambda: (
            self.driver.sample()[0].cpu_s or 0.0) > 0.05)
        sample, = self.driver.sample()
        self.assertIsNotNone(sample.psi_cpu_s)
        self.assertIsNotNone(sample.psi_memory_s)
        self.assertIsNone(sample.memory_bytes)
        self.assertIsNone(sample.throttled_s)
        steps = self.driver.restore_actions(self.name, Knob.PAUSED)
        self.assertEqual(1, self.driver.write(self.name, Knob.PAUSED, 1))
        self.wait_until_frozen()
        before = self.driver.sample()[0].cpu_s
        time.sleep(0.2)
        self.assertEqual(before, self.driver.sample()[0].cpu_s)
        restore(steps)
        self.assertEqual(0, self.driver.read(self.name, Knob.PAUSED))
        self.assertRaises(errors.Unsupported, self.driver.write, self.name,
                          Knob.MEMORY_BYTES, 64 * MIB)
        self.assertEqual(1, self.driver.kill(self.name))
        self.assertEqual(-9, process.wait(30))

    def test_pressure_that_is_turned_off(self) -> None:
        """A file that is gone is not a workload that is gone."""
        before, = self.driver.sample()
        self.assertIsNotNone(before.psi_cpu_s)
        (self.job / 'cgroup.pressure').write_text('0')
        for _ in range(2):
            after, = self.driver.sample()
            self.assertEqual((None, None, None), (
                after.psi_cpu_s, after.psi_io_s, after.psi_memory_s))
            self.assertIsNotNone(after.cpu_s)
            self.assertEqual(before.workload.created_s,
                             after.workload.created_s)

    def test_threads_that_are_in_a_cgroup_of_their_own(self) -> None:
        """The processes are listed in the cgroup above."""
        workers = self.job / 'workers'
        workers.mkdir()
        self.addCleanup(base.remove_cgroup, workers)
        (workers / 'cgroup.type').write_text('threaded')
        process = self.spawn(textwrap.dedent(f'''
            import threading, time
            def work():
                with open("{workers}/cgroup.threads", "w") as file:
                    file.write(str(threading.get_native_id()))
                print("up")
                time.sleep(60)
            with open("{self.job}/cgroup.procs", "w") as file:
                file.write("0")
            threading.Thread(target=work).start()
            '''))
        assert process.stdout is not None
        self.assertEqual('up\n', process.stdout.readline())
        mount = cgroup_mounts.Mount('/sys/fs/cgroup/unified', 2)
        self.assertEqual([process.pid], cgroup_members.members(
            cgroup_members.nodes_of(str(self.job), 9), 'cgroup.procs', 9))
        # A parent that has threads and no children is a workload.
        inner = discovery.Parents({'unified': mount},
                                  [f'{self.name}/workers'], [], [])
        self.assertEqual([f'{self.name}/workers'],
                         [child.id for child in inner.scan()])
        exc = self.assertRaises(errors.Unsupported, kill.kill,
                                {'unified': mount}, f'{self.name}/workers')
        self.assertIn('threaded', str(exc))
        self.assertIsNone(process.poll())
        self.assertEqual(1, self.driver.kill(self.name))
        self.assertEqual(-9, process.wait(30))

    def test_gone(self) -> None:
        self.assertEqual(1, len(self.driver.sample()))
        self.driver.write(self.name, Knob.PAUSED, 0)
        self.job.rmdir()
        self.assertRaises(errors.WorkloadGone, self.driver.write, self.name,
                          Knob.PAUSED, 1)
        self.assertEqual((), self.driver.sample())
