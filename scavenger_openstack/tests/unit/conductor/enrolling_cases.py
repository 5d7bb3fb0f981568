# SPDX-License-Identifier: Apache-2.0

"""Hosts that get a token, and hosts that are removed."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.conductor import service
from scavenger_openstack.db import enrollment
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire import report as wire


class Enrolling(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.now = NOW
        self.conductor = service.Conductor(self.engine, lambda: self.now)

    def answer(self, one: wire.Report, **more: Any) -> wire.Answer:
        return codec.decode(
            self.conductor.answer(codec.encode(one), **more), wire.Answer,
            wire.MAX_ANSWER_BYTES)

    def refused(self, data: bytes, **more: Any) -> str:
        return str(self.assertRaises(
            errors.WireError, self.conductor.answer, data, **more))

    def enroll(self, grace_s: float = 3600.0) -> enrollment.Enrolled:
        with self.engine.begin() as connection:
            return enrollment.enroll(connection, HOST, now_s=self.now,
                                     grace_s=grace_s)

    def test_a_host_that_reports_without_a_token(self) -> None:
        """It may for a while, or until it has shown its token."""
        for shown in (False, True):
            self.answer(report(incident(1)))
            enrolled = self.enroll()
            self.assertEqual((False, True, self.now + 3600.0), enrolled[1:])
            self.now += 3599
            self.answer(report(incident(2), sent_s=self.now))
            data = codec.encode(report(sent_s=self.now))
            self.assertRaises(
                errors.ForeignReport, self.conductor.signed_answer, data,
                proof.make('x', HOST, data))
            sender = proof.make(enrolled.token, HOST, data)
            if shown:
                self.conductor.signed_answer(data, sender)
            else:
                self.now += 1
            self.assertIn('without its token', self.refused(
                codec.encode(report(sent_s=self.now))))
            self.conductor.signed_answer(data, proof.make(
                enrolled.token, HOST, data))
            with self.engine.begin() as connection:
                self.assertTrue(enrollment.unenroll(connection, HOST,
                                                    now_s=self.now))
                self.assertFalse(enrollment.unenroll(connection, HOST,
                                                     now_s=self.now))
                self.assertIsNone(enrollment.unenroll(connection, 'no',
                                                      now_s=self.now))
        self.answer(report(incident(3), sent_s=self.now))
        self.assertEqual(2 * ['host.enroll', 'host.unenroll'], [
            action for action in self.rows(tables.audit, 'action')
            if action.startswith('host.')])

    def test_no_grace(self) -> None:
        """At once, of one that does not report, and of one with a token."""
        self.assertIsNone(self.enroll().grace_until_s)
        self.delete(tables.hosts)
        self.answer(report())
        self.assertIsNone(self.enroll(0.0).grace_until_s)
        self.assertIsNone(self.enroll().grace_until_s)
        self.delete(tables.hosts)
        self.answer(report())
        self.now += enrollment.RECENT_S
        self.assertIsNone(self.enroll().grace_until_s)

    def test_a_host_that_was_removed(self) -> None:
        self.answer(report(incident(1), cloud.limit(2), digest='d', workloads=[
            cloud.batch('/batch/a')]))
        [host_id] = self.rows(tables.hosts, 'id')
        self.add(tables.overrides, host_id=host_id, uuid='o', workload='w',
                 knob='cpu_cores', value=1.0, reason='', created_by='admin',
                 created_s=NOW, expires_s=NOW + 9000)
        self.add(tables.switches, scope='host', target=HOST, protection=False,
                 reason='', changed_by='admin', changed_s=NOW)
        self.enroll()
        self.now += 600
        with self.engine.begin() as connection:
            self.assertTrue(hosts.remove(
                connection, HOST, actor='admin', now_s=self.now))
            self.assertFalse(hosts.remove(
                connection, HOST, actor='admin', now_s=self.now))
            self.assertEqual([], hosts.silent(connection, self.now))
            self.assertEqual([], hosts.reported(connection))
            self.assertEqual([], hosts.page(connection, limit=9))
            self.assertEqual([], db_hosts.all_with_load(connection))
            self.assertIsNone(hosts.by_name(connection, HOST))
            self.assertEqual('', enrollment.key(connection, HOST))
            self.assertEqual(0, enrollment.without_token(connection))
        for table, column in ((tables.workloads, 'until_s'),
                              (tables.caps, 'removed_s'),
                              (tables.incidents, 'ended_s'),
                              (tables.overrides, 'deleted_s')):
            self.assertEqual([self.now], self.rows(table, column))
        self.assertEqual([], self.rows(tables.switches))
        self.assertEqual('host.remove', self.rows(tables.audit, 'action')[-1])
        # Its agent goes on: it is there again, with all that it has.
        answer = self.answer(report(
            digest='d', sent_s=self.now, workloads=[cloud.batch('/batch/a')]))
        self.assertEqual('d', answer.workloads_digest)
        with self.engine.begin() as connection:
            self.assertEqual([host_id], [row['id'] for row in hosts.page(
                connection, limit=9)])
        self.assertEqual([self.now, None],
                         self.rows(tables.workloads, 'until_s'))
