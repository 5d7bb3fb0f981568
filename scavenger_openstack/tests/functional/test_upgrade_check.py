# SPDX-License-Identifier: Apache-2.0

"""``scavenger-status upgrade check`` on the databases that clouds use."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.cmd.status_cases import Status


class OnMariaDb(Status, databases.MariaDb):
    pass


class OnPostgreSql(Status, databases.PostgreSql):
    pass
