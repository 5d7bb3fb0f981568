# SPDX-License-Identifier: Apache-2.0

"""Reports over HTTP: http_cases, with SQLite in a file."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor.http_cases import Http


class OnSqlite(Http, databases.Sqlite):

    def away_url(self) -> str:
        return f'{self.url}/nothing'
