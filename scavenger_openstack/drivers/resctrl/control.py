# SPDX-License-Identifier: Apache-2.0

"""The part of last-level caches and memory buses that the background may use.

A control group takes one of the few class ids (CLOSIDs) of the CPU, so all
background work is in one, and one id is left for other programs.  The group
only has ways of the default group, in which its threads were: what another
program keeps out of that stays its own.  Threads in groups of other programs,
such as those of libvirt's cachetune, stay where they are.

The memory bus follows the cache: of it the group gets the same share, in
percent, where the kernel can give that to the threads of a core apart.
Source: the kernel's Documentation/filesystems/resctrl.rst.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import contextlib
import errno
import fcntl
import os

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.resctrl import schemata
from scavenger_openstack.drivers.resctrl import tree
from scavenger_openstack import errors
from scavenger_openstack.restore import files
from scavenger_openstack.restore import resctrl
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import THE_BACKGROUND
from scavenger_openstack.types import Value

PURPOSE = 'limit how much of the last-level cache background work fills'

KEY = THE_BACKGROUND, Knob.LLC_WAYS

MEMBER_TICKS = 10
"""Each so many ticks threads are searched that came to a workload from
outside; those that its own threads start are in their group."""

MOST_THREADS = 32768
"""Of a workload that are moved: as many as are listed of one cgroup."""

ROUNDS = 3
"""Threads that are started while others are moved are moved in the next
round."""

SPARE_IDS = 1
"""Class ids that stay free for other programs."""


class Control:
    """Implements :class:`~.base.Knobs` for the ways of caches.

    :param threads: returns those of a workload, so many at most
    :param root_dir: where /proc and /sys are looked for
    :ivar ways: of a cache that all together have; ``None`` where the
        background cannot be limited to some
    :ivar why: why it cannot, '' if it can
    """

    def __init__(self, threads: Callable[[str, int], Collection[int]],
                 root_dir: str = '/') -> None:
        self.executor = base.new_executor()
        self._threads = threads
        self._root_dir = root_dir
        self._top = tree.mount_point(root_dir)
        self._group = f'{self._top}/{resctrl.GROUP}'
        self._background: frozenset[tuple[str, float]] = frozenset()
        self._ticks = 0
        self._stale = False
        self._lock: int | None = None
        self.ways: int | None = None
        self.why = ''

    def follow(self, sample: HostSample) -> None:
        """Take note of the background; see now and then whether its part of
        caches can be limited."""
        if not self._ticks % base.RESCAN_TICKS:
            try:
                self.ways, self.why = self._layout().ways, ''
            except errors.Unsupported as exc:
                self.ways, self.why = None, str(exc)
        self._ticks += 1
        if self.ways is None:
            return
        background = frozenset(
            measured[0].run for measured in sample.workloads
            if measured[0].priority is Priority.BACKGROUND)
        self._stale |= background != self._background
        self._background = background

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        """Return the ways of the group; a group that an agent left without a
        lease is no original."""
        _check_shared(workload)
        if state is None:
            self._layout()
            self._claim()
            return None
        try:
            masks = schemata.numbers(self._schemata(self._group))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            raise errors.DriverError(f'{self._group}: {exc}') from exc
        return max((mask.bit_count() for name, caches in masks.items()
                    if name.startswith('L3') for mask in caches.values()),
                   default=None)

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None
                        ) -> list[base.RestoreAction]:
        _check_shared(workload)
        return [resctrl.action(self._top)]

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        """Make the group, set its part, and move the threads of background
        work to it, in this order: none has a part that was not meant for it.

        Threads are moved without the lock, which any user can keep.

        :raises Denied: another program changes groups for long.
        """
        _check_shared(workload)
        # Without resctrl there is nothing to lock.
        parts = self._layout().parts(int(value))
        try:
            if not self._has(parts):
                with tree.locked(self._top, PURPOSE):
                    parts = self._layout().parts(int(value))
                    made = self._make()
                    try:
                        self._set(parts)
                    except OSError:
                        if made:
                            os.rmdir(self._group)
                        raise
            self._stale = False
            for _ in range(ROUNDS):
                if not self._move():
                    break
        except OSError as exc:
            raise errors.Denied(
                f'cannot {PURPOSE}: {exc.strerror} ({self._group}); the '
                f'kernel says: {self._last_status()}') from exc
        return self.read(workload, knob, state)

    def queue(self, workload: str, knob: Knob) -> str:
        return ''

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        """Have the limit written again where threads may have to be moved."""
        if KEY not in held:
            self.close()
        due = self._stale or not self._ticks % MEMBER_TICKS
        return base.Changes(rewrite={KEY} & held.keys() if due else ())

    def notify(self, event: base.Event) -> bool:
        return False

    def close(self) -> None:
        """Let other agents make the group."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        """Keep other agents of this host from the group, before any lease of
        it: they would remove it with theirs.

        :raises Unsupported: another one has it.
        """
        if self._lock is not None:
            return
        try:
            # Only root can open it for writing, so no user can lock it.
            self._lock = os.open(f'{self._top}/tasks',
                                 os.O_WRONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            self.close()
            raise errors.Unsupported(
                f'cannot {PURPOSE}: another process has locked '
                f'{self._top}/tasks, as another agent does; let only one '
                'agent of a host set limits') from exc

    def _make(self) -> bool:
        """Make the group; return whether it was not there."""
        try:
            os.mkdir(self._group)
        except FileExistsError:
            return False
        return True

    def _has(self, wanted: schemata.Parts) -> bool:
        """Return whether the group is there, and has this part."""
        try:
            return not schemata.changes(self._schemata(self._group), wanted)
        except FileNotFoundError:
            return False

    def _set(self, wanted: schemata.Parts) -> None:
        """Set the part of the group, if it is another."""
        text = schemata.changes(self._schemata(self._group), wanted)
        if text:
            fd = os.open(f'{self._group}/schemata',
                         os.O_WRONLY | os.O_CLOEXEC)
            try:
                files.write_once(fd, text.encode())
            finally:
                os.close(fd)

    def _move(self) -> bool:
        """Move the threads that are not where they belong; return whether any
        joined the group.

        Those of the group are read first: one that is started meanwhile must
        not be taken for one that has left the background.
        """
        inside = tree.tasks(self._group)
        wanted = {thread for workload, _ in self._background
                  for thread in self._threads(workload, MOST_THREADS)}
        joining = wanted - inside
        joining &= tree.tasks(self._top) if joining else set()
        tree.move(self._group, joining, PURPOSE)
        tree.move(self._top, inside - wanted, PURPOSE)
        return bool(joining)

    def _layout(self) -> schemata.Layout:
        """Return what can be divided now.

        :raises Unsupported: nothing, and what would help.
        """
        if not tree.has_resctrl(self._root_dir):
            raise errors.Unsupported(
                f'cannot {PURPOSE}: this CPU, or its kernel, has no resctrl; '
                + base.NO_CURE)
        tree.check_usable(self._top, PURPOSE)
        if os.geteuid():
            raise tree.only_root(PURPOSE)
        try:
            layout = self._read_layout()
            self._check_groups()
        except (OSError, ValueError) as exc:
            raise errors.Unsupported(
                f'cannot {PURPOSE}: {self._top} is not as the kernel '
                f'documents it: {exc}') from exc
        return layout

    def _read_layout(self) -> schemata.Layout:
        default: schemata.Parts = {}
        with contextlib.suppress(FileNotFoundError):
            default = self._schemata(self._top)
        masks = {name: {cache: int(mask, 16) for cache, mask in caches.items()}
                 for name, caches in default.items()
                 if name.startswith('L3')}
        if not any(masks.values()):
            raise errors.Unsupported(
                f'cannot {PURPOSE}: this CPU can only measure its last-level '
                f'cache, not divide it; {base.NO_CURE}')
        name = next(iter(masks))
        layout = schemata.Layout(
            masks, least=int(self._info(name, 'min_cbm_bits')),
            busy=int(self._info(name, 'shareable_bits'), 16))
        if layout.ways <= layout.least:
            raise errors.Unsupported(
                f'cannot {PURPOSE}: the default group has {layout.ways} ways '
                f'of it, and the CPU divides no fewer than {layout.least}; '
                f'give it more: see {self._top}/schemata')
        percents = {cache: int(text)
                    for cache, text in default.get('MB', {}).items()}
        # Other units than percent have larger numbers.
        if not percents or max(percents.values()) > 100 \
                or not self._by_thread():
            return layout
        return layout._replace(
            bandwidth=percents,
            least_percent=int(self._info('MB', 'min_bandwidth')),
            step_percent=max(1, int(self._info('MB', 'bandwidth_gran'))))

    def _by_thread(self) -> bool:
        """Return whether a limit of the memory bus leaves alone what runs on
        the other thread of a core."""
        with contextlib.suppress(OSError):
            if self._info('MB', 'thread_throttle_mode') == 'per-thread':
                return True
        with contextlib.suppress(OSError):
            return _text(f'{self._root_dir.rstrip("/")}/sys/devices/system/'
                         'cpu/smt/active') == '0'
        return False

    def _check_groups(self) -> None:
        """Check that what other programs do here leaves room for a group.

        :raises Unsupported: it does not, and what would help.
        """
        groups = tree.control_groups(self._top)
        for group in groups:
            if _text(f'{self._top}/{group}/cpus_list'):
                raise errors.Unsupported(
                    f'cannot {PURPOSE}: another program has given CPUs to its '
                    f'group {group} in {self._top}, and background work that '
                    'runs there has the part of that group; if nothing needs '
                    f'it: rmdir {self._top}/{group}')
        ids = min(int(self._info(name, 'num_closids'))
                  for name in self._schemata(self._top))
        free = ids - 1 - len(groups)       # one is of the default group
        if free <= SPARE_IDS:
            raise errors.Unsupported(
                f'cannot {PURPOSE}: of the {ids} class ids of this CPU {free} '
                f'would be left by the groups of other programs in '
                f'{self._top}, and {SPARE_IDS} has to stay free for them; '
                'remove those that nothing needs (rmdir)')

    def _schemata(self, group: str) -> dict[str, dict[str, str]]:
        return schemata.parse(_text(f'{group}/schemata'))

    def _info(self, resource: str, name: str) -> str:
        return _text(f'{self._top}/info/{resource}/{name}')

    def _last_status(self) -> str:
        with contextlib.suppress(OSError):
            return _text(f'{self._top}/info/last_cmd_status')
        return os.strerror(errno.EIO)


def _check_shared(workload: str) -> None:
    """Check that a limit is of all background work.

    :raises Unsupported: it is of one workload alone.
    """
    if workload != THE_BACKGROUND:
        raise errors.Unsupported(
            f'{workload} has no part of caches of its own: all background '
            f'work has one, under the name {THE_BACKGROUND}')


def _text(path: str) -> str:
    with open(path) as file:
        return file.read().strip('\n ')
