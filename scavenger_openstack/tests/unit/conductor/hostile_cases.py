# SPDX-License-Identifier: Apache-2.0

"""Clients that send what they like, beside hosts that are honest."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
import time
import uuid

import fixtures
import sqlalchemy

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor.admission import refusals
from scavenger_openstack.conductor import service
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import limit
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire import report as wire
from scavenger_openstack.wire.tag import InstanceTag

EVIL = 'evil'


class Hostile(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now, self.pace_s = NOW, 0.0
        self.conductor = self.make()
        self.reads = 0
        sqlalchemy.event.listen(self.engine, 'begin', self.begun)
        self.addCleanup(sqlalchemy.event.remove, self.engine, 'begin',
                        self.begun)

    def begun(self, connection: sqlalchemy.Connection) -> None:
        self.reads += 1

    def make(self) -> service.Conductor:
        return service.Conductor(self.engine, lambda: self.now,
                                 pace=lambda: self.pace_s)

    def set(self, name: str, value: object) -> None:
        """Less patience, so that the test is short."""
        self.useFixture(fixtures.MonkeyPatch(
            f'scavenger_openstack.{name}', value))

    def answer(self, one: wire.Report, **more: str) -> wire.Answer:
        return codec.decode(
            self.conductor.answer(codec.encode(one), **more), wire.Answer,
            wire.MAX_ANSWER_BYTES)

    def is_taken(self, one: wire.Report, **more: str) -> bool:
        try:
            self.answer(one, **more)
        except errors.Busy:
            return False
        return True

    def test_reports_that_cost_much(self) -> None:
        """A legal one takes a tenth of a second or more; others do not wait.
        """
        self.set('conductor.admission.accounts.HOST', {
            **accounts.HOST, accounts.CPU: accounts.Rate(0.05, 0.05)})
        began_s, count = time.thread_time(), 0
        for number in range(40):
            self.pace_s += 0.01
            count += self.is_taken(report(*(
                incident(one, number=100 * number + one, antagonists=[
                    f'/batch/{name}' for name in range(40)])
                for one in range(1, 11)), host=EVIL, run=f'run-{number}'))
        self.assertIn(count, range(1, 40))
        self.assertLess(time.thread_time() - began_s, 10.0)
        self.assertEqual(1, self.answer(report(incident(1, number=9999))
                                        ).acknowledged)
        self.assertEqual(1, self.log.output.count('is put off'))

    def test_two_reports_of_one_host(self) -> None:
        """The second does not wait for the first."""
        self.answer(report())
        begun, go_on = threading.Event(), threading.Event()

        def wait(connection: sqlalchemy.Connection) -> None:
            if not begun.is_set():
                begun.set()
                go_on.wait(60.0)

        sqlalchemy.event.listen(self.engine, 'begin', wait)
        first = threading.Thread(target=self.answer, args=(report(limit(1)),))
        first.start()
        begun.wait(60.0)
        taken = self.is_taken(report(limit(1)))
        go_on.set()
        first.join()
        sqlalchemy.event.remove(self.engine, 'begin', wait)
        self.assertFalse(taken)
        self.assertEqual(2, self.answer(report(limit(2))).acknowledged)

    def test_rows_of_a_host(self) -> None:
        """Then it has directives, and nothing of it is stored."""
        self.set('conductor.admission.accounts.HOST', {
            **accounts.HOST, accounts.ROWS: accounts.Rate(2.0, 100)})
        taken = [self.is_taken(report(limit(
            number, workload=f'/batch/{number}'), host=EVIL,
            run=f'run-{number}')) for number in range(1, 201)]
        self.assertLessEqual(len(self.rows(tables.caps))
                             + len(self.rows(tables.runs)), 104)
        self.assertFalse(taken[-1])
        answer = self.answer(report(workloads=[cloud.batch('/x')], digest='x',
                                    host=EVIL))
        self.assertIsNotNone(answer.directives)
        self.assertEqual('', answer.workloads_digest)
        self.assertEqual([], self.rows(tables.workloads))
        self.pace_s += 60.0
        self.assertTrue(self.is_taken(report(limit(1), host=EVIL)))

    def test_evidence(self) -> None:
        self.set('conductor.admission.accounts.HOST', {
            **accounts.HOST, accounts.ROWS: accounts.Rate(2.0, 100)})
        evidence = [wire.Series(workload='w', signal='cpi',
                                times_s=[NOW] * 120, values=[1.0] * 120)] * 9
        for number in range(1, 20):
            self.is_taken(report(incident(
                number, number=number, evidence=evidence), host=EVIL))
        self.assertLess(len(self.rows(tables.incidents)), 6)

    def test_rows_of_the_audit(self) -> None:
        self.set('conductor.admission.accounts.HOST', {
            **accounts.HOST, accounts.AUDIT: accounts.Rate(0.1, 50)})
        for number in range(1, 100):
            self.is_taken(report(wire.Kill(
                sequence=number, time_s=NOW, workload='/batch/a', processes=1,
                owner='x'), host=EVIL))
        self.assertEqual(50, len(self.rows(tables.audit)))

    def test_runs_that_are_invented(self) -> None:
        self.set('db.reports.MOST_RUNS', 10)
        for number in range(30):
            self.answer(report(limit(1, workload=f'/{number}'),
                               run=f'run-{number}'))
        self.assertEqual([f'run-{number}' for number in range(20, 30)],
                         self.rows(tables.runs, 'run_id'))
        self.assertEqual(2, self.answer(report(limit(2), run='run-29')
                                        ).acknowledged)

    def test_facts(self) -> None:
        """What the summary has of a host is no longer than it needs."""
        for name in ('capacity', 'headroom', 'used', 'modes', 'own_modes',
                     'precision'):
            many = {f'{name}-{number}': {
                'modes': 'off', 'own_modes': 'off', 'precision': {}}.get(
                    name, 1.0) for number in range(2000)}
            self.assertRaises(
                errors.WireError, self.conductor.answer,
                codec.encode(report(host=EVIL)).replace(
                    b'"facts":{', f'"facts":{{"{name}":'.encode()
                    + json.dumps(many).encode() + b','))
        self.assertEqual([], self.rows(tables.hosts))

    def budgets(self) -> dict[str, wire.Budget | None]:
        """What the honest hosts may set."""
        budgets = {}
        for host in (HOST, 'node-2'):
            budgets[host] = self.answer(report(host=host)).budget
        return budgets

    def govern(self) -> None:
        for host in (HOST, 'node-2'):
            self.answer(report(host=host))
        self.now += 2 * 3600.0
        for host in (HOST, 'node-2'):
            self.answer(report(host=host))
        self.add(tables.switches, scope='cloud', target='', protection=True,
                 caps_per_minute=100, reason='', changed_by='op',
                 changed_s=NOW)
        self.changed()

    def test_invented_names(self) -> None:
        """What honest hosts may do stays as it was."""
        self.set('conductor.admission.accounts.WITHOUT_NOVA',
                 accounts.Rate(0.1, 60))
        self.conductor = self.make()
        self.govern()
        for _ in range(3):
            self.assertEqual({HOST: 50, 'node-2': 50}, {
                host: one and one.limits
                for host, one in self.budgets().items()})
            for number in range(100):
                self.is_taken(report(host=f'{self.now}-{number}'))
            self.now += 3000.0
            self.budgets()
            self.now += 60.0
        self.assertLessEqual(len(self.rows(tables.hosts)), 61)

    def test_invented_names_beside_nova(self) -> None:
        self.add_services(HOST, 'node-2.example.org', 'node-3')
        self.govern()
        for number in range(300):
            self.is_taken(report(host=f'invented-{number}'))
        self.assertLessEqual(len(self.rows(tables.hosts)), 22)
        self.assertTrue(self.is_taken(report(host='node-3.example.org')))
        with self.engine.begin() as connection:
            token = enrollment.enroll(connection, 'container-host',
                                      now_s=self.now).token
        enrolled = codec.encode(report(host='container-host'))
        self.conductor.signed_answer(enrolled, proof.make(
            token, 'container-host', enrolled))

    def test_domains_that_are_invented(self) -> None:
        """Beside the name that Nova has, of a host that reports."""
        self.add_services(HOST)
        self.govern()
        self.assertEqual(50, self.budget_of(HOST))
        for number in range(100):
            self.is_taken(report(host=f'{HOST}.x{number}'))
        self.assertLessEqual(len(self.rows(tables.hosts)), 22)
        self.now += 60.0
        self.assertEqual(50, self.budget_of(HOST))

    def budget_of(self, host: str) -> int | None:
        given = self.answer(report(host=host)).budget
        return given.limits if given is not None else None

    def test_a_forgery_and_a_flood(self) -> None:
        """They keep no host out whose token was known."""
        self.set('conductor.admission.keys.PROVED_S', 0.0)
        with self.engine.begin() as connection:
            token = enrollment.enroll(connection, HOST, now_s=NOW).token
        data = codec.encode(report(host=HOST))

        def sent(token: str, host: str = HOST) -> bool:
            try:
                self.conductor.signed_answer(data, proof.make(
                    token, host, data))
            except errors.ScavengerError:
                return False
            return True

        self.assertTrue(sent(token))
        self.assertFalse(sent('forged'))
        self.set('conductor.admission.accounts.Account.overdrawn',
                 lambda account, names, now_s: accounts.REQUESTS
                 if accounts.REQUESTS in names else '')
        self.assertFalse(sent('forged', 'node-9'))
        self.assertTrue(sent(token))

    def test_tags_of_one_host(self) -> None:
        """Each of another instance, that only the sender knows."""
        self.answer(report(host=HOST))
        taken = 0
        for number in range(2000):
            with contextlib.suppress(errors.Busy):
                self.conductor.tag(codec.encode(InstanceTag(
                    instance=str(uuid.UUID(int=number)), host=HOST,
                    priority='background', source='flavor')))
                taken += 1
        self.assertLessEqual(taken, accounts.HOST[accounts.REPORTS].most + 1)
        self.assertEqual(taken, len(self.rows(tables.flavor_tags)))

    def test_wrong_tokens(self) -> None:
        """Over the broker and over HTTP: few lines and few reads, and what
        was logged already is not logged again."""
        self.set('conductor.admission.accounts.NEWCOMERS', {
            **accounts.NEWCOMERS, accounts.REQUESTS: accounts.Rate(1.0, 100)})
        self.conductor = self.make()
        with self.engine.begin() as connection:
            token = enrollment.enroll(connection, HOST, now_s=NOW).token
        self.assertTrue(self.conductor.may_send(HOST, token, '203.0.113.1'))
        signed = codec.encode(report(host=HOST))
        foreign = codec.encode(report(host='node-9'))
        self.assertRaises(errors.WireError, self.conductor.answer, foreign,
                          authenticated=HOST)
        self.reads = busy = 0
        for number in range(400):
            host, tag = f'node-{number}', codec.encode(InstanceTag(
                instance=str(uuid.UUID(int=number)), host=f'node-{number}',
                priority='background', source='flavor'))
            for call in (
                    functools.partial(self.conductor.may_send, host, 'x',
                                      '203.0.113.7'),
                    functools.partial(
                        self.conductor.signed_answer, signed, proof.make(
                            str(number), HOST, signed)),
                    functools.partial(self.conductor.tag, tag)):
                try:
                    call()
                except errors.Busy:
                    busy += 1
                except errors.WireError:
                    pass
        self.assertGreaterEqual(busy, 1000)
        # A refusal is audited, too.
        self.assertLessEqual(self.reads, 3 * 101)
        lines = self.log.output.splitlines()
        self.assertLess(len(lines), 4 * refusals.MOST + 10)
        self.assertIn('from 203.0.113.7', self.log.output)
        count = self.log.output.count('in the name of node-9')
        self.assertRaises(errors.WireError, self.conductor.answer, foreign,
                          authenticated=HOST)
        self.assertEqual(count, self.log.output.count(
            'in the name of node-9'))
        # The host goes on.
        self.assertTrue(self.conductor.may_send(HOST, token))
        self.assertTrue(self.conductor.answer(
            codec.encode(report()), authenticated=HOST))
