# SPDX-License-Identifier: Apache-2.0

"""What workloads are, or last were, by host and name or by instance."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
import functools
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_W = tables.workloads.c
_KEY = 'host_id', 'name'
_SHOWN = (_W.host_id, _W.name, _W.instance, _W.project, _W.application,
          _W.display_name, _W.priority, _W.flavor)


def identities(connection: sa.Connection, host_id: int,
               names: Collection[str]) -> dict[str, reports.Identity]:
    """Return what the workloads of these names are, or last were."""
    return {row.name: reports.Identity(row.instance, row.project,
                                       row.application,
                                       row.priority == Priority.FOREGROUND)
            for row in workloads(connection, {
                (host_id, name) for name in names})}


def workloads(connection: sa.Connection, keys: Collection[tuple[Any, ...]],
              columns: tuple[str, ...] = _KEY) -> Iterator[Any]:
    """The newest row of each host and name, of which there may be one for
    each minute of a month: that of the workload that is there, else that of
    the one that ended last.

    :param columns: those of a key, if it is another; a key may then have
        several rows, the newest last
    """
    there: set[tuple[Any, ...]] = set()
    for some in rows.batches(sorted(set(keys))):
        for row in connection.execute(sa.select(*_SHOWN).where(
                _among(some, columns)).order_by(_W.id)):
            there.add(tuple(getattr(row, column) for column in columns))
            yield row
    for some in rows.batches(sorted(set(keys) - there)):
        yield from connection.execute(_ended_last(columns, len(some)), {
            f'{column}{number}': value for number, key in enumerate(some)
            for column, value in zip(columns, key, strict=True)})


@functools.cache
def _ended_last(columns: tuple[str, ...], count: int) -> sa.TextClause:
    """For so many keys: as a text, since an expression of so many parts takes
    longer to make than to run."""
    shown = ', '.join(column.name for column in _SHOWN)
    return sa.text(' UNION ALL '.join(
        f'SELECT * FROM (SELECT {shown} FROM workloads WHERE ' + ' AND '.join(
            f'{column} = :{column}{number}' for column in columns)
        + f' ORDER BY until_s DESC LIMIT 1) AS one{number}'
        for number in range(count)))


def _among(keys: Collection[tuple[Any, ...]], columns: tuple[str, ...]
           ) -> sa.ColumnElement[bool]:
    """The condition that a workload is there and has one of these keys, as
    ranges of one index."""
    last: dict[tuple[Any, ...], list[Any]] = {}
    for *first, value in keys:
        last.setdefault(tuple(first), []).append(value)
    return sa.or_(*(sa.and_(
        *(_W[column] == value
          for column, value in zip(columns, first, strict=False)),
        _W[columns[-1]].in_(some), _W.until_s.is_(None))
        for first, some in last.items()))
