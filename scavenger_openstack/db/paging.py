# SPDX-License-Identifier: Apache-2.0


"""The ids of one page of a listing, read from one index and nothing else.

An index ``(filter, ..., id)`` has the rows of a listing in its order, with
all that is needed to find the page.  Ask for the rows of these ids in a second
query: in one that joins tables, MariaDB may begin with the other table and
sort everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa


def newest(connection: sa.Connection, table: sa.Table,
           wanted: Mapping[sa.Column[Any], Any], *, limit: int,
           by: sa.Column[float] | None = None, since: float | None = None,
           until: float | None = None,
           after: Sequence[float] | None = None,
           where: Sequence[sa.ColumnElement[bool]] = (),
           id_: sa.Column[int] | None = None,
           ended: sa.Column[float] | None = None, over: bool = False
           ) -> list[int]:
    """The ids of the newest rows, newest first.

    :param wanted: what columns have to be; None is any
    :param by: the time that tells what is new, else the id alone
    :param since: ``by`` is that or later
    :param until: ``by`` is earlier
    :param after: the last row of the page before: ``(by, id)``, or
        ``(id,)`` without ``by``
    :param where: other conditions
    :param id_: the id, if it is not ``table.c.id``
    :param ended: the time that is NULL until a row is over: only those that
        are not are wanted, or with ``over`` only those that are, the last
        that ended first; ``after`` is ``(id,)``
    """
    of: sa.Column[int] = table.c.id if id_ is None else id_
    order: list[sa.Column[Any]] = [of] if by is None else [by, of]
    same: list[sa.Column[Any]] = []
    if ended is not None and over:
        where, order = [*where, ended.is_not(None)], [ended, of]
        if after is not None:
            ended_s = connection.scalar(sa.select(ended).where(of == after[0]))
            if ended_s is None:     # deleted, and so is what ended before
                return []
            after = ended_s, after[0]
    elif ended is not None:
        where = [*where, ended.is_(None)]
        if connection.dialect.name == 'postgresql':
            # It does not know of NULL that it is the same in all.
            same = [ended]
    query = sa.select(of).where(*where, *(
        column == value for column, value in wanted.items()
        if value is not None))
    if by is not None and since is not None:
        query = query.where(by >= since)
    if by is not None and until is not None:
        query = query.where(by < until)
    if after is not None:
        query = query.where(_after(order, after))
    return list(connection.scalars(query.order_by(
        *(column.desc() for column in (*same, *order))).limit(limit)))


def _after(order: Sequence[sa.Column[Any]], after: Sequence[float]
           ) -> sa.ColumnElement[bool]:
    """A range of the index, and what to leave out of its first time: an OR
    alone is no range."""
    if len(order) == 1:
        return order[0] < after[0]
    return sa.and_(order[0] <= after[0],
                   sa.or_(order[0] < after[0], order[1] < after[1]))
