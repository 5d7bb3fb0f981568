# SPDX-License-Identifier: Apache-2.0

"""A demo that plays on this machine, and what is left of it."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

from scavenger_openstack.demo.stage import accounting
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import disk
from scavenger_openstack.demo.stage import stage
from scavenger_openstack.demo.stage import uplink
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import short_demo

DEADLINE_S = 300.0
SHORT = ('--rounds', '1', '--phase-seconds', '2')
LONG = ('--rounds', '1', '--phase-seconds', '900')
"""It does not end by itself, however slow the machine is."""


def traces(name: str) -> list[str]:
    """What is there of the demo ``name``."""
    found = [str(where / (stage.PREFIX + name))
             for where in (stage.RUN, disk.ROOM)
             if (where / (stage.PREFIX + name)).exists()]
    found += map(str, cgroups.left_over().get(name, ()))
    return found + uplink.left_over().get(name, [])


class DemoTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            cgroups.check('blkio')
        except errors.DriverError as exc:
            self.skipTest(str(exc))
        for tool in ('cc', 'ip', 'tc', 'nsenter'):
            if not shutil.which(tool):
                self.skipTest(f'needs {tool}')
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.output = pathlib.Path(directory)

    def start(self, *argv: str, module: str = short_demo.__name__
              ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', module, '--output', str(self.output),
             *argv],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._sweep, process)
        return process

    def _sweep(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=DEADLINE_S)
            stage.clean()

    def name_of(self, process: subprocess.Popen[str]) -> str:
        """The id of the demo that ``process`` plays."""
        def find() -> bool:
            for lock in stage.RUN.glob(f'{stage.PREFIX}*/lock'):
                try:
                    if lock.read_text() == f'{process.pid}\n':
                        self.name = lock.parent.name.removeprefix(
                            stage.PREFIX)
                        return True
                except OSError:
                    pass   # another demo went away meanwhile
            return False
        self.wait_for('the demo builds its stage', find, DEADLINE_S)
        return self.name

    def wait_for_batch(self, name: str) -> list[int]:
        """Wait until the CPU hog runs; return all processes."""
        return self.wait_for_group(name, stage.CPU)

    def wait_for_group(self, name: str, group: str) -> list[int]:
        """Wait until something runs in a group; return all processes."""
        def runs() -> bool:
            return any(cgroups.pids(pathlib.Path(f'{top}{group}'))
                       for top in cgroups.left_over().get(name, ()))

        self.wait_for(f'something runs in {group}', runs, DEADLINE_S)
        return [pid for top in cgroups.left_over()[name]
                for procs in top.rglob('cgroup.procs')
                for pid in cgroups.pids(procs.parent)]

    def assert_gone(self, name: str, pids: list[int]) -> None:
        self.assertEqual([], traces(name))
        for pid in pids:
            command = pathlib.Path(f'/proc/{pid}/cmdline')
            if command.exists():
                self.assertNotIn(name, command.read_text())

    def who(self, *argv: str) -> subprocess.Popen[str]:
        """The second act, if this machine can play it."""
        if not accounting.SWITCH.exists():
            self.skipTest(f'needs {accounting.SWITCH}')
        try:
            disk.losetup('--find')
        except errors.DriverError as exc:
            self.skipTest(f'needs a loop device: {exc}')
        switch = accounting.SWITCH.read_text()
        self.addCleanup(lambda: self.assertEqual(
            switch, accounting.SWITCH.read_text()))
        return self.start('--who', *argv)
