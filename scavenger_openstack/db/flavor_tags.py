# SPDX-License-Identifier: Apache-2.0

"""Tags: what the flavors of instances say, and where Nova has placed them.

nova-compute sends a tag over the broker when an instance starts; a conductor
reads the same from Nova later.  What comes over the broker is as trustworthy
as those that may write to it: an agent makes nothing background for it unless
``allow_background`` says so in the file of its host.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import columns
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack import host_names
from scavenger_openstack.wire.tag import InstanceTag

KEPT = ('instance', 'host', 'project', 'priority', 'source', 'application',
        'protect', 'floor')

PAGE = 10_000
"""Rows that one statement reads."""

OF_FLAVOR = 'flavor'
"""The source of a priority that the flavor says."""

MOST = 2000
"""Tags that the broker alone has sent, of instances that no host lists, which
are kept of each host: the newest."""

_T, _W = tables.flavor_tags.c, tables.workloads.c
_OF_HOST = sa.select(
    _T.instance, _T.priority, _T.source, _T.application, _T.floor,
    _T.protect).where(rows.of_host(_T)).order_by(_T.instance)


class FlavorTag(NamedTuple):
    """``priority`` counts when ``source`` is 'flavor'; ``floor`` is by
    knob."""

    instance: str
    priority: Any
    source: str
    application: str
    floor: Mapping[Any, float] = {}
    protect: bool = True


def put(connection: sa.Connection, tag: dict[str, Any], now_s: float, *,
        from_broker: bool = False) -> None:
    """Replace what is known of an instance.

    :param tag: a row without id and time
    :param from_broker: the broker has sent it, and Nova was not asked
    """
    row = {**tag, 'short': host_names.short(tag['host']),
           'changed_s': now_s, 'stamp': columns.stamp_of(tag),
           'from_broker': from_broker}
    changed = connection.execute(
        sa.update(tables.flavor_tags).where(_T.instance == tag['instance'])
        .values(row)).rowcount
    if not changed:
        connection.execute(sa.insert(tables.flavor_tags).values(row))
        if from_broker:
            _trim(connection, row['short'])


def take(connection: sa.Connection, tag: InstanceTag, now_s: float) -> bool:
    """Store a tag of the broker; return whether its host is one that has
    reported.

    The tag of a flavor that says nothing is deleted: nova-compute sends the
    same for an instance that was deleted.
    """
    if hosts.by_name(connection, tag.host) is None:
        return False
    if (tag.source != OF_FLAVOR and not tag.application and not tag.floor
            and tag.protect):
        forget(connection, tag.instance)
    else:
        put(connection, {
            'instance': tag.instance, 'host': tag.host,
            'project': tag.project, 'priority': tag.priority,
            'source': tag.source[:32], 'application': tag.application,
            'protect': tag.protect, 'floor': dict(tag.floor)}, now_s,
            from_broker=True)
    return True


def _trim(connection: sa.Connection, short: str) -> None:
    """Forget of a host's tags what is above :data:`MOST`."""
    ids = connection.scalars(
        sa.select(_T.id).where(
            _T.short == short, _T.from_broker, ~sa.exists().where(
                _W.instance == _T.instance, _W.until_s.is_(None)))
        .order_by(_T.id.desc()).offset(MOST).limit(PAGE)).all()
    if ids:
        connection.execute(sa.delete(tables.flavor_tags).where(_T.id.in_(ids)))


def forget(connection: sa.Connection, instance: str) -> None:
    """Delete the tag of an instance."""
    connection.execute(sa.delete(tables.flavor_tags).where(
        _T.instance == instance))


def touch(connection: sa.Connection, instances: Collection[str], now_s: float
          ) -> None:
    """Note that the tags of these instances are of now."""
    for some in rows.batches(sorted(instances)):
        connection.execute(sa.update(tables.flavor_tags).where(
            _T.instance.in_(some)).values(changed_s=now_s))


def of_host(connection: sa.Connection, host: str) -> list[FlavorTag]:
    """Return all tags of a host, by whatever name Nova calls it."""
    return [FlavorTag(*row) for row in connection.execute(
        _OF_HOST, rows.host_parameters(host))]


def of_instances(connection: sa.Connection, instances: Sequence[str]
                 ) -> dict[str, dict[str, Any]]:
    """Their rows without id and time, by instance."""
    return {row['instance']: dict(row) for row in connection.execute(
        sa.select(*(_T[name] for name in KEPT)).where(
            _T.instance.in_(instances))).mappings()}


def others(connection: sa.Connection, there: Collection[str], before_s: float
           ) -> list[str]:
    """Instances with a tag from before that time which are not there."""
    absent: list[str] = []
    page: Sequence[str] = ['']
    while page:     # some at a time, of hundreds of thousands
        page = connection.scalars(sa.select(_T.instance).where(
            _T.instance > page[-1]).order_by(_T.instance).limit(PAGE)).all()
        absent += set(page).difference(there)
    old: set[str] = set()
    for some in rows.batches(absent):
        old.update(connection.scalars(sa.select(_T.instance).where(
            _T.instance.in_(some), _T.changed_s < before_s)))
    return sorted(old)


def from_broker(connection: sa.Connection, most: int) -> list[str]:
    """Return the instances whose tag is from the broker, and that Nova was
    not asked for; the oldest of them."""
    return list(connection.execute(
        sa.select(_T.instance).where(_T.from_broker).order_by(_T.changed_s)
        .limit(most)).scalars())


def confirmed(connection: sa.Connection, instances: Sequence[str]) -> None:
    """Note that Nova was asked for these."""
    connection.execute(sa.update(tables.flavor_tags).where(
        _T.instance.in_(instances), _T.from_broker).values(from_broker=False))


def forget_all(connection: sa.Connection, instances: Sequence[str],
               before_s: float) -> int:
    """Forget the tags of these from before that time; how many they were."""
    return sum(connection.execute(sa.delete(tables.flavor_tags).where(
        _T.instance.in_(some), _T.changed_s < before_s)).rowcount
        for some in rows.batches(instances))
