# SPDX-License-Identifier: Apache-2.0

"""What metrics have of the database: read often, so no large table is."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

MOST_SWITCHES = 100
"""Hosts and aggregates that are listed as switched off, at most."""

STATES = ENROLLED, SILENT, ENFORCING, OBSERVING = (
    'enrolled', 'silent', 'enforcing', 'observing')
"""A host is in one: it has not reported yet; not for long; it may set limits;
it sets none."""

_H = tables.hosts.c
_S = tables.switches.c
_W = tables.workloads.c

_ESTIMATES = {
    'mysql': 'SELECT table_name, table_rows FROM information_schema.tables '
             'WHERE table_schema = DATABASE()',
    'mariadb': 'SELECT table_name, table_rows FROM information_schema.tables '
               'WHERE table_schema = DATABASE()',
    'postgresql': 'SELECT relname, reltuples FROM pg_class '
                  "WHERE relkind = 'r' AND relnamespace = "
                  'current_schema()::regnamespace'}
"""What a server estimates by itself; -1 where it has not yet."""


class Figures(NamedTuple):
    """``hosts``: how many by state; ``background_vcpus``: that hosts have;
    ``protection``: scope, target and whether it is on, of the cloud and of
    all that is switched off; ``rows``: about how many by table."""

    hosts: dict[str, int]
    background_vcpus: float
    protection: list[tuple[str, str, bool]]
    rows: dict[str, float]


def read(connection: sa.Connection, silent_before_s: float) -> Figures:
    """Read all of it.

    :param silent_before_s: hosts that reported last before that are silent
    """
    state = sa.case((_H.last_seen_s == 0, ENROLLED),
                    (_H.last_seen_s < silent_before_s, SILENT),
                    (_H.enforcing, ENFORCING), else_=OBSERVING)
    hosts = dict.fromkeys(STATES, 0) | dict(connection.execute(
        sa.select(state, sa.func.count()).where(_H.removed_s.is_(None))
        .group_by(state)).tuples().all())
    # Out of ix_workloads_background alone.
    vcpus = connection.scalar(sa.select(sa.func.sum(_W.vcpus)).where(
        _W.until_s.is_(None), _W.priority == Priority.BACKGROUND))
    off = connection.execute(
        sa.select(_S.scope, _S.target).where(~_S.protection)
        .order_by(_S.scope, _S.target).limit(MOST_SWITCHES)).tuples().all()
    cloud = 'cloud', ''
    return Figures(hosts, float(vcpus or 0.0), [
        (*cloud, cloud not in off),
        *((*switch, False) for switch in off if switch != cloud)],
        rows(connection))


def rows(connection: sa.Connection) -> dict[str, float]:
    """Return about how many rows each table has.

    On SQLite these are the ids between the first and the last one: more than
    there are where others were deleted.
    """
    estimate = _ESTIMATES.get(connection.dialect.name)
    if estimate is not None:
        counts = {str(name): float(count) for name, count
                  in connection.execute(sa.text(estimate)).tuples()
                  if count is not None and count >= 0}
        return {name: counts[name] for name in tables.METADATA.tables
                if name in counts}
    return {name: float(connection.scalar(_span(table)) or 0)
            for name, table in tables.METADATA.tables.items()
            if 'id' in table.c}


def _span(table: sa.Table) -> sa.Select[tuple[int]]:
    """The ids from the first to the last: each is looked up alone, as SQLite
    reads the whole table for both at once."""
    first, last = (sa.select(edge(table.c.id)).scalar_subquery()
                   for edge in (sa.func.min, sa.func.max))
    return sa.select(last - first + 1)
