# SPDX-License-Identifier: Apache-2.0

"""The metrics of API and conductor, on a database of any kind."""

from __future__ import annotations

import contextlib
import re
import subprocess
from typing import Any

import fixtures
from prometheus_client import parser
import sqlalchemy
from werkzeug import test

from scavenger_openstack.api import app
from scavenger_openstack import cloud_metrics
from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import figures
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.wire import codec

SILENT_S = 120.0
READ = 5
"""Statements of one page, but on SQLite."""


class Metrics(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.elapsed_s = 0.0
        self.database = cloud_metrics.Database(
            self.engine, SILENT_S, lambda: NOW, lambda: self.elapsed_s)
        self.served = cloud_metrics.Served('', self.database)

    def samples(self) -> dict[tuple[str, ...], float]:
        """Name and values of labels -> value, read again."""
        self.elapsed_s += cloud_metrics.KEEP_S
        return {(sample.name, *sample.labels.values()): sample.value
                for family in parser.text_string_to_metric_families(
                    self.served.page().decode())
                for sample in family.samples}

    def value(self, name: str, *labels: str) -> float | None:
        return self.samples().get((f'scavenger_{name}', *labels))

    def add_host(self, name: str, last_seen_s: float, **more: Any) -> int:
        self.add(tables.hosts, name=name, last_seen_s=last_seen_s, facts={},
                 settings={}, first_seen_s=0.0, **more)
        found: int = self.rows(tables.hosts, 'id')[-1]
        return found

    def test_states_of_hosts(self) -> None:
        hosts: tuple[tuple[float, dict[str, Any]], ...] = (
            (0.0, {}), (NOW - 121, {'enforcing': True}),
            (NOW - 119, {'enforcing': True}), (NOW, {'enforcing': True}),
            (NOW, {}), (NOW, {'removed_s': NOW}))
        for number, (seen_s, more) in enumerate(hosts):
            self.add_host(f'h{number}', seen_s, **more)
        samples = self.samples()
        self.assertEqual([1, 1, 2, 1], [
            samples['scavenger_hosts', state] for state in (
                figures.ENROLLED, figures.SILENT, figures.ENFORCING,
                figures.OBSERVING)])
        self.assertEqual(1, samples['scavenger_database_up',])

    def test_of_an_empty_database(self) -> None:
        samples = self.samples()
        self.assertEqual(1, samples['scavenger_protection_enabled', 'cloud',
                                    ''])
        self.assertEqual(0, samples['scavenger_hosts', figures.SILENT])
        self.assertEqual(0, samples['scavenger_background_vcpus',])

    def test_switches(self) -> None:
        """Only those that are off, and a bounded number of them."""
        def add(scope: str, target: str, protection: bool) -> None:
            self.add(tables.switches, scope=scope, target=target,
                     protection=protection, reason='', changed_by='',
                     changed_s=NOW)

        odd = 'a"b\\c\n\u202e' + 'x' * 240
        add('host', 'on', True)
        add('aggregate', odd, False)
        add('cloud', '', False)
        samples = self.samples()
        self.assertEqual({('cloud', ''): 0, ('aggregate', odd): 0}, {
            key[1:]: value for key, value in samples.items()
            if key[0] == 'scavenger_protection_enabled'})
        for number in range(figures.MOST_SWITCHES + 20):
            add('host', f'h{number}', False)
        self.assertLessEqual(sum(
            key[0] == 'scavenger_protection_enabled'
            for key in self.samples()), figures.MOST_SWITCHES + 1)

    def test_background(self) -> None:
        host = self.add_host('h', NOW)
        for name, more in (('a', {}), ('b', {'priority': 'foreground'}),
                           ('c', {'until_s': NOW})):
            self.add(tables.workloads, **{
                'host_id': host, 'name': name, 'kind': 'instance',
                'priority': 'background', 'vcpus': 2.5, 'floor': {},
                'since_s': NOW, **more})
        self.assertEqual(2.5, self.value('background_vcpus'))

    def test_rows(self) -> None:
        for number in range(50):
            self.add_host(f'h{number}', NOW)
        if self.engine.dialect.name == 'sqlite':
            self.assertEqual(50, self.value('database_rows', 'hosts'))
            return
        with self.engine.connect().execution_options(
                isolation_level='AUTOCOMMIT') as connection:
            connection.execute(sqlalchemy.text(
                'ANALYZE hosts' if self.engine.dialect.name == 'postgresql'
                else 'ANALYZE TABLE hosts'))
        found = self.value('database_rows', 'hosts')
        assert found is not None
        self.assertTrue(40 <= found <= 60, found)

    def test_no_table_is_counted(self) -> None:
        """Nor is one read that grows, but out of an index: there SQLite
        says how."""
        executed: list[str] = []
        sqlalchemy.event.listen(
            self.engine, 'before_cursor_execute',
            lambda *args: executed.append(args[2]))
        self.samples()
        statements = list(executed)
        self.assertEqual([], [
            one for one in statements if 'count(' in one.lower()
            and 'FROM hosts' not in one])
        if self.engine.dialect.name != 'sqlite':
            self.assertLessEqual(len(statements), READ)
            return
        with self.engine.connect() as connection:
            plans = [row[3] for statement in statements
                     if statement.startswith('SELECT')
                     for row in connection.exec_driver_sql(
                         f'EXPLAIN QUERY PLAN {statement}',
                         (1,) * statement.count('?'))]
        self.assertEqual({'hosts', 'switches', 'CONSTANT'}, {
            plan.split()[1] for plan in plans if 'SCAN' in plan})

    def test_read_once_in_a_while(self) -> None:
        self.samples()
        self.add_host('h', NOW)
        self.served.page()
        self.assertIn(b'scavenger_hosts{state="observing"} 0.0',
                      self.served.page())
        self.assertEqual(1, self.value('hosts', figures.OBSERVING))

    def test_the_database_is_away(self) -> None:
        """One line, and the rest of the page; all of it when it is back."""
        broken = connect.engine('sqlite:////nowhere/at/all')
        self.addCleanup(broken.dispose)
        database = cloud_metrics.Database(broken, SILENT_S, lambda: NOW,
                                          lambda: self.elapsed_s)
        self.served = cloud_metrics.Served('', database)
        cloud_metrics.Conductor(self.served).report('stored', 0.1)
        for _ in range(2):
            samples = self.samples()
        self.assertEqual(0, samples['scavenger_database_up',])
        self.assertEqual(1, samples['scavenger_reports_total', 'stored'])
        self.assertNotIn(('scavenger_hosts', figures.SILENT), samples)
        self.assertEqual(1, len(self.log.output.splitlines()))

    def test_reports(self) -> None:
        metrics = cloud_metrics.Conductor(self.served)
        conductor = service.Conductor(self.engine, lambda: NOW,
                                      reported=metrics.report)
        conductor.answer(codec.encode(cloud.report()))
        for _ in range(2):
            with contextlib.suppress(errors.WireError):
                conductor.answer(b'nonsense')
        broken = connect.engine('sqlite:////nowhere/at/all')
        self.addCleanup(broken.dispose)
        self.assertRaises(errors.Unreachable, service.Conductor(
            broken, lambda: NOW, reported=metrics.report).answer,
            codec.encode(cloud.report()))
        samples = self.samples()
        self.assertEqual([1, 2, 1], [
            samples['scavenger_reports_total', result] for result in (
                service.STORED, service.REFUSED, service.FAILED)])
        self.assertEqual(4, samples['scavenger_report_duration_seconds_count',
                                    ])

    def test_turns_of_leaders(self) -> None:
        metrics = cloud_metrics.Conductor(self.served)
        fails = [True]

        def turn(still: Any) -> None:
            if fails.pop():
                raise errors.Unreachable('a test')

        one = leader.Leader(self.engine, 'nova', 'me', lambda: NOW, turn,
                            every_s=1, what='a test')
        metrics.follow([one])
        self.assertRaises(errors.Unreachable, one.step)
        self.assertIsNone(self.value('last_turn_timestamp_seconds', 'nova'))
        fails.append(False)
        one.step()
        self.assertEqual(NOW, self.value('last_turn_timestamp_seconds',
                                         'nova'))

    def test_placement(self) -> None:
        metrics = cloud_metrics.Conductor(self.served)
        self.assertIsNone(self.value('placement_background_vcpus', 'offered'))
        metrics.follow_placement(lambda: {'offered': 7.0, 'reserved': 1.0})
        self.assertEqual(7, self.value('placement_background_vcpus',
                                       'offered'))

    def test_requests(self) -> None:
        """Methods are bounded; what fails below counts."""
        def broken(environ: Any, start: Any) -> Any:
            raise ValueError('a test')

        api = cloud_metrics.Api(app.create(self.engine, auth='noauth'),
                                self.served)
        client = test.Client(api)
        for method, path in (('GET', '/v1/hosts'), ('GET', '/v1/hosts'),
                             ('GET', '/nowhere'), ('PUT', '/v1/hosts'),
                             *((f'X{number}', '/') for number in range(9))):
            client.open(path, method=method)
        samples = self.samples()
        self.assertEqual([2, 1, 1], [
            samples['scavenger_api_requests_total', *labels] for labels in (
                ('GET', '200'), ('GET', '404'), ('PUT', '405'))])
        self.assertEqual(9, samples[
            'scavenger_api_request_duration_seconds_count', 'other'])
        self.assertRaises(ValueError, test.Client(cloud_metrics.Api(
            broken, cloud_metrics.Served('', self.database))).get, '/')

    def test_promtool(self) -> None:
        """And each metric of the tables is there."""
        metrics = cloud_metrics.Conductor(self.served)
        metrics.report('stored', 0.1)
        metrics.eviction('stop', 'done')
        metrics.follow_placement(lambda: {'offered': 7.0})
        one = leader.Leader(self.engine, 'nova', 'me', lambda: NOW,
                            lambda still: None, every_s=1, what='a test')
        metrics.follow([one])
        one.step()
        test.Client(cloud_metrics.Api(
            app.create(self.engine, auth='noauth'), self.served)).get('/')
        self.elapsed_s += cloud_metrics.KEEP_S
        page = self.served.page()
        self.assertEqual(b'', subprocess.run(
            ['promtool', 'check', 'metrics'], input=page, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout)
        self.assertEqual(
            {(metric.name, metric.kind) for table in (
                cloud_metrics.DATABASE, cloud_metrics.API,
                cloud_metrics.CONDUCTOR) for metric in table.values()},
            {(name, kind) for name, kind in re.findall(
                r'^# TYPE (\S+) (\S+)$', page.decode(), re.M)
             if not name.endswith('_created')})
