# SPDX-License-Identifier: Apache-2.0

"""Hosts that fall silent are said once."""

from __future__ import annotations

import fixtures

from scavenger_openstack.conductor import silence
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report


class Silence(cloud.Mixin):
    """On whatever database :attr:`engine` is."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.watch = silence.Watch(self.engine, 60.0, lambda: self.now)
        self.said(NOW - 60)     # it looks for long enough already

    def said(self, now: float) -> str:
        """What one look at that time logs."""
        self.now = now
        before = len(self.log.output)
        self.watch.turn(lambda: None)
        return str(self.log.output)[before:]

    def test_a_host_falls_silent_and_is_back(self) -> None:
        for host in ('node-1', 'node-2'):
            self.sync(report(host=host))
        self.assertEqual('', self.said(NOW + 60))
        self.sync(report(host='node-2'), NOW + 50)
        self.assertIn('no report for more than 60 s from node-1: ',
                      self.said(NOW + 61))
        self.assertEqual('', self.said(NOW + 71))
        self.sync(report(host='node-1'), NOW + 80)
        self.assertEqual('reports come again from node-1\n',
                         self.said(NOW + 81))
        self.assertEqual('', self.said(NOW + 91))

    def test_after_an_outage_each_has_its_time(self) -> None:
        self.sync(report(host='node-1'))
        self.assertEqual('', self.said(NOW + 60))
        self.watch = silence.Watch(self.engine, 60.0, lambda: self.now)
        self.assertEqual('', self.said(NOW + 70))
        self.assertEqual('', self.said(NOW + 129))
        self.assertIn('from node-1: ', self.said(NOW + 130))

    def test_one_that_never_reported(self) -> None:
        self.add(tables.hosts, name='new', facts={}, settings={},
                 first_seen_s=NOW, last_seen_s=0.0)
        self.assertEqual('', self.said(NOW + 3600))

    def test_many_at_once_are_one_line(self) -> None:
        for number in range(1000, 1012):
            self.sync(report(host=f'node-{number}'))
        said = self.said(NOW + 61)
        self.assertIn('from 12 hosts, among them node-1000, node-1001, ',
                      said)
        self.assertEqual(1, said.count('\n'))
