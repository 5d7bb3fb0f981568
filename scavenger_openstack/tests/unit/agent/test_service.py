# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.agent import service
from scavenger_openstack import log_once


class Refused(testtools.TestCase):

    def test_one_line_for_each_thing(self) -> None:
        """And again when the reason is another."""
        log = self.useFixture(fixtures.FakeLogger())
        logged = log_once.LogOnce()
        for refused in ({}, {'mode a': 'no'}, {'mode a': 'no', 'override b':
                                               'none'},
                        {'mode a': 'other'}, {}):
            service.log_refused(logged, refused)
        self.assertEqual(['mode a: no', 'override b: none', 'mode a: other'],
                         [line.partition(' here: ')[2]
                          for line in log.output.splitlines()])
        service.log_refused(logged, {
            f'override {number}': 'x' for number in range(200)})
        self.assertEqual(3 + service.MAX_REFUSED_LINES + 1,
                         len(log.output.splitlines()))


class Missing(testtools.TestCase):

    def test_one_line_for_each_resource(self) -> None:
        """Whatever workload is named, and until it is there."""
        log = self.useFixture(fixtures.FakeLogger())
        logged = log_once.LogOnce()
        for missing in (
                (), ('cpu: no /a/cpu.max', 'cpu: no /b/cpu.max', 'disk: off'),
                ('cpu: no /c/cpu.max',), ('cpu: no /d/cpu.max',), (),
                ('cpu: no /e/cpu.max', 'disk: off')):
            service.log_missing(logged, missing)
        self.assertEqual(
            ['missing: cpu: no /a/cpu.max', 'missing: cpu: no /b/cpu.max',
             'missing: disk: off', 'missing: cpu: no /e/cpu.max',
             'missing: disk: off'], log.output.splitlines())
