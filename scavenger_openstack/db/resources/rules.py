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

"""Priorities and exemptions of instances, projects and aggregates."""

from __future__ import annotations

from typing import Any
from typing import Literal

from sqlalchemy import Connection
from sqlalchemy import delete
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_R = tables.rules.c

Kind = Literal['priority', 'exemption']


def page(connection: Connection, kind: Kind, *, scope: str | None = None,
         target: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    return rows.newest(
        connection, select(tables.rules), tables.rules,
        {_R.kind: kind, _R.scope: scope, _R.target: target}, after, limit)


def show(connection: Connection, kind: Kind, uuid: str) -> Row | None:
    return rows.first(connection, select(tables.rules).where(
        _R.kind == kind, _R.uuid == uuid))


def of(connection: Connection, kind: Kind, scope: str, target: str
       ) -> Row | None:
    return rows.first(connection, select(tables.rules).where(
        _R.kind == kind, _R.scope == scope, _R.target == target
    ).with_for_update())


def add(connection: Connection, **values: Any) -> None:
    connection.execute(insert(tables.rules).values(**values))


def change(connection: Connection, id_: int, **values: Any) -> None:
    connection.execute(update(tables.rules).where(_R.id == id_)
                       .values(**values))


def remove(connection: Connection, id_: int) -> None:
    connection.execute(delete(tables.rules).where(_R.id == id_))
