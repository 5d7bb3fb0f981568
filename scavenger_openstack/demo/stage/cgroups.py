# SPDX-License-Identifier: Apache-2.0

"""The cgroups of the demo, and those that earlier demos left."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import os
import pathlib
import signal
import time

from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack import errors

END_S = 10.0
THAW = (('freezer.state', 'THAWED'), ('cgroup.freeze', '0'))
WEIGHT = {1: ('cpu.shares', 1024), 2: ('cpu.weight', 100)}
"""The file with the CPU weight of a cgroup, and the default weight, by the
version of cgroups."""
KNOBS = ('cpu.shares', 'cpu.cfs_period_us', 'cpu.cfs_quota_us', 'cpu.weight',
         'cpu.max', 'cpu.idle', 'cpuset.cpus', 'cpuset.mems',
         'memory.limit_in_bytes', 'memory.soft_limit_in_bytes',
         'memory.high', 'memory.max', 'freezer.state', 'cgroup.freeze')
"""All files that the agent may change, of both versions: each has to read the
same after it has ended."""


def left_over() -> dict[str, list[pathlib.Path]]:
    """Return the trees that demos have here, by the id of the demo.

    :raises DriverError: no demo can run here.
    """
    trees: dict[str, list[pathlib.Path]] = {}
    for place in cgroup_place.candidates():
        for top in place.glob(cgroup_place.PREFIX + '*'):
            trees.setdefault(top.name.removeprefix(
                cgroup_place.PREFIX), []).append(top)
    return trees


def remove(tops: Iterable[pathlib.Path], timeout_s: float = END_S) -> None:
    """End all processes in these cgroups or below, then remove them.

    :raises DriverError: something does not end or go in ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while left := [top for top in tops if top.exists()]:
        groups = [group for top in left for group in _bottom_up(top)]
        _kill(groups, reversed(groups))
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()
        if time.monotonic() > deadline_s:
            alive = sorted({pid for group in groups for pid in pids(group)})
            raise errors.DriverError(
                f'{left[0]} cannot be removed: processes {alive} in it did '
                f'not end within {timeout_s:g} s of SIGKILL (State in '
                '/proc/PID/status says why); run scavenger-demo --clean')
        time.sleep(0.01)
    cgroup_place.move_back()


def pids(group: pathlib.Path) -> list[int]:
    """Return the processes in a cgroup; none if it is gone."""
    try:
        return [int(pid) for pid in cgroup_members.read(
            f'{group}/{cgroup_members.PROCESSES}').split()]
    except OSError:
        return []


def _kill(groups: Iterable[pathlib.Path],
          frozen: Iterable[pathlib.Path]) -> None:
    """Send SIGKILL to all in ``groups``; then thaw ``frozen``, top down.

    On v1 a frozen process does not die before it is thawed, and the agent
    may freeze it again at any moment: to be repeated until all are gone.
    """
    for group in groups:
        with contextlib.suppress(OSError):    # v2 from Linux 5.14 on
            (group / 'cgroup.kill').write_text('1')
        for pid in pids(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for group in frozen:
        for file, text in THAW:
            with contextlib.suppress(OSError):    # of the other version
                (group / file).write_text(text)


def _bottom_up(top: pathlib.Path) -> Iterator[pathlib.Path]:
    for path, _, _ in os.walk(top, topdown=False):
        yield pathlib.Path(path)


class Tree:
    """One cgroup with its descendants, in every hierarchy that there is.

    Groups are named by their path below it, '' is its top; ``name`` is its
    own path below the mounts, as the agent's options take it.
    """

    def __init__(self, name: str) -> None:
        place = cgroup_place.find()
        self.version = place.version
        self.name = f'{place.path}/{cgroup_place.PREFIX}{name}'
        self.groups: list[str] = []
        self._mounts = place.mounts
        self._tops = [pathlib.Path(f'{mount}{self.name}')
                      for mount in dict.fromkeys(place.mounts.values())]

    def make(self, below: str = '', cpus: str = '') -> None:
        """Make a group; the one above it is there.

        :param cpus: such as ``0-1,4``; none: as above
        :raises DriverError: the kernel or the container does not let us.
        """
        for top in self._tops:
            path = pathlib.Path(f'{top}{below}')
            try:
                path.mkdir(exist_ok=True)
            except OSError as exc:
                raise errors.DriverError(
                    f'{path} cannot be made ({exc.strerror}): the demo '
                    'needs a cgroup tree that it may write to; in a '
                    'container mount /sys/fs/cgroup writable, as docker run '
                    '--privileged does') from exc
            if self.version == 2:
                cgroup_place.pass_on(path.parent)
        path = self._group('cpuset', below)
        if self.version == 1:    # it begins without any
            for file in ('cpuset.mems', 'cpuset.cpus'):
                (path / file).write_text((path.parent / file).read_text())
        if cpus:
            self._write(path / 'cpuset.cpus', cpus)
        self.groups.append(below)

    def check_entry(self, below: str) -> None:
        """Check that a process may be moved into our cgroups.

        :raises DriverError: it may not.
        """
        child = os.fork()
        if not child:
            time.sleep(END_S)
            os._exit(0)
        try:
            for file in self.procs_files(below):
                pathlib.Path(file).write_text(str(child))
        except OSError as exc:
            raise errors.DriverError(
                f'{file}: no process can be moved there ({exc.strerror}): '
                'the demo may not leave the cgroup that it was started in; '
                'start it outside of this cgroup namespace, or mount a '
                'cgroup2 file system inside') from exc
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def procs_files(self, below: str) -> list[str]:
        """Return the files where a process writes 0 to become a member."""
        return [f'{top}{below}/cgroup.procs' for top in self._tops]

    def remove(self) -> None:
        """End all processes in it and remove it.

        :raises DriverError: something does not end or go.
        """
        remove(self._tops)

    def set_cpu_weight(self, below: str, weight: float) -> None:
        """Set the CPU weight, in units of the default weight.

        :raises DriverError: the kernel does not accept it.
        """
        name, usual = WEIGHT[self.version]
        self._write(self._group('cpu', below) / name,
                    f'{usual * weight:.0f}')

    def cpu_s(self, below: str) -> float:
        """Return the CPU time used by all in a group and below it, in s."""
        path = self._group('cpuacct', below)
        if self.version == 1:
            return int((path / 'cpuacct.usage').read_text()) / 1e9
        usage = (path / 'cpu.stat').read_text().partition('usage_usec ')[2]
        return int(usage.split()[0]) / 1e6

    def knobs(self) -> dict[str, str]:
        """Return the present text of each knob, by its path."""
        texts: dict[str, str] = {}
        for top in self._tops:
            for below in self.groups:
                for name in KNOBS:
                    path = pathlib.Path(f'{top}{below}') / name
                    with contextlib.suppress(FileNotFoundError):
                        texts[str(path)] = path.read_text().strip()
        return texts

    def changed(self, before: Mapping[str, str]) -> list[str]:
        """Return the knobs that differ from ``before``, in plain words.

        :param before: the result of :meth:`knobs`
        """
        texts = self.knobs()
        return [f'{path}: was {text!r}, is {texts.get(path)!r}'
                for path, text in before.items() if texts.get(path) != text]

    def _group(self, controller: str, below: str) -> pathlib.Path:
        return pathlib.Path(f'{self._mounts[controller]}{self.name}{below}')

    def _write(self, path: pathlib.Path, text: str) -> None:
        try:
            path.write_text(text)
        except OSError as exc:
            raise errors.DriverError(
                f'{path}: {text!r} not taken ({exc.strerror}); the demo '
                'cannot run on this kernel') from exc
