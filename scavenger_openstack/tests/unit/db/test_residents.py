# SPDX-License-Identifier: Apache-2.0

"""What the workloads of hosts are together, read again when they change."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db.resources.residents import Residents
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.wire import profile


class OnSqlite(databases.Sqlite):

    def setUp(self) -> None:
        super().setUp()
        self.residents = Residents(lambda *sides: sides)
        with connect.writing(self.engine) as connection:
            connection.execute(tables.hosts.insert().values(
                id=1, name='a', facts={}, settings={}, first_seen_s=0.0,
                last_seen_s=0.0, workloads_digest='second'))
            connection.execute(tables.workloads.insert().values(
                host_id=1, name='w', kind='instance', application='web',
                priority='foreground', vcpus=1.0, floor={}, since_s=0.0))
            profiles.set_profile(connection, profile.of_json({
                'kind': 'application', 'target': 'web', 'source': 'measured',
                'measured_s': 0.0, 'caused': {
                    'tlb': {'value': 0.5, 'low': 0.5, 'high': 0.5}}}),
                created_by='x', now_s=0.0)

    def hosts(self, digest: str) -> dict[int, Any]:
        """What hosts show whose list was read when it had this digest."""
        with connect.reading(self.engine) as connection:
            return self.residents.read(connection, [
                {'id': 1, 'workloads_digest': digest}]).hosts

    def test_a_host_that_reports_between_two_reads(self) -> None:
        """What was read is of the newer list, and not kept for the older."""
        self.assertEqual({1: ({}, {'tlb': 0.5})}, self.hosts('first'))
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.workloads).values(until_s=1.0))
            connection.execute(update(tables.hosts).values(
                workloads_digest='first'))
        self.assertEqual({}, self.hosts('first'))

    def test_a_host_that_was_removed(self) -> None:
        self.hosts('second')
        with connect.reading(self.engine) as connection:
            self.assertEqual({}, self.residents.read(connection, []).hosts)
