# SPDX-License-Identifier: Apache-2.0


"""Delete what is over and old, some rows at a time.

What is open, in force or still there stays, however old.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import functools
import math
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.db import connect
from scavenger_openstack.db import placed
from scavenger_openstack.db import reports
from scavenger_openstack.db.rows import batches
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals

SHORTEST_S = 2 * DAY_S
"""Less is not deleted: agents report hours late."""

TAGS_S = 30 * DAY_S
"""How long the tag of an instance that is on no host is kept at least: it may
be shut off.  What starts it sends the tag again."""

RUNS_S = 30 * DAY_S
"""How long a run of an agent is kept at least: an agent that was cut off
says again what may be here already, and its run tells."""

BATCH = 1000
"""Rows of one transaction, so that reports hardly wait for it."""

PAGE = 10_000
"""Rows of which one transaction looks whether their instance is gone."""


class Rule(NamedTuple):
    """Rows of ``table`` go that ended before the time; those of ``parts``,
    by their column, with them.

    ``only``: a rule for some of the rows, which are counted by themselves.
    """

    table: sa.Table
    ended_s: sa.Column[float]
    parts: tuple[sa.Column[int], ...] = ()
    at_least_s: float = 0.0
    only: sa.ColumnElement[bool] = sa.true()


RULES = (
    Rule(tables.incidents, tables.incidents.c.ended_s,
         (tables.suspects.c.incident_id,)),
    Rule(tables.caps, tables.caps.c.removed_s),
    Rule(tables.workloads, tables.workloads.c.until_s),
    Rule(tables.antagonist_hours, tables.antagonist_hours.c.hour_s),
    Rule(tables.victim_hours, tables.victim_hours.c.hour_s),
    Rule(tables.background_hours, tables.background_hours.c.hour_s),
    Rule(tables.statistics, tables.statistics.c.hour_s),
    Rule(tables.overrides, tables.overrides.c.expires_s),
    Rule(tables.evictions, tables.evictions.c.ended_s),
    Rule(tables.profilings, tables.profilings.c.ended_s),
    # However much agents do, what operators did stays as long.
    *(Rule(tables.audit, tables.audit.c.time_s, only=only)
      for only in (tables.audit.c.by_agent, ~tables.audit.c.by_agent)),
    Rule(tables.runs, tables.runs.c.last_seen_s, at_least_s=RUNS_S),
)
"""NULL, which is "not yet", is never before a time."""

_R, _T = tables.rules.c, tables.flavor_tags.c
_W = tables.workloads.c


def count(connection: sa.Connection, *, now_s: float, older_than_s: float,
          audit_older_than_s: float) -> dict[str, int]:
    """Return how many rows :func:`run` would delete, by table."""
    counts = {name: 0 for rule in RULES for name in _names(rule)}
    for rule in RULES:
        before_s = _before_s(rule, now_s, older_than_s, audit_older_than_s)
        if before_s is None:
            continue
        old = sa.and_(rule.ended_s < before_s, rule.only)
        counts[rule.table.name] += connection.execute(
            sa.select(sa.func.count()).select_from(
                rule.table).where(old)).scalar_one()
        for part in rule.parts:
            counts[part.table.name] += connection.execute(
                sa.select(sa.func.count()).select_from(
                    part.table).where(part.in_(sa.select(
                        rule.table.c.id).where(old)))).scalar_one()
    for table, gone in _gone(now_s, older_than_s):
        counts[table.name] = connection.execute(
            sa.select(sa.func.count()).select_from(
                table).where(gone)).scalar_one()
    return counts


def run(engine: sa.Engine, *, now_s: float, older_than_s: float,
        audit_older_than_s: float, progress: Callable[[str, int], None],
        batch: int = BATCH) -> dict[str, int]:
    """Delete what is older; returns the rows of each table.

    :param audit_older_than_s: as for :func:`steps`
    :param progress: is called after each transaction with a table and how
        many of its rows are deleted so far
    :param batch: rows of the main table of one transaction
    """
    deleted = {name: 0 for rule in RULES for name in _names(rule)}
    deleted |= {table.name: 0 for table, _ in _gone(now_s, older_than_s)}
    for counts, _ in steps(
            engine, now_s=now_s, older_than_s=older_than_s,
            audit_older_than_s=audit_older_than_s, batch=batch):
        for name, rows in counts.items():
            deleted[name] += rows
        first = next(iter(counts))
        progress(first, deleted[first])
    return deleted


def steps(engine: sa.Engine, *, now_s: float, older_than_s: float,
          audit_older_than_s: float, batch: int = BATCH
          ) -> Generator[tuple[dict[str, int], int], None, None]:
    """Delete what is older, a transaction before each value: how many rows of
    which tables, and of all together.

    :param older_than_s: 0 keeps everything but the audit
    :param audit_older_than_s: the same of the audit
    """
    for rule in RULES:
        before_s = _before_s(rule, now_s, older_than_s, audit_older_than_s)
        while before_s is not None and (counts := connect.retried(
                engine, functools.partial(_some, rule=rule, before_s=before_s,
                                          batch=batch)))[0]:
            yield dict(zip(_names(rule), counts, strict=True)), sum(counts)
    for table, gone in _gone(now_s, older_than_s) if older_than_s else ():
        after: int | None = 0
        while after is not None:
            after, rows = connect.retried(engine, functools.partial(
                _some_gone, table=table, gone=gone, after=after, now_s=now_s))
            yield {table.name: rows}, rows


def trim(engine: sa.Engine, *, now_s: float, rows: int, batch: int = BATCH
         ) -> Generator[int, None, None]:
    """Delete the oldest of what is over, where a table has more rows; a
    transaction before each value: how many rows.

    What is open, in force or still there is not over, and statistics are not
    within :data:`SHORTEST_S`; runs stay, of which there are few.

    :param rows: so many of each table, and of the audit so many that agents
        caused and so many others
    """
    for rule in RULES:
        if rule.table is tables.runs:
            continue
        there = connect.read(engine, functools.partial(_count, rule))
        before_s = math.ceil(now_s - (
            SHORTEST_S if rule.table is tables.statistics else 0.0))
        while there > rows:
            counts = connect.retried(engine, functools.partial(
                _some, rule=rule, before_s=before_s,
                batch=min(batch, there - rows), oldest=True))
            if not counts[0]:
                break
            there -= counts[0]
            yield sum(counts)


def _names(rule: Rule) -> list[str]:
    return [rule.table.name, *(part.table.name for part in rule.parts)]


def _count(rule: Rule, connection: sa.Connection) -> int:
    return connection.execute(sa.select(
        sa.func.count()).select_from(rule.table).where(
            rule.only)).scalar_one()


def _before_s(rule: Rule, now_s: float, older_than_s: float,
              audit_older_than_s: float) -> int | None:
    """Rows go that ended before then, ``None`` for no row.

    A whole number: for a fraction PostgreSQL uses no index of hours.
    """
    if rule.table is tables.audit:
        older_than_s = audit_older_than_s
    return (int(now_s - max(older_than_s, rule.at_least_s)) if older_than_s
            else None)


def _gone(now_s: float, older_than_s: float
          ) -> list[tuple[sa.Table, sa.ColumnElement[bool]]]:
    """Return what is kept of instances, and which rows are of instances that
    no host has had for so long.  While Nova is read it says what flavors
    say."""
    before_s, claims = now_s - older_than_s, tables.claims.c

    def is_in(column: sa.Column[str], instance: sa.Column[str]
              ) -> sa.ColumnElement[bool]:
        return sa.exists().where(column == instance)

    nova_is_read = sa.exists().where(
        claims.name == placed.READ, claims.expires_s > now_s)
    return [
        (tables.flavor_tags, sa.and_(
            _T.changed_s < min(before_s, now_s - TAGS_S), ~nova_is_read,
            ~is_in(_W.instance, _T.instance))),
        (tables.rules, sa.and_(
            _R.scope == 'instance', _R.created_s < before_s,
            ~is_in(_W.instance, _R.target), ~is_in(_T.instance, _R.target)))]


def _some(connection: sa.Connection, rule: Rule, before_s: int, batch: int,
          oldest: bool = False) -> list[int]:
    """Delete some rows of a table and their parts, and say how many.

    :param oldest: those that were made first
    """
    ids = connection.execute(
        sa.select(rule.table.c.id)
        .where(rule.ended_s < before_s, rule.only)
        # By id a database would look at all that are not over.
        .order_by(*[rule.table.c.id] * oldest)
        .limit(batch)).scalars().all()
    if not ids:
        return [0] * (1 + len(rule.parts))
    if rule.table is tables.antagonist_hours:
        ids = totals.remove(connection, ids)
    parts = [connection.execute(sa.delete(part.table).where(
        part.in_(ids))).rowcount for part in rule.parts]
    return [connection.execute(sa.delete(rule.table).where(
        rule.table.c.id.in_(ids))).rowcount, *parts]


def _some_gone(connection: sa.Connection, table: sa.Table,
               gone: sa.ColumnElement[bool], after: int, now_s: float
               ) -> tuple[int | None, int]:
    """Delete those of the rows that follow an id whose instance is gone: the
    id to go on after, ``None`` at the end, and how many rows.  That a rule of
    an operator ends is in the audit."""
    id_ = table.c.id
    ids = connection.scalars(sa.select(id_).where(
        id_ > after).order_by(id_).limit(PAGE)).all()
    if not ids:
        return None, 0
    rows = connection.execute(sa.select(table).where(
        id_ > after, id_ <= ids[-1], gone)).mappings().all()
    for some in batches(row['id'] for row in rows):
        connection.execute(sa.delete(table).where(id_.in_(some)))
    if table is tables.rules:
        reports.add_audit(connection, [{
            'time_s': now_s, 'actor': 'conductor',
            'action': f"{row['kind']}.delete",
            'target': f"instance/{row['target']}",
            'before': {'value': row['value']},
            'reason': 'no host has had the instance for [database] keep_days'}
            for row in rows])
    return (ids[-1] if len(ids) == PAGE else None), len(rows)
