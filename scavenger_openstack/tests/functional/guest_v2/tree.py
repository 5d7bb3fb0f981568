# SPDX-License-Identifier: Apache-2.0

"""Real cgroups of version 2, what runs in them, and a driver for them.

The guest is ours alone: what runs in a cgroup is forked from the tests, for
to start an interpreter takes half a second here.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import itertools
import mmap
import os
import pathlib
import signal
import sys
import time
import traceback

import fixtures
import testtools

from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.leased import leased
from scavenger_openstack.types import Knob
from scavenger_openstack.types import WorkloadSample

ROOT = pathlib.Path('/sys/fs/cgroup')
CONTROLLERS = ('cpu', 'cpuset', 'io', 'memory', 'pids')
DISK = pathlib.Path('/dev/vda')
MIB = 2 ** 20
TRIES = 5

NOT_LIMITS = ('cgroup.procs', 'cgroup.threads', 'cgroup.kill')

_numbers = itertools.count(1)

Work = Callable[[Callable[[], object]], object]
"""What a process does; it calls its argument when it has got so far that
the test may go on."""


def spin(ready: Callable[[], object]) -> None:
    """Use all CPU time that there is."""
    ready()
    while True:
        pass


def spin_on(cpu: int) -> Work:
    """The same on one CPU only."""
    def work(ready: Callable[[], object]) -> None:
        os.sched_setaffinity(0, {cpu})
        spin(ready)
    return work


def hold(size: int, cache: int = 0) -> Work:
    """Keep ``size`` bytes of anonymous memory, after ``cache`` bytes of the
    disk were read into the page cache."""
    def work(ready: Callable[[], object]) -> None:
        # The last one to close a disk drops its pages.
        disk = open(DISK, 'rb', buffering=0)
        for _ in range(0, cache, MIB):
            disk.read(MIB)
        kept = mmap.mmap(-1, size)
        kept.write(b'x' * size)
        ready()
        time.sleep(600)
    return work


def read_disk(size: int, count: int = 0) -> Work:
    """Read ``size`` bytes at a time past the page cache, for ever or
    ``count`` times."""
    def work(ready: Callable[[], object]) -> None:
        fd = os.open(DISK, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, size)
        if not count:
            ready()
        for number in range(count) if count else itertools.count():
            os.preadv(fd, [buffer], number % 64 * size)
        ready()
        time.sleep(600)
    return work


def disk_number() -> str:
    """The disk as the io controller names it."""
    return pathlib.Path('/sys/block', DISK.name, 'dev').read_text().strip()


class Tree(fixtures.Fixture):
    """A cgroup with all controllers, removed with all that is in it.

    Paths are below it, such as ``/batch/a``; ``name`` is its own path below
    the mount.
    """

    def __init__(self, controllers: tuple[str, ...] = CONTROLLERS) -> None:
        super().__init__()
        self.controllers = controllers
        self.name = f'/scv-{next(_numbers)}'
        self._pids: list[int] = []

    def _setUp(self) -> None:
        (ROOT / 'cgroup.subtree_control').write_text(
            ' '.join(f'+{name}' for name in self.controllers))
        self.addCleanup(self.remove)
        self.path('').mkdir()

    def path(self, below: str) -> pathlib.Path:
        return pathlib.Path(f'{ROOT}{self.name}{below}')

    def make(self, below: str) -> str:
        """Make a cgroup; what is above it passes the controllers on."""
        path = self.path('')
        for part in below.strip('/').split('/'):
            for controller in self.controllers:
                (path / 'cgroup.subtree_control').write_text(
                    f'+{controller}')
            path /= part
            path.mkdir(exist_ok=True)
        return f'{self.name}{below}'

    def read(self, below: str, file: str) -> str:
        return (self.path(below) / file).read_text().strip()

    def write(self, below: str, file: str, text: str) -> None:
        (self.path(below) / file).write_text(text)

    def texts(self) -> dict[str, str]:
        """Every file of a limit, in every cgroup, byte for byte."""
        found = {}
        for where, _, names in os.walk(self.path('')):
            for name in names:
                path = pathlib.Path(where, name)
                if (path.stat().st_mode & 0o600 == 0o600
                        and name not in NOT_LIMITS
                        and not name.endswith('.pressure')):
                    inside = str(path.relative_to(self.path('')))
                    found[f'/{inside}'] = path.read_text()
        return found

    def run(self, below: str, work: Work) -> int:
        """Start a process that does ``work`` in a cgroup; return its PID
        when it is ready."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                (self.path(below) / 'cgroup.procs').write_text('0')
                work(lambda: os.write(writer, b'!'))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        self._pids.append(pid)
        os.close(writer)
        with open(reader, 'rb', buffering=0) as pipe:
            if pipe.read(1) != b'!':
                raise RuntimeError(f'the process in {below} failed, see the '
                                   'console')
        return pid

    def pids(self, below: str) -> set[int]:
        return {int(text) for text in self.read(
            below, 'cgroup.procs').split()}

    def remove(self) -> None:
        """End all that runs, then remove all."""
        top = self.path('')
        (top / 'cgroup.kill').write_text('1')
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        deadline = time.monotonic() + 10
        for where, _, _ in os.walk(top, topdown=False):
            while True:
                try:
                    os.rmdir(where)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)


