# SPDX-License-Identifier: Apache-2.0

"""What a conductor reads each minute, or for each report, does not grow with
all workloads, nor with what they were before.

On MariaDB and PostgreSQL; SQLite does not count what it reads.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Any

import sqlalchemy
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import directives
from scavenger_openstack.db import eviction_policy
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import newest
from scavenger_openstack.db import placed
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import antagonists
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import reads

NOW = 1_750_000_000.0
HOUR = reports.hour(NOW)
HOSTS = 20
OF_HOST = 150
ALL = HOSTS * OF_HOST
"""Workloads that are there."""
BACKGROUND = ALL // 10
OVER = 5000
"""Limits and incidents of the past of one host, and runs of another."""
PAST = 400
"""Workloads of the past of each host, of one name each."""
NOISY = 3
"""Antagonists that were confirmed often enough; all others were once."""
AT_MOST = 150
"""Of what concerns a few; without an index it is thousands."""


class Reads(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        with connect.writing(self.engine) as connection:
            connection.execute(tables.hosts.insert(), [
                {'name': f'node-{number}', 'enforcing': True,
                 'facts': {'used': {'cpu': 1.0}, 'headroom': {'cpu': 999.0}},
                 'settings': {}, 'first_seen_s': 0.0, 'last_seen_s': NOW,
                 'totals_hour_s': HOUR} for number in range(HOSTS)])
            self.hosts = list(connection.scalars(sqlalchemy.select(
                tables.hosts.c.id).order_by(tables.hosts.c.id)))
            self.fill(connection)
        reads.analyze(self.engine, *(
            table.name for table in tables.METADATA.sorted_tables))

    def workload(self, number: int, **more: Any) -> dict[str, Any]:
        return {
            'host_id': self.hosts[number % HOSTS], 'name': f'vm-{number}',
            'kind': 'instance', 'instance': f'u-{number}', 'project': 'p1',
            'application': '',
            'priority': ('background' if number % 10 == 0
                         else 'foreground'),
            'vcpus': 1.0, 'floor': {}, 'since_s': NOW - 9e5 + number,
            'until_s': None, **more}

    def fill(self, connection: connect.Connection) -> None:
        first = self.hosts[0]
        connection.execute(tables.workloads.insert(), [
            *(self.workload(number) for number in range(ALL)),
            *(self.workload(0, name=name, instance='', priority='background',
                            kind='container', application=f'{number}',
                            host_id=host_id, since_s=NOW - 8e5 + number,
                            until_s=None if name == 'here' and number ==
                            PAST - 1 else NOW - 8e5 + number + 1)
              for host_id in self.hosts for name in ('gone', 'here')
              for number in range(PAST))])
        connection.execute(tables.flavor_tags.insert(), [
            {'instance': f'u-{number}', 'host': f'node-{number % HOSTS}',
             'short': f'node-{number % HOSTS}', 'project': 'p1',
             'priority': 'background', 'source': 'flavor',
             'application': '', 'floor': {}, 'protect': True,
             'changed_s': NOW - 9e5 + number, 'from_broker': False}
            for number in range(ALL)])
        rows = [{'host_id': self.hosts[number % HOSTS],
                 'hour_s': HOUR - 3600 * hours, 'workload': f'vm-{number}',
                 'instance': f'u-{number}', 'project': 'p1',
                 'application': '', 'victim': 'web', 'victim_project': '',
                 'cause': 'cpu', 'incidents': 1, 'interference_s': 1.0,
                 'confirmed': (5 if number < NOISY * 10
                               else int(hours == 1)),
                 'refuted': 0} for number in range(0, ALL, 10)
                for hours in range(1, 20)]
        reports.set_hours(connection, rows, [], [])
        for host_id in self.hosts:
            totals.change(connection, host_id, [
                (None, row) for row in rows if row['host_id'] == host_id])
        connection.execute(tables.caps.insert(), [
            {'host_id': first, 'workload': 'vm-0', 'knob': knob,
             'value': 1.0, 'original': 2.0, 'owner': 'o', 'reason': '',
             'why': '', 'set_s': NOW - 8e5 + number,
             'changed_s': NOW - 8e5 + number,
             'removed_s': None if number == OVER // 2 - 1
             else NOW - 8e5 + number + 1}
            for knob in ('cpu_idle', 'cpu_cores')
            for number in range(OVER // 2)])
        connection.execute(tables.runs.insert(), [
            {'host_id': self.hosts[number and 1], 'run_id': f'{number}',
             'sequence': 1, 'last_seen_s': NOW} for number in range(OVER)])
        connection.execute(tables.incidents.insert(), [
            {'host_id': first, 'uuid': f'{number}', 'victim': 'web',
             'signal': 'cpi', 'action': '', 'outcome': 'unclear',
             'begun_s': NOW - 8e5 + number, 'changed_s': NOW - 8e5 + number,
             'ended_s': None if number % 500 == 0
             else NOW - 8e5 + number + 1, 'evidence': []}
            for number in range(OVER)])

    def assert_read(self, most: int, work: Callable[..., Any]) -> Any:
        """What ``work`` returns, which reads so many rows at most."""
        found: list[Any] = []
        with connect.writing(self.engine) as connection:
            work = functools.partial(work, connection)
            count = reads.rows(connection, lambda: found.append(work()))
        self.assertLess(count, most)
        return found[0]

    def test_reads(self) -> None:
        for check in (self.check_the_summary, self.check_eviction_policy,
                      self.check_hours,
                      self.check_hosts_and_nova, self.check_names,
                      self.check_a_report,
                      self.check_an_instance_that_comes_and_goes,
                      self.check_limits_of_an_incident):
            check()

    def check_the_summary(self) -> None:
        found = self.assert_read(2 * BACKGROUND + 4 * HOSTS + AT_MOST,
                                 db_hosts.all_with_load)
        self.assertEqual(HOSTS, len(found))
        self.assertEqual(BACKGROUND + HOSTS, sum(
            row['background_vcpus'] for row in found))
        self.assertEqual(OVER // 500, sum(row['incidents'] for row in found))

    def check_eviction_policy(self) -> None:
        found = self.assert_read(
            AT_MOST + NOISY * OF_HOST, functools.partial(
                eviction_policy.candidates, since_s=NOW - 86400,
                confirmed=90, now=NOW))
        self.assertEqual(NOISY, len(found))
        self.assertEqual([], self.assert_read(
            2 * BACKGROUND + 4 * HOSTS + AT_MOST, functools.partial(
                eviction_policy.short, slack_cores=1.0, now=NOW)))
        self.assertEqual([], self.assert_read(AT_MOST, functools.partial(
            eviction_policy.evictions.since, since_s=NOW - 86400)))

    def check_hours(self) -> None:
        """None of a span is read that is not in it."""
        self.assertEqual([], self.assert_read(AT_MOST, functools.partial(
            antagonists.ranking, asked=antagonists.Span(NOW + 1e4, NOW + 2e4),
            sort='incidents', limit=10)))
        self.assertEqual(
            {0.0}, {row['interference_s'] for row in self.assert_read(
                AT_MOST, functools.partial(
                    hours.sums, since_s=HOUR + 7200,
                    until_s=HOUR + 14400)).values()})
        old = self.assert_read(ALL + 5 * AT_MOST, functools.partial(
            purge.count, now_s=NOW, older_than_s=60 * 86400,
            audit_older_than_s=60 * 86400))
        self.assertEqual({0}, set(old.values()))

    def check_hosts_and_nova(self) -> None:
        """Each turn of Nova."""

        def wrong(connection: connect.Connection, before_s: float
                  ) -> list[str]:
            return [row.instance for row in placed.wrong(connection,
                                                         before_s)]

        with connect.writing(self.engine) as connection:
            self.assertEqual([], wrong(connection, HOUR + 100.0))
            connection.execute(sqlalchemy.update(tables.flavor_tags).where(
                tables.flavor_tags.c.instance == 'u-7').values(
                    host='elsewhere', short='elsewhere',
                    changed_s=HOUR + 130.0))
        self.assertEqual(['u-7'], self.assert_read(AT_MOST, functools.partial(
            wrong, before_s=HOUR + 160.0)))
        self.assertEqual([], self.assert_read(AT_MOST, functools.partial(
            flavor_tags.from_broker, most=50)))

    def test_specs_of_a_host(self) -> None:
        """Neither the specs nor the workloads of the same application of
        other projects, but for the specs where PostgreSQL reads so small a
        table whole."""
        projects = [f'q{number}' for number in range(300)]
        with connect.writing(self.engine) as connection:
            connection.execute(tables.workloads.insert(), [
                self.workload(number, name=f'app-{number}', instance='',
                              project=projects[number % 300],
                              application='app')
                for number in range(3000)])
            connection.execute(tables.specs.insert(), [
                {'project': project, 'application': 'app',
                 'cpu_model': 'epyc', 'signal': signal, 'mean': 1.0,
                 'stddev': 0.1, 'n': 1000.0, 'm2': 1.0, 'day_s': 0}
                for project in projects for signal in ('cpi', 'run_delay')])
        reads.analyze(self.engine, 'workloads', 'specs')
        found = self.assert_read(600 + AT_MOST, functools.partial(
            directives.specs, cpu_model='epyc',
            applications={('q7', 'app'), ('q8', 'none')}, least_n=1,
            least_tasks=10))
        self.assertEqual([('q7', 'cpi'), ('q7', 'run_delay')],
                         [(row['project'], row['signal']) for row in found])

    def check_names(self) -> None:
        """In an incident, or a listing: however often there was one."""
        first = self.hosts[0]
        found = self.assert_read(AT_MOST, functools.partial(
            newest.identities, host_id=first,
            names=['gone', 'here', 'vm-0', 'never']))
        self.assertEqual(
            {'gone': f'{PAST - 1}', 'here': f'{PAST - 1}', 'vm-0': ''},
            {name: identity.application for name, identity in found.items()})
        self.assert_read(AT_MOST, functools.partial(
            workloads.display_names, pairs=[
                (first, 'gone'), (first, 'here'), (self.hosts[1], 'vm-1')]))
        for name, is_there in (('gone', False), ('here', True)):
            self.assertEqual(is_there, self.assert_read(
                AT_MOST, functools.partial(workloads.present, host_id=first,
                                           name=name)) is not None)

    def check_an_instance_that_comes_and_goes(self) -> None:
        """Each minute of a month, as a host may say of any UUID: what asks
        for it reads what is there, and the newest of what was."""
        with connect.writing(self.engine) as connection:
            connection.execute(tables.workloads.insert(), [
                self.workload(1, name=f'{instance}-{number}',
                              instance=instance, display_name=f'{number}',
                              since_s=number, until_s=None
                              if instance == 'u-here' and number == PAST * 5
                              else number + 1)
                for instance in ('u-here', 'u-gone')
                for number in range(PAST * 5 + 1)])
        reads.analyze(self.engine, 'workloads')
        both = ['u-gone', 'u-here']
        self.assertEqual(
            dict.fromkeys(both, f'{PAST * 5}'), self.assert_read(
                AT_MOST, functools.partial(workloads.names_of,
                                           instances=both)))
        self.assertEqual({'u-here'}, self.assert_read(
            AT_MOST, functools.partial(db_hosts.of_workloads,
                                       instances=both)).keys())
        for instance, found in zip(both, (False, True), strict=True):
            self.assertEqual(found, self.assert_read(
                AT_MOST, functools.partial(
                    eviction_policy.evictions.workload,
                    instance=instance)) is not None)

    def check_limits_of_an_incident(self) -> None:
        """Not those that were removed before it began."""
        with connect.writing(self.engine) as connection:
            connection.execute(tables.caps.insert(), [
                {'host_id': self.hosts[0], 'workload': 'vm-0', 'knob': 'k',
                 'value': 1.0, 'original': 2.0, 'owner': 'o', 'reason': '',
                 'why': '', 'incidents': 'b a', 'set_s': NOW - ago_s,
                 'changed_s': NOW, 'removed_s': removed_s}
                for ago_s, removed_s in ((90.0, NOW - 50), (40.0, None))])
        found = self.assert_read(AT_MOST, functools.partial(
            caps.of_incident, host_id=self.hosts[0], incident='a',
            begun_s=NOW - 80, limit=9))
        self.assertEqual([NOW - 40, NOW - 90],
                         [row['set_s'] for row in found])

    def check_a_report(self) -> None:
        first = self.hosts[0]
        limits = self.assert_read(AT_MOST, functools.partial(
            reports.caps, host_id=first, names=['vm-0'], knobs=['cpu_idle'],
            since_s=NOW))
        self.assertEqual(1, len(limits))
        self.assertEqual('0', self.assert_read(AT_MOST, functools.partial(
            reports.newest_run, host_id=first)))


class OnMariaDb(Reads, databases.MariaDb):

    def test_hosts_and_nova_each_hour(self) -> None:
        """None is read again for each part of them.  PostgreSQL reads
        tables that are as small as these whole."""
        wrong = functools.partial(placed.wrong, hosts_at_once=1)
        with connect.writing(self.engine) as connection:
            self.assertEqual([], list(wrong(connection, HOUR + 100.0)))
        self.assertEqual([], self.assert_read(
            4 * ALL, lambda connection: list(wrong(connection,
                                                   HOUR + 3700.0))))


class OnPostgreSql(Reads, databases.PostgreSql):
    pass


class OnSqlite(testtools.TestCase):

    def test_reads(self) -> None:
        self.skipTest('SQLite does not count what it reads')
