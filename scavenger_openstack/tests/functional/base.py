# SPDX-License-Identifier: Apache-2.0

"""Real things for functional tests: cgroups and processes that go away."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import uuid

import fixtures
import testtools

CGROUP = pathlib.Path('/sys/fs/cgroup')
CONTROLLERS = ('cpu', 'cpuacct', 'cpuset', 'memory', 'blkio', 'freezer')
V2_CONTROLLERS = ('cpu', 'cpuset', 'io', 'memory')

USUAL_START_S = 0.05
"""Within this, a machine that is not slow starts a Python."""

FILES = {
    'quota': ('cpu', 'cpu.cfs_quota_us', 'cpu.max'),
    'weight': ('cpu', 'cpu.shares', 'cpu.weight'),
    'idle': ('cpu', 'cpu.idle', 'cpu.idle'),
    'cpus': ('cpuset', 'cpuset.cpus', 'cpuset.cpus'),
    'effective_cpus': ('cpuset', 'cpuset.effective_cpus',
                       'cpuset.cpus.effective'),
    'memory': ('memory', 'memory.limit_in_bytes', 'memory.max'),
    'memory_use': ('memory', 'memory.usage_in_bytes', 'memory.current'),
    'frozen': ('freezer', 'freezer.state', 'cgroup.freeze')}
"""Where a limit stands: controller and file of version 1, file of 2."""

_TO_V2 = {'quota': {'-1': 'max'}, 'frozen': {'FROZEN': '1', 'THAWED': '0'},
          'memory': {'-1': 'max'}}


def mounts() -> dict[str, pathlib.Path]:
    """Mount point of each cgroup v1 controller on this machine; the first,
    others are of tests."""
    found: dict[str, pathlib.Path] = {}
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == 'cgroup':
            for option in options.split(','):
                if option in CONTROLLERS:
                    found.setdefault(option, pathlib.Path(where))
    return found


def unified() -> pathlib.Path | None:
    """Where the cgroup v2 tree is, if there is one."""
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == 'cgroup2':
            return pathlib.Path(where)
    return None


THREADS_END_S = 10.0
"""What a test has started ends within this after it."""

EMULATED = 1.5
"""From this :func:`pace` on the CPUs are taken for emulated ones."""


@functools.cache
def pace() -> float:
    """How many times as long as usual things take here, 1 to 5: 5 where
    QEMU emulates the CPUs.  For what is promised within some time."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, '-S', '-c', ''], check=True)
        took.append(time.monotonic() - began)
    return max(1.0, min(5.0, min(took) / USUAL_START_S))


def version() -> int | None:
    """The version of cgroups that has every controller here, if one has.

    Of version 2 it has to be the host's own root: what is below the root of
    a container may have processes in it, and then no controllers.
    """
    if set(CONTROLLERS) <= set(mounts()):
        return 1
    top = unified()
    if top and not (top / 'cgroup.type').exists():
        found = (top / 'cgroup.controllers').read_text().split()
        if set(V2_CONTROLLERS) <= set(found):
            return 2
    return None


class CgroupTree(fixtures.Fixture):
    """A cgroup of our own in every hierarchy, removed with all below.

    ``name`` is the path below each mount, for instance ``/scv-1a2b3c``.  On
    version 2 all controllers are in one hierarchy, directly below its root,
    where no rule of systemd applies; it keeps the controllers that were
    turned on there.
    """

    def _setUp(self) -> None:
        self.version = version()
        top = unified()
        if self.version == 2 and top:
            self.mounts = dict.fromkeys(V2_CONTROLLERS, top)
        else:
            self.mounts = mounts()
        self.name = f'/scv-test-{uuid.uuid4().hex[:8]}'
        self.addCleanup(self.remove)
        self.make('')

    def path(self, controller: str, below: str = '') -> pathlib.Path:
        """Where a cgroup is; version 2 has one place for all controllers."""
        if self.version == 2:
            controller = 'cpu'
        return pathlib.Path(f'{self.mounts[controller]}{self.name}{below}')

    def make(self, below: str) -> str:
        """Make ``name + below`` in every hierarchy; return its path."""
        parts = below.strip('/').split('/') if below else []
        for depth in range(len(parts) + 1):
            where = ''.join(f'/{part}' for part in parts[:depth])
            if self.version == 2:
                _turn_on(self.path('cpu', where).parent, self.mounts)
            for controller in self.mounts:
                path = self.path(controller, where)
                if not path.exists():
                    path.mkdir()
                    self._allow_all_cpus(path)
        if self.version == 2 and not parts:
            # systemd turns a controller off where nothing below uses it.
            _turn_on(self.path('cpu'), self.mounts)
        return self.name + below

    def _allow_all_cpus(self, path: pathlib.Path) -> None:
        """A new cgroup of version 1 has no CPUs; one of version 2 names
        none and has all."""
        if not (path / 'cpuset.cpus').exists():
            return
        if self.version == 2:
            (path / 'cpuset.cpus').write_text(
                (self.mounts['cpuset'] / 'cpuset.cpus.effective').read_text())
            return
        for file in ('cpuset.mems', 'cpuset.cpus'):
            (path / file).write_text((path.parent / file).read_text())

    def read(self, controller: str, below: str, file: str) -> str:
        return (self.path(controller, below) / file).read_text().strip()

    def write(self, controller: str, below: str, file: str, text: str) -> None:
        (self.path(controller, below) / file).write_text(text)

    def file(self, limit: str, below: str = '') -> pathlib.Path:
        """The file that a limit of :data:`FILES` stands in."""
        controller, *files = FILES[limit]
        if self.version == 2 and controller not in self.mounts:
            controller = 'cpu'
        assert self.version
        return self.path(controller, below) / files[self.version - 1]

    def text(self, limit: str, text: str) -> str:
        """What version 1 would write, as this machine writes it."""
        if self.version == 2:
            text = _TO_V2.get(limit, {}).get(text, text)
            if limit == 'quota':
                text += ' 100000'
        return text

    def get(self, limit: str, below: str = '') -> str:
        """A limit as version 1 writes it."""
        text = self.file(limit, below).read_text().strip()
        if self.version == 2:
            if limit == 'quota':
                text = text.removesuffix(' 100000')
            for v1, v2 in _TO_V2.get(limit, {}).items():
                text = v1 if text == v2 else text
        return text

    def put(self, limit: str, below: str, text: str) -> None:
        """Set a limit, given as version 1 writes it."""
        self.file(limit, below).write_text(self.text(limit, text))

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
                remove_cgroup(procs.parent)

    def thaw(self, below: str = '') -> None:
        """Let everything run: on version 1 what is frozen cannot end."""
        frozen = self.file('frozen', below)
        for state in sorted(frozen.parent.rglob(frozen.name),
                            key=lambda path: len(path.parts)):
            state.write_text(self.text('frozen', 'THAWED'))

    def remove(self) -> None:
        self.delete('')


