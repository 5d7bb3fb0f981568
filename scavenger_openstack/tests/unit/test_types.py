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


"""CPU lists and the JSON form of values."""

from __future__ import annotations

import json
import random

import testtools

from scavenger_openstack.types import as_json
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample


class CpusTest(testtools.TestCase):

    def test_parse(self) -> None:
        for text, cpus in (('', set()), ('\n', set()), ('0', {0}),
                           ('0-1,4\n', {0, 1, 4}), ('3,1', {1, 3}),
                           ('0-3,2-5', {0, 1, 2, 3, 4, 5}), ('7-7', {7})):
            self.assertEqual(cpus, parse_cpus(text), text)

    def test_garbage(self) -> None:
        for text in ('x', '1-', '-1', '3-1', '1-2-3', '0x1', '0-4000000000',
                     '1 2', '0-6:2/4'):
            self.assertRaises(ValueError, parse_cpus, text)

    def test_format(self) -> None:
        for cpus, text in (((), ''), ({0}, '0'), ({0, 1, 4}, '0-1,4'),
                           ([4, 1, 0, 1], '0-1,4'), ({1, 3, 5}, '1,3,5'),
                           (range(8), '0-7')):
            self.assertEqual(text, format_cpus(cpus))

    def test_there_and_back(self) -> None:
        dice = random.Random(1)
        for _ in range(300):
            cpus = frozenset(dice.sample(range(70), dice.randrange(70)))
            self.assertEqual(cpus, parse_cpus(format_cpus(cpus)))


class AsJsonTest(testtools.TestCase):

    def test_sample(self) -> None:
        workload = Workload('/batch/a', Priority.BACKGROUND,
                            floor={Knob.CPU_CORES: 0.1},
                            allowed_cpus=frozenset((1, 0)))
        sample = HostSample(
            'h', 'b', 1.5, 2.5, (WorkloadSample(workload, cpu_s=0.0,
                                                memory_bytes=7),),
            topology={0: Cpu(0, 0, 0)})
        value = json.loads(json.dumps(as_json(sample)))
        self.assertEqual(
            {'host': 'h', 'boot_id': 'b', 'time_s': 1.5,
             'wall_time_s': 2.5, 'schema': 1,
             'topology': {'0': {'core': 0, 'llc': 0, 'numa': 0}},
             'workloads': [{
                 'workload': {
                     'id': '/batch/a', 'priority': 'background',
                     'source': 'default', 'vcpus': 1.0,
                     'floor': {'cpu_cores': 0.1}, 'allowed_cpus': [0, 1],
                     'killable': False, 'protected': True, 'created_s': 0.0},
                 'cpu_s': 0.0, 'memory_bytes': 7}]}, value)

    def test_unknown_stays_out_and_zero_stays_in(self) -> None:
        self.assertEqual(
            {'id': 'i', 'time_s': 0.0, 'host': 'h', 'victim': 'v',
             'signal': 's', 'value': 0.0, 'cause': 'c',
             'suspects': [['a', 0.5]], 'outcome': 'open'},
            as_json(Incident('i', 0.0, 'h', 'v', 's', 0.0, None, 'c',
                             suspects=(('a', 0.5),))))

    def test_cap(self) -> None:
        self.assertEqual(
            {'workload': '/a', 'knob': 'cpu_set', 'value': '0-1',
             'owner': 'o', 'reason': 'r'},
            as_json(Cap('/a', Knob.CPU_SET, '0-1', 'o', 'r')))

    def test_plain_values(self) -> None:
        for value in (None, 0, 1.5, 'x', True, [1, 'a'], {'a': None}):
            self.assertEqual(value, as_json(value))
        self.assertEqual({'cpu_idle': [1, 2]},
                         as_json({Knob.CPU_IDLE: {2, 1}}))


class IncidentIdTest(testtools.TestCase):

    def test_every_part_counts(self) -> None:
        parts = ('host', 'boot', 'web', 'cpi')
        found = {incident_id(*parts, 10.0), incident_id(*parts, 10.5)}
        for place in range(4):
            host, boot_id, victim, signal = (
                part + 'x' if n == place else part
                for n, part in enumerate(parts))
            found.add(incident_id(host, boot_id, victim, signal, 10.0))
        self.assertEqual(6, len(found))
        self.assertEqual(incident_id(*parts, 10.0),
                         incident_id(*parts, 10.0))

    def test_names_that_are_not_utf_8(self) -> None:
        self.assertEqual(32, len(incident_id('h', 'b', 'web\udcff', 'cpi',
                                             1.0)))
