# SPDX-License-Identifier: Apache-2.0

"""The place of the demo's cgroups: the version, and the cgroup above them.

On version 1 it is the root of each hierarchy.  On version 2 it is the
caller's own cgroup if systemd has marked it as delegated, else the
root of the tree: that of the host, or of the container that mounted it.

A cgroup of our own at the root is as safe as one that systemd delegates,
and needs no systemd: systemd switches a controller off in a
``cgroup.subtree_control`` only where the kernel lets it, and the kernel
refuses while a cgroup below still passes that controller on, as ours does.
At the end the controller stays on at the root, since another program may
use it by then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import cgroup_files
from scavenger_openstack.drivers.kernel import cgroup_members
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack import errors

NEEDED = ('cpu', 'cpuacct', 'cpuset', 'memory', 'freezer')
PASSED_ON = {'memory': 'memory', 'cpu': 'cpu', 'cpuset': 'cpuset'}
"""Controllers that version 2 has to pass on, and their names there.

``memory`` first: a cgroup with processes may pass on ``cpu``, and then has
threads to share out and nothing else.
"""

PREFIX = 'scavenger-demo-'
SEAT = 'scavenger-demo-seat'
"""The cgroup with the processes of the cgroup above it while that has demos
below it."""

SEAT_TRIES = 100
"""Number of times that processes are moved, since they may fork meanwhile."""
OWN = pathlib.Path('/proc/self/cgroup')


class Place(NamedTuple):
    """The place of trees: ``path`` below the mount of each controller (names
    of version 1), '' at its root."""

    version: int
    mounts: dict[str, pathlib.Path]
    path: str


def find() -> Place:
    """Return the place for a demo on this host.

    :raises DriverError: there is none; the message says why and what to do.
    """
    mounts = cgroup_mounts.find_mounts()
    versions = {name: mounts[name].version for name in NEEDED
                if name in mounts and name in PASSED_ON}
    first = sorted(name for name in versions if versions[name] == 1)
    second = sorted(name for name in versions if versions[name] == 2)
    if first and second:
        raise errors.DriverError(
            f'the demo needs all its controllers in one version of cgroups: '
            f'here {", ".join(first)} are mounted as v1, '
            f'{", ".join(second)} belong to v2; boot with '
            'systemd.unified_cgroup_hierarchy=1, or unmount the v1 ones')
    if first or 'unified' not in mounts:
        missing = [name for name in NEEDED
                   if name not in mounts or mounts[name].version != 1]
        if missing:
            raise errors.DriverError(
                f'the demo needs the cgroup controllers '
                f'{", ".join(missing)}, which are not mounted here; on a '
                'kernel that has them boot without cgroup_disable=, in a '
                'container mount /sys/fs/cgroup')
        return Place(1, {name: pathlib.Path(mounts[name].path)
                         for name in NEEDED}, '')
    mount = pathlib.Path(mounts['unified'].path)
    path = _delegated(mount)
    _check_offered(pathlib.Path(f'{mount}{path}'))
    return Place(2, dict.fromkeys(NEEDED, mount), path)


def candidates() -> list[pathlib.Path]:
    """Return each cgroup that may have trees of demos below it.

    :raises DriverError: no demo can run here.
    """
    place = find()
    return [pathlib.Path(f'{mount}{path}')
            for mount in dict.fromkeys(place.mounts.values())
            for path in dict.fromkeys((place.path, ''))]


def _delegated(mount: pathlib.Path) -> str:
    """Return our own cgroup if systemd has delegated it, else ''."""
    for line in OWN.read_text().splitlines():
        if line.startswith('0::/') and '..' not in line:
            path = line.removeprefix('0::').removesuffix('/' + SEAT)
            with contextlib.suppress(OSError):
                mark = os.getxattr(f'{mount}{path}', 'trusted.delegate')
                return path.rstrip('/') if mark == b'1' else ''
    return ''


def _check_offered(place: pathlib.Path) -> None:
    offered = (place / 'cgroup.controllers').read_text().split()
    missing = [name for name in PASSED_ON.values() if name not in offered]
    if not missing:
        return
    cure = ('boot without cgroup_disable=, and unmount what holds them as '
            'cgroup v1')
    if (place / 'cgroup.type').exists():    # not the root of the host
        cure = ('have the host pass them on: "'
                + ' '.join(f'+{name}' for name in missing)
                + '" to cgroup.subtree_control of each cgroup above this '
                'one (systemd: Delegate=yes)')
    raise errors.DriverError(
        f'{place}: the demo needs the cgroup v2 controllers '
        f'{", ".join(missing)}, which are not delegated to this cgroup; '
        + cure)


def pass_on(place: pathlib.Path) -> None:
    """Enable the controllers of a cgroup v2 in those below it.

    A cgroup that is not the host's root may then have no process itself: its
    processes, ours among them, move into :data:`SEAT` below it.

    :raises DriverError: the kernel refuses it.
    """
    file = place / 'cgroup.subtree_control'
    offered = (place / 'cgroup.controllers').read_text().split()
    for name in PASSED_ON.values():
        if name not in offered:
            continue
        for _ in range(SEAT_TRIES):    # it may fork while we move it
            try:
                file.write_text(f'+{name}')
                break
            except OSError as exc:
                if exc.errno != errno.EBUSY or not _move_to_seat(place):
                    raise cgroup_files.explain(
                        exc, f'cannot write +{name} to {file}') from exc
        else:
            raise errors.DriverError(
                f'{place}: processes keep appearing in this cgroup, so that '
                'its controllers cannot be passed on; run the demo in a '
                'cgroup of its own')


def move_back() -> None:
    """Move the processes in :data:`SEAT` back where no demo is left.

    :raises DriverError: one cannot be moved.
    """
    for place in candidates():
        seat = place / SEAT
        if not seat.exists() or any(place.glob(PREFIX + '[0-9a-f]' * 6)):
            continue
        try:
            file = place / 'cgroup.subtree_control'
            for name in file.read_text().split():
                file.write_text(f'-{name}')
            move_all(seat, place)
            seat.rmdir()
        except OSError as exc:
            raise cgroup_files.explain(
                exc, f'cannot move the processes in {seat} back') from exc


def move_all(source: pathlib.Path, target: pathlib.Path) -> None:
    """Move all processes, also those that fork meanwhile.

    Dead processes that wait for their parents, and those of another PID
    namespace (0), cannot be moved.

    :raises OSError: one cannot be moved.
    """
    for _ in range(SEAT_TRIES):
        if not _move(source, target):
            break


def _move_to_seat(place: pathlib.Path) -> bool:
    """Move the processes of a cgroup to its seat; return whether it had
    any."""
    try:
        return _move(place, place / SEAT)
    except OSError as exc:
        raise cgroup_files.explain(
            exc, f'cannot move the processes in {place} to {place / SEAT}'
        ) from exc


def _move(source: pathlib.Path, target: pathlib.Path) -> bool:
    """Move all processes; return whether there were any.

    :raises OSError: one cannot be moved, or ``target`` cannot be made.
    """
    pids = [pid for pid in cgroup_members.read(
        f'{source}/{cgroup_members.PROCESSES}').decode().split()
        if pid != '0']
    if pids:
        target.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            (target / 'cgroup.procs').write_text(pid)
    return bool(pids)