def idle_s() -> float:
    """For how long CPUs were idle since boot, all together."""
    with open('/proc/stat') as file:
        fields = file.readline().split()
    return int(fields[4]) / os.sysconf('SC_CLK_TCK')


def _turn_on(path: pathlib.Path, controllers: Iterable[str]) -> None:
    """Let the children of a v2 cgroup have controllers.  Only those of the
    root may have some beside processes of its own."""
    if not (path / 'cgroup.type').exists() \
            or not (path / 'cgroup.procs').read_text():
        (path / 'cgroup.subtree_control').write_text(
            ' '.join(f'+{controller}' for controller in controllers))


def remove_cgroup(path: pathlib.Path) -> None:
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


def threads() -> set[threading.Thread]:
    """Return the threads that keep this process from ending."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def children() -> dict[int, str]:
    """Return the processes of this session that this one has started and that
    still run, with their command lines, by id.

    What is kept for other tests, servers and virsh, has other sessions.
    """
    running = {}
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        try:
            state, parent, _, session, *_ = path.read_text(
                errors='replace').rpartition(')')[2].split()
            if (state != 'Z' and int(parent) == os.getpid()
                    and int(session) == os.getsid(0)):
                running[int(path.parent.name)] = (
                    path.parent / 'cmdline').read_text(
                        errors='replace').replace('\0', ' ')
        except (FileNotFoundError, ProcessLookupError):
            continue
    return running


class FunctionalTestCase(testtools.TestCase):
    """A test on the real machine; it skips, loudly, where it cannot run."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self._assert_nothing_runs_on, threads(),
                        children().keys())
        if os.geteuid() != 0:
            self.skipTest('needs root: it makes cgroups')

    def _assert_nothing_runs_on(self, before: Collection[threading.Thread],
                                known: Collection[int]) -> None:
        """Fail for what did: it could keep the output of all tests open."""
        try:
            self.wait_for('its threads have ended',
                          lambda: not threads() - set(before), THREADS_END_S)
        finally:    # also what a thread waits for
            left = {pid: words for pid, words in children().items()
                    if pid not in known}
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            self.assertEqual({}, left, 'processes run on')

    def cgroups(self) -> CgroupTree:
        if version() is None:
            self.skipTest('needs the cgroups of a host, with '
                          f'{", ".join(CONTROLLERS)} in v1 or '
                          f'{", ".join(V2_CONTROLLERS)} in v2')
        return self.useFixture(CgroupTree())

    def needs_v1(self, why: str) -> None:
        """Skip where version 1 of cgroups is not what is tested on."""
        if version() != 1:
            self.skipTest(f'needs cgroup v1: {why}')

    def spawn(self, code: str, tree: CgroupTree | None = None,
              below: str = '') -> subprocess.Popen[str]:
        """Run Python ``code``, inside a cgroup from its first instruction.

        What it prints can be read from ``.stdout``.
        """
        join = ''
        if tree is not None:
            paths = [str(tree.path(c, below) / 'cgroup.procs')
                     for c in tree.mounts]
            join = (f'for p in {paths!r}:\n'
                    '    with open(p, "w") as file:\n'
                    '        file.write("0")\n')
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
        """Wait until ``condition()`` is true, at most ``timeout_s``, longer
        where the machine turns out to be slow.

        What takes long to find out, or to come, is not asked all the time.
        """
        assert callable(condition)
        began, longest_s = time.monotonic(), 0.0
        while True:
            asked = time.monotonic()
            if condition():
                break
            took_s = time.monotonic() - asked
            if asked > began + (longest_s or timeout_s):
                if longest_s:
                    self.fail(f'not within {longest_s:g} s: {what}')
                longest_s = timeout_s * pace()
            time.sleep(min(max(0.01, 2 * took_s, (asked - began) / 50), 1.0))