class GuestTestCase(testtools.TestCase):
    """A tree with a background parent ``/batch`` and a workload in it."""

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.useFixture(Tree())
        self.job = self.tree.make('/batch/a')
        self.parent = f'{self.tree.name}/batch'
        self.leases: list[records.Lease] = []
        self.before: dict[str, str] = {}

    def driver(self, **kwargs: object) -> Cgroups:
        found = Cgroups([self.parent], **kwargs)  # type: ignore[arg-type]
        self.addCleanup(found.close)
        return found

    def lease(self, driver: Cgroups, knob: Knob, who: str = ''
              ) -> KnobState:
        """Take down the way back of a knob, as the agent does it."""
        who = who or self.job
        self.before = self.before or self.tree.texts()
        state = leased(driver, who, knob)
        self.leases.append(records.Lease(
            who, str(knob), records.boot_id(), state.original.actions))
        return state

    def restore(self, expected: Mapping[str, str] | None = None) -> None:
        """Restore what was leased; all limits are what they were, but for
        what is ``expected`` otherwise."""
        for lease in reversed(self.leases):
            restoration.restore(lease)
        self.assertEqual({**self.before, **(expected or {})},
                         self.tree.texts())
        self.leases.clear()

    def one(self, driver: Cgroups, who: str = '') -> WorkloadSample:
        return next(sample for sample in driver.sample()
                    if sample.workload.id == (who or self.job))

    def rate(self, driver: Cgroups, field: str, seconds: float,
             who: str = '') -> float:
        """How much of a counter there is per second."""
        # The clock begins before the counter and ends after it: what comes
        # between them on a busy machine makes the rate no higher.
        start = time.monotonic()
        before = getattr(self.one(driver, who), field)
        time.sleep(seconds)
        after = getattr(self.one(driver, who), field)
        return float(after - before) / (time.monotonic() - start)

    def assertBetween(self, low: float, value: float, high: float) -> None:
        self.assertTrue(low <= value <= high,
                        f'{value} is not in {low} to {high}')

    def assertHolds(self, low: float, measure: Callable[[], float],
                    high: float) -> None:
        """A limit is never passed, and reached: a machine that is busy
        with other things has some tries for that."""
        for _ in range(TRIES):
            value = measure()
            self.assertLessEqual(value, high)
            if value >= low:
                return
        self.fail(f'{value} is below {low}')

    def wait_for(self, what: str, condition: Callable[[], object],
                 timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f'not within {timeout_s} s: {what}')
            time.sleep(0.01)
