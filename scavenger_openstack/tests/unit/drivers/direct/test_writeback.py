# SPDX-License-Identifier: Apache-2.0

"""Which workloads made dirty what the host writes."""

from __future__ import annotations

import os
import pathlib
import threading

import fixtures
import testtools

from scavenger_openstack.drivers.direct import writeback
from scavenger_openstack.drivers.direct.writeback import Dirty
from scavenger_openstack.drivers.direct.writeback import Look
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

MIB = 1 << 20
PAGES = MIB // os.sysconf('SC_PAGE_SIZE')


class SharesTest(testtools.TestCase):

    def test_of_what_was_written(self) -> None:
        """Of what has dirty pages: others write past them."""
        looks = [Look(100, {'a': Dirty(9, 50), 'b': Dirty(0, 0)}),
                 Look(300, {'a': Dirty(0, 200), 'b': Dirty(0, 900),
                            'new': Dirty(5, 7)})]
        self.assertEqual({'a': 0.75}, writeback.shares(looks))

    def test_what_is_not_always_counted(self) -> None:
        looks = [Look(0, {'a': Dirty(0, None), 'b': Dirty(9, 5)}),
                 Look(50, {'a': Dirty(9, 10)}),
                 Look(100, {'a': Dirty(9, 40), 'b': Dirty(9, None)})]
        self.assertEqual({'a': 0.3}, writeback.shares(looks))

    def test_more_than_the_host_counts(self) -> None:
        looks = [Look(10, {'a': Dirty(1, 0), 'b': Dirty(1, 0)}),
                 Look(20, {'a': Dirty(1, 30), 'b': Dirty(1, 10)})]
        self.assertEqual({'a': 0.75, 'b': 0.25}, writeback.shares(looks))

    def test_nothing_was_written(self) -> None:
        """A process that ended counts no longer."""
        self.assertEqual({}, writeback.shares([]))
        self.assertEqual({}, writeback.shares(
            [Look(9, {'a': Dirty(9, 20)}), Look(9, {'a': Dirty(9, 10)})]))


class AttributedTest(testtools.TestCase):

    ANSWER = DirectEvidence(
        'v', Resource.DISK, 2.0, 1.0, {THE_HOST: 0.8, 'a': 0.1, 'v': 0.1},
        {'kworker-flush-7:0': 0.2, 'kworker-events_unbound': 0.2,
         'jbd2/loop0-8': 0.2, 'kworker-kthrotld': 0.1,
         'program kworker-flush-7:0': 0.1})

    def test_what_threads_write_back(self) -> None:
        answer = writeback.attributed(self.ANSWER, {'a': 0.5, 'b': 0.25})
        for name, seconds in {'a': 0.4, 'b': 0.15, 'v': 0.1,
                              THE_HOST: 0.35}.items():
            self.assertAlmostEqual(seconds, answer.holders[name])
        self.assertEqual(('a', 'b'), answer.by_share)
        self.assertAlmostEqual(0.05, answer.threads['kworker-flush-7:0'])
        self.assertEqual(0.1, answer.threads['kworker-kthrotld'])
        self.assertEqual(0.1, answer.threads['program kworker-flush-7:0'])

    def test_most_of_which_it_held_itself(self) -> None:
        answer = writeback.attributed(self.ANSWER, {'a': 0.05})
        self.assertEqual((), answer.by_share)
        self.assertAlmostEqual(0.13, answer.holders['a'])

    def test_all_of_it(self) -> None:
        """The victim itself, even."""
        answer = writeback.attributed(self.ANSWER, {'v': 1.0})
        self.assertEqual({'kworker-kthrotld', 'program kworker-flush-7:0'},
                         answer.threads.keys())
        self.assertAlmostEqual(0.2, answer.holders[THE_HOST])

    def test_nothing_was_written_back(self) -> None:
        answer = self.ANSWER._replace(threads={'kworker-kthrotld': 0.8})
        self.assertEqual(answer, writeback.attributed(answer, {'a': 1.0}))
        self.assertEqual(self.ANSWER, writeback.attributed(self.ANSWER, {}))


