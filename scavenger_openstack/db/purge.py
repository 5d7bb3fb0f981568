# SPDX-License-Identifier: Apache-2.0


"""Delete what is over and old, some rows at a time.

What is open, in force or still there stays, however old.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Column
from sqlalchemy import ColumnElement
from sqlalchemy import Connection
from sqlalchemy import Engine
from sqlalchemy import Table

from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals

DAY_S = 86400.0

SHORTEST_S = 2 * DAY_S
"""Specs are made from the statistics of the day before."""

RUNS_S = 30 * DAY_S
"""How long a run of an agent is kept at least: an agent that was cut off
says again what may be here already, and its run tells."""

BATCH = 1000
"""Rows of one transaction, so that reports hardly wait for it."""


class Rule(NamedTuple):
    """Rows of ``table`` go that ended before the time; those of ``parts``,
    by their column, with them."""

    table: Table
    ended_s: Column[float]
    parts: tuple[Column[int], ...] = ()
    at_least_s: float = 0.0


RULES = (
    Rule(tables.incidents, tables.incidents.c.ended_s,
         (tables.suspects.c.incident_id,)),
    Rule(tables.caps, tables.caps.c.removed_s),
    Rule(tables.workloads, tables.workloads.c.until_s),
    Rule(tables.antagonist_hours, tables.antagonist_hours.c.hour_s),
    Rule(tables.statistics, tables.statistics.c.hour_s),
    Rule(tables.overrides, tables.overrides.c.expires_s),
    Rule(tables.evictions, tables.evictions.c.ended_s),
    Rule(tables.audit, tables.audit.c.time_s),
    Rule(tables.runs, tables.runs.c.last_seen_s, at_least_s=RUNS_S),
)
"""NULL, which is "not yet", is never before a time."""


def count(connection: Connection, *, now_s: float, older_than_s: float
          ) -> dict[str, int]:
    """How many rows :func:`run` would delete, by table."""
    found: dict[str, int] = {}
    for rule in RULES:
        old = _old(rule, now_s, older_than_s)
        found[rule.table.name] = connection.execute(
            sqlalchemy.select(sqlalchemy.func.count()).select_from(
                rule.table).where(old)).scalar_one()
        for part in rule.parts:
            found[part.table.name] = connection.execute(
                sqlalchemy.select(sqlalchemy.func.count()).select_from(
                    part.table).where(part.in_(sqlalchemy.select(
                        rule.table.c.id).where(old)))).scalar_one()
    return found


def run(engine: Engine, *, now_s: float, older_than_s: float,
        progress: Callable[[str, int], None] = lambda table, rows: None,
        batch: int = BATCH, stopped: Callable[[], bool] = bool
        ) -> dict[str, int]:
    """Delete what is older; returns the rows of each table.

    :param progress: is called after each transaction with a table and how
        many of its rows are deleted so far
    :param stopped: whether to begin no other transaction
    :param batch: rows of the main table of one transaction
    """
    deleted: dict[str, int] = {}
    for rule in RULES:
        names = [rule.table.name, *(part.table.name for part in rule.parts)]
        deleted |= dict.fromkeys(names, 0)

        def some(connection: Connection, rule: Rule = rule) -> list[int]:
            return _some(connection, rule, now_s, older_than_s, batch)

        while not stopped():
            counts = connect.retried(engine, some)
            if not counts[0]:
                break
            for name, rows in zip(names, counts, strict=True):
                deleted[name] += rows
            progress(rule.table.name, deleted[rule.table.name])
    return deleted


def trim(engine: Engine, *, now_s: float, rows: int, batch: int = BATCH,
         stopped: Callable[[], bool] = bool) -> int:
    """Delete the oldest of what is over, where a table has more rows.

    What is open, in force or still there is not over, and statistics are not
    within :data:`SHORTEST_S`; runs stay, of which there are few.

    :param rows: so many of each table
    :param stopped: whether to begin no other transaction
    :return: how many were deleted
    """
    deleted = 0
    for rule in RULES:
        if rule.table is tables.runs:
            continue

        def some(connection: Connection, rule: Rule = rule) -> int:
            there = connection.execute(sqlalchemy.select(
                sqlalchemy.func.count()).select_from(rule.table)
            ).scalar_one()
            return sum(_some(
                connection, rule, now_s,
                SHORTEST_S if rule.table is tables.statistics else 0.0,
                min(batch, there - rows), oldest=True)
            ) if there > rows else 0

        while not stopped() and (found := connect.retried(engine, some)):
            deleted += found
    return deleted


def _old(rule: Rule, now_s: float, older_than_s: float
         ) -> ColumnElement[bool]:
    return rule.ended_s < now_s - max(older_than_s, rule.at_least_s)


def _some(connection: Connection, rule: Rule, now_s: float,
          older_than_s: float, batch: int, oldest: bool = False
          ) -> list[int]:
    """Delete some rows of a table and their parts, and say how many.

    :param oldest: those that were made first
    """
    ids = connection.execute(
        sqlalchemy.select(rule.table.c.id)
        .where(_old(rule, now_s, older_than_s))
        # By id a database would look at all that are not over.
        .order_by(*[rule.table.c.id] * oldest)
        .limit(batch)).scalars().all()
    if not ids:
        return [0] * (1 + len(rule.parts))
    if rule.table is tables.antagonist_hours:
        ids = totals.remove(connection, ids)
    parts = [connection.execute(sqlalchemy.delete(part.table).where(
        part.in_(ids))).rowcount for part in rule.parts]
    return [connection.execute(sqlalchemy.delete(rule.table).where(
        rule.table.c.id.in_(ids))).rowcount, *parts]
