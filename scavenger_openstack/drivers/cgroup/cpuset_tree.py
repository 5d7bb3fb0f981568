# SPDX-License-Identifier: Apache-2.0


"""Moving the CPU set of a whole subtree of cgroups, quickly.

cgroup v1 wants each cpuset to lie within its parent's: the set of a group
can only shrink after those below it, and only grow before them.  So a move
first widens to the union from the top down and then narrows from the bottom
up.  cgroup v2 works out what is in force below by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import errno
import functools
import os
import threading

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import available_cpus
from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory
from scavenger_openstack.drivers.kernel.cgroup_files import Entry
from scavenger_openstack.drivers.kernel.cgroup_files import explain
from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors
from scavenger_openstack.restore import cpuset
from scavenger_openstack.types import format_cpus

_FILE = cpuset.FILE
_ENTRY = Entry(_FILE)
_NONE: frozenset[int] = frozenset()

MOST = 2000
"""So many cgroups of v1 are followed below one, each with some descriptors;
the record of a limit does not hold many more either."""

_text = functools.lru_cache(maxsize=4096)(format_cpus)


class _Node:
    """A cgroup of the subtree.

    ``own`` is the set that it has on its own account, ``None`` when it just
    has its parent's; ``now`` is what it holds as far as we know.
    """

    __slots__ = ('children', 'directory', 'had', 'links', 'now', 'own',
                 'parent', 'target')

    def __init__(self, directory: CgroupDirectory, parent: _Node | None
                 ) -> None:
        self.directory = directory
        self.parent = parent
        self.children: dict[str, _Node] = {}
        self.had = False
        self.links = -1
        self.own: frozenset[int] | None = None
        self.now = _NONE
        self.target = _NONE

    def refresh(self, root_dir: str) -> bool:
        """Read what the cgroup holds; return whether it has another set of its
        own now.

        A set that we did not write is its own, unless it is the parent's, or
        the kernel took CPUs out of what there was.
        """
        now, own = available_cpus.read_cpus(self.directory), self.own
        if now == self.now:
            return False
        if self.parent is not None and not (
                now < self.now and (not now or _offline(self.now - now,
                                                        root_dir))):
            self.own = now if now and now != self.parent.now else None
        self.now = now
        self.had = True
        return self.own != own

    def look_below(self, most: int) -> None:
        """See which cgroups there are below.

        :raises DriverError: they are more than so many, or out of reach.
        """
        links = self.directory.links()
        if links == self.links and links >= 2:
            return
        names = self.directory.subdirectories()
        if len(names) > most:
            raise errors.DriverError(
                f'{self.directory.path}: {len(names)} more cgroups, and '
                f'{MOST} are followed below one background cgroup at most: '
                'no CPU set is written there. Remove those not in use')
        for name in set(self.children) - set(names):
            del self.children[name]
        for name in names:
            if name not in self.children:
                try:
                    directory = self.directory.child(name)
                except errors.WorkloadGone:
                    continue
                self.children[name] = _Node(directory, self)
        self.links = links


class FastCpuSet:
    """The CPU set of one cgroup and all below it, over kept descriptors.

    The sets that the cgroups below have on their own account are kept
    within what is left of them; one that is left with nothing gets the
    whole new set.  A cgroup that never had a set (v1: nothing can run there)
    is left alone.  Threads may share this object.

    When a CPU goes offline the kernel takes it out of all sets of v1, and
    does not put it back.  That is no program's write: the set still counts as
    the one that was set.

    :param root_dir: where /sys is looked for
    """

    def __init__(self, directory: CgroupDirectory, root_dir: str = '/'
                 ) -> None:
        self._root_dir = root_dir
        self._attributed = False         # whose writes those below are
        self._taken = _NONE         # out of our last set, by the kernel
        self._theirs = self._reported = _NONE   # sets of other programs
        self._is_leased = False
        self._is_below = False      # a set of another program, not leased yet
        self._written: list[tuple[_Node, frozenset[int]]] = []
        self._root = _Node(directory, None)
        self._order = [self._root]
        self._lock = threading.Lock()
        try:
            self.refresh()
        except errors.DriverError:
            for node in self._order:    # let go of the descriptors now
                node.children.clear()
            raise

    def in_place(self) -> bool:
        """Return whether the cgroup is the one that has its path now."""
        directory = self._root.directory
        try:
            return os.stat(directory.path).st_ino == directory.inode
        except OSError:
            return False

    def begin(self) -> None:
        """Take what the cgroup holds now for what it held before us."""
        with self._lock:
            self._root.target = self._theirs = self._reported = _NONE
            self._is_leased = self._is_below = False

    def refresh(self, leased: Sequence[base.RestoreAction] = ()) -> bool:
        """Take in what others did: cgroups made, removed, or written to.

        The set that :meth:`unleased` returned last is in the lease now.

        :param leased: the actions of the lease
        :return: whether the next :meth:`set` has something to write, though
            its CPUs are those of the last
        :raises WorkloadGone: the cgroup itself is gone.
        :raises DriverError: it cannot be read.
        """
        with self._lock:
            self._refresh()
        return self.leased()

    def leased(self) -> bool:
        """Note that the lease has what was read, and what :meth:`unleased`
        returned last: any other set is another program's.

        :return: whether the next :meth:`set` has something to write, though
            its CPUs are those of the last
        """
        with self._lock:
            due = (self._is_below
                   or self._root.now != self._root.target != _NONE)
            self._reported, self._is_below = _NONE, False
            self._is_leased = True
            return due

    def _refresh(self, again: bool = True) -> None:
        order, gone = [self._root], False
        try:
            for node in order:  # grows while it is walked, parents first
                try:
                    if node.parent is None:
                        self._read()
                    else:
                        node.refresh(self._root_dir)
                    if node.directory.version == 1:
                        group_count = max(len(order), len(self._order))
                        node.look_below(MOST + 1 - group_count
                                        + len(node.children))
                except errors.WorkloadGone:
                    if node.parent is None:
                        raise
                    _forget(node)
                    gone = True
                    continue
                order.extend(node.children.values())
        except errors.DriverError:
            self._order = order
            self._root.links = -1   # all is looked at before the next move
            raise
        if gone and again:  # another may be there under its name
            self._refresh(again=False)
            return
        # Those that vanished meanwhile have no set and are skipped.
        self._order = order

    def unleased(self) -> dict[int, frozenset[int]] | None:
        """See :class:`scavenger_openstack.drivers.base.CpuSet`.

        A set is returned, and nothing is set, until :meth:`refresh`.

        :raises DriverError: it cannot be read.
        """
        with self._lock:
            self._read()
            self._reported, self._theirs = (self._theirs or self._reported,
                                            _NONE)
            if self._reported:
                return {self._root.directory.inode: self._reported}
            # Version 2 has the set of one group alone.
            return {} if self._root.directory.version == 1 else None

    def read(self) -> frozenset[int]:
        """The set of the group, with what the kernel took out of ours.

        :raises DriverError: it cannot be read.
        """
        with self._lock:
            return self._read()

    def _read(self) -> frozenset[int]:
        """Return what the group holds, or our last set if the kernel has taken
        CPUs out of that and nothing else has happened to it.

        What another program has written over our last set, or over what is
        in the lease, is remembered.
        """
        root = self._root
        before, target = root.now, root.target
        now = root.now = available_cpus.read_cpus(root.directory)
        if not (target or self._is_leased):
            return now
        ours = target or before
        if (missing := ours - now) and now <= ours \
                and root.directory.version == 1:
            online = online_cpus.read(self._root_dir)
            self._taken |= missing - online if online else _NONE
            if missing <= self._taken:
                return ours
        if now != before:
            self._theirs = now
        return now

    def _read_below(self) -> bool:
        """Return whether another program has set a cgroup below, which the
        next move sets."""
        changed = False
        for node in self._order[1:]:
            with contextlib.suppress(errors.WorkloadGone):
                changed |= bool(node.now) and node.refresh(self._root_dir)
        return changed

    def has(self, cpus: frozenset[int]) -> bool:
        return cpus == self._root.now == self._root.target

    def set(self, cpus: frozenset[int]) -> None:
        """Let the subtree run on ``cpus`` only; quick when it already does.

        Over the set of another program nothing is written before
        :meth:`unleased` and :meth:`refresh`: the lease has to have it first.

        :raises WorkloadGone: the cgroup itself is gone.
        :raises DriverError: the kernel does not take the set.
        """
        self._set(cpus, beware=True)

    def write(self, cpus: frozenset[int]) -> None:
        """Set the CPUs of the subtree, whatever it holds now.

        :raises WorkloadGone: the cgroup itself is gone.
        :raises DriverError: the kernel does not take the set.
        """
        self._set(cpus, beware=False)

    def _set(self, cpus: frozenset[int], beware: bool) -> None:
        if not cpus:
            raise errors.DriverError(
                f'{self._root.directory.path}: an empty CPU set was asked '
                'for; at least one CPU is needed')
        with self._lock:
            if self._root.directory.version == 2:
                cpus = available_cpus.obtainable(self._root.directory, cpus)
            if self.has(cpus):
                return
            if beware:
                self._read()
                self._is_below |= self._read_below()
                if self._theirs or self._reported or self._is_below:
                    return
            if any(not node.now or node.directory.links() != node.links
                   for node in self._order
                   if node.directory.version == 1):
                self._refresh()     # one born now has the set of now
            self._written.clear()
            try:
                self._move_nearest(cpus)
            except OSError as exc:
                self._undo()
                raise self._refused(exc, cpus) from exc
            except errors.DriverError:
                self._undo()
                raise

    def _move_nearest(self, cpus: frozenset[int]) -> None:
        """Write a set, or what the kernel takes of it."""
        try:
            self._move(cpus)
            if self._root.directory.version == 1:
                self._root.directory.withheld = _NONE
        except OSError:
            # A cgroup below was made or changed, a CPU went offline, or
            # another cgroup took it: look, once more.
            self._refresh()
            self._move(self._possible(cpus) or cpus)

    def _refused(self, exc: OSError, cpus: frozenset[int]
                 ) -> errors.DriverError:
        """Return why a set was not written."""
        doing = (f'cannot write {_text(cpus)!r} to '
                 f'{self._root.directory.path}/{_FILE} and below')
        if exc.errno == errno.EINVAL and self._root.directory.version == 1:
            why = available_cpus.withheld(self._root.directory, cpus)
            for node in () if why else self._order[1:]:
                with contextlib.suppress(errors.DriverError):
                    if node.directory.read(cpuset.EXCLUSIVE) == '1':
                        path = node.directory.path
                        why = (f'the cgroup {path} has its CPUs exclusively; '
                               'to end that: echo 0 > '
                               f'{path}/{cpuset.EXCLUSIVE}')
            if why:
                return errors.Denied(f'{doing}: {why}')
        return explain(exc, doing)

    def _possible(self, cpus: frozenset[int]) -> frozenset[int]:
        """Return the CPUs that can be set.

        v1 takes no offline CPU, none that the parent lacks, which does not
        get back what was offline, and none that a cgroup beside this one has
        to itself.
        """
        directory = self._root.directory
        possible = cpus & online_cpus.read(self._root_dir)
        if directory.version == 1:
            possible &= available_cpus.read_cpus(directory, f'../{_FILE}')
            possible = available_cpus.beside_exclusive(directory, possible)
        return possible

    def _undo(self) -> None:
        """Write what was there before a move that ended half way."""
        self._root.target = _NONE
        for node, cpus in reversed(self._written):
            with contextlib.suppress(OSError, errors.DriverError):
                node.directory.write(_FILE, _text(cpus))
                node.now = cpus
        self._written.clear()

    def _move(self, cpus: frozenset[int]) -> None:
        self._taken = _NONE
        for node in self._order:
            if node.parent is None:
                target = cpus
            else:
                target = node.parent.target
                if node.own is not None:
                    target = (node.own & target) or target
            node.target = target
            if not node.children:
                self._write(node, target)
            elif not target <= node.now:
                self._write(node, node.now | target)
        for node in reversed(self._order):
            self._write(node, node.target)

    def _write(self, node: _Node, cpus: frozenset[int]) -> None:
        if node.now == cpus or not (node.had or node.parent is None):
            return
        try:
            node.directory.write(_FILE, _text(cpus))
            self._written.append((node, node.now))
        except errors.WorkloadGone:
            if node.parent is None:
                raise
            _forget(node)
        else:
            node.now = cpus

    def actions(self, leased: Sequence[base.RestoreAction] | None = None
                ) -> list[base.RestoreAction]:
        """Return what brings back the sets of this moment.

        Of a group below, the set that it has on its own account, though it
        is kept within what is left of that; else the set of its parent.
        Where this began under a lease, that is what the lease says.

        :param leased: the actions of the lease, ``None`` without one
        :raises DriverError: a set cannot be read.
        """
        with self._lock:
            self._attributed = self._attributed or leased is None
            before = {} if self._attributed else {
                action['inode']: action['text'] for action in leased or ()}
            self._refresh()
            texts: dict[_Node, str] = {}
            for node in self._order:
                if node.parent is None:
                    texts[node] = _text(node.now)
                elif node.now:
                    texts[node] = (before.get(node.directory.inode)
                                   or node.own and _text(node.own)
                                   or texts.get(node.parent)
                                   or _text(node.now))
            return in_order([node.directory.action(_ENTRY, text)
                             for node, text in texts.items()])


def in_order(actions: Sequence[base.RestoreAction]
             ) -> list[base.RestoreAction]:
    """Actions in an order in which version 1 takes them.

    When a group in the middle has a set of its own, one below it may then
    hold CPUs outside of that; so all get the set of the top first, and their
    own from the bottom up.

    :param actions: one for each group, parents before their children
    """
    top = actions[0]['text']
    parents = {os.path.dirname(action['dir']) for action in actions}
    if all(action['text'] == top for action in actions
           if action['dir'] in parents):
        return list(actions)
    return [*({**action, 'text': top} for action in actions),
            *(action for action in reversed(actions) if action['text'] != top)]


def _forget(node: _Node) -> None:
    """Forget a group that is gone; another may have its name."""
    node.now = _NONE
    node.own = None
    node.had = False
    if node.parent is not None:
        node.parent.links = -1
        below = node.parent.children
        for name in [name for name, child in below.items() if child is node]:
            del below[name]


def _offline(cpus: frozenset[int], root_dir: str) -> bool:
    """Return whether all of them are offline."""
    online = online_cpus.read(root_dir)
    return bool(online) and not cpus & online
