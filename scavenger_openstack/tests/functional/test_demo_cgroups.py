# SPDX-License-Identifier: Apache-2.0

"""The demo's cgroups on this machine, of whichever version it has."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import uuid

from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base

Files = tuple[tuple[str, str], ...]

FREEZE: Files = (('freezer.state', 'FROZEN'), ('cgroup.freeze', '1'))

FREEZE_AGAIN = """\
import sys, time
print(flush=True)
while True:
    for path, text in zip(sys.argv[1::2], sys.argv[2::2]):
        open(path, 'w').write(text)
    time.sleep(0.001)
"""


class TreeTest(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            self.tree = cgroups.Tree(uuid.uuid4().hex[:6])
        except errors.DriverError as exc:
            self.skipTest(str(exc))
        self.addCleanup(self.tree.remove)
        for below in ('', '/a', '/a/b'):
            self.tree.make(below)

    def start(self, below: str) -> subprocess.Popen[bytes]:
        """A process in a group."""
        process = subprocess.Popen(['sleep', '600'])
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        for file in self.tree.procs_files(below):
            pathlib.Path(file).write_text(str(process.pid))
        return process

    def freezers(self, below: str, files: Files = FREEZE
                 ) -> list[tuple[pathlib.Path, str]]:
        """What to write where, so that a group is frozen."""
        return [(pathlib.Path(procs).parent / file, text)
                for procs in self.tree.procs_files(below)
                for file, text in files
                if (pathlib.Path(procs).parent / file).exists()]

    def freeze(self, *groups: str) -> None:
        self.addCleanup(self.thaw)
        for below in groups:
            for path, text in self.freezers(below):
                path.write_text(text)

    def thaw(self) -> None:
        for below in ('', '/a', '/a/b'):
            for path, text in self.freezers(below, cgroups.THAW):
                path.write_text(text)

    def keep_frozen(self, below: str) -> subprocess.Popen[bytes]:
        """A process that freezes a group a thousand times a second."""
        process = subprocess.Popen(
            [sys.executable, '-c', FREEZE_AGAIN,
             *(str(word) for pair in self.freezers(below) for word in pair)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(self.thaw)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def test_what_another_keeps_freezing_ends(self) -> None:
        """As an agent may freeze a batch job while the demo ends it."""
        processes = [self.start('/a/b') for _ in range(8)]
        freezer = self.keep_frozen('/a')
        self.tree.remove()
        freezer.kill()
        for process in processes:
            self.assertEqual(-9, process.wait(30))

    def test_a_frozen_tree_is_removed(self) -> None:
        process = self.start('/a/b')
        self.freeze('', '/a', '/a/b')
        self.tree.remove()
        self.assertEqual(-9, process.wait(30))
        self.assertEqual([], [file for file in self.tree.procs_files('')
                              if pathlib.Path(file).exists()])

    def test_a_changed_knob_is_seen(self) -> None:
        before = self.tree.knobs()
        self.assertGreater(len(before), 8)
        self.tree.set_cpu_weight('/a/b', 3)
        [change] = self.tree.changed(before)
        self.assertIn('/a/b/', change)
        self.tree.set_cpu_weight('/a/b', 1)
        self.assertEqual([], self.tree.changed(before))

    def test_chosen_cpus(self) -> None:
        """A group has those of the one above it."""
        cpu = str(max(os.sched_getaffinity(0)))
        tree = cgroups.Tree(uuid.uuid4().hex[:6])
        self.addCleanup(tree.remove)
        tree.make(cpus=cpu)
        tree.make('/a')
        process = subprocess.Popen(['sleep', '600'])
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)
        for file in tree.procs_files('/a'):
            pathlib.Path(file).write_text(str(process.pid))
        self.assertEqual({int(cpu)}, os.sched_getaffinity(process.pid))

    def test_v1_is_used_where_v2_is_mounted_beside_it(self) -> None:
        if set(base.CONTROLLERS) - set(base.mounts()) or not base.unified():
            self.skipTest('needs cgroup v1 and, without controllers, v2')
        self.assertEqual(1, self.tree.version)
        top = f'{base.unified()}{self.tree.name}'
        self.assertFalse(pathlib.Path(top).exists())

    def test_counters_count(self) -> None:
        self.start('/a/b')
        self.tree.check_entry('/a/b')
        self.wait_for('CPU time is counted above', lambda:
                      self.tree.cpu_s('') >= self.tree.cpu_s('/a/b') >= 0)
