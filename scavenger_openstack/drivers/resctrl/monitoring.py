# SPDX-License-Identifier: Apache-2.0

"""Monitoring groups of resctrl: bytes over the memory bus, by workload.

A group takes one of the few monitoring ids of the CPU, so groups are there
for as long as a window of direct evidence, and only where no other program
has any.  Source: the kernel's Documentation/filesystems/resctrl.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import errno
import os

from scavenger_openstack import errors

PREFIX = 'scavenger-'
"""How the names of our groups begin."""

OWN = frozenset(('info', 'mon_groups', 'mon_data'))
"""Directories at the top that are no groups."""

MOST_GROUPS = 32
"""At a time; the bytes of other workloads are counted together."""

FEATURE = 'mbm_total_bytes'

PURPOSE = 'tell which workload fills the memory bus'

_GONE = frozenset((errno.ENOENT, errno.ESRCH))


def has_resctrl(root_dir: str) -> bool:
    """Return whether the kernel offers resctrl: only where the CPU can monitor
    or allocate the cache."""
    try:
        with open(f'{root_dir.rstrip("/")}/proc/filesystems') as file:
            return '\tresctrl\n' in file.read()
    except OSError:
        return False


class Groups:
    """A monitoring group for each of some workloads.

    :param top: where resctrl is mounted
    :param threads: of each workload, the busiest first
    :raises Unsupported: resctrl cannot be used, and what would help.
    :raises OSError: a group cannot be made.
    """

    def __init__(self, top: str, threads: Mapping[str, frozenset[int]]
                 ) -> None:
        self._top = top
        self._groups: dict[str, str] = {}
        self._before: dict[str, int | None] = {}
        room = _room(top)
        try:
            for workload, tids in list(threads.items())[:room]:
                path = f'{top}/mon_groups/{PREFIX}{len(self._groups)}'
                os.mkdir(path)
                self._groups[workload] = path
                _move(path, tids)
            self._before = self._read()
        except BaseException:
            self.close()
            raise

    def bytes_of(self) -> tuple[dict[str, float], float | None]:
        """Bytes over the memory bus since the groups were made, of each
        workload, and of all others together; ``None`` where the kernel could
        not tell.  A workload of which it could not is left out.

        :raises OSError: a group is gone.
        """
        grown: dict[str, float | None] = {}
        for workload, now in self._read().items():
            before = self._before[workload]
            grown[workload] = (None if now is None or before is None
                               or now < before else float(now - before))
        others = grown.pop('', None)
        counted = {workload: count for workload, count in grown.items()
                   if count is not None}
        return counted, others if len(counted) == len(grown) else None

    def close(self) -> None:
        """Remove the groups; their threads go back to where they were."""
        while self._groups:
            _, path = self._groups.popitem()
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)

    def _read(self) -> dict[str, int | None]:
        """Return the counters; '' is the group of what is in no other."""
        return {workload: _total(path) for workload, path in
                {**self._groups, '': self._top}.items()}


def remove_left(top: str) -> None:
    """Remove the groups that an agent left which was killed.

    :raises OSError: one cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(f'{top}/mon_groups'):
            if name.startswith(PREFIX):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(f'{top}/mon_groups/{name}')


def _room(top: str) -> int:
    """Return how many groups may be made now.

    :raises Unsupported: none, and why.
    """
    if not os.path.isdir(f'{top}/info'):
        raise errors.Unsupported(
            f'cannot {PURPOSE}: this CPU can, but resctrl is not mounted; '
            f'mount it: mount -t resctrl resctrl {top}')
    try:
        with open(f'{top}/info/L3_MON/mon_features') as file:
            features = file.read().split()
        with open(f'{top}/info/L3_MON/num_rmids') as file:
            ids = int(file.read())
    except FileNotFoundError:
        features, ids = [], 0
    if FEATURE not in features:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: this CPU does not count it in resctrl')
    others = sorted(set(os.listdir(top)) - OWN, key=str)
    others = [name for name in others if os.path.isdir(f'{top}/{name}')]
    others += [name for name in sorted(os.listdir(f'{top}/mon_groups'))
               if not name.startswith(PREFIX)]
    if others:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: another program has groups in {top}, '
            f'{others[0]} for one')
    if (not os.access(f'{top}/mon_groups', os.W_OK)
            or os.statvfs(top).f_flag & os.ST_RDONLY):
        raise errors.Unsupported(
            f'cannot {PURPOSE}: {top} is read-only for the agent')
    remove_left(top)
    room = min(MOST_GROUPS, ids - 1)    # one is that of all others
    if room < 1:
        raise errors.Unsupported(
            f'cannot {PURPOSE}: the CPU has only {ids} monitoring ids')
    return room


def _move(path: str, tids: frozenset[int]) -> None:
    """Put threads into a group; those that ended are left out.

    :raises Unsupported: it is not allowed.
    """
    with open(f'{path}/tasks', 'wb', buffering=0) as file:
        for tid in tids:
            try:
                file.write(b'%d\n' % tid)
            except PermissionError as exc:
                raise errors.Unsupported(
                    f'cannot {PURPOSE}: the kernel lets only root put the '
                    'threads of other users into a group of resctrl, '
                    'whatever capabilities the agent has') from exc
            except OSError as exc:
                if exc.errno not in _GONE:
                    raise


def _total(path: str) -> int | None:
    """Return the bytes of a group over all memory buses; ``None`` where the
    kernel has none: it writes ``Unavailable`` for a moment, or ``Error``.

    :raises OSError: it cannot be read.
    """
    total = 0
    names = [name for name in os.listdir(f'{path}/mon_data')
             if name.startswith('mon_L3_')]
    for name in names:
        with open(f'{path}/mon_data/{name}/{FEATURE}') as file:
            text = file.read().strip()
        if not text.isdecimal():
            return None
        total += int(text)
    return total if names else None
