# SPDX-License-Identifier: Apache-2.0

"""A cgroup of its own for the kernels of one run.

It is made below another one and joined before a kernel begins; a command that
is profiled has one, too.  It has no limits: those of the cgroups above hold.
Its name carries the id of this process, so that the next run removes what a
killed one left.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time

from scavenger_openstack.drivers.cgroup import kill
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack import errors

PREFIX = 'scavenger-ibench-'
REMOVE_S = 10.0
_HIGHEST_WEIGHTS = {'cpu.shares': '262144', 'cpu.weight': '10000'}


class Cgroup:
    """``path`` is the same below each mount.

    :param parent: the cgroup below which it is made, '/' for the root
    :param suffix: of its name, which begins with '-'
    """

    def __init__(self, parent: str = '/', suffix: str = '') -> None:
        self._mounts = cgroup_mounts.find_mounts()
        if not self._mounts:
            raise errors.ConfigError(
                'no cgroups are mounted here: mount /sys/fs/cgroup, or run '
                'with --no-cgroup')
        self._parent = '/' + parent.strip('/') if parent.strip('/') else ''
        self.path = f'{self._parent}/{PREFIX}{os.getpid()}{suffix}'
        tops = dict.fromkeys(mount.path for mount in self._mounts.values())
        main = next(self._mounts[name] for name in (
            'memory', 'cpu', 'unified') if name in self._mounts)
        if not os.path.isdir(f'{main.path}{self._parent}'):
            raise errors.ConfigError(
                f'there is no cgroup {parent} below {main.path}')
        self._directories = [
            pathlib.Path(f'{top}{self.path}') for top in tops
            if os.path.isdir(f'{top}{self._parent}')]

    def make(self) -> None:
        """Make it in each hierarchy that has the parent.

        :raises ConfigError: the kernel or the container refuses.
        """
        for directory in self._directories:
            try:
                directory.mkdir(exist_ok=True)
                for name in ('cpuset.mems', 'cpuset.cpus'):
                    # Version 1 begins without any; version 2 inherits.
                    file = directory / name
                    if (file.exists() and not (
                            directory / 'cgroup.controllers').exists()):
                        file.write_text(
                            (directory.parent / name).read_text())
            except OSError as exc:
                raise errors.ConfigError(
                    f'{directory} cannot be made ({exc.strerror}): mount '
                    '/sys/fs/cgroup writable, name a cgroup that may be '
                    'written to with --cgroup, or run with --no-cgroup'
                ) from exc

    def favour(self) -> None:
        """Give it the highest CPU weight, so that other work of the host
        changes a measurement little; what the kernel refuses stays."""
        for directory in self._directories:
            for name, weight in _HIGHEST_WEIGHTS.items():
                with contextlib.suppress(OSError):
                    if (directory / name).exists():
                        (directory / name).write_text(weight)

    def join(self) -> None:
        """Move the calling process into it.

        :raises OSError: the kernel refuses.
        """
        for directory in self._directories:
            (directory / 'cgroup.procs').write_text('0')

    def remove(self) -> None:
        """End what still runs in it, and remove it; gone is fine.

        :raises DriverError: it does not go.
        """
        self._remove(self.path.rpartition('/')[2])

    def remove_leftovers(self) -> None:
        """Remove cgroups of runs whose process is gone, and end what a
        profile had started in them."""
        for name in {path.name for directory in self._directories
                     for path in directory.parent.glob(PREFIX + '*')}:
            if not is_alive(name.removeprefix(PREFIX).partition('-')[0]):
                # Another run may be at it, too.
                with contextlib.suppress(errors.DriverError, OSError):
                    self._remove(name)

    def _remove(self, name: str) -> None:
        """Remove the cgroup of a name with all that runs in it."""
        deadline_s = time.monotonic() + REMOVE_S
        while present := [directory.parent / name for directory
                          in self._directories
                          if (directory.parent / name).exists()]:
            with contextlib.suppress(errors.WorkloadGone):
                kill.kill(self._mounts, f'{self._parent}/{name}')
            for directory in present:
                with contextlib.suppress(OSError):
                    directory.rmdir()
            if time.monotonic() > deadline_s:
                raise errors.DriverError(
                    f'{present[0]} cannot be removed within {REMOVE_S:g} s: '
                    'a process in it does not end (State in '
                    '/proc/PID/status says why)')
            time.sleep(0.005)


def is_alive(pid: str) -> bool:
    """Whether a process of this number runs; what is no number does.  One
    that has ended and was not waited for does not."""
    if not pid.isdecimal():
        return True
    try:
        stat = pathlib.Path(f'/proc/{pid}/stat').read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(b') ')[2][:1] not in (b'Z', b'X')
