# SPDX-License-Identifier: Apache-2.0


"""Cgroup directories held open: where they are, how they are read, written.

A directory is opened once and everything in it relative to that, so that
what holds one talks to the same cgroup for ever: when that is removed
every access says :class:`~scavenger_openstack.errors.WorkloadGone`, also
when another one was made under the same path.

ENODEV and ENOENT of a file say that its controller was turned off, or that
the device that was named is away.  Whether the cgroup is there is asked of
its directory.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import errno
import os
import resource
from typing import Any
from typing import NamedTuple
from typing import TypeVar

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack import errors
from scavenger_openstack.restore import grammar

T = TypeVar('T')

ABSENT = cgroup_members.ABSENT
"""What the kernel answers about what is not there (any more)."""

OUT_OF_FILES = frozenset((errno.EMFILE, errno.ENFILE))
"""There are no descriptors left: says nothing about any cgroup."""

NO_MEMORY_LIMIT = 1 << 62
"""v1 says 'no limit' with a number just below 2**63."""

_READ_SIZE = 16384

_ADVICE = {
    errno.ENODEV: 'this host has no such whole disk (a partition has no '
                  'limits of its own)',
    errno.EROFS: 'the cgroup tree is mounted read-only here: let the agent '
                 'have it writable (systemd: ProtectControlGroups=no)',
    errno.EACCES: 'not permitted: run the agent with CAP_DAC_OVERRIDE (for '
                  'cpuset.cpus: or the parent does not have these CPUs)',
    errno.EPERM: 'not permitted: run the agent with the capabilities of its '
                 'systemd unit',
    errno.EINVAL: 'the kernel does not take this value: look at the limits '
                  'of the cgroups above and below it',
    errno.EBUSY: 'the kernel cannot do this now: the next tick tries again',
    errno.ERANGE: 'the host does not have these CPUs',
    errno.ENOSPC: 'a cgroup with processes needs at least one CPU',
    errno.ENFILE: 'too many open files on this host: raise fs.file-max',
    errno.EMFILE: 'too many open files: raise LimitNOFILE of the agent, it '
                  'keeps up to 12 per workload',
}

_LASTING = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.EINVAL,
                      errno.ERANGE, errno.ENOSPC, errno.EOPNOTSUPP))
"""What the kernel would hardly take a moment later."""

_OF_THE_HOST = OUT_OF_FILES | {errno.EROFS, errno.EPERM}
"""What says something of the host or the agent, and nothing of one cgroup."""


class Entry(NamedTuple):
    """One value in a cgroup: a file, or in it the line of a device, or of
    that line one field."""

    file: str
    device: str = ''
    field: str = ''


class Fd:
    """A descriptor that closes when nothing holds it any more.

    A number that one thread closes while another is about to write to it
    could by then mean another file; with this it cannot.
    """

    __slots__ = ('number',)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


def open_fd(path: str, flags: int, directory: Fd | None = None) -> Fd:
    """Open ``path``, relative to ``directory`` if that is given.

    :raises OSError: as :func:`os.open`.
    """
    return Fd(os.open(path, flags | os.O_CLOEXEC,
                      dir_fd=directory.number if directory else None))


def _read_whole(file: Fd) -> bytes:
    size = _READ_SIZE
    while len(data := os.pread(file.number, size, 0)) == size:
        size *= 4
    return data


def explain(exc: OSError, doing: str) -> errors.DriverError:
    """Return what an operator should know about ``exc``, in one line."""
    advice = _ADVICE.get(exc.errno or 0, 'see the kernel log')
    kind = (errors.Unsupported if exc.errno in ABSENT else
            errors.Denied if exc.errno in _LASTING else errors.DriverError)
    why = f'{os.strerror(exc.errno or 0)}; {advice}'
    of_host = exc.errno in _OF_THE_HOST or (
        exc.errno == errno.EACCES and 'cpuset.cpus' not in doing)
    return kind(f'{doing}: {why}', cause=why if of_host else '')


def gone(doing: str) -> errors.WorkloadGone:
    """Return the error for a cgroup that was removed."""
    return errors.WorkloadGone(f'{doing}: the cgroup is gone')


def allow_many_files() -> None:
    """Raise this process's soft limit on open files to the hard one.

    Each workload takes up to 12; the usual soft limit of 1024 is there for
    programs that use select(), which nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class CgroupDirectory:
    """One cgroup in one hierarchy.

    ``devices`` are the disks that its I/O limits are about, from the first
    time that one was looked at.  ``no_cpus`` is what brings back a CPU set
    that was empty.  ``withheld`` are CPUs of which the log said that they
    cannot be had.

    :raises DriverError: ``path`` cannot be opened.
    """

    def __init__(self, path: str, *, version: int, no_cpus: str = '',
                 parent: CgroupDirectory | None = None) -> None:
        self.path = path
        self.no_cpus = no_cpus
        self.version = version
        self.devices: tuple[str, ...] = ()
        self.withheld: frozenset[int] = frozenset()
        name = os.path.basename(path) if parent else path
        above: Fd | None = parent._fd if parent else None
        try:
            self._fd: Fd = open_fd(name, os.O_RDONLY | os.O_DIRECTORY, above)
        except OSError as exc:
            if exc.errno in ABSENT:
                raise gone(path) from exc
            raise explain(exc, f'cannot open {path}') from exc
        self.inode = os.fstat(self._fd.number).st_ino
        self._files: dict[tuple[str, int], Fd] = {}

    def child(self, name: str) -> CgroupDirectory:
        """A cgroup directly below, however long its path is.

        :raises DriverError: it cannot be opened.
        """
        return CgroupDirectory(f'{self.path}/{name}', version=self.version,
                               parent=self)

    def _file(self, name: str, flags: int) -> Fd:
        file = self._files.get((name, flags))
        if file is None:
            try:
                file = open_fd(name, flags, self._fd)
            except OSError as exc:
                if exc.errno not in ABSENT:
                    raise explain(exc, f'cannot open {self.path}/{name}'
                                  ) from exc
                if not self.alive():
                    raise gone(f'{self.path}/{name}') from exc
                cure = self._cure(name)
                raise errors.Unsupported(
                    f'{self.path}/{name} does not exist: {cure}',
                    cause=f'{name}: {cure}') from exc
            self._files[name, flags] = file
        return file

    def _with_file(self, name: str, flags: int, do: Callable[[Fd], T]) -> T:
        """Return what ``do``, which holds it, returns for a file, which is
        opened again where its controller was turned off and on.

        :raises OSError: of ``do``, if the cgroup is there.
        :raises DriverError: the file cannot be opened.
        """
        try:
            return do(self._file(name, flags))
        except OSError as exc:
            if exc.errno not in ABSENT:
                raise
        self._files.pop((name, flags), None)
        return do(self._file(name, flags))

    def _cure(self, name: str) -> str:
        """Return what to do about a file that is missing."""
        controller = name.partition('.')[0]
        where, between = self.path, -1
        while self.version == 2 and where != '/':
            try:
                with open(f'{where}/cgroup.controllers') as file:
                    offered = controller in file.read().split()
            except OSError:
                break
            if offered and between < 0:
                break       # it is on: the kernel is older than the file
            if offered:
                return (f'echo +{controller} > {where}/cgroup.subtree_control'
                        + (' and so on, down to it' if between else ''))
            where, between = os.path.dirname(where), between + 1
        return ('enable the controller for this cgroup, or use a kernel that '
                'has it')

    def fileno(self) -> int:
        """The descriptor of the directory."""
        return self._fd.number

    def alive(self) -> bool:
        """Return whether the cgroup still exists (under whatever path): one
        that was removed has no files."""
        try:
            fd = open_fd('.', os.O_RDONLY | os.O_DIRECTORY, self._fd)
            return bool(os.listdir(fd.number))
        except OSError as exc:
            return exc.errno not in ABSENT

    def read(self, file: str) -> str:
        """The text of a file, without the white space around it.

        :raises DriverError: it cannot be read.
        """
        try:
            data = self._with_file(file, os.O_RDONLY, _read_whole)
        except OSError as exc:
            raise explain(exc, f'cannot read {self.path}/{file}') from exc
        return data.decode('utf-8', 'replace').strip()

    def processes(self) -> set[int]:
        """Return what is in the cgroup itself; 0: a process in a PID namespace
        that is not ours.  None in a threaded one.

        :raises WorkloadGone: it was removed.
        :raises DriverError: it cannot be read.
        """
        try:
            return set(map(int, cgroup_members.read(
                'cgroup.procs', self._fd.number).split()))
        except OSError as exc:
            path = f'{self.path}/cgroup.procs'
            if exc.errno in ABSENT and not self.alive():
                raise gone(path) from exc
            raise explain(exc, f'cannot read {path}') from exc

    def read_int(self, file: str) -> int:
        """The number in a file; ``max`` is -1.

        :raises DriverError: it cannot be read or holds something else.
        """
        text = self.read(file)
        try:
            return -1 if text == 'max' else int(text)
        except ValueError as exc:
            raise errors.DriverError(
                f'{self.path}/{file} holds {text[:40]!r}, not a number'
            ) from exc

    def write(self, file: str, text: str) -> None:
        """Write ``text`` with one call.

        :raises OSError: the kernel does not take it.
        :raises DriverError: the file cannot be opened.
        """
        data = text.encode() + b'\n'
        if self._with_file(file, os.O_WRONLY, lambda fd: os.pwrite(
                fd.number, data, 0)) != len(data):
            raise OSError(errno.EIO, 'only a part of the text was taken')

    def get(self, entry: Entry) -> str:
        """The text of an entry: what its restore action has to write.

        :raises DriverError: it cannot be read.
        """
        if entry.file == 'freezer.state':  # says FROZEN for a parent's, too
            frozen = self.read('freezer.self_freezing') == '1'
            return 'FROZEN' if frozen else 'THAWED'
        text = self.read(entry.file)
        if entry.file == 'cpuset.cpus':
            return text or self.no_cpus
        if not entry.device:
            return text
        lines = text.split('\n')
        if entry.field:
            row = dict(map(grammar.device_row, lines)).get(entry.device, '')
            limit = grammar.pairs(row).get(entry.field, 'max')
            return f'{entry.field}={limit}'
        limits = dict(line.partition(' ')[::2] for line in lines)
        return limits.get(entry.device, '0').strip()

    def put(self, entry: Entry, text: str) -> None:
        """Write an entry's text.

        :raises DriverError: the message says what failed and what to do.
        """
        if entry.device:
            text = f'{entry.device} {text}'
        try:
            self.write(entry.file, text)
        except OSError as exc:
            raise explain(exc, f'cannot write {text!r} to '
                               f'{self.path}/{entry.file}') from exc

    def before(self, entry: Entry, original: Sequence[base.RestoreAction]
               ) -> str:
        """An entry's text as it was before us, by the actions of its lease;
        as it is now, if they do not name it.

        :raises DriverError: it cannot be read.
        """
        for action in original:
            if (action.get('file'), action.get('device', '')) != entry[:2]:
                continue
            text = str(action['text'])
            if not entry.field:
                return text
            for part in text.split():
                if part.startswith(f'{entry.field}='):
                    return part
        return self.get(entry)

    def check_leased(self, original: Sequence[base.RestoreAction],
                     disks: Sequence[str] = ()) -> None:
        """
        :param original: the actions of a lease, if there is one
        :raises WorkloadGone: it is not about this cgroup.
        :raises DriverError: nor about these disks.
        """
        if original and original[0]['inode'] != self.inode:
            raise errors.WorkloadGone(
                f'{self.path} was deleted and made again: it has none of its '
                'limits')
        if original and not {
                action.get('device') for action in original}.issuperset(
                    self.devices or disks):
            raise errors.DriverError(
                'the host has other disks now; the next tick sets the limit '
                'on them')

    def action(self, entry: Entry, text: str) -> base.RestoreAction:
        """The restore action that writes ``text`` to an entry."""
        action: dict[str, Any] = {
            'do': 'write', 'dir': self.path, 'inode': self.inode,
            'file': entry.file, 'text': text}
        if entry.device:
            action['device'] = entry.device
        return action

    def actions(self, entries: Sequence[Entry]) -> list[base.RestoreAction]:
        """The restore actions that write back what entries hold now; fields
        of one line go together.

        :raises DriverError: one cannot be read.
        """
        texts: dict[Entry, list[str]] = {}
        for entry in entries:
            texts.setdefault(entry._replace(field=''), []).append(
                self.get(entry))
        return [self.action(entry, ' '.join(parts))
                for entry, parts in texts.items()]

    def links(self) -> int:
        """The link count: cgroup file systems keep it at 2 and one for each
        directory below."""
        return os.fstat(self._fd.number).st_nlink

    def subdirectories(self) -> list[str]:
        """The names of the cgroups directly below.

        :raises DriverError: the directory cannot be listed.
        """
        try:
            with os.scandir(self._fd.number) as entries:
                return [e.name for e in entries
                        if e.is_dir(follow_symlinks=False)]
        except OSError as exc:
            raise explain(exc, f'cannot list {self.path}') from exc
