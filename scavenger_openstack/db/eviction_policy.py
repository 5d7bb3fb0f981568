# SPDX-License-Identifier: Apache-2.0

"""What decides whether an instance is evicted without an operator."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement
from sqlalchemy import Connection
from sqlalchemy import FromClause
from sqlalchemy import func
from sqlalchemy import select

from scavenger_openstack.db import evictions
from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_H = tables.hosts.c
_W = tables.workloads.c
_S = tables.antagonist_hours.c
_A = tables.audit.c
_E = tables.evictions.c
_T = tables.flavor_tags.c

RECOMMENDED = 'eviction.recommended'
"""The action in the audit."""

SEEN_S = 120.0
"""A host that has not reported for longer is left alone."""


def candidates(connection: Connection, since_s: float, confirmed: int,
               now: float) -> list[Row]:
    """Background instances that are there, on hosts that report and set
    limits, and that were confirmed so often since then; the worst first."""
    total = func.sum(_S.confirmed)
    return rows.rows(connection, select(
        _H.id.label('host_id'), _H.name.label('host'), _W.name, _W.instance,
        _W.project, total.label('confirmed'))
        .select_from(tables.antagonist_hours
                     .join(tables.hosts, _H.id == _S.host_id)
                     .join(tables.workloads, (_W.host_id == _S.host_id)
                           & (_W.name == _S.workload)))
        .where(_S.hour_s >= since_s, _W.until_s.is_(None), _W.instance != '',
               _W.priority == Priority.BACKGROUND, _H.enforcing.is_(True),
               _H.last_seen_s > now - SEEN_S)
        .group_by(_H.id, _H.name, _W.name, _W.instance, _W.project)
        .having(total >= confirmed)
        .order_by(total.desc(), _W.instance))


def short(connection: Connection, slack_cores: float, now: float
          ) -> list[Row]:
    """Hosts that report and set limits, whose background instances hold more
    vCPUs than there are ``cores`` for them, by more than the slack.

    Those cores are what background work uses and what is idle besides: a
    host that does not report both is not short.
    """
    workloads, there = _staying()
    held = (select(_W.host_id, func.sum(_W.vcpus).label('held'))
            .select_from(workloads).where(*there)
            .group_by(_W.host_id).subquery())
    cores = (_H.facts['used', 'cpu'].as_float()
             + _H.facts['headroom', 'cpu'].as_float())
    return rows.rows(connection, select(
        _H.id.label('host_id'), _H.name.label('host'), held.c.held,
        cores.label('cores'))
        .join_from(tables.hosts, held, held.c.host_id == _H.id)
        .where(_H.enforcing.is_(True), _H.last_seen_s > now - SEEN_S,
               held.c.held > cores + slack_cores))


def instances(connection: Connection, host_ids: Collection[int]
              ) -> list[Row]:
    """The background instances that count in :func:`short` of these hosts;
    ``flavor`` is the priority that its flavor says, '' for none."""
    workloads, there = _staying()
    return rows.rows(connection, select(
        _H.id.label('host_id'), _H.name.label('host'), _W.id, _W.name,
        _W.instance, _W.project, _W.priority, _W.vcpus, _W.since_s,
        func.coalesce(_T.priority, '').label('flavor'))
        .select_from(workloads.outerjoin(
            tables.flavor_tags, _T.instance == _W.instance))
        .where(_H.id.in_(sorted(host_ids)), *there))


def _staying() -> tuple[FromClause, list[ColumnElement[bool]]]:
    """Background instances with their hosts, without those that Nova was
    asked to take away since they are there: one that was paused stays in its
    host's list."""
    asked = (select(_E.instance, _E.host,
                    func.max(_E.created_s).label('created_s'))
             .where(_E.state != evictions.FAILED)
             .group_by(_E.instance, _E.host).subquery())
    return (tables.workloads.join(tables.hosts, _H.id == _W.host_id)
            .outerjoin(asked, (asked.c.instance == _W.instance)
                       & (asked.c.host == _H.name)
                       & (asked.c.created_s >= _W.since_s)),
            [_W.until_s.is_(None), _W.instance != '',
             _W.priority == Priority.BACKGROUND,
             asked.c.instance.is_(None)])


def exempt(connection: Connection) -> set[tuple[str, str]]:
    """What operators have exempt: scope and target."""
    table = tables.rules.c
    return set(connection.execute(select(table.scope, table.target).where(
        table.kind == 'exemption')).tuples())


def recommended(connection: Connection, instances: Collection[str],
                since_s: float) -> set[str]:
    """Those of these instances that were, since then."""
    found: set[str] = set()
    for some in reports.batches(sorted(set(instances))):
        found.update(connection.scalars(select(_A.target).where(
            _A.action == RECOMMENDED, _A.time_s >= since_s,
            _A.target.in_(some))))
    return found
