# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Pages of rows, newest first: by the last id that was shown."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column
from sqlalchemy import Connection
from sqlalchemy import RowMapping
from sqlalchemy import Select
from sqlalchemy import tuple_

Row = dict[str, Any]
"""One row: column -> value."""


def newest(connection: Connection, query: Select, id_: Column,
           after: int | None, limit: int) -> list[Row]:
    """At most ``limit`` rows of ``query`` with smaller ids than ``after``."""
    if after is not None:
        query = query.where(id_ < after)
    return rows(connection, query.order_by(id_.desc()).limit(limit))


def rows(connection: Connection, query: Select) -> list[Row]:
    return [_plain(row) for row in connection.execute(query).mappings()]


def first(connection: Connection, query: Select) -> Row | None:
    found = connection.execute(query.limit(1)).mappings().first()
    return None if found is None else _plain(found)


def equal(query: Select, wanted: Mapping[Column, Any]) -> Select:
    """Only rows that have these values; ``None`` is any."""
    for column, value in wanted.items():
        if value is not None:
            query = query.where(column == value)
    return query


def among(host_id: Column, name: Column, pairs: Iterable[tuple[int, str]]
          ) -> Any:
    """The condition that (host, workload) is one of these."""
    return tuple_(host_id, name).in_(sorted(set(pairs)))


def _plain(row: RowMapping) -> Row:
    return {str(key): value for key, value in row.items()}
