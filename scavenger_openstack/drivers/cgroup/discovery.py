# SPDX-License-Identifier: Apache-2.0


"""Which cgroups are workloads, and which groups hold background only."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import errno
import logging
import os
import posixpath
from typing import NamedTuple

from scavenger_openstack.drivers.kernel.cgroup_files import explain
from scavenger_openstack.drivers.kernel.cgroup_files import OUT_OF_FILES
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Priority

LOG = logging.getLogger(__name__)

_DISCOVERY = ('cpu', 'cpuacct', 'memory', 'cpuset', 'blkio', 'freezer',
              'unified')

LIST_TICKS = 8
"""A parent is listed when its number of children changed or one of them is
gone, and in one of so many ticks all the same (for a rename)."""


class Parent:
    """A configured cgroup whose children are workloads.

    ``without`` names the children that are, or hold, configured parents
    themselves.
    """

    __slots__ = ('children', 'killable', 'mount', 'path', 'priority', 'seen',
                 'unlisted', 'without')

    def __init__(self, path: str, priority: Priority, *,
                 killable: bool) -> None:
        self.path = path
        self.priority = priority
        self.killable = killable
        self.mount: Mount | None = None
        self.children: dict[str, Child] = {}
        self.without: frozenset[str] = frozenset()
        self.seen: tuple[int, int, str] | None = None
        self.unlisted = 0


class Child(NamedTuple):
    """A cgroup that is a workload at this moment."""

    id: str
    inode: int
    group: str
    parent: Parent


def normal(path: str) -> str:
    """``path`` below the mount in its only form: ``/a/b``, the root ``''``.

    :raises ConfigError: it leads out of the mount.
    """
    parts = [part for part in path.split('/') if part]
    if '..' in parts or '.' in parts:
        raise errors.ConfigError(f'{path!r} is not the path of a cgroup')
    return ''.join('/' + part for part in parts)


def is_normal(path: str) -> bool:
    """Whether ``path`` is in the form that :func:`normal` makes."""
    try:
        return normal(path) == path
    except errors.ConfigError:
        return False


def within(path: str, top: str) -> bool:
    """Whether ``path`` is ``top`` or below it."""
    return path == top or path.startswith(top + '/')


def _directories(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries
                if entry.is_dir(follow_symlinks=False)]


def _has_tasks(path: str) -> bool:
    """Whether there is a process, or in a threaded cgroup a thread."""
    if cgroup_members.read(f'{path}/{cgroup_members.PROCESSES}', size=1):
        return True
    try:
        return bool(cgroup_members.read(
            f'{path}/{cgroup_members.THREADS}', size=1))
    except FileNotFoundError:       # version 1
        return False


class Parents:
    """The configured parents on this host.

    :raises ConfigError: they contradict each other.
    """

    def __init__(self, mounts: Mapping[str, Mount],
                 background: Sequence[str], foreground: Sequence[str],
                 killable: Sequence[str],
                 groups: Sequence[str] = (),
                 logged: log_once.LogOnce | None = None) -> None:
        self._logged = logged or log_once.LogOnce()
        self.follow(mounts)
        self._background = {normal(path) for path in background}
        self._foreground = {normal(path) for path in foreground}
        killable_paths = {normal(path) for path in killable}
        both = self._background & self._foreground
        if both:
            raise errors.ConfigError(
                f'{min(both) or "/"} is configured as a parent of background '
                'and of foreground workloads; leave one')
        if '' in self._background:
            raise errors.ConfigError(
                'background_parents: the root cgroup holds everything; name '
                'a cgroup that holds background only')
        if killable_paths - self._background:
            raise errors.ConfigError(
                f'killable_parents: {min(killable_paths - self._background)}'
                ' is not one of background_parents')
        self._groups = self._checked_groups(
            {normal(path) for path in groups})
        self._parents = [
            Parent(path, Priority.BACKGROUND, killable=path in killable_paths)
            for path in sorted(self._background)]
        self._parents += [
            Parent(path, Priority.FOREGROUND, killable=False)
            for path in sorted(self._foreground)]

        for parent in self._parents:
            parent.without = frozenset(
                other.path[len(parent.path) + 1:].partition('/')[0]
                for other in self._parents
                if other is not parent and within(other.path, parent.path))

    def follow(self, mounts: Mapping[str, Mount]) -> None:
        """Look for them there from now on."""
        seen: dict[str, Mount] = {}
        for controller in _DISCOVERY:
            if controller in mounts:
                seen.setdefault(mounts[controller].path, mounts[controller])
        self._mounts = list(seen.values())

    def _checked_groups(self, groups: set[str]) -> list[str]:
        """Cgroups that hold background only, the highest first."""
        for group in sorted(groups):
            if not group:
                raise errors.ConfigError(
                    'background_groups: the root cgroup holds everything; '
                    'name a cgroup that holds background only')
            if not any(within(path, group) for path in self._background):
                raise errors.ConfigError(
                    f'background_groups: none of background_parents is in '
                    f'{group}')
            inside = [path for path in self._foreground
                      if within(path, group)]
            if inside:
                raise errors.ConfigError(
                    f'background_groups: {group} holds {min(inside)}, which '
                    'is one of foreground_parents')
        return sorted(group for group in self._background | groups
                      if not any(within(path, group)
                                 for path in self._foreground))

    def scan(self) -> list[Child]:
        """The workloads of this moment.

        A parent that has tasks and no children is a workload itself.  One
        that cannot be read is warned about once and has none.

        :raises DriverError: out of descriptors: nothing is known.
        """
        found: list[Child] = []
        for parent in self._parents:
            try:
                found += self._look(parent)
            except OSError as exc:
                if exc.errno in OUT_OF_FILES:
                    raise explain(
                        exc, f'cannot look into {parent.path}') from exc
                if self._logged.due(('parent', parent.path)):
                    LOG.warning(
                        'cannot read the cgroup %s: %s; nothing below it is '
                        'watched until that changes (it is one of the '
                        '%s parents in [cgroups])', parent.path or '/',
                        exc.strerror, parent.priority)
                continue
            if self._logged.over(('parent', parent.path)):
                LOG.info('the cgroup %s can be read now', parent.path or '/')
        return found

    def _look(self, parent: Parent) -> Iterable[Child]:
        """A parent's workloads, in the first hierarchy that has it."""
        mounts = self._mounts
        if parent.mount is not None:
            mounts = [parent.mount, *mounts]
        problem: OSError = FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT))
        for mount in mounts:
            try:
                if mount != parent.mount:
                    parent.children = {}
                parent.mount = mount
                return self._look_in(parent, mount.path + parent.path)
            except FileNotFoundError as exc:
                problem = exc
        raise problem

    def _look_in(self, parent: Parent, path: str) -> Iterable[Child]:
        group = self.group(parent)
        info = os.stat(path)
        seen = (info.st_ino, info.st_nlink, group)
        parent.unlisted += 1
        if (seen == parent.seen and parent.children
                and parent.unlisted < LIST_TICKS):
            return parent.children.values()
        known, now = parent.children, {}
        directories = 0
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    continue
                directories += 1
                name = entry.name
                if name in parent.without:
                    continue
                child = known.get(name)
                if (child is None or child.inode != entry.inode()
                        or group not in ('', child.group)):
                    id_ = f'{parent.path}/{name}'
                    child = Child(id_, entry.inode(), group or id_, parent)
                now[name] = child
        parent.children, parent.seen, parent.unlisted = now, seen, 0
        if not directories and parent.path and _has_tasks(path):
            return [Child(parent.path, os.stat(path).st_ino,
                          group or parent.path, parent)]
        return now.values()

    def _holds_parent(self, path: str) -> bool:
        return any(within(parent.path, path) for parent in self._parents)

    def group(self, parent: Parent) -> str:
        """The highest configured cgroup that holds ``parent`` and nothing
        but background: a parent, or one of ``background_groups``.

        Empty when there is none: ``parent`` is a foreground parent, or has
        one below.  Never a cgroup that is not configured, though it may hold
        only background today: others may come.
        """
        if parent.priority is Priority.FOREGROUND:
            return ''
        return next((path for path in self._groups
                     if within(parent.path, path)), '')

    def check_writable(self, path: str) -> None:
        """Make sure that ``path`` is background and nothing else.

        :raises Unsupported: it is not.
        """
        if is_normal(path) and not any(within(f, path)
                                       for f in self._foreground):
            if (posixpath.dirname(path) in self._background
                    and not self._holds_parent(path)):
                return
            for parent in self._parents:
                if within(parent.path, path):
                    group = self.group(parent)
                    if group and within(path, group):
                        return
        raise errors.Unsupported(
            f'{path} is no background workload and no group of such: it is '
            'never limited')

    def check_killable(self, path: str) -> None:
        """Make sure that a workload's parent opted in to kills.

        :raises Unsupported: it did not.
        :raises WorkloadGone: there is no such workload any more.
        """
        for child in self.scan():
            if child.id == path:
                if child.parent.killable:
                    return
                break
        else:
            if is_normal(path) and posixpath.dirname(path) in {
                    p.path for p in self._parents if p.killable}:
                raise errors.WorkloadGone(f'{path} is gone')
        raise errors.Unsupported(
            f'{path} is not killed: its parent is not one of '
            '[cgroups]killable_parents')
