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



"""The status as people read it."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack.agent import status

INCIDENT = {
    'id': '1', 'time_s': 5.0, 'host': 'h', 'victim': '/services/web',
    'signal': 'io_wait', 'value': 0.0312, 'threshold': 0.01, 'cause': 'disk',
    'suspects': [['/batch/a', 0.9]], 'antagonists': ['/batch/a', '/batch/b'],
    'action': 'cap /batch/a', 'outcome': 'confirmed'}


def document(**differing: Any) -> dict[str, Any]:
    return {
        'time_s': 9.0, 'host': 'h', 'pid': 1, 'state': 'enforcing',
        'workloads': {}, 'controllers': {}, 'cpu_share': 0.001,
        'peak_rss_bytes': 2**20, 'counters': {}, 'caps': [], 'would': [],
        'unmet_bytes': {}, 'actions': [], 'incidents': [], 'problems': [],
        **differing}


class TableTest(testtools.TestCase):

    def said(self, **differing: Any) -> str:
        return status.table(document(**differing), 10.0)

    def test_an_incident_says_who_suffers_by_whom_and_what_was_done(
            self) -> None:
        self.assertIn(
            'incident: /services/web suffers, disk: io_wait 0.0312, '
            'threshold 0.01; by /batch/a, /batch/b; cap /batch/a '
            '(confirmed)', self.said(incidents=[INCIDENT]))

    def test_an_incident_by_nobody_else_without_numbers(self) -> None:
        self.assertIn(
            'cpi unknown, threshold unknown; by nobody else; ', self.said(
                incidents=[{**INCIDENT, 'signal': 'cpi', 'value': None,
                            'threshold': None, 'antagonists': []}]))

    def test_a_detector_that_failed(self) -> None:
        self.assertIn('cpi2       observe; FAILED: KeyError: 3', self.said(
            controllers={'cpi2': {'mode': 'observe', 'facts': {
                'fault': 'KeyError: 3'}}}))

    def test_what_waits_for_libvirt(self) -> None:
        text = self.said(libvirt={
            'state': 'does not answer', 'since_s': 12,
            'domains': {'u-1': 30}, 'waits': ['u-2 cpu_cores']})
        self.assertIn('libvirt    does not answer for 12 s\n', text)
        self.assertIn('domain u-1 has not answered, or a job held it, for '
                      '30 s\n', text)
        self.assertIn('neither set nor lifted yet: u-2 cpu_cores', text)
        text = self.said(libvirt={
            'state': 'answers', 'since_s': None, 'domains': {}, 'waits': []})
        self.assertIn('libvirt    answers\n', text)

    def test_names_cannot_tell_the_terminal_what_to_do(self) -> None:
        text = self.said(incidents=[{**INCIDENT, 'victim': '\x1b[2J'}])
        self.assertIn('\\x1b[2J suffers', text)
