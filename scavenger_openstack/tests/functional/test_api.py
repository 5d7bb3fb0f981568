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

"""What the API reads and writes, on servers of the test's own."""

from __future__ import annotations

from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api import test_reads
from scavenger_openstack.tests.unit.api import test_writes


class ReadsOnMariaDb(test_reads.Reads, cloud.Api, databases.MariaDb):
    pass


class WritesOnMariaDb(test_writes.Writes, cloud.Api, databases.MariaDb):
    pass


class ReadsOnPostgreSql(test_reads.Reads, cloud.Api, databases.PostgreSql):
    pass


class WritesOnPostgreSql(test_writes.Writes, cloud.Api,
                         databases.PostgreSql):
    pass
