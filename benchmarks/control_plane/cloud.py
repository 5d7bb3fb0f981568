# SPDX-License-Identifier: Apache-2.0

"""A large cloud: its rows, made by the database itself, and its reports.

Hosts with 40 workloads each, of which a tenth is background.  Each background
workload was an antagonist in twelve of the last 24 hours, and a thousandth of
all workloads was confirmed in each of them.  Everything has its totals, runs,
specs' statistics and tags of Nova; what a host reports fits its rows.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
import uuid

import senders
import sqlalchemy
from sqlalchemy import case
from sqlalchemy import cast
from sqlalchemy import func
from sqlalchemy import literal
from sqlalchemy import select

from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import reads
from scavenger_openstack.wire import report as wire

WORKLOADS = 40
"""Of each host."""
GROUPED = 20
"""Of these are in a server group of their own."""
APPLICATIONS = 25
PROJECTS = 200
ANTAGONIST_HOURS = 12
CONFIRMED = 1000
"""One workload of so many is an antagonist that was confirmed."""
DAY_S = 86400
AT_ONCE = 50_000
"""Numbers of one statement: MariaDB undoes a long one for minutes."""

TOKEN = 'of-all-hosts-of-a-benchmark'
TOKEN_HASH = 'sha256:' + hashlib.sha256(TOKEN.encode()).hexdigest()
DIGEST = f'{0:032x}'
"""Of the workloads that are in the tables."""

FACTS = wire.Facts(
    version='1.0.0', enforcing=True, grade='B', cpu_model='AMD EPYC',
    modes={'scavenger': 'enforce', 'perfiso': 'enforce',
           'attribution': 'enforce'},
    capacity={'cpu': 64.0, 'memory': 2.7e11},
    headroom={'cpu': 21.25, 'memory': 9.1e10},
    used={'cpu': 8.0, 'memory': 3.2e10}, tick_cpu_share=0.0031)

STATISTICS_OF_HOUR = 12
"""Times in an hour that a host sends those of its applications."""
REPORTS_OF_HOUR = 360
KINDS = {0: 'incident', 120: 'ended', 180: 'workloads',
         **dict.fromkeys(range(15, REPORTS_OF_HOUR,
                               REPORTS_OF_HOUR // STATISTICS_OF_HOUR),
                         'statistics')}
"""What a host's reports of an hour are, by number, besides facts."""


def host_name(number: int) -> str:
    return f'node-{number + 1}'


def instance(number: int) -> str:
    """The UUID of a workload, which is its name, too."""
    return str(uuid.UUID(hex=hashlib.md5(str(number).encode()).hexdigest()))


def project(number: int) -> str:
    return f'{number % PROJECTS:032d}'


def application(number: int) -> str:
    return f'app-{(number + number // PROJECTS) % APPLICATIONS}'


def priority(number: int) -> Any:
    return 'background' if number % 10 == 0 else 'foreground'


