# SPDX-License-Identifier: Apache-2.0

"""What workloads are, or last were, by host and name."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
import functools
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_W = tables.workloads.c
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


def workloads(connection: sa.Connection, pairs: Collection[tuple[int, str]]
              ) -> Iterator[Any]:
    """The newest row of each host and name, of which there may be one for
    each minute of a month: that of the workload that is there, else that of
    the one that ended last."""
    there: set[tuple[int, str]] = set()
    for some in rows.batches(sorted(set(pairs))):
        for row in connection.execute(sa.select(*_SHOWN).where(_among(some))
                                      .order_by(_W.id)):
            there.add((row.host_id, row.name))
            yield row
    for some in rows.batches(sorted(set(pairs) - there)):
        values: dict[str, Any] = {}
        for number, (host_id, name) in enumerate(some):
            values |= {f'h{number}': host_id, f'n{number}': name}
        yield from connection.execute(_ended_last(len(some)), values)


@functools.cache
def _ended_last(count: int) -> sa.TextClause:
    """For so many hosts and names: as a text, since an expression of so many
    parts takes longer to make than to run."""
    columns = ', '.join(column.name for column in _SHOWN)
    return sa.text(' UNION ALL '.join(
        f'SELECT * FROM (SELECT {columns} FROM workloads WHERE host_id = '
        f':h{number} AND name = :n{number} ORDER BY until_s DESC LIMIT 1) '
        f'AS one{number}' for number in range(count)))


def _among(pairs: Iterable[tuple[int, str]]) -> sa.ColumnElement[bool]:
    """The condition that a workload is there and (host, name) is one of
    these, as ranges of one index."""
    names: dict[int, list[str]] = {}
    for host_id, name in pairs:
        names.setdefault(host_id, []).append(name)
    return sa.or_(*(sa.and_(_W.host_id == host_id, _W.name.in_(some),
                            _W.until_s.is_(None))
                    for host_id, some in names.items()))
