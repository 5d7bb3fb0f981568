# SPDX-License-Identifier: Apache-2.0

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

from scavenger_openstack.demo.stage import cgroup_names
from scavenger_openstack.demo.stage.cgroup_names import File
from scavenger_openstack.demo.stage import cgroup_place
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack import errors
from scavenger_openstack.types import parse_cpus

END_S = 10.0
NO_LIMIT_BYTES = 1 << 60
THAW = (('freezer.state', 'THAWED'), ('cgroup.freeze', '0'))


def check(*also_needed: str) -> None:
    """See whether the demo can be played here.

    :raises DriverError: it cannot; the message says what to do.
    """
    cgroup_place.find(*also_needed)


def left_over() -> dict[str, list[pathlib.Path]]:
    """The trees that demos have here, by the name that they were given.

    :raises DriverError: no demo can be played here.
    """
    found: dict[str, list[pathlib.Path]] = {}
    for place in cgroup_place.everywhere():
        for top in place.glob(cgroup_place.PREFIX + '*'):
            found.setdefault(top.name.removeprefix(
                cgroup_place.PREFIX), []).append(top)
    return found


def remove(tops: Iterable[pathlib.Path], timeout_s: float = END_S) -> None:
    """End all that runs in these cgroups or below, then remove them.

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
    cgroup_place.stand_up()


def pids(group: pathlib.Path) -> list[int]:
    """The processes in a cgroup; none when it is gone."""
    try:
        return [int(pid) for pid in cgroup_members.read(
            f'{group}/{cgroup_members.PROCESSES}').split()]
    except OSError:
        return []


def _kill(groups: Iterable[pathlib.Path],
          frozen: Iterable[pathlib.Path]) -> None:
    """SIGKILL to all in ``groups``; then thaw ``frozen``, top down.

    On v1 what is frozen does not die before it is thawed, and the agent
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
        self._names = cgroup_names.NAMES[place.version]
        self._mounts = place.mounts
        self._tops = [pathlib.Path(f'{mount}{self.name}')
                      for mount in dict.fromkeys(place.mounts.values())]

    # --- making and ending

    def make(self, below: str = '') -> None:
        """Make a group, what is above it first.

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
        if self.version == 1:
            for file in ('cpuset.mems', 'cpuset.cpus'):
                path = self._path(File('cpuset', file), below)
                path.write_text((path.parent.parent / file).read_text())
        self.groups.append(below)
        if not below:    # what the host has must not help the one played
            swap = self._path(self._names.swap, below)
            if swap.exists():
                swap.write_text('0')

    def check_entry(self, below: str) -> None:
        """See whether a process may leave the cgroup it is in for ours.

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
        """Where a process writes 0 to become a member."""
        return [f'{top}{below}/cgroup.procs' for top in self._tops]

    def members(self, below: str | None = None) -> list[int]:
        """Every process that runs in a group, or in all of them."""
        groups = self.groups if below is None else [below]
        return sorted({pid for group in groups
                       for pid in pids(self._group('memory', group))})

    def end(self, below: Iterable[str], timeout_s: float = END_S) -> None:
        """End every process in these groups and wait until it is gone.

        It ends also what is frozen, and frozen again meanwhile.

        :raises DriverError: one does not end in ``timeout_s``.
        """
        deadline_s = time.monotonic() + timeout_s
        groups = [self._group('memory', group) for group in below]
        above = dict.fromkeys(self._group('freezer', level)
                              for group in below
                              for level in (*self._above(group), group))
        while left := [pid for group in groups for pid in pids(group)]:
            if time.monotonic() > deadline_s:
                raise errors.DriverError(
                    f'processes {left} of the demo did not end within '
                    f'{timeout_s:g} s of SIGKILL (State in /proc/PID/status '
                    'says why); run scavenger-demo --clean')
            _kill(groups, above)
            time.sleep(0.01)

    def remove(self) -> None:
        """End all that runs in it and remove it.

        :raises DriverError: something does not end or go.
        """
        remove(self._tops)

    # --- limits

    def set_cpus(self, below: str, cpus: str | None) -> None:
        """CPUs such as ``0-1,4``; None are all.

        :raises DriverError: the kernel does not take it; as all of these.
        """
        if cpus is None:
            cpus = self._names.every_cpu
            if cpus is None:
                cpus = self._read(self._names.cpus, '')
        self._write(self._names.cpus, below, f'{cpus}\n')

    def set_cpu_weight(self, below: str, weight: float) -> None:
        """1 is what every cgroup has at first."""
        self._write(self._names.cpu_weight, below,
                    f'{self._names.usual_weight * weight:.0f}')

    def set_cpu_idle(self, below: str, idle: bool) -> None:
        self._write(self._names.cpu_idle, below, str(int(idle)))

    def set_cpu_quota(self, below: str, cores: float | None) -> None:
        self._write(self._names.cpu_quota, below, self._names.unlimited
                    if cores is None else
                    f'{cores * cgroup_names.QUOTA_PERIOD_US:.0f}')

    def set_memory_limit(self, below: str, limit_bytes: int | None) -> None:
        self._write(self._names.memory_limit, below, self._names.unlimited
                    if limit_bytes is None else str(limit_bytes))

    # --- counters and levels

    def cpu_s(self, below: str) -> float:
        """CPU time used by all in a group and below it, in s."""
        return (self._number(self._names.cpu_time, below)
                / self._names.cpu_time_per_s)

    def cpus(self, below: str) -> frozenset[int]:
        """The CPUs that a group may use now."""
        return frozenset(parse_cpus(self._read(self._names.cpus_in_force,
                                               below)))

    def cpu_idle(self, below: str) -> bool:
        """Whether the kernel treats a group as idle."""
        return self._read(self._names.cpu_idle, below) == '1'

    def memory_bytes(self, below: str) -> int:
        """Memory used by all in a group and below it."""
        return int(self._number(self._names.memory, below))

    def memory_limit_bytes(self, below: str) -> int | None:
        """The tightest limit on a group, without that of the top, which
        plays the memory of the host; None when there is none."""
        found = [text for group in (*self._above(below), below)[1:]
                 for text in (self._read(file, group)
                              for file in self._names.memory_limits)]
        limits = [int(text) for text in found if text.isdigit()
                  and int(text) < NO_LIMIT_BYTES]
        return min(limits, default=None)

    def refusals(self) -> int:
        """How often the host that is played had no page left."""
        return int(self._number(self._names.refusals, ''))

    # --- what the programs read

    def memory_files(self) -> tuple[str, str]:
        """Of the top: what it uses, and its limit."""
        return (str(self._path(self._names.memory, '')),
                str(self._path(self._names.memory_limit, '')))

    def limit_files(self, below: str) -> list[str]:
        """Every file with a limit on the memory of a group."""
        return [str(self._path(file, group))
                for group in (*self._above(below), below)
                for file in self._names.memory_limits]

    def refusals_file(self) -> tuple[str, str]:
        """Of the top: the file with its refusals, and the word before."""
        file = self._names.refusals
        return str(self._path(file, '')), file.key

    # --- all of it

    def knobs(self) -> dict[str, str]:
        """What every knob reads now, by its path."""
        found: dict[str, str] = {}
        for file in self._names.knobs:
            if file.controller in self._mounts:
                for below in self.groups:
                    path = self._path(file, below)
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

    def _group(self, controller: str, below: str) -> pathlib.Path:
        return pathlib.Path(f'{self._mounts[controller]}{self.name}{below}')

    def _path(self, file: File, below: str) -> pathlib.Path:
        return self._group(file.controller, below) / file.name

    @staticmethod
    def _above(below: str) -> list[str]:
        """The groups above one, the top first."""
        parts = below.split('/')
        return ['/'.join(parts[:depth]) for depth in range(1, len(parts))]

    def _read(self, file: File, below: str) -> str:
        return self._path(file, below).read_text().strip()

    def _number(self, file: File, below: str) -> float:
        text = self._read(file, below)
        if file.key:
            text = text.partition(file.key)[2].split()[0]
        return float(text)

    def _write(self, file: File, below: str, text: str) -> None:
        path = self._path(file, below)
        try:
            path.write_text(text)
        except OSError as exc:
            raise errors.DriverError(
                f'{path}: {text.strip()!r} not taken ({exc.strerror}); the '
                'demo cannot run on this kernel') from exc
