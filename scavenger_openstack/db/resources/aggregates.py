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

"""Which hosts are in which aggregate, as operators said."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection
from sqlalchemy import delete
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db.resources import audit
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_T = tables.aggregate_hosts.c


def hosts(connection: Connection, name: str | None = None
          ) -> dict[str, list[str]]:
    """The names of the hosts of each aggregate that has some.

    :param name: only of that one
    """
    query = select(_T.aggregate, _T.host).order_by(_T.aggregate, _T.host)
    found: dict[str, list[str]] = {}
    for aggregate, host in connection.execute(
            query if name is None else query.where(_T.aggregate == name)):
        found.setdefault(aggregate, []).append(host)
    return found


def settings(connection: Connection, name: str, *, lock: bool = False
             ) -> Row | None:
    """The row with what is set for the hosts of an aggregate.

    :param lock: keep other writers of it out until the transaction ends
    """
    table = tables.aggregate_settings
    query = select(table).where(table.c.aggregate == name)
    return rows.first(connection, query.with_for_update() if lock else query)


def set_settings(connection: Connection, name: str,
                 settings: dict[str, Any], *, new: bool) -> None:
    """
    :param new: there is no row yet
    """
    table = tables.aggregate_settings
    if new:
        connection.execute(insert(table).values(aggregate=name,
                                                settings=settings))
    else:
        connection.execute(update(table).where(
            table.c.aggregate == name).values(settings=settings))


def put(connection: Connection, name: str, wanted: Collection[str], *,
        now_s: float) -> list[str]:
    """Make these, and no others, the hosts of an aggregate, with a row in the
    audit.

    :return: the hosts that it had
    """
    before = list(connection.execute(select(_T.host).where(
        _T.aggregate == name).order_by(_T.host)).scalars())
    connection.execute(delete(tables.aggregate_hosts).where(
        _T.aggregate == name))
    after = sorted(set(wanted))
    if after:
        connection.execute(insert(tables.aggregate_hosts), [
            {'aggregate': name, 'host': host} for host in after])
    audit.add(connection, time_s=now_s, actor='scavenger-manage', project='',
              request_id='', action='aggregate.set', target=name,
              before={'hosts': before}, after={'hosts': after}, reason='')
    return before


def unknown(connection: Connection, names: Collection[str]) -> list[str]:
    """Those that are the names of no host that has reported or has been
    enrolled."""
    table = tables.hosts.c
    return sorted(set(names).difference(connection.execute(
        select(table.name).where(table.name.in_(sorted(names)))).scalars()))
