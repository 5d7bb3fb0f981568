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

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.agent import service


class Missing(testtools.TestCase):

    def test_one_line_for_each_resource(self) -> None:
        """Whatever workload is named, and until it is there."""
        log = self.useFixture(fixtures.FakeLogger())
        found = service.MissingLog()
        for missing in (
                (), ('cpu: no /a/cpu.max', 'cpu: no /b/cpu.max', 'disk: off'),
                ('cpu: no /c/cpu.max',), ('cpu: no /d/cpu.max',), (),
                ('cpu: no /e/cpu.max', 'disk: off')):
            found.log(missing)
        self.assertEqual(
            ['missing: cpu: no /a/cpu.max', 'missing: cpu: no /b/cpu.max',
             'missing: disk: off', 'missing: cpu: no /e/cpu.max',
             'missing: disk: off'], log.output.splitlines())
