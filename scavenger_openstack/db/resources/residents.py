# SPDX-License-Identifier: Apache-2.0

"""What the workloads of each host tolerate and cause together.

What was read of a host is kept as long as its workloads have the same digest,
and a sum as long as it is of the same profiles: while nothing changes, a
summary of the cloud reads the ids of the profiles and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.algorithms import profiles as algorithm
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_H = tables.hosts.c
_W = tables.workloads.c

MOST_LABELS = 100_000

Label = tuple[str, str, str]
"""Project, application and flavor of a workload, which its profile is of."""
Sides = tuple[Mapping[str, float], Mapping[str, float]]
"""What is tolerated and caused, by SoI."""


class Levels(NamedTuple):
    """What all profiles and all hosts with any of them show.

    :ivar profiles: kind, target and project of each with what it shows
    :ivar hosts: by the id of the host
    """

    profiles: list[tuple[tuple[str, str, str], Any]]
    hosts: dict[int, Any]


class _Host(NamedTuple):
    """``ids`` are of the profiles that its workloads have."""

    digest: str
    labels: tuple[Label, ...]
    ids: tuple[int, ...]
    shown: Any


class _Profile(NamedTuple):
    key: tuple[str, str, str]
    sides: Sides
    shown: Any


class Residents:
    """The profiles of one process, and of what runs on each host; for one
    thread at a time.

    A workload has the profile of its application, else of its flavor by its
    name; the hosts do not report images.

    :param show: makes what is shown out of what is tolerated and caused,
        once for each change
    """

    def __init__(self, show: Callable[[Mapping[str, float],
                                       Mapping[str, float]], Any]) -> None:
        self._show = show
        self._profiles: dict[int, _Profile] = {}
        self._ids: dict[tuple[str, str, str], int] = {}
        self._hosts: dict[int, _Host] = {}
        # Each label once, with the id of its profile, 0 for none.
        self._labels: dict[Label, tuple[Label, int]] = {}

    def read(self, connection: sa.Connection, hosts: Sequence[Row]) -> Levels:
        """Return what the database has now.

        :param hosts: all hosts, each with its ``id`` and
            ``workloads_digest``
        """
        if self._read_profiles(connection):
            self._labels.clear()
            self._hosts = {id_: self._host(host.digest, host.labels, host)
                           for id_, host in self._hosts.items()}
        if self._profiles:
            self._read_hosts(connection, hosts)
        else:
            self._hosts = {}
        return Levels(
            [(profile.key, profile.shown)
             for profile in self._profiles.values()],
            {id_: host.shown for id_, host in self._hosts.items()
             if host.ids})

    def _read_profiles(self, connection: sa.Connection) -> bool:
        """Return whether there are others than before."""
        ids = profiles.ids(connection)
        if ids == list(self._profiles):
            return False
        by_id = dict(self._profiles)
        for row in profiles.of_ids(connection, set(ids) - by_id.keys()):
            sides = profiles.values_of(row)
            by_id[row['id']] = _Profile(
                (row['kind'], row['target'], row['project']),
                sides, self._show(*sides))
        # Without those that were replaced since their ids were read.
        self._profiles = {id_: by_id[id_] for id_ in ids if id_ in by_id}
        self._ids = {profile.key: id_
                     for id_, profile in self._profiles.items()}
        return True

    def _read_hosts(self, connection: sa.Connection, hosts: Sequence[Row]
                    ) -> None:
        digests = {host['id']: host['workloads_digest'] for host in hosts}
        kept = {id_: host for id_, host in self._hosts.items()
                if host.digest and host.digest == digests.get(id_)}
        labels: dict[int, list[Label]] = {
            id_: [] for id_ in digests if id_ not in kept}
        for row in self._rows(connection, labels, bool(kept)):
            host_id, digest, *label = row
            if host_id in labels:
                # It may have reported since the digests were read.
                digests[host_id] = digest
                labels[host_id].append(self._label(*label)[0])
        for id_, some in labels.items():
            kept[id_] = self._host(digests[id_], tuple(some),
                                   self._hosts.get(id_))
        self._hosts = kept

    @staticmethod
    def _rows(connection: sa.Connection, host_ids: Iterable[int], is_part: bool
              ) -> Iterator[Any]:
        """The workloads of these hosts, or of all."""
        query = sa.select(_W.host_id, _H.workloads_digest, _W.project,
                          _W.application, _W.flavor).join_from(
                              tables.workloads, tables.hosts).where(
                                  _W.until_s.is_(None))
        if not is_part:
            yield from connection.execute(query)
            return
        for some in rows.batches(host_ids):
            yield from connection.execute(query.where(_W.host_id.in_(some)))

    def _label(self, project: str, application: str, flavor: str
               ) -> tuple[Label, int]:
        label = project, application, flavor
        if label not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                self._labels.clear()
            self._labels[label] = label, next((
                self._ids[key] for key in algorithm.keys(
                    project=project, application=application,
                    flavors=[flavor]) if key in self._ids), 0)
        return self._labels[label]

    def _host(self, digest: str, labels: tuple[Label, ...],
              before: _Host | None) -> _Host:
        ids = tuple(sorted(id_ for label in labels
                           if (id_ := self._label(*label)[1])))
        if before is not None and before.ids == ids:
            return _Host(digest, labels, ids, before.shown)
        return _Host(digest, labels, ids, self._show(
            *algorithm.together(
                self._profiles[id_].sides for id_ in ids)) if ids else None)
