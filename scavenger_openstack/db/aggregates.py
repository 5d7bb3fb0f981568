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

from sqlalchemy import Connection
from sqlalchemy import delete
from sqlalchemy import insert
from sqlalchemy import select

from scavenger_openstack.db import audit
from scavenger_openstack.db import tables

_T = tables.aggregate_hosts.c


def hosts(connection: Connection) -> dict[str, list[str]]:
    """The names of the hosts of each aggregate that has some."""
    found: dict[str, list[str]] = {}
    for name, host in connection.execute(select(
            _T.aggregate, _T.host).order_by(_T.aggregate, _T.host)):
        found.setdefault(name, []).append(host)
    return found


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
