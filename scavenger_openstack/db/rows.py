# SPDX-License-Identifier: Apache-2.0

"""Rows as dictionaries: pages of them, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite

from scavenger_openstack.db import paging
from scavenger_openstack.db import tables
from scavenger_openstack import host_names

Row = dict[str, Any]
"""One row: column -> value."""

AT_ONCE = 500
"""Rows of one statement, or values of one IN list; SQLite takes some 30,000
in a statement."""

LENGTHS = {table.name: {
    column.name: column.type.length for column in table.c
    if isinstance(column.type, sa.String) and column.type.length}
    for table in tables.METADATA.sorted_tables}

_ADDED = 'scavenger_added'

MOST_TRIES = 10
"""So often a page is read at most."""


def newest(connection: sa.Connection, query: sa.Select, table: sa.Table,
           wanted: Mapping[sa.Column, Any], after: int | None, limit: int,
           where: Sequence[Any] = (), ended: sa.Column | None = None,
           over: bool = False) -> list[Row]:
    """A page of ``table``, newest first, as ``query`` shows rows.

    :param wanted: what columns have to be; None is any
    :param after: the last id of the page before
    :param ended: and ``over``: see :func:`.paging.newest`
    """
    return of_ids(connection, query, table.c.id, functools.partial(
        paging.newest, connection, table, wanted, limit=limit, where=where,
        ended=ended, over=over, after=None if after is None else (after,)))


def of_ids(connection: sa.Connection, query: sa.Select, id_: sa.Column,
           find: Callable[[], Sequence[int]]) -> list[Row]:
    """The rows of the ids that ``find`` returns, in their order.

    It is called again if one was deleted in between: a page that is shorter
    is taken for the last.
    """
    by_id: dict[int, Row] = {}
    ids: Sequence[int] = ()
    for _ in range(MOST_TRIES):
        ids = find()
        by_id = {row['id']: row for row in rows(
            connection, query.where(id_.in_(ids)))} if ids else {}
        if by_id.keys() == set(ids):
            break
    return [by_id[row_id] for row_id in ids if row_id in by_id]


def rows(connection: sa.Connection, query: sa.Select) -> list[Row]:
    result = connection.execute(query)
    names = [str(name) for name in result.keys()]
    return [dict(zip(names, row, strict=True)) for row in result]


def first(connection: sa.Connection, query: sa.Select) -> Row | None:
    row = connection.execute(query.limit(1)).mappings().first()
    return None if row is None else _plain(row)


def is_any(connection: sa.Connection, query: sa.Select) -> bool:
    """Return whether a query has a row."""
    return connection.execute(query.limit(1)).first() is not None


def equal(query: sa.Select, wanted: Mapping[sa.Column, Any]) -> sa.Select:
    """Return a query of the rows that have these values; ``None`` is any."""
    for column, value in wanted.items():
        if value is not None:
            query = query.where(column == value)
    return query


def among(host_id: sa.Column, name: sa.Column, pairs: Iterable[tuple[int, str]]
          ) -> Any:
    """The condition that (host, workload) is one of these."""
    return sa.tuple_(host_id, name).in_(sorted(set(pairs)))


def keyed(connection: sa.Connection, columns: Sequence[sa.Column],
          keys: Iterable[tuple[str, ...]]) -> Any:
    """The condition that these columns, all texts, are one of the keys.

    Of a list of tuples PostgreSQL makes as many conditions, and tries each of
    them with each row.
    """
    some = sorted(set(keys))
    if connection.dialect.name != 'postgresql' or not some:
        return sa.tuple_(*columns).in_(some)
    table = sa.func.unnest(*(
        sa.cast(list(values), postgresql.ARRAY(sa.Text))
        for values in zip(*some, strict=True))).table_valued(
            *(column.name for column in columns)).render_derived()
    return sa.tuple_(*columns).in_(sa.select(*table.c))


def same_host(name: Any, short: Any, other: Any, other_short: Any
              ) -> sa.ColumnElement[bool]:
    """The condition that :func:`.host_names.same` holds for two names, each
    with what :func:`.host_names.short` makes of it."""
    return sa.and_(short == other_short, sa.or_(
        name == other, name == short, other == other_short))


def of_host(table: Any) -> sa.ColumnElement[bool]:
    """The condition for ``host`` and ``short`` of a table; a statement with it
    takes :func:`host_parameters`."""
    return same_host(table.host, table.short,
                sa.bindparam('host', type_=tables.NAME),
                sa.bindparam('host_short', type_=tables.NAME))


def host_parameters(name: str) -> dict[str, str]:
    """Return what :func:`of_host` needs of a host's name."""
    return {'host': name, 'host_short': host_names.short(name)}


def put(connection: sa.Connection, table: sa.Table, key: tuple[str, ...],
        values: tuple[str, ...], rows: Sequence[Row]) -> None:
    """Insert rows, or replace those that are there.

    :param key: the columns of a unique key
    :param values: what else is replaced
    """
    statement = _put(table, key, values, connection.dialect.name)
    for begin in range(0, len(rows), AT_ONCE):
        connection.execute(statement, rows[begin:begin + AT_ONCE])


@functools.cache
def _put(table: sa.Table, key: tuple[str, ...], values: tuple[str, ...],
         dialect: str) -> sa.Insert:
    if dialect in ('postgresql', 'sqlite'):
        make = postgresql.insert if dialect == 'postgresql' else sqlite.insert
        statement = make(table)
        return statement.on_conflict_do_update(
            index_elements=list(key), set_={
                name: statement.excluded[name] for name in values})
    upsert = mysql.insert(table)
    return upsert.on_duplicate_key_update({
        name: upsert.inserted[name] for name in values})


def added_rows(connection: sa.Connection) -> Row:
    """Return how many rows each table has got over this connection since the
    last call, as far as :func:`insert_rows` added them."""
    counts: Row = connection.info.pop(_ADDED, {})
    return counts


def count_added(connection: sa.Connection, table: sa.Table, rows: int) -> None:
    """Note that a table has got so many rows."""
    counts = connection.info.setdefault(_ADDED, {})
    counts[table.name] = counts.get(table.name, 0) + rows


def insert_rows(connection: sa.Connection, table: sa.Table, new: Sequence[Row]
                ) -> None:
    """Insert rows, count them; a text is cut to what its column takes."""
    if new:
        connection.execute(sa.insert(table), [cut(table, row) for row in new])
        count_added(connection, table, len(new))


def update_rows(connection: sa.Connection, table: sa.Table,
                changed: Sequence[Row]) -> None:
    """Update rows by their ``id``; each has the same columns."""
    if changed:
        connection.execute(
            sa.update(table).where(table.c.id == sa.bindparam('row')),
            [{**cut(table, {name: value for name, value in row.items()
                             if name != 'id'}), 'row': row['id']}
             for row in sorted(changed, key=lambda row: int(row['id']))])


def cut(table: sa.Table, row: Row) -> Row:
    """The row with each text cut to what its column takes."""
    lengths = LENGTHS[table.name]
    return {name: value[:lengths[name]]
            if name in lengths and isinstance(value, str) else value
            for name, value in row.items()}


def batches(values: Iterable[Any]) -> Iterator[list[Any]]:
    """The values in lists of at most :data:`AT_ONCE`, as for an IN list."""
    listed = list(values)
    for begin in range(0, len(listed), AT_ONCE):
        yield listed[begin:begin + AT_ONCE]


def _plain(row: sa.RowMapping) -> Row:
    return {str(key): value for key, value in row.items()}
