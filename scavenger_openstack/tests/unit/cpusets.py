# SPDX-License-Identifier: Apache-2.0

"""A host of plain files whose CPUs come and go, with cgroups on it.

It answers writes to ``cpuset.cpus`` as the kernel does, and keeps what was
written where.  It shares no code with what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import errno
import os
import pathlib

import fixtures

from scavenger_openstack.tests.random_changes import Write
from scavenger_openstack.tests.unit import mount_files

V1_MOUNTS = ('/sys/fs/cgroup/cpuset cgroup rw,cpuset',
             '/sys/fs/cgroup/cpu cgroup rw,cpu')
V2_MOUNTS = ('/sys/fs/cgroup cgroup2 rw',)
CPU_V1 = {'cpu.cfs_quota_us': '-1', 'cpu.cfs_period_us': '100000',
          'cpu.shares': '1024', 'cpu.idle': '0'}
CPU_V2 = {'cpu.max': 'max 100000', 'cpu.weight': '100', 'cpu.idle': '0',
          'cgroup.freeze': '0'}


def listed(cpus: Iterable[int]) -> str:
    """A CPU list without ranges, as it may be written."""
    return ','.join(map(str, sorted(cpus)))


def cpus_of(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.strip().split(',')):
        ends = [int(end) for end in part.split('-')]
        found |= set(range(ends[0], ends[-1] + 1))
    return found


class Host(fixtures.Fixture):
    """A root directory.

    :ivar written: each write that was taken, the oldest first; paths begin
        below the cgroup mount
    :ivar refused: names of files, or of one as in ``written``, to which the
        kernel takes no write
    :ivar busy: groups of version 1 that cannot have fewer CPUs now
    :ivar tries: how many writes were refused for that
    """

    def __init__(self, cpus: int, version: int) -> None:
        super().__init__()
        self.possible = set(range(cpus))
        self.online = set(self.possible)
        self.fixed: set[int] = set()
        self.siblings = {cpu for cpu in self.possible if cpu % 2}
        self.version = version
        self.written: list[Write] = []
        self.refused: set[str] = set()
        self.busy: set[str] = set()
        self.tries = 0

    def _setUp(self) -> None:
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.top = self.root / 'sys/fs/cgroup'
        self.sets = self.top / 'cpuset' if self.version == 1 else self.top
        mount_files.mount(self.root, *(
            V1_MOUNTS if self.version == 1 else V2_MOUNTS))
        self.put('proc/sys/kernel/random/boot_id', 'b-1')
        self.put('sys/devices/system/cpu/possible', listed(self.possible))
        self.put('sys/devices/system/cpu/online', '')
        self.put('sys/fs/cgroup/cgroup.controllers', 'cpuset cpu')
        self.sets.mkdir(exist_ok=True)
        self._follow()
        plain, at, read = os.write, os.pwrite, os.pread
        self.useFixture(fixtures.MonkeyPatch(
            'os.pread', lambda fd, size, offset: self._live(fd) and read(
                fd, size, offset)))
        self.useFixture(fixtures.MonkeyPatch(
            'os.pwrite', lambda fd, data, offset: self._write(
                fd, data, lambda: at(fd, data, offset))))
        self.useFixture(fixtures.MonkeyPatch(
            'os.write', lambda fd, data: self._write(
                fd, data, lambda: plain(fd, data))))

    def put(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + '\n')

    def cgroup(self, path: str, cpus: Iterable[int] | None = None) -> None:
        """Make a cgroup as a program that runs containers does."""
        for top in ((self.sets, self.top / 'cpu') if self.version == 1
                    else (self.top,)):
            (top / path.strip('/')).mkdir(parents=True)
        files = CPU_V1 if self.version == 1 else CPU_V2
        for name, text in {'cgroup.procs': '', **files}.items():
            self._text(path, name, text)
        if self.version == 2:
            self._text(path, 'cpuset.cpus.partition', 'member')
        text = listed(cpus or ())
        if self.version == 1:
            self._text(path, 'cpuset.cpu_exclusive', '0')
            (self.sets / path.strip('/') / 'cgroup.procs').write_text('\n')
            text = text or listed(self._parent(path))
        self._text(path, 'cpuset.cpus', text)
        self._follow()

    def partition(self, path: str, cpus: Iterable[int]) -> None:
        """Make a cgroup of version 2 that has CPUs to itself."""
        self.cgroup(path, cpus)
        self._text(path, 'cpuset.cpus.partition', 'root')
        self._follow()

    def exclusive(self, path: str, cpus: Iterable[int]) -> None:
        """Make a cgroup of version 1 that has CPUs to itself."""
        self.cgroup(path, cpus)
        self.set_exclusive(path)

    def set_exclusive(self, path: str) -> None:
        """Let a cgroup have its CPUs to itself from now on."""
        self._text(path, 'cpuset.cpu_exclusive', '1')

    def is_partition(self, path: str) -> bool:
        """Whether it is one, and valid."""
        return (self.top / path.strip('/') / 'cpuset.cpus.partition'
                ).read_text() == 'root\n'

    def delete(self, path: str) -> None:
        for top in {self.sets, self.top / 'cpu', self.top}:
            where = top / path.strip('/')
            if where.is_dir() and (where != self.top):
                for file in where.iterdir():
                    file.unlink()
                where.rmdir()

    def set_by_another(self, path: str, cpus: Iterable[int]) -> None:
        self._text(path, 'cpuset.cpus', listed(cpus))
        self._follow()

    def set_of(self, path: str) -> set[int]:
        return cpus_of((self.sets / path.strip('/') / 'cpuset.cpus'
                        ).read_text())

    def take_offline(self, *cpus: int) -> None:
        self.online -= set(cpus)
        if self.version == 1:
            for path in self._every():
                left = self.set_of(path) & self.online
                self._text(path, 'cpuset.cpus', listed(left))
        self._follow()

    def bring_online(self, *cpus: int) -> None:
        """v1 gives them back to no group."""
        self.online |= set(cpus) & self.possible
        self._follow()

    def smt(self, on: bool) -> None:
        (self.bring_online if on else self.take_offline)(*self.siblings)

    def _every(self, top: str = '') -> Iterator[str]:
        for where, below, _ in os.walk(self.sets / top):
            for name in below:
                yield os.path.relpath(os.path.join(where, name), self.sets)

    def _parent(self, path: str) -> set[int]:
        above = os.path.dirname(path.strip('/'))
        return self.set_of(above) if above else set(self.online)

    def _text(self, path: str, name: str, text: str) -> None:
        top = (self.sets if name.startswith('cpuset') or self.version == 2
               else self.top / 'cpu')
        (top / path.strip('/') / name).write_text(text + '\n')

    def effective(self, path: str) -> set[int]:
        """The CPUs that the kernel lets a group run on."""
        path = path.strip('/')
        if not path:
            return set(self.online)
        above = self.effective(os.path.dirname(path))
        own = self.set_of(path)
        return (own if self.version == 1 else own & above) or above

    def _follow(self) -> None:
        """Say everywhere which CPUs are online."""
        # In place and in one piece: it may be open.
        with open(self.root / 'sys/devices/system/cpu/online', 'r+b',
                  buffering=0) as file:
            file.write(listed(self.online).ljust(512).encode())
        self.put('proc/stat', 'cpu  1 0 0 0 0 0 0 0 0 0\n' + '\n'.join(
            f'cpu{cpu} 1 0 0 0 0 0 0 0 0 0' for cpu in sorted(self.online)))
        if self.version == 1:
            self._text('', 'cpuset.cpus', listed(self.online))
        self._spread()

    def _spread(self, top: str = '') -> None:
        """Say where a group and each below it may run."""
        if self.version == 1:
            for path in (top, *self._every(top)):
                self._text(path, 'cpuset.effective_cpus',
                           listed(self.effective(path)))
            return
        known = {'': set(self.online)}
        # A parent before its children, a partition before those beside it.
        for path in sorted(self._every(), key=lambda path: (
                path.count('/'), not self.is_partition(path))):
            above = known[os.path.dirname(path)]
            known[path] = self.set_of(path) & above or set(above)
            if self.is_partition(path):
                above -= known[path]
        for path, cpus in known.items():
            self._text(path, 'cpuset.cpus.effective', listed(cpus))

    def _live(self, fd: int) -> pathlib.Path:
        """The path of an open file; one that was deleted is no more."""
        path = pathlib.Path(os.readlink(f'/proc/self/fd/{fd}'))
        if path.name.endswith(' (deleted)') and self.top in path.parents:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return path

    def _write(self, fd: int, data: bytes, write: Callable[[], int]) -> int:
        path = self._live(fd)
        if self.top not in path.parents:
            return write()
        where = path.relative_to(
            self.sets if self.sets in path.parents else self.top)
        if self.refused & {path.name, f'/{where}'}:
            self.tries += 1
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        is_set = path.name == 'cpuset.cpus'
        cpus = cpus_of(data.decode()) if is_set else set()
        before = cpus_of(path.read_text()) if is_set else set()
        if is_set:
            self._check(path.parent, cpus)
        os.ftruncate(fd, 0)
        self.written.append(Write(f'/{where}', before, cpus))
        count = write()
        if is_set:
            if self.version == 2:
                self._end_partitions(path.parent)
            self._spread(str(where.parent))
        return count

    def _end_partitions(self, where: pathlib.Path) -> None:
        """Linux since 6.1: those beside a cgroup that took their CPUs."""
        for one in where.parent.iterdir():
            path = str(one.relative_to(self.top))
            if (one.is_dir() and one != where and self.is_partition(path)
                    and self.set_of(path) & self.set_of(
                        str(where.relative_to(self.top)))):
                self._text(path, 'cpuset.cpus.partition', 'root invalid '
                           '(Cpu list in cpuset.cpus not exclusive)')

    @staticmethod
    def _is_exclusive(where: pathlib.Path) -> bool:
        return (where / 'cpuset.cpu_exclusive').read_text() == '1\n'

    def _check(self, where: pathlib.Path, cpus: set[int]) -> None:
        """What the kernel refuses."""
        refused = 0
        if not cpus <= (self.online if self.version == 1 else self.possible):
            refused = errno.EINVAL
        elif self.version == 1:
            path = str(where.relative_to(self.sets))
            if not cpus <= self._parent(path):
                refused = errno.EACCES
            elif any(not self.set_of(f'{path}/{one.name}') <= cpus
                     for one in where.iterdir() if one.is_dir()):
                refused = errno.EBUSY
            elif f'/{path}' in self.busy and not self.set_of(path) <= cpus:
                refused = errno.EBUSY
            elif any(self._is_exclusive(where) | self._is_exclusive(one)
                     and cpus & cpus_of((one / 'cpuset.cpus').read_text())
                     for one in where.parent.iterdir()
                     if one.is_dir() and one != where):
                refused = errno.EINVAL
        if refused:
            raise OSError(refused, os.strerror(refused))