class DirtyPagesTest(testtools.TestCase):
    """What the files of a host say."""

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.write('proc/vmstat', f'nr_dirty 3\nnr_written {8 * PAGES}\n'
                   'nr_throttled_written 5\n')
        (self.root / 'sys/block/sda/mq').mkdir(parents=True)
        self.write('sys/block/sda/dev', '8:0\n')

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def look(self, version: int, *controllers: str) -> Look | None:
        mounts = {name: Mount(str(self.root / 'tree'), version)
                  for name in controllers}
        dirty = writeback.DirtyPages(
            mounts, cgroup_overlap.DomainCgroups(mounts), str(self.root))
        return dirty.read(['/a', '/gone', 'another-domain'])

    def test_version_1(self) -> None:
        """By threads, below, too; of what has few dirty pages none."""
        self.write('tree/a/memory.stat', 'dirty 1\nwriteback 1\n'
                   f'total_dirty {2 * MIB}\ntotal_writeback 7\n')
        self.write('tree/a/tasks', '')
        self.write('tree/a/below/tasks', f'{threading.get_native_id()}\n')
        try:
            taskstats.Taskstats().close()
        except (OSError, ValueError) as exc:
            self.skipTest(f'needs taskstats: {exc}')
        # Not where the pages of a file never get dirty.
        data = pathlib.Path(self.useFixture(
            fixtures.TempDir(rootdir='/var/tmp')).path) / 'data'
        looks = []
        for _ in range(2):
            look = self.look(1, 'memory', 'blkio')
            assert look is not None
            self.assertEqual((8 * MIB, 2 * MIB + 7), (
                look.written_bytes, look.workloads['/a'].bytes))
            looks.append(look.workloads['/a'].written_bytes or 0)
            data.write_bytes(bytes(3 * MIB))
        self.assertLessEqual(3 * MIB, looks[1] - looks[0])
        self.write('tree/a/memory.stat', 'total_dirty 5\n')
        self.assertEqual(Look(8 * MIB, {'/a': Dirty(5, None)}),
                         self.look(1, 'memory'))

    def test_more_threads_than_are_asked_about(self) -> None:
        self.write('tree/a/memory.stat', f'total_dirty {2 * MIB}\n')
        self.write('tree/a/tasks', '\n'.join(map(str, range(
            1, writeback.MOST_THREADS + 2))))
        self.assertEqual(Look(8 * MIB, {'/a': Dirty(2 * MIB, None)}),
                         self.look(1, 'memory'))

    def test_version_2(self) -> None:
        """Of disks, not again of what is stacked upon them."""
        self.write('tree/a/memory.stat',
                   f'file_dirty {MIB}\nfile_writeback 0\n')
        self.write('tree/a/io.stat', '253:0 rbytes=1 wbytes=50 rios=0\n'
                   '8:0 rbytes=7 wbytes=50 rios=1 wios=1\n8:16 \n')
        self.assertEqual(Look(8 * MIB, {'/a': Dirty(MIB, 50)}),
                         self.look(2, 'memory', 'blkio'))

    def test_odd_files(self) -> None:
        """What cannot be read names the host, as before."""
        self.write('tree/a/memory.stat', 'nothing\n')
        self.assertEqual(Look(8 * MIB, {}), self.look(1, 'memory'))
        self.write('tree/a/memory.stat', 'file_dirty 1\n')
        self.write('tree/a/io.stat', '8:0 wbytes=x\n')
        self.assertEqual(Look(8 * MIB, {'/a': Dirty(1, None)}),
                         self.look(2, 'memory', 'blkio'))
        self.write('proc/vmstat', 'nr_written x\n')
        self.assertIsNone(self.look(1, 'memory'))
        self.assertIsNone(self.look(1, 'blkio'))
        (self.root / 'proc/vmstat').unlink()
        self.assertIsNone(self.look(1, 'memory'))
