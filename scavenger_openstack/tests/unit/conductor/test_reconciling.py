# SPDX-License-Identifier: Apache-2.0

"""What Nova says of instances: reconciling_cases, with SQLite in memory."""

from __future__ import annotations

import testtools

from scavenger_openstack.conductor.nova import stacks
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import reconciling_cases


class TagsOnSqlite(reconciling_cases.Tags, cloud.Sqlite):
    pass


class ResumedOnSqlite(reconciling_cases.Resumed, cloud.Sqlite):
    pass


class ElsewhereOnSqlite(reconciling_cases.Elsewhere, cloud.Sqlite):
    pass


class Stacks(testtools.TestCase):
    """Metadata and tags as the services write them."""

    def test_heat(self) -> None:
        for metadata, name in (
                ({'metering.stack': 'id-1'}, 'id-1'),
                ({'metering.server_group': 'id-1'}, 'id-1'),
                ({'metering.groupname': 'web-group-x7'}, 'web-group-x7'),
                ({'metering.stack': 'id-1', 'metering.AutoScalingGroupName':
                  'web-group-x7'}, 'web-group-x7')):
            self.assertEqual(name, stacks.name(metadata),
                             str(metadata))

    def test_senlin(self) -> None:
        self.assertEqual('c1', stacks.name({
            'cluster_id': 'c1', 'cluster_node_id': 'n1',
            'cluster_node_index': '4'}))
        self.assertEqual('', stacks.name({'cluster_node_id': 'n1'}))

    def test_openshift(self) -> None:
        self.assertEqual('prod-8xk2p', stacks.name(
            {'Name': 'prod-8xk2p-worker', 'openshiftClusterID':
             'prod-8xk2p'}))
        self.assertEqual('prod-8xk2p', stacks.name(
            {}, ['fast', 'openshiftClusterID=prod-8xk2p']))

    def test_gardener(self) -> None:
        self.assertEqual('shoot--dev--a', stacks.name({
            'kubernetes.io-role-node': '1',
            'kubernetes.io-cluster-shoot--dev--b': '1',
            'kubernetes.io-cluster-shoot--dev--a': '1'}))

    def test_none(self) -> None:
        for metadata in ({}, {'stack': 'x'}, {'metering.stack': ''},
                         {'metering.stack': 'x' * 129},
                         {'kubernetes.io-cluster-': '1'},
                         {'cluster_id': 'a\x00b'}):
            self.assertEqual('', stacks.name(metadata),
                             str(metadata))

    def test_the_next_where_one_is_no_name(self) -> None:
        self.assertEqual('c1', stacks.name({
            'metering.stack': '\x07', 'cluster_id': 'c1'}))
