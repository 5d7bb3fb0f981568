# SPDX-License-Identifier: Apache-2.0

"""Statistics that hosts reported, and the specs that are made of them."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam
from sqlalchemy import Connection
from sqlalchemy import delete
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import reports
from scavenger_openstack.db import tables

PAGE = 10_000

Row = dict[str, Any]


def since(connection: Connection, from_s: float) -> Iterator[Row]:
    """The rows of the hours from then on; may be millions, in statements that
    each read some."""
    table = tables.statistics
    last = 0
    while True:
        # By id alone: with the hour, too, a database may sort all of them.
        page = connection.execute(select(table).where(
            table.c.id > last).order_by(table.c.id).limit(PAGE)
        ).mappings().all()
        for row in page:
            if row['hour_s'] >= from_s:
                yield dict(row)
        if len(page) < PAGE:
            return
        last = page[-1]['id']


def replace(connection: Connection, ids: Sequence[int],
            rows: Sequence[Row]) -> None:
    """Put ``rows`` in the place of others."""
    _delete(connection, tables.statistics, ids)
    if rows:
        connection.execute(insert(tables.statistics), rows)


def specs(connection: Connection) -> list[Row]:
    return [dict(row) for row
            in connection.execute(select(tables.specs)).mappings()]


def set_specs(connection: Connection, new: Sequence[Row],
              changed: Sequence[Row], gone: Collection[int]) -> None:
    """Write specs.

    :param changed: with ``id``, and all with the same columns
    """
    _delete(connection, tables.specs, sorted(gone))
    if new:
        connection.execute(insert(tables.specs), new)
    if changed:
        connection.execute(
            update(tables.specs).where(tables.specs.c.id == bindparam('row')),
            [{**{name: value for name, value in row.items() if name != 'id'},
              'row': row['id']} for row in changed])


def _delete(connection: Connection, table: Any, ids: Sequence[int]) -> None:
    for some in reports.batches(ids):
        connection.execute(delete(table).where(table.c.id.in_(some)))
