# SPDX-License-Identifier: Apache-2.0

"""What metrics have of the database: read often, so no large table is."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import case
from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import Select
from sqlalchemy import select
from sqlalchemy import Table
from sqlalchemy import text

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


def read(connection: Connection, silent_before_s: float) -> Figures:
    """Read all of it.

    :param silent_before_s: hosts that reported last before that are silent
    """
    state = case((_H.last_seen_s == 0, ENROLLED),
                 (_H.last_seen_s < silent_before_s, SILENT),
                 (_H.enforcing, ENFORCING), else_=OBSERVING)
    hosts = dict.fromkeys(STATES, 0) | dict(connection.execute(
        select(state, func.count()).where(_H.removed_s.is_(None))
        .group_by(state)).tuples().all())
    # Out of ix_workloads_background alone.
    vcpus = connection.scalar(select(func.sum(_W.vcpus)).where(
        _W.until_s.is_(None), _W.priority == Priority.BACKGROUND))
    off = connection.execute(
        select(_S.scope, _S.target).where(~_S.protection)
        .order_by(_S.scope, _S.target).limit(MOST_SWITCHES)).tuples().all()
    cloud = 'cloud', ''
    return Figures(hosts, float(vcpus or 0.0), [
        (*cloud, cloud not in off),
        *((*switch, False) for switch in off if switch != cloud)],
        rows(connection))


def rows(connection: Connection) -> dict[str, float]:
    """Return about how many rows each table has.

    On SQLite these are the ids between the first and the last one: more than
    there are where others were deleted.
    """
    estimate = _ESTIMATES.get(connection.dialect.name)
    if estimate is not None:
        known = {str(name): float(count) for name, count
                 in connection.execute(text(estimate)).tuples()
                 if count is not None and count >= 0}
        return {name: known[name] for name in tables.METADATA.tables
                if name in known}
    return {name: float(connection.scalar(_span(table)) or 0)
            for name, table in tables.METADATA.tables.items()
            if 'id' in table.c}


def _span(table: Table) -> Select[tuple[int]]:
    """The ids from the first to the last: each is looked up alone, as SQLite
    reads the whole table for both at once."""
    return select(select(func.max(table.c.id)).scalar_subquery()
                  - select(func.min(table.c.id)).scalar_subquery() + 1)
