# SPDX-License-Identifier: Apache-2.0

"""CPUs that a cgroup cannot have, since one beside it has them to itself;
standard library only."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import errno
import os

from scavenger_openstack.restore import files
from scavenger_openstack.restore.grammar import parse_cpus
from scavenger_openstack.restore.grammar import RestoreError

FILE = 'cpuset.cpus'

EXCLUSIVE = 'cpuset.cpu_exclusive'
_PARTITION = 'cpuset.cpus.partition'
_PARTITIONS = ('root', 'isolated')
"""What a partition says of itself while it is valid."""
_NO_CPUS: frozenset[int] = frozenset()


def withheld(directory: int, version: int,
             without: Collection[int] = ()) -> Mapping[str, frozenset[int]]:
    """The CPUs that cgroups beside an open one have to themselves, by name.

    Version 1: by ``cpuset.cpu_exclusive``; where the cgroup itself has that,
    all that any other has.  Version 2: by a valid partition.

    :param without: inodes of cgroups that do not count
    :raises OSError: they cannot be read.
    """
    without = {*without, os.fstat(directory).st_ino}
    is_exclusive = version == 1 and _is_exclusive(directory)
    sets = {}
    with _above(directory) as parent:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries
                     if entry.is_dir(follow_symlinks=False)]
        for name in names:
            try:
                cpus = _own(name, parent, version, without, every=is_exclusive)
            except OSError as exc:      # it is gone
                if exc.errno not in (errno.ENODEV, errno.ENOENT):
                    raise
                continue
            if cpus:
                sets[name] = cpus
    return sets


def explained(cpus: frozenset[int], others: Mapping[str, frozenset[int]],
              directory: int, version: int) -> str:
    """Return why an open cgroup cannot have some CPUs, for people; '' if not
    for these others."""
    names = sorted(name for name, own in others.items() if cpus & own)[:3]
    if not names:
        return ''
    kept = ','.join(map(str, sorted(cpus & _NO_CPUS.union(*others.values()))))
    above = os.path.dirname(os.readlink(f'/proc/self/fd/{directory}'))
    value, file = ('0', EXCLUSIVE) if version == 1 else ('member', _PARTITION)
    return (f'the sibling cgroup {", ".join(names)} has CPUs {kept} '
            'exclusively; to end that: '
            + '; '.join(f'echo {value} > {above}/{name}/{file}'
                        for name in names))


def nearest(directory: int, text: str, version: int,
            without: Collection[int] = ()) -> str:
    """Return what a cgroup can have of a set; what its parent has, if none of
    it.

    :param without: inodes of cgroups that do not keep CPUs for good
    :raises RestoreError: nothing, since others keep all of it.
    :raises OSError: that cannot be read.
    """
    others = withheld(directory, version, without)
    taken = _NO_CPUS.union(*others.values())
    cpus = parse_cpus(text)
    if version == 2 and cpus.isdisjoint(taken):
        return text         # it need not be within its parent's
    with _above(directory) as parent:
        above = parse_cpus(files.read(parent, FILE if version == 1
                                      else 'cpuset.cpus.effective'))
    cpus -= taken
    if version == 1:
        cpus &= above
    cpus = cpus or above - taken
    if not cpus:
        raise RestoreError(explained(above & taken, others, directory,
                                     version))
    return ','.join(map(str, sorted(cpus)))


@contextlib.contextmanager
def _above(directory: int) -> Iterator[int]:
    """The cgroup around an open one, open."""
    parent = os.open('..', files.DIRECTORY, dir_fd=directory)
    try:
        yield parent
    finally:
        os.close(parent)


def _is_exclusive(directory: int) -> bool:
    try:
        return files.read(directory, EXCLUSIVE) == '1'
    except FileNotFoundError:
        return False


def _own(name: str, parent: int, version: int, without: Collection[int], *,
         every: bool) -> frozenset[int]:
    """The CPUs that a cgroup has to itself; none if it does not count."""
    child = os.open(name, files.DIRECTORY, dir_fd=parent)
    try:
        if os.fstat(child).st_ino in without:
            return _NO_CPUS
        if version == 1:
            return (parse_cpus(files.read(child, FILE))
                    if every or _is_exclusive(child) else _NO_CPUS)
        if files.read(child, _PARTITION) not in _PARTITIONS:
            return _NO_CPUS
        try:
            return parse_cpus(files.read(
                child, 'cpuset.cpus.exclusive.effective'))
        except FileNotFoundError:       # before Linux 6.7
            return parse_cpus(files.read(child, FILE))
    finally:
        os.close(child)
