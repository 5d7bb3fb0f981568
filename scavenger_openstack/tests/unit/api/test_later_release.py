# SPDX-License-Identifier: Apache-2.0

"""The API reads what a conductor of the release after has stored."""

from __future__ import annotations

from typing import Any

import fixtures
import sqlalchemy as sa

from scavenger_openstack.api import routes
from scavenger_openstack import cloud_metrics
from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud

FACTS: dict[str, Any] = {
    'grade': 'D', 'modes': {'bus': 'advise'}, 'own_modes': {'bus': 'advise'},
    'limited': ['bus_bytes_per_s'], 'capacity': {'bus': 1e9},
    'headroom': {'bus': 5e8}, 'used': {'bus': 1e8}, 'later': {'a': [1]}}


class LaterRelease(cloud.Api):

    def test_words_that_are_not_known(self) -> None:
        with connect.writing(self.engine) as connection:
            for table, values in (
                    (tables.hosts, {'facts': FACTS}),
                    (tables.workloads, {
                        'kind': 'pod', 'floor': {'bus_bytes_per_s': 1.0}}),
                    (tables.caps, {'knob': 'bus_bytes_per_s', 'value': 5e8}),
                    (tables.incidents, {
                        'outcome': 'forgiven', 'cause': 'bus',
                        'signal': 'bus_wait', 'grounds': [
                            {'kind': 'rumour', 'workload': 'gone'}]})):
                connection.execute(sa.update(table).values(values))
        for route in routes.ROUTES:
            if route.method == 'GET':
                for role in ('admin', 'reader'):
                    answer = self.call('GET', cloud.url(route), role=role)
                    self.assertLess(answer.status_code, 500,
                                    f'{route.path}: {answer.text[:500]}')
        log = self.useFixture(fixtures.FakeLogger())
        self.assertLess(1, len(list(cloud_metrics.Database(
            self.engine, 7200.0, lambda: cloud.NOW_S).collect())))
        self.assertEqual('', log.output)
