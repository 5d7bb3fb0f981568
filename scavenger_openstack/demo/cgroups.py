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

"""The cgroups that the demo makes, and those that one like it left."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import os
import pathlib
import signal
import time

from scavenger_openstack import errors

NEEDED = ('cpu', 'cpuacct', 'cpuset', 'memory', 'freezer')
ALSO = ('blkio', 'pids')
MOUNTS = pathlib.Path('/proc/self/mounts')

REMEMBERED = {
    'cpu': ('cpu.shares', 'cpu.cfs_period_us', 'cpu.cfs_quota_us',
            'cpu.idle'),
    'cpuset': ('cpuset.cpus', 'cpuset.mems'),
    'memory': ('memory.limit_in_bytes', 'memory.soft_limit_in_bytes'),
    'freezer': ('freezer.state',),
    'blkio': ('blkio.throttle.read_bps_device',
              'blkio.throttle.write_bps_device',
              'blkio.throttle.read_iops_device',
              'blkio.throttle.write_iops_device'),
}
"""What the agent may change: it has to read the same after it has gone."""


def mounts(*also_needed: str) -> dict[str, pathlib.Path]:
    """Where each cgroup v1 controller is mounted.

    :param also_needed: of :data:`ALSO`, those that this demo cannot be
        played without
    :raises DriverError: this host does not offer what the demo needs.
    """
    found: dict[str, pathlib.Path] = {}
    for line in MOUNTS.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == 'cgroup':
            for option in options.split(','):
                if option in NEEDED + ALSO:
                    found.setdefault(option, pathlib.Path(where))
    missing = [name for name in (*NEEDED, *also_needed)
               if name not in found]
    if missing:
        raise errors.DriverError(
            'the demo needs the cgroup v1 controllers '
            f'{", ".join(missing)}, which are not mounted here; it does '
            'not run on cgroup v2 yet (boot with '
            'systemd.unified_cgroup_hierarchy=0, or use the agent itself, '
            'which knows v2)')
    return found


def remove(top: pathlib.Path, timeout_s: float = 10.0) -> None:
    """End all that runs in a cgroup or below it, then remove them.

    :raises DriverError: something does not end or go in ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while top.exists():
        for group in _bottom_up(top):
            with contextlib.suppress(OSError):
                (group / 'freezer.state').write_text('THAWED')
            for pid in pids(group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                group.rmdir()
        if top.exists():
            if time.monotonic() > deadline_s:
                raise errors.DriverError(
                    f'{top} cannot be removed: processes '
                    f'{[*pids(top)]} in it do not end; look at them, then '
                    'run scavenger-demo --clean')
            time.sleep(0.02)


def pids(group: pathlib.Path) -> list[int]:
    """The processes in a cgroup; none when it is gone."""
    try:
        return [int(pid) for pid in
                (group / 'cgroup.procs').read_text().split()]
    except OSError:
        return []


def _bottom_up(top: pathlib.Path) -> Iterator[pathlib.Path]:
    for path, _, _ in os.walk(top, topdown=False):
        yield pathlib.Path(path)


class Tree:
    """One cgroup with its descendants, in every v1 hierarchy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mounts = mounts()
        self.groups: list[str] = []

    def make(self, below: str = '') -> None:
        """Make ``name + below`` wherever it has to be."""
        for controller, mount in self.mounts.items():
            path = pathlib.Path(f'{mount}{self.name}{below}')
            path.mkdir(exist_ok=True)
            if controller == 'cpuset':
                for file in ('cpuset.mems', 'cpuset.cpus'):
                    (path / file).write_text((path.parent / file).read_text())
        self.groups.append(below)

    def path(self, controller: str, below: str = '') -> pathlib.Path:
        return pathlib.Path(f'{self.mounts[controller]}{self.name}{below}')

    def read(self, controller: str, below: str, file: str) -> str:
        return (self.path(controller, below) / file).read_text().strip()

    def write(self, controller: str, below: str, file: str,
              text: str) -> None:
        """Write to one of our files.

        :raises DriverError: the kernel does not take it.
        """
        path = self.path(controller, below) / file
        try:
            path.write_text(text)
        except OSError as exc:
            raise errors.DriverError(
                f'{path}: {text!r} not taken ({exc.strerror}); the demo '
                'cannot run on this kernel') from exc

    def procs_files(self, below: str) -> list[str]:
        """Where a process writes 0 to become a member."""
        return sorted({str(self.path(controller, below) / 'cgroup.procs')
                       for controller in self.mounts})

    def members(self) -> list[int]:
        """Every process that runs in the tree."""
        return sorted({pid for group in self.groups
                       for pid in pids(self.path('memory', group))})

    def end(self, below: Iterable[str], timeout_s: float = 10.0) -> None:
        """End every process in these groups and wait until it is gone.

        :raises DriverError: one does not end in ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        groups = [self.path('memory', group) for group in below]
        while left := [pid for group in groups for pid in pids(group)]:
            if time.monotonic() > deadline_s:
                raise errors.DriverError(f'processes {left} of the demo do '
                                         'not end on SIGKILL')
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def knobs(self) -> dict[str, str]:
        """What every knob reads now, by its path."""
        found: dict[str, str] = {}
        for controller, files in REMEMBERED.items():
            for below in self.groups if controller in self.mounts else ():
                for file in files:
                    path = self.path(controller, below) / file
                    with contextlib.suppress(FileNotFoundError):
                        found[str(path)] = path.read_text().strip()
        return found

    def changed(self, before: Mapping[str, str]) -> list[str]:
        """What no longer reads as in ``before``, in plain words.

        :param before: what :meth:`knobs` returned
        """
        now = self.knobs()
        return [f'{path}: was {text!r}, is {now.get(path)!r}'
                for path, text in before.items() if now.get(path) != text]

    def remove(self) -> None:
        for mount in dict.fromkeys(self.mounts.values()):
            remove(pathlib.Path(f'{mount}{self.name}'))
