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

"""What decides whether an antagonist is evicted without an operator."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import select

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack.types import Priority

_H = tables.hosts.c
_W = tables.workloads.c
_S = tables.antagonist_hours.c
_A = tables.audit.c

RECOMMENDED = 'eviction.recommended'
"""The action in the audit."""

SEEN_S = 120.0
"""A host that has not reported for longer is left alone."""


def candidates(connection: Connection, since_s: float, confirmed: int,
               now: float) -> list[Row]:
    """Background instances that are there, on hosts that report and set
    limits, and that were confirmed so often since then; the worst first."""
    total = func.sum(_S.confirmed)
    return rows.rows(connection, select(
        _H.name.label('host'), _W.instance, _W.project,
        total.label('confirmed'))
        .select_from(tables.antagonist_hours
                     .join(tables.hosts, _H.id == _S.host_id)
                     .join(tables.workloads, (_W.host_id == _S.host_id)
                           & (_W.name == _S.workload)))
        .where(_S.hour_s >= since_s, _W.until_s.is_(None), _W.instance != '',
               _W.priority == Priority.BACKGROUND, _H.enforcing.is_(True),
               _H.last_seen_s > now - SEEN_S)
        .group_by(_H.name, _W.instance, _W.project)
        .having(total >= confirmed)
        .order_by(total.desc(), _W.instance))


def exempt(connection: Connection) -> set[tuple[str, str]]:
    """What operators have exempt: scope and target."""
    table = tables.rules.c
    return set(connection.execute(select(table.scope, table.target).where(
        table.kind == 'exemption')).tuples())


def recommended(connection: Connection, instance: str, since_s: float
                ) -> bool:
    """Whether it was, since then."""
    return connection.execute(select(_A.id).where(
        _A.action == RECOMMENDED, _A.target == instance,
        _A.time_s >= since_s).limit(1)).first() is not None
