# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Real things for functional tests: cgroups and processes that go away."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import fixtures
import testtools

CGROUP = pathlib.Path('/sys/fs/cgroup')
CONTROLLERS = ('cpu', 'cpuacct', 'cpuset', 'memory', 'blkio', 'freezer')


def mounts() -> dict[str, pathlib.Path]:
    """Mount point of each cgroup v1 controller on this machine."""
    found = {}
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == 'cgroup':
            for option in options.split(','):
                if option in CONTROLLERS:
                    found[option] = pathlib.Path(where)
    return found


def unified() -> pathlib.Path | None:
    """Where the cgroup v2 tree is, if there is one."""
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == 'cgroup2':
            return pathlib.Path(where)
    return None


class CgroupTree(fixtures.Fixture):
    """A cgroup of our own in every v1 hierarchy, removed with all below.

    ``name`` is the path below each mount, for instance ``/scv-1a2b3c``.
    """

    def _setUp(self) -> None:
        self.mounts = mounts()
        self.name = f'/scv-test-{uuid.uuid4().hex[:8]}'
        self.addCleanup(self.remove)
        self.make('')

    def path(self, controller: str, below: str = '') -> pathlib.Path:
        return pathlib.Path(f'{self.mounts[controller]}{self.name}{below}')

    def make(self, below: str) -> str:
        """Make ``name + below`` in every hierarchy; return its path."""
        parts = below.strip('/').split('/') if below else []
        for depth in range(len(parts) + 1):
            for controller in self.mounts:
                path = self.path(controller, ''.join(
                    f'/{part}' for part in parts[:depth]))
                if path.exists():
                    continue
                path.mkdir()
                if controller == 'cpuset':
                    for file in ('cpuset.mems', 'cpuset.cpus'):
                        (path / file).write_text(
                            (path.parent / file).read_text())
        return self.name + below

    def read(self, controller: str, below: str, file: str) -> str:
        return (self.path(controller, below) / file).read_text().strip()

    def write(self, controller: str, below: str, file: str, text: str) -> None:
        (self.path(controller, below) / file).write_text(text)

    def delete(self, below: str) -> None:
        """End what runs below ``below`` and remove it everywhere."""
        self.thaw(below)
        for controller in self.mounts:
            groups = sorted(self.path(controller, below).rglob(
                'cgroup.procs'), key=lambda path: -len(path.parts))
            for procs in groups:
                for pid in procs.read_text().split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            for procs in groups:
                _remove(procs.parent)

    def thaw(self, below: str = '') -> None:
        """Let everything run: what is frozen cannot end."""
        if 'freezer' in self.mounts:
            states = self.path('freezer', below).rglob('freezer.state')
            for state in sorted(states, key=lambda path: len(path.parts)):
                state.write_text('THAWED')

    def remove(self) -> None:
        self.delete('')


def idle_s() -> float:
    """For how long CPUs were idle since boot, all together."""
    with open('/proc/stat') as file:
        fields = file.readline().split()
    return int(fields[4]) / os.sysconf('SC_CLK_TCK')


def _remove(path: pathlib.Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            path.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class FunctionalTestCase(testtools.TestCase):
    """A test on the real machine; it skips, loudly, where it cannot run."""

    def setUp(self) -> None:
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('needs root: it makes cgroups')

    def cgroups(self) -> CgroupTree:
        missing = set(CONTROLLERS) - set(mounts())
        if missing:
            self.skipTest('needs cgroup v1 controllers: '
                          + ', '.join(sorted(missing)))
        return self.useFixture(CgroupTree())

    def spawn(self, code: str, tree: CgroupTree | None = None,
              below: str = '') -> subprocess.Popen[str]:
        """Run Python ``code``, inside a cgroup from its first instruction.

        What it prints can be read from ``.stdout``.
        """
        join = ''
        if tree is not None:
            paths = [str(tree.path(c, below) / 'cgroup.procs')
                     for c in tree.mounts]
            join = f'for p in {paths!r}: open(p, "w").write("0")\n'
        process = subprocess.Popen(
            [sys.executable, '-u', '-c', join + code],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(self._end, process, tree)
        return process

    @staticmethod
    def _end(process: subprocess.Popen[str],
             tree: CgroupTree | None) -> None:
        if tree is not None:
            tree.thaw()
        process.kill()
        process.wait(30)
        if process.stdout:
            process.stdout.close()

    def wait_for_idle(self, what: str, condition: object,
                      timeout_s: float = 30.0) -> None:
        """The same for what needs a CPU to be idle now and then; where other
        programs leave none, nothing can be told, and the test skips."""
        before_s = idle_s()
        try:
            self.wait_for(what, condition, timeout_s)
        except self.failureException:
            if idle_s() - before_s > 0.05 * timeout_s:
                raise
            self.skipTest('needs a CPU that is idle now and then: other '
                          f'programs used all of them for {timeout_s:.0f} s')

    def wait_for(self, what: str, condition: object,
                 timeout_s: float = 30.0) -> None:
        """Wait until ``condition()`` is true, at most ``timeout_s``."""
        assert callable(condition)
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f'not within {timeout_s} s: {what}')
            time.sleep(0.01)
