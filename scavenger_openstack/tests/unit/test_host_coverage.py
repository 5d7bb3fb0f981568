# SPDX-License-Identifier: Apache-2.0

"""What hosts lack, counted."""

from __future__ import annotations

from typing import Any

import testtools

from scavenger_openstack import host_coverage


def host(name: str, *missing: str, **fields: Any) -> dict[str, Any]:
    return {'name': name, 'missing': missing, 'silent': False, 'grade': 'C',
            'enforcing': False, 'modes': {'attribution': 'observe'},
            **fields}


class TestCoverage(testtools.TestCase):

    def test_hosts_are_counted_once_for_each_resource(self) -> None:
        coverage = host_coverage.of_hosts([
            host('a', 'disk: x', 'disk: y', 'cpu: z'),
            host('b', 'disk: x', 'no libvirt on this host: w'), host('c')])
        self.assertEqual((3, ('a', 'b')),
                         (coverage.hosts, coverage.incomplete))
        self.assertEqual('disk 2, cpu 1, other 1', coverage.counted_causes)

    def test_what_hosts_can_do(self) -> None:
        coverage = host_coverage.of_hosts([
            host('a', silent=True, grade='A'),
            host('b', modes={'scavenger': 'enforce', 'cpi2': 'off'}),
            host('c', enforcing=True, grade='B', modes={'cpi2': 'observe'}),
            {'name': 'd'}])
        self.assertEqual((('a',), ('b', 'd')),
                         (coverage.silent, coverage.undetecting))
        self.assertEqual((1, 2, ()), (
            coverage.enforcing, coverage.with_counters, coverage.incomplete))
