# SPDX-License-Identifier: Apache-2.0

"""The demo on cgroup v2: that it plays, and leaves nothing."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import fixtures

from scavenger_openstack.demo import play
from scavenger_openstack.demo.stage import accounting
from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import stage
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.tests.functional import short_demo

DEADLINE_S = 560.0
COMPILER = """\
#!/bin/sh
[ "$1" = --version ] && exit
sources=${5%/*}
exec ln -sf "/opt/programs/${sources##*/}" "$4"
"""
"""In place of cc: the programs were compiled where the guest was made."""

RUN_OUT = (0, 1, 3)
"""Exit codes of a demo that ran to its end: what came of it is not judged in
a guest that is emulated."""
BOX = tree.ROOT / 'box'


def traces() -> list[str]:
    """What is there of any demo."""
    return [str(path) for where in (tree.ROOT, stage.RUN)
            for path in where.rglob(stage.PREFIX + '*')]


class DemoTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.addCleanup(stage.clean)
        compiler = self.directory / 'cc'
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        for name, value in (('CC', str(compiler)),
                            ('XDG_CACHE_HOME', str(self.directory))):
            self.useFixture(fixtures.EnvironmentVariable(name, value))

    def run_program(self, *command: str | pathlib.Path) -> None:
        subprocess.run(command, check=True)

    def start(self, *argv: str, before: tuple[str, ...] = ()
              ) -> subprocess.Popen[str]:
        """Start a demo.

        :param before: what starts it, such as ``unshare``
        """
        process = subprocess.Popen(
            [*before, sys.executable, '-m', short_demo.__name__,
             '--output', str(self.directory), *argv],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def play(self, *argv: str, before: tuple[str, ...] = ()
             ) -> tuple[int, str, str]:
        """Exit code, and what it printed to both outputs."""
        process = self.start(*argv, before=before)
        out, err = process.communicate(timeout=DEADLINE_S)
        print(err)
        self.assertNotIn('Traceback', err)
        return process.returncode, out, err

    def wait_for_hog(self, process: subprocess.Popen[str],
                     root: pathlib.Path = tree.ROOT) -> pathlib.Path:
        """The top of the tree of a demo whose hog runs."""
        found: list[pathlib.Path] = []

        def runs() -> bool:
            if process.poll() is not None:
                self.fail(f'it ended: {process.communicate()}')
            found[:] = [
                procs for procs in root.glob(
                    f'{stage.PREFIX}*{play.HOG}/cgroup.procs')
                if procs.read_text()]
            return bool(found)

        self.wait_for('the hog runs', runs, DEADLINE_S)
        return found[0].parents[2]


class Plays(DemoTestCase):

    def test_to_its_end(self) -> None:
        before = accounting.SWITCH.read_text()
        code, out, err = self.play('--json')
        self.assertIn(code, RUN_OUT, err)
        found = json.loads(out)
        self.assertEqual([], found['knobs_left'], err)
        self.assertGreater(found['phases']['beside the hog']['hog_cores'], 0)
        self.assertEqual([], traces())
        self.assertEqual(before, accounting.SWITCH.read_text())


class Ends(DemoTestCase):

    def test_clean_after_sigkill_with_a_frozen_group(self) -> None:
        process = self.start()
        top = self.wait_for_hog(process)
        (top / 'background/cgroup.freeze').write_text('1')
        process.kill()
        process.communicate(timeout=DEADLINE_S)
        self.assertNotEqual([], traces())
        code, out, err = self.play('--clean')
        self.assertEqual(0, code, err)
        self.assertIn('removed what demo', out)
        self.assertEqual([], traces())


class Refused(DemoTestCase):
    """It says in one line why it cannot play, and leaves nothing."""

    def refused(self, *argv: str, before: tuple[str, ...] = ()) -> str:
        """Why it does not play."""
        code, _, err = self.play(*argv, before=before)
        self.assertEqual(1, code, err)
        [said] = [line for line in err.splitlines()
                  if line.startswith('scavenger-demo: ')
                  and ' minutes' not in line]
        self.assertEqual([], traces())
        return said

    def box(self, *controllers: str) -> None:
        """A cgroup to be a container's, which gets these controllers."""
        BOX.mkdir()
        self.addCleanup(cgroups.remove, [BOX])
        self.pass_on(*controllers)

    def pass_on(self, *controllers: str) -> None:
        """Have the root give these controllers alone to what is below."""
        (tree.ROOT / 'cgroup.subtree_control').write_text(' '.join(
            f'{"+" if name in controllers else "-"}{name}'
            for name in (tree.ROOT / 'cgroup.controllers').read_text()
            .split()))

    INSIDE = ('sh', '-c', 'echo $$ > /sys/fs/cgroup/box/cgroup.procs && '
              'exec "$@"', '-')
    NAMESPACE = (*INSIDE, 'unshare', '--cgroup', '--mount')
    CONTAINER = (*NAMESPACE, 'sh', '-c', 'umount /sys/fs/cgroup && '
                 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', '-')

    def test_controllers_that_are_not_delegated(self) -> None:
        self.box()
        for missing, given in (('cpu', 'cpuset'), ('cpuset', 'cpu')):
            self.pass_on('memory', given)
            said = self.refused(before=self.CONTAINER)
            self.assertIn(f'cgroup v2 controllers {missing}, which are not '
                          'delegated', said)
            self.assertIn(f'"+{missing}" to cgroup.subtree_control', said)

    def test_a_container_s_own_processes_move_and_come_back(self) -> None:
        """And it does without ``io``."""
        self.box('cpu', 'memory', 'cpuset')
        other = subprocess.Popen([sys.executable, '-c',
                                  'import signal; signal.pause()'])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        (BOX / 'cgroup.procs').write_text(str(other.pid))
        process = self.start(before=self.CONTAINER)
        self.wait_for_hog(process, BOX)
        self.assertLessEqual({other.pid, process.pid}, set(
            cgroups.pids(BOX / cgroup_place.SEAT)))
        _, err = process.communicate(timeout=DEADLINE_S)
        self.assertIn(process.returncode, RUN_OUT, err)
        self.assertEqual([other.pid], cgroups.pids(BOX))
        self.assertEqual([], traces())
        self.assertEqual('', (BOX / 'cgroup.subtree_control').read_text()
                         .strip())

    def test_read_only(self) -> None:
        self.box(*tree.CONTROLLERS)
        said = self.refused(before=(
            *self.CONTAINER, 'sh', '-c', 'mount -o remount,bind,ro '
            '/sys/fs/cgroup && exec "$@"', '-'))
        self.assertIn('Read-only file system', said)
        self.assertIn('mount /sys/fs/cgroup writable', said)

    def test_a_cgroup_that_it_may_not_leave(self) -> None:
        self.run_program('mount', '-o', 'remount,nsdelegate', tree.ROOT)
        self.addCleanup(self.run_program, 'mount', '-o', 'remount', tree.ROOT)
        self.box(*tree.CONTROLLERS)
        said = self.refused(before=self.NAMESPACE)
        self.assertIn('may not leave the cgroup', said)

    def test_controllers_of_both_versions(self) -> None:
        def back() -> bool:
            return 'cpuset' in (tree.ROOT / 'cgroup.controllers').read_text()

        self.pass_on()
        old = self.directory / 'v1'
        old.mkdir()
        self.addCleanup(self.wait_for, 'cpuset is a controller of v2', back)
        self.run_program('mount', '-t', 'cgroup', '-o', 'cpuset', 'v1', old)
        self.addCleanup(self.run_program, 'umount', old)
        said = self.refused()
        self.assertIn('here cpuset are mounted as v1', said)
