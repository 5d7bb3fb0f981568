# SPDX-License-Identifier: Apache-2.0

"""The files of resctrl, which few machines have."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import contextlib
import errno
import fcntl
import os
import pathlib

import fixtures

INFO = {
    'L3/cbm_mask': '7ff', 'L3/min_cbm_bits': '1', 'L3/num_closids': '16',
    'L3/shareable_bits': '600', 'MB/min_bandwidth': '10',
    'MB/bandwidth_gran': '10', 'MB/num_closids': '8',
    'MB/thread_throttle_mode': 'per-thread'}
"""Of a CPU that can divide its cache and its memory bus."""

NO_GROUPS = ('info', 'mon_groups', 'mon_data')

DEFAULT = 'L3:0=7ff;1=7ff\n    MB:0=100;1= 100\n'


class Resctrl(fixtures.Fixture):
    """A mounted resctrl of two caches, that answers as the kernel does.

    Groups have their files at once, are removed with them, and hand their
    tasks to the group that they are in.  A task is in one control group.

    :param ids: of the CPU, for monitoring
    :param closids: of the CPU, for control; 0: it can only monitor
    :param root: where it is mounted below; a directory of its own without
    :ivar top: where it is
    :ivar default: the part of a new group
    :ivar before: called before each change, with its name
    :ivar refused: the error of each write to ``tasks``, 0 for none
    """

    def __init__(self, ids: int = 8, closids: int = 0, *,
                 features: str = 'llc_occupancy\nmbm_total_bytes\n',
                 root: pathlib.Path | None = None,
                 tasks: Collection[int] = ()) -> None:
        self._ids, self._features, self._closids = ids, features, closids
        self._root, self._tasks = root, tasks
        self.default = DEFAULT
        self.before: Callable[[str], object] = bool
        self.refused = 0

    def _setUp(self) -> None:
        root = self._root or pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.top = root / 'sys/fs/resctrl'
        self._mkdir, self._rmdir, self._write = os.mkdir, os.rmdir, os.write
        (self.top / 'info/L3_MON').mkdir(parents=True)
        (self.top / 'info/L3_MON/mon_features').write_text(self._features)
        (self.top / 'info/L3_MON/num_rmids').write_text(f'{self._ids}\n')
        (self.top / 'info/last_cmd_status').write_text('ok\n')
        (self.top / 'mon_groups').mkdir()
        if self._closids:
            for name, text in INFO.items():
                self.put(f'info/{name}', text)
            self.put('info/L3/num_closids', str(self._closids))
        self._fill(self.top)
        self.put('tasks', '\n'.join(map(str, self._tasks)))
        (root / 'proc').mkdir(exist_ok=True)
        (root / 'proc/filesystems').write_text('nodev\tresctrl\n')
        for name in 'mkdir', 'rmdir', 'write':
            self.useFixture(fixtures.MonkeyPatch(
                f'os.{name}', getattr(self, f'_on_{name}')))
        # What mountinfo says of a tree that is mounted.
        self.mounted = [(str(self.top), 'resctrl', self.top.stat().st_dev)]
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.resctrl.mounts',
            lambda: self.mounted))

    def put(self, path: str, text: str) -> None:
        """As another program does, or the kernel of another CPU."""
        file = self.top / path.strip('/')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + '\n')

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """As another program, which changes groups."""
        fd = os.open(self.top, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    def is_locked(self) -> bool:
        try:
            with self.locked():
                return False
        except BlockingIOError:
            return True

    def locked_at(self) -> list[tuple[str, bool]]:
        """Return the changes from now on, and whether each had the lock."""
        changes: list[tuple[str, bool]] = []
        self.before = lambda change: changes.append((change,
                                                     self.is_locked()))
        return changes

    def read(self, path: str) -> str:
        return (self.top / path.strip('/')).read_text()

    def tasks(self, group: str = '') -> set[int]:
        return set(map(int, self.read(f'{group}/tasks').split()))

    def control(self, name: str, schemata: str = DEFAULT, *tasks: int) -> None:
        """Make a control group of another program."""
        os.mkdir(self.top / name)
        (self.top / name / 'schemata').write_text(schemata)
        for task in tasks:
            self._move(self.top / name, task)

    def _fill(self, group: pathlib.Path) -> None:
        (group / 'tasks').write_text('')
        for cache in ('mon_L3_00', 'mon_L3_01'):
            (group / 'mon_data' / cache).mkdir(parents=True)
            (group / 'mon_data' / cache / 'mbm_total_bytes').write_text('0\n')
        if self._closids and group.parent.name != 'mon_groups':
            (group / 'schemata').write_text(self.default)
            (group / 'cpus_list').write_text('\n')
            (group / 'mon_groups').mkdir(exist_ok=True)

    def _groups(self) -> list[pathlib.Path]:
        """The control groups but for the default one."""
        return [path for path in self.top.iterdir() if path.is_dir()
                and path.name not in NO_GROUPS]

    def _kind(self, path: pathlib.Path) -> str:
        above = path.parent.resolve()
        if path.name in NO_GROUPS:
            return ''
        if above == self.top.resolve():
            return 'control'
        return 'monitoring' if above.name == 'mon_groups' \
            and self.top.resolve() in above.parents else ''

    def _on_mkdir(self, name: str, mode: int = 0o777, *,
                  dir_fd: int | None = None) -> None:
        path = _absolute(name, dir_fd)
        kind = self._kind(path)
        if kind:
            self.before('mkdir')
        if (kind == 'control' and 0 < self._closids <= 1 + len(self._groups())
                or kind == 'monitoring'
                and len(self.names()) >= self._ids - 1):
            self.put('info/last_cmd_status', f'Out of {kind} ids')
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        self._mkdir(path, mode)
        if kind:
            self._fill(path)

    def _on_rmdir(self, name: str, *, dir_fd: int | None = None) -> None:
        path = _absolute(name, dir_fd)
        kind = self._kind(path) if path.is_dir() else ''
        if kind:
            self.before('rmdir')
        if kind == 'control':
            for task in self.tasks(path.name):
                self._move(self.top, task)
        for where, _, names in os.walk(path, topdown=False) if kind else ():
            for file in names:
                os.unlink(os.path.join(where, file))
            if where != str(path):
                self._rmdir(where)
        self._rmdir(path)

    def _on_write(self, fd: int, data: bytes) -> int:
        path = pathlib.Path(os.readlink(f'/proc/self/fd/{fd}'))
        if self.top.resolve() not in path.parents:
            return self._write(fd, data)
        if path.name.endswith(' (deleted)'):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        self.before(path.name)
        if path.name == 'tasks':
            if self.refused:
                raise OSError(self.refused, os.strerror(self.refused))
            self._move(path.parent, int(data))
        else:
            assert path.name == 'schemata' and data.endswith(b'\n'), path
            self._set(path, data.decode())
        return len(data)

    def _move(self, group: pathlib.Path, task: int) -> None:
        control = (group if group.parent.name != 'mon_groups'
                   else group.parent.parent)
        if self._closids and group is not control \
                and task not in self.tasks(str(control.relative_to(self.top))):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        for path in [self.top, *self._groups()] if self._closids else []:
            if task in (left := self.tasks(path.name if path != self.top
                                           else '')) and path != control:
                (path / 'tasks').write_text(''.join(
                    f'{other}\n' for other in sorted(left - {task})))
        for path in {group, control} if self._closids else {group}:
            inside = set(map(int, (path / 'tasks').read_text().split()))
            (path / 'tasks').write_text(''.join(
                f'{other}\n' for other in sorted(inside | {task})))

    def _set(self, path: pathlib.Path, text: str) -> None:
        """Set the lines that are given, if the kernel takes them all."""
        lines = parse(path.read_text())
        for name, values in parse(text).items():
            for cache, value in values.items():
                if name.startswith('L3'):
                    least = int(self.read(f'info/{name}/min_cbm_bits'))
                    mask = int(value, 16)
                    if (f'{mask:b}'.rstrip('0').count('0')
                            or mask.bit_count() < least
                            or mask & ~int(self.read(
                                f'info/{name}/cbm_mask'), 16)):
                        self.put('info/last_cmd_status',
                                 f'mask {value} has non-consecutive 1-bits')
                        raise OSError(errno.EINVAL, 'Invalid argument')
                assert cache in lines[name]
                lines[name][cache] = value
        path.write_text(''.join(
            f'{name:>6}:' + ';'.join(f'{cache}={value:>4}' for cache, value
                                     in values.items()) + '\n'
            for name, values in lines.items()))

    def names(self) -> list[str]:
        return sorted(os.listdir(self.top / 'mon_groups'))

    def count(self, group: str, text: str) -> None:
        """Bytes of one cache of a group; '': of all in the default group."""
        path = self.top / 'mon_groups' / group if group else self.top
        (path / 'mon_data/mon_L3_01/mbm_total_bytes').write_text(f'{text}\n')


def parse(text: str) -> dict[str, dict[str, str]]:
    """By resource and cache."""
    return {name.strip(): {
        cache.strip(): value.strip() for cache, _, value in (
            part.partition('=') for part in values.split(';'))}
        for name, _, values in (
            line.partition(':') for line in text.splitlines())}


def _absolute(name: object, dir_fd: int | None) -> pathlib.Path:
    return pathlib.Path(os.readlink(f'/proc/self/fd/{dir_fd}')
                        if dir_fd is not None else '', str(name)).absolute()
