# SPDX-License-Identifier: Apache-2.0

"""Memory of the host, a cgroup that plays it, and page cache read again."""

from __future__ import annotations

import errno
import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack.drivers.cgroup import memory
from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import host_tree
from scavenger_openstack.tests.unit.host_tree import MIB
from scavenger_openstack.tests.unit import mount_files
from scavenger_openstack.types import Knob

TOP = '/all'


class MemoryRootTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(host_tree.Host())

    def root(self) -> memory.MemoryRoot:
        return memory.MemoryRoot(
            cgroup_mounts.find_mounts(str(self.host.root)), TOP)

    def test_limit_and_what_is_left_of_it(self) -> None:
        """Page cache and slabs that can be dropped are available."""
        self.host.cgroup(TOP)
        self.host.write(TOP, 'memory.max', str(400 * MIB))
        used = 100 * MIB - (20 + 10 + 5) * MIB
        page = os.sysconf('SC_PAGE_SIZE')
        self.assertEqual((400 * MIB, 400 * MIB - used, 300 * MIB, 2 * page),
                         self.root().read())
        # Some kernels do not count what was read again.
        self.host.write(TOP, 'memory.stat', 'inactive_file 1')
        found = self.root().read()
        assert found is not None
        self.assertIsNone(found.refaults)

    def test_one_that_comes_and_goes(self) -> None:
        root = self.root()
        self.assertIsNone(root.read())
        for _ in range(2):
            self.host.cgroup(TOP)
            self.host.write(TOP, 'memory.max', str(400 * MIB))
            found = root.read()
            assert found is not None
            self.assertEqual(400 * MIB, found[0])
            self.host.delete(TOP)
            self.assertIsNone(root.read())
        self.assertEqual(3, self.log.output.count('memory of the machine'))

    def test_no_memory_controller(self) -> None:
        mount_files.mount(self.host.root)
        self.assertIsNone(self.root().read())
        self.assertIn('no memory controller', self.log.output)


class RefaultsTest(testtools.TestCase):

    def test_version_1_counts_them_or_not(self) -> None:
        tree = self.useFixture(host_tree.Host())
        for version, text, counted in (
                (1, 'total_cache 7\ntotal_workingset_refault_file 0\n', True),
                (1, 'total_cache 7\n', False), (1, '', True),
                (2, 'anon 7\n', True)):
            tree.put('m/memory.stat', text)
            mount = cgroup_mounts.Mount(str(tree.root / 'm'), version)
            self.assertEqual(counted,
                             memory.counts_refaults({'memory': mount}), text)
        self.assertTrue(memory.counts_refaults({}))

    def test_read_until_the_kernel_has_added_them_up(self) -> None:
        """Which takes two seconds, however long a tick is."""
        for interval_s, ticks in (1.0, 3), (0.1, 21), (10.0, 2):
            recent = memory.RecentRefaults(interval_s)
            recent.update(5)
            read = [recent.update(7) for _ in range(30)]
            self.assertEqual([True] * ticks, read[:ticks])
            self.assertFalse(any(read[ticks:]))
            self.assertTrue(recent.update(None))    # not known
            self.assertTrue(recent.update(None))


class _Busy(cgroup_files.CgroupDirectory):
    """A cgroup of version 1 whose limit does not go below a size."""

    least = 0
    freed: int | None = None
    """What it uses after a write was refused, if that is less."""

    def write(self, file: str, text: str) -> None:
        if int(text) < self.least:
            if self.freed is not None:
                self.least = 0
                super().write('memory.usage_in_bytes', str(self.freed))
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        super().write(file, text)


class MemoryLimitTest(testtools.TestCase):

    def test_what_v1_cannot_reclaim_at_once(self) -> None:
        """Page cache that waits for the disk is no use of the workload."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in (
                ('memory.limit_in_bytes', '-1'),
                ('memory.usage_in_bytes', f'{100 * MIB}'),
                ('memory.stat', f'total_inactive_file {60 * MIB}\n'
                                f'total_active_file {10 * MIB}')):
            (path / name).write_text(f'{text}\n')
        directory = _Busy(str(path), version=1)
        directory.least = 80 * MIB
        rule = knobs.rules(lambda: ())[Knob.MEMORY_BYTES, 1]
        rule.write(directory, 40 * MIB, ())
        self.assertEqual(100 * MIB, rule.read(directory, None))
        exc = self.assertRaises(errors.Refused, rule.write, directory,
                                20 * MIB, ())
        self.assertEqual(80 * MIB, exc.unmet_bytes)
        # No less than what is wanted, if it has freed memory since.
        directory.freed = 30 * MIB
        rule.write(directory, 40 * MIB, ())
        self.assertEqual(40 * MIB, rule.read(directory, None))
