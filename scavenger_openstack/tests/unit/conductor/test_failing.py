# SPDX-License-Identifier: Apache-2.0

"""Schedules with clocks that are set, refusals, failovers and evacuations."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from scavenger_openstack.db import connect
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor.failing_cases import Failing


def without_sync(connection: Any, record: Any) -> None:
    connection.execute('PRAGMA synchronous = OFF')


class OnSqlite(Failing, databases.Sqlite):

    def engines(self) -> list[connect.Engine]:
        made = super().engines()
        for engine in made:
            event.listen(engine, 'connect', without_sync)
        return made
