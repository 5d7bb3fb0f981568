# SPDX-License-Identifier: Apache-2.0

"""What a signal of an application usually is.  Source: CPI2, section 3.1."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy import select

from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables

_S = tables.specs.c


def page(connection: Connection, *, project: str | None = None,
         application: str | None = None, cpu_model: str | None = None,
         signal: str | None = None, after: int | None = None, limit: int
         ) -> list[Row]:
    return rows.newest(
        connection, select(tables.specs), tables.specs,
        {_S.application: application, _S.project: project,
         _S.cpu_model: cpu_model, _S.signal: signal}, after, limit)
