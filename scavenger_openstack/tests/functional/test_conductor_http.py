# SPDX-License-Identifier: Apache-2.0

"""The conductor over HTTP on the databases that several conductors share."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor.http_cases import Http


class OnMariaDb(Http, databases.MariaDb):

    def away_url(self) -> str:
        return self.url.replace('/test_', '/none_')


class OnPostgreSql(Http, databases.PostgreSql):

    def away_url(self) -> str:
        return self.url.replace('/test_', '/none_')
