# SPDX-License-Identifier: Apache-2.0

"""What decides whether an instance is evicted without an operator."""

from __future__ import annotations

from collections.abc import Collection
import math

import sqlalchemy as sa

from scavenger_openstack.db import evictions
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.types import Priority

_H = tables.hosts.c
_W = tables.workloads.c
_S = tables.antagonist_hours.c
_C = tables.antagonist_totals.c
_E = tables.evictions.c
_R = tables.recommendations.c
_T = tables.flavor_tags.c

SEEN_S = 120.0
"""A host that has not reported for longer is left alone."""


def candidates(connection: sa.Connection, since_s: float, confirmed: int,
               now: float) -> list[Row]:
    """Background instances that are there, on hosts that report and set
    limits, and that were confirmed so often since then; the worst first.

    The totals say which may be, so that hourly sums are read of these
    alone.
    """
    total = sa.func.sum(_S.confirmed)
    return rows.rows(connection, sa.select(
        _H.id.label('host_id'), _H.name.label('host'), _W.name, _W.instance,
        _W.project, total.label('confirmed'))
        .select_from(tables.antagonist_totals
                     .join(tables.hosts, _H.id == _C.host_id)
                     .join(tables.workloads, (_W.host_id == _C.host_id)
                           & (_W.name == _C.workload))
                     .join(tables.antagonist_hours,
                           (_S.host_id == _C.host_id)
                           & (_S.workload == _C.workload)))
        .where(_C.span_s == totals.span_of(since_s, now),
               _C.scope == totals.ALL, _C.confirmed >= confirmed,
               # A whole number: for a fraction PostgreSQL uses no index.
               _S.hour_s >= math.ceil(since_s),
               _W.until_s.is_(None), _W.instance != '',
               _W.priority == Priority.BACKGROUND, _H.enforcing.is_(True),
               _H.last_seen_s > now - SEEN_S)
        .group_by(_H.id, _H.name, _W.name, _W.instance, _W.project)
        .having(total >= confirmed)
        .order_by(total.desc(), _W.instance))


def short(connection: sa.Connection, slack_cores: float, now: float
          ) -> list[Row]:
    """Hosts that report and set limits, whose background instances hold more
    vCPUs than there are ``cores`` for them, by more than the slack.

    Those cores are what background work uses and what is idle besides: a
    host that does not report both is not short.
    """
    # All background work, out of one index; then without what does not count.
    most = (sa.select(_W.host_id, sa.func.sum(_W.vcpus).label('held'))
            .where(_W.until_s.is_(None), _W.priority == Priority.BACKGROUND)
            .group_by(_W.host_id).subquery())
    cores = (_H.facts['used', 'cpu'].as_float()
             + _H.facts['headroom', 'cpu'].as_float())
    hosts = rows.rows(connection, sa.select(
        _H.id.label('host_id'), _H.name.label('host'), cores.label('cores'))
        .join_from(tables.hosts, most, most.c.host_id == _H.id)
        .where(_H.enforcing.is_(True), _H.last_seen_s > now - SEEN_S,
               most.c.held > cores + slack_cores))
    held: dict[int, float] = {}
    for ids in rows.batches(row['host_id'] for row in hosts):
        held.update(connection.execute(
            sa.select(_W.host_id, sa.func.sum(_W.vcpus))
            .join_from(tables.workloads, tables.hosts)
            .where(_H.id.in_(ids), *_staying())
            .group_by(_W.host_id)).tuples().all())
    return [{**row, 'held': held[row['host_id']]} for row in hosts
            if held.get(row['host_id'], 0.0) > row['cores'] + slack_cores]


def instances(connection: sa.Connection, host_ids: Collection[int]
              ) -> list[Row]:
    """The background instances that count in :func:`short` of these hosts;
    ``flavor`` is the priority that its flavor says, '' for none."""
    return rows.rows(connection, sa.select(
        _H.id.label('host_id'), _H.name.label('host'), _W.id, _W.name,
        _W.instance, _W.project, _W.priority, _W.vcpus, _W.since_s,
        sa.func.coalesce(_T.priority, '').label('flavor'))
        .select_from(tables.workloads.join(
            tables.hosts, _H.id == _W.host_id).outerjoin(
                tables.flavor_tags, _T.instance == _W.instance))
        .where(_H.id.in_(sorted(host_ids)), *_staying()))


def _staying() -> list[sa.ColumnElement[bool]]:
    """Background instances, without those that Nova was asked to take away
    since they are there: one that was paused stays in its host's list."""
    return [_W.until_s.is_(None), _W.instance != '',
            _W.priority == Priority.BACKGROUND,
            ~sa.exists().where(_E.instance == _W.instance, _E.host == _H.name,
                               _E.created_s >= _W.since_s,
                               _E.state != evictions.FAILED)]


def exempt(connection: sa.Connection) -> set[tuple[str, str]]:
    """Return what operators have exempt: scope and target."""
    table = tables.rules.c
    return set(connection.execute(sa.select(table.scope, table.target).where(
        table.kind == 'exemption')).tuples())


def recommended(connection: sa.Connection, instances: Collection[str]
                ) -> dict[str, float]:
    """Return when each of these instances was recommended, and not too
    long ago."""
    recommended: dict[str, float] = {}
    for some in rows.batches(sorted(set(instances))):
        for instance, time_s in connection.execute(sa.select(
                _R.instance, _R.time_s).where(_R.instance.in_(some))):
            recommended[instance] = time_s
    return recommended


def add_recommended(connection: sa.Connection, instance: str, now: float
                    ) -> None:
    """Note that an instance was that had not been."""
    connection.execute(sa.insert(tables.recommendations).values(
        instance=instance, time_s=now))


def forget_recommended(connection: sa.Connection, now: float, for_s: float
                       ) -> None:
    """Forget what was so long ago, or is so far ahead: a clock was set."""
    connection.execute(sa.delete(tables.recommendations).where(sa.or_(
        _R.time_s < now - for_s, _R.time_s > now + for_s)))
