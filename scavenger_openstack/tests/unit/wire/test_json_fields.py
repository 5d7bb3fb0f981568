# SPDX-License-Identifier: Apache-2.0


"""The JSON form of values."""

from __future__ import annotations

import json

import testtools

from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import as_json


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
             'wall_time_s': 2.5, 'schema': 1, 'memory_limit_ends': False,
             'topology': {'0': {'core': 0, 'llc': 0, 'numa': 0}},
             'workloads': [{
                 'workload': {
                     'id': '/batch/a', 'priority': 'background',
                     'source': 'default', 'vcpus': 1.0,
                     'floor': {'cpu_cores': 0.1}, 'allowed_cpus': [0, 1],
                     'killable': False, 'protected': True, 'created_s': 0.0},
                 'cpu_s': 0.0, 'memory_bytes': 7}]}, value)

    def test_direct_evidence_of_each_resource(self) -> None:
        """There and back: what is recorded is replayed."""
        answers = tuple(DirectEvidence(
            'v', resource, 2.0, 1.5, {'hog': 1.0, THE_HOST: 0.25},
            {'ksmd': 0.2}, 0.1, shared)
            for resource in Resource for shared in (False, True))
        sample = HostSample('h', 'b', 1.5, 2.5, (), direct=answers,
                            memory_limit_ends=True)
        self.assertEqual(sample, json_fields.Samples().read(
            json.loads(json.dumps(as_json(sample))), ''))

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
