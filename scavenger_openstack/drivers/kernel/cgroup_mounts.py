# SPDX-License-Identifier: Apache-2.0

"""Where each controller of cgroups is mounted."""

from __future__ import annotations

from collections.abc import Iterator
import logging
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.restore import mount_table

LOG = logging.getLogger(__name__)

V1_CONTROLLERS = ('cpu', 'cpuacct', 'memory', 'cpuset', 'blkio', 'freezer',
                  'perf_event')


class Mount(NamedTuple):
    """The place where a controller is mounted; ``version`` is that of
    cgroups."""

    path: str
    version: int


def find_mounts(root_dir: str = '/',
                logged: log_once.LogOnce | None = None) -> dict[str, Mount]:
    """Return where each cgroup controller of this host is mounted.

    The key ``unified`` is the cgroup v2 tree, if there is one; a controller
    is looked for in the v1 mounts first, then in what the v2 root offers;
    of several mounts of one tree it is the first that shows all of it;
    what v2 has without a controller (freezing, counting CPU time) there
    first, where ``cpu`` is in v2.
    The names are those of v1: ``blkio`` is the v2 controller ``io``.

    :param logged: what was logged of this host
    :raises DriverError: the list of mounts cannot be read.
    """
    root = root_dir.rstrip('/')
    try:
        rows = list(mount_table.visible(('cgroup', 'cgroup2'), root))
    except OSError as exc:
        raise errors.DriverError(
            f'cannot read {exc.filename}: {exc.strerror}; is /proc mounted?'
        ) from exc
    mounts: dict[str, Mount] = {}
    for row in sorted(rows, key=lambda row: row.part != '/'):
        if row.kind == 'cgroup2':
            mounts.setdefault('unified', Mount(root + row.point, 2))
            continue
        for name in row.options.split(','):
            if name in V1_CONTROLLERS:
                mounts.setdefault(name, Mount(root + row.point, 1))
    if 'unified' in mounts:
        for name in _v2_controllers(mounts['unified'],
                                    logged or log_once.LogOnce()):
            mounts.setdefault(name, mounts['unified'])
        if mounts['unified'] == mounts.get('cpu'):
            # Programs mount these two in version 1 beside version 2, where
            # containers are.  It does not take them out of version 2.
            mounts['freezer'] = mounts['cpuacct'] = mounts['unified']
    return mounts


class Mounts(dict[str, Mount]):
    """The mounts of :func:`find_mounts`, as of the last refresh; always the
    same object.

    :param logged: what was logged of this host
    :raises DriverError: the list of mounts cannot be read.
    """

    def __init__(self, root_dir: str, logged: log_once.LogOnce) -> None:
        super().__init__(find_mounts(root_dir, logged))
        self._root_dir = root_dir
        self._logged = logged

    def refresh(self) -> frozenset[str]:
        """Look again: the controllers that are mounted elsewhere now."""
        try:
            now = find_mounts(self._root_dir, self._logged)
        except errors.DriverError:
            now = {}
        changed = frozenset(name for name in {*self, *now}
                            if self.get(name) != now.get(name))
        if not now or not changed:
            return frozenset()
        LOG.info('cgroup controllers were remounted: %s',
                 ', '.join(sorted(changed)))
        self.update(now)        # first: threads may look at what is there
        for name in self.keys() - now.keys():
            del self[name]
        return changed


def _v2_controllers(mount: Mount, logged: log_once.LogOnce
                    ) -> Iterator[str]:
    yield from ('freezer', 'perf_event')    # always there, never listed
    path = f'{mount.path}/cgroup.controllers'
    try:
        with open(path) as file:
            names = file.read().split()
    except OSError as exc:
        if logged.due(path):
            LOG.warning('cannot read %s: %s; cgroup v2 controllers stay '
                        'unused until it can be read', path, exc.strerror)
        return
    logged.over(path)
    for name in names:
        if name == 'cpu':
            yield 'cpuacct'
        name = 'blkio' if name == 'io' else name
        if name in V1_CONTROLLERS:
            yield name
