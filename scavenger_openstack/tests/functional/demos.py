# SPDX-License-Identifier: Apache-2.0

"""A demo that runs on this machine, and what is left of it."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

from scavenger_openstack.demo.stage import accounting
from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import stage
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import short_demo

DEADLINE_S = 300.0
DEMO = 'scavenger_openstack.cmd.demo'


def traces(name: str) -> list[str]:
    """What is there of the demo ``name``."""
    directory = stage.RUN / (stage.PREFIX + name)
    return [str(path) for path in (
        *([directory] if directory.exists() else ()),
        *cgroups.left_over().get(name, ()))]


class DemoTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            cgroup_place.find()
        except errors.DriverError as exc:
            self.skipTest(str(exc))
        if not shutil.which('cc'):
            self.skipTest('needs cc')
        if not accounting.SWITCH.exists():
            self.skipTest(f'needs {accounting.SWITCH}')
        switch = accounting.SWITCH.read_text()
        self.addCleanup(lambda: self.assertEqual(
            switch, accounting.SWITCH.read_text()))
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        self.output = pathlib.Path(directory)

    def start(self, *argv: str, module: str = DEMO) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, '-m', module, '--output', str(self.output),
             *argv],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._sweep, process)
        return process

    def start_short(self, *argv: str) -> subprocess.Popen[str]:
        return self.start(*argv, module=short_demo.__name__)

    def _sweep(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=DEADLINE_S)
            stage.clean()

    def clean(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, '-m', DEMO, '--clean'],
                              capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)

    def name_of(self, process: subprocess.Popen[str]) -> str:
        """The id of the demo of ``process``."""
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

    def wait_for_group(self, name: str, group: str) -> list[int]:
        """Wait until something runs in a group; all processes of the demo."""
        def runs() -> bool:
            return any(cgroups.pids(pathlib.Path(f'{top}{group}'))
                       for top in cgroups.left_over().get(name, ()))

        self.wait_for(f'something runs in {group}', runs, DEADLINE_S)
        directory = str(stage.RUN / (stage.PREFIX + name))
        agents = [int(path.parent.name)
                  for path in pathlib.Path('/proc').glob('[0-9]*/cmdline')
                  if directory in self.command_of(path)
                  and 'standalone' in self.command_of(path)]
        return agents + [
            pid for top in cgroups.left_over()[name]
            for procs in top.rglob('cgroup.procs')
            for pid in cgroups.pids(procs.parent)]

    @staticmethod
    def command_of(path: pathlib.Path) -> str:
        try:
            return path.read_text(errors='replace')
        except OSError:
            return ''

    def assert_gone(self, name: str, pids: list[int]) -> None:
        self.assertEqual([], traces(name))
        for pid in pids:
            command = pathlib.Path(f'/proc/{pid}/cmdline')
            self.wait_for(f'process {pid} ends', lambda path=command: (
                name not in self.command_of(path)), 30)
