# SPDX-License-Identifier: Apache-2.0

"""A host of plain files that the real driver of a host reads and limits."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable

import fixtures

from scavenger_openstack.tests.unit import cpusets

MIB = 2 ** 20
FILES = {
    'cgroup.events': 'populated 1\nfrozen 0',
    'cpu.stat': 'usage_usec 2500000\nnr_periods 10\nnr_throttled 4\n'
                'throttled_usec 1500000',
    'memory.current': str(100 * MIB), 'memory.high': 'max',
    'memory.max': 'max',
    'memory.stat': f'anon {50 * MIB}\nfile {30 * MIB}\nkernel {10 * MIB}\n'
                   f'inactive_anon {50 * MIB}\nactive_anon 0\n'
                   f'inactive_file {20 * MIB}\nactive_file {10 * MIB}\n'
                   f'slab_reclaimable {5 * MIB}\nslab {6 * MIB}\n'
                   f'workingset_refault_anon 7\nworkingset_refault_file 2',
    'io.max': '', 'io.stat': ''}


class Host(cpusets.Host):
    """Linux with cgroup version 2, four CPUs and 4 GiB of memory.

    :ivar before_write: called before each write to a file of the tree
    """

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.before_write: Callable[[], object] = bool

    def _setUp(self) -> None:
        super()._setUp()
        self.put('sys/fs/cgroup/cgroup.controllers', 'cpuset cpu memory io')
        self.put('proc/meminfo', 'MemTotal: 4194304 kB\n'
                                 'MemFree: 2097152 kB\n'
                                 'MemAvailable: 3145728 kB')
        self.put('proc/vmstat', 'workingset_refault_file 0')
        # What mountinfo says of a tree that is mounted.
        mount = str(self.top), 'cgroup2', self.top.stat().st_dev
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.cgroup.mounts',
            lambda: [mount]))

    def cgroup(self, path: str, cpus: Iterable[int] | None = None) -> None:
        super().cgroup(path, cpus)
        for name, text in FILES.items():
            self.write(path, name, text)

    def _write(self, fd: int, data: bytes, write: Callable[[], int]) -> int:
        if self.top in self._live(fd).parents:
            self.before_write()
        return super()._write(fd, data, write)

    def read(self, path: str, name: str) -> str:
        return (self.top / path.strip('/') / name).read_text().strip()

    def write(self, path: str, name: str, text: str) -> None:
        """As another program does."""
        (self.top / path.strip('/') / name).write_text(
            text and text + '\n')