class Rows:
    """Fills the tables of one database.

    Columns that a version of the tables does not have are left out, so that
    two versions can be compared.

    :param now: UNIX time in seconds
    """

    def __init__(self, engine: sqlalchemy.Engine, hosts: int, now: float
                 ) -> None:
        self._engine = engine
        self._hosts = hosts
        self._now = now
        self._mysql = engine.dialect.name != 'postgresql'

    def fill(self, statistics: int) -> None:
        """
        :param statistics: rows that hosts reported in the hour
        """
        facts = json.dumps({
            'used': FACTS.used, 'headroom': FACTS.headroom,
            'capacity': FACTS.capacity, 'enforcing': True, 'grade': 'B',
            'sent_s': self._now - 60})
        number = sqlalchemy.column('number', sqlalchemy.BigInteger)
        workloads, hour_s = self._hosts * WORKLOADS, reports.hour(self._now)
        name = func.concat('node-', cast(number + 1, sqlalchemy.String(20)))
        self._insert(tables.hosts, self._hosts, {
            'name': name, 'short': name, 'boot_id': 'b' * 36,
            'version': '1.0.0', 'enforcing': sqlalchemy.true(),
            'facts': facts, 'settings': '{}', 'workloads_digest': DIGEST,
            'token_hash': TOKEN_HASH,
            'first_seen_s': self._now - 9 * DAY_S, 'last_seen_s': self._now,
            'totals_hour_s': hour_s})
        self._insert(tables.runs, self._hosts, {
            'host_id': number + 1, 'run_id': 'r' * 32, 'sequence': 1,
            'time_s': self._now - 60, 'last_seen_s': self._now})
        of_workload = self._of_workload(number)
        self._insert(tables.workloads, workloads, {
            **of_workload, 'kind': 'instance', 'flavor': 'm1.large',
            'display_name': of_workload['name'], 'source': 'flavor',
            'vcpus': 2.0, 'floor': '{}', 'since_s': self._now - 9 * DAY_S})
        self._fill_tags(workloads)
        # Every tenth workload, and every second hour.
        antagonist = number % (workloads // 10) * 10
        self._insert(
            tables.antagonist_hours, workloads // 10 * ANTAGONIST_HOURS, {
                **self._of_workload(antagonist),
                'workload': self._name(antagonist),
                'hour_s': hour_s - 7200 * (
                    1 + self._quotient(number, workloads // 10)),
                'victim': 'web', 'victim_project': project(1),
                'cause': 'cpu', 'incidents': 1, 'interference_s': 60.0,
                'confirmed': case((antagonist % CONFIRMED == 0, 1), else_=0),
                'refuted': 0})
        self._totals()
        self._fill_over(number)
        self._insert(tables.statistics, statistics, {
            **self._of_workload(
                self._quotient(number, 2 * APPLICATIONS)
                % self._hosts * WORKLOADS
                + self._quotient(number % (2 * APPLICATIONS), 2)),
            'hour_s': hour_s, 'cpu_model': 'AMD EPYC',
            'signal': case((number % 2 == 0, 'run_delay'), else_='cpi'),
            'n': 30, 'mean': 1.0 + number % 7, 'm2': 3.0, 'least': 0.5,
            'most': 9.0})
        reads.analyze(self._engine, *(
            table.name for table in tables.METADATA.sorted_tables))

    def _fill_tags(self, workloads: int) -> None:
        """What Nova said of them; their stamps are not made by a database."""
        table = tables.flavor_tags
        for first in range(0, workloads, AT_ONCE):
            rows = [{
                'instance': instance(number),
                'project': project(number % PROJECTS),
                'host': f'node-{number // WORKLOADS + 1}',
                'short': f'node-{number // WORKLOADS + 1}',
                'priority': 'foreground' if number % 10 else 'background',
                'source': 'flavor',
                'application': f'group-{number // WORKLOADS}'
                if number % WORKLOADS < GROUPED else '',
                'floor': {}, 'protect': True,
                'changed_s': self._now - 9 * DAY_S,
                'from_broker': False, 'told': False}
                for number in range(first, min(workloads, first + AT_ONCE))]
            with connect.writing(self._engine) as connection:
                connection.execute(table.insert(), [
                    {name: value for name, value in row.items()
                     if name in table.c} for row in rows])

    def _fill_over(self, number: Any) -> None:
        """What an hour adds that is over and old by now: of each host a
        workload, and an incident with its suspects."""
        old_s = self._now - 40 * DAY_S
        host = {'host_id': number + 1, 'name': self._name(number + 10 ** 9),
                'project': project(1), 'priority': 'foreground'}
        self._insert(tables.workloads, self._hosts, {
            **host, 'kind': 'instance', 'instance': host['name'],
            'vcpus': 2.0, 'floor': '{}', 'since_s': old_s - DAY_S,
            'until_s': old_s})
        self._insert(tables.incidents, self._hosts, {
            **host, 'uuid': func.md5(cast(number, sqlalchemy.String(20))),
            'victim': 'web', 'signal': 'cpi', 'cause': 'cpu', 'action': '',
            'outcome': 'confirmed', 'begun_s': old_s, 'changed_s': old_s,
            'ended_s': old_s, 'evidence': '[]'})
        self._insert(tables.suspects, 3 * self._hosts, {
            'incident_id': self._quotient(number, 3) + 1,
            'workload': self._name(number), 'antagonist': sqlalchemy.false(),
            'score': 0.5, 'begun_s': old_s})

    def _of_workload(self, number: Any) -> dict[str, Any]:
        name = self._name(number)
        return {
            'host_id': self._quotient(number, WORKLOADS) + 1,
            'name': name, 'instance': name,
            'project': self._padded(number % PROJECTS, 32),
            'application': func.concat('app-', cast(
                (number + self._quotient(number, PROJECTS)) % APPLICATIONS,
                sqlalchemy.String(20))),
            'priority': case((number % 10 == 0, 'background'),
                             else_='foreground')}

    def _name(self, number: Any) -> Any:
        """As :func:`instance`."""
        text = func.md5(cast(number, sqlalchemy.String(20)))
        parts = [func.substr(text, begin, length) for begin, length in (
            (1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
        return func.concat_ws('-', *parts)

    def _quotient(self, number: Any, by: int) -> Any:
        return number.op('DIV' if self._mysql else '/', precedence=8)(by)

    def _padded(self, number: Any, length: int) -> Any:
        return func.lpad(cast(number, sqlalchemy.String(20)), length, '0')

    def _totals(self) -> None:
        """The totals of the hourly sums, as :mod:`.db.totals` makes them."""
        hours = tables.antagonist_hours.c
        sums = {'interference_ms': cast(1000 * func.sum(
                    hours.interference_s), sqlalchemy.BigInteger),
                'incidents': func.sum(hours.incidents), 'victims': 1,
                'confirmed': func.sum(hours.confirmed)}
        whose = hours.host_id, hours.workload, hours.project
        parts = func.concat(
            f'[["web", "{project(1)}", "cpu", "', hours.project, '", "',
            hours.workload, '", "", ', func.count(), ', ',
            func.sum(hours.incidents), ', ', func.sum(hours.interference_s),
            ', ', func.sum(hours.confirmed), ', 0]]')
        if not self._mysql:
            parts = cast(parts, sqlalchemy.JSON)
        for span_s in totals.SPANS_S:
            for scope, has in (
                    (literal(totals.ALL), parts),
                    (func.concat(totals.by_project(''), hours.project),
                     sqlalchemy.null()),
                    (literal(totals.by_victims(project(1))),
                     sqlalchemy.null())):
                self._select_into(tables.antagonist_totals, {
                    'host_id': hours.host_id, 'workload': hours.workload,
                    'span_s': span_s, 'scope': scope, **sums, 'parts': has},
                    lambda query: query.group_by(*whose))

    def _insert(self, table: sqlalchemy.Table, count: int,
                values: dict[str, Any]) -> None:
        """Insert so many rows, each of its ``number``, from 0."""
        for first in range(0, count, AT_ONCE):
            last = min(count, first + AT_ONCE) - 1
            numbers = sqlalchemy.text(
                f'seq_{first}_to_{last}' if self._mysql else
                f'generate_series({first}, {last}) AS numbers(seq)')
            source = select(sqlalchemy.literal_column('seq').label('number')
                            ).select_from(numbers).subquery()
            self._select_into(table, values, lambda query, source=source:
                              query.select_from(source))

    def _select_into(self, table: sqlalchemy.Table, values: dict[str, Any],
                     complete: Any) -> None:
        columns = {name: value for name, value in values.items()
                   if name in table.c}
        columns = {column.name: column.default.arg for column in table.c
                   if column.name not in columns and column.default
                   is not None and column.default.is_scalar} | columns
        query = complete(select(*(
            value if isinstance(value, sqlalchemy.ColumnElement)
            else sqlalchemy.literal_column(repr(value))
            for value in columns.values())))
        with connect.writing(self._engine) as connection:
            connection.execute(table.insert().from_select(
                list(columns), query, include_defaults=False))


class Host(senders.Host):
    """A host of these tables, and its reports of an hour one after another.

    :param number: from 0
    """

    facts = FACTS

    def __init__(self, number: int) -> None:
        super().__init__(host_name(number))
        self._number = number
        self._turn = number * 97 % REPORTS_OF_HOUR
        self._open: wire.Incident | None = None
        self.workloads_digest = DIGEST
        self.sequence = 1

    def next_report(self) -> bytes:
        self._turn = (self._turn + 1) % REPORTS_OF_HOUR
        return self.report(KINDS.get(self._turn, 'facts'))

    def listed(self) -> list[wire.Workload]:
        """One of them is another since the list before."""
        numbers = [self._number * WORKLOADS + place
                   for place in range(WORKLOADS)]
        return [wire.Workload(
            id=(name := instance(number) if place or not self.salt else
                str(uuid.UUID(int=self.salt << 64 | number))),
            instance=name, priority=priority(number), kind='instance',
            source='flavor', project=project(number),
            application=application(number), display_name=name,
            flavor='m1.large', vcpus=2.0)
            for place, number in enumerate(numbers)]

    def entries(self, kind: str, now: float) -> list[wire.AnyEntry]:
        if kind == 'incident':
            self._open = self.incident()
            return [self._open]
        if kind == 'ended' and self._open is not None:
            self.sequence += 1
            ended, self._open = self._open, None
            return [wire.Incident(**{
                name: getattr(ended, name)
                for name in ended.__struct_fields__} | {
                    'sequence': self.sequence, 'time_s': now,
                    'what': 'ended', 'outcome': 'confirmed'})]
        if kind != 'statistics':
            return []
        statistics: list[wire.AnyEntry] = []
        for place in range(APPLICATIONS):
            number = self._number * WORKLOADS + place
            for signal in ('run_delay', 'cpi'):
                self.sequence += 1
                statistics.append(wire.Statistics(
                    sequence=self.sequence, time_s=now,
                    project=project(number), application=application(number),
                    cpu_model='AMD EPYC', signal=signal,
                    hour_s=reports.hour(now), n=30, mean=1.1, m2=0.3,
                    least=0.5, most=3.0))
        return statistics
