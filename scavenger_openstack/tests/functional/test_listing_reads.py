# SPDX-License-Identifier: Apache-2.0

"""What a page of incidents reads does not grow with the incidents.

On MariaDB and PostgreSQL; SQLite does not count what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
import functools
import itertools
from typing import Any

import sqlalchemy
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import incidents
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import reads

ROWS = 6000
COUNTED = 5000
"""So many were there when the statistics were made: PostgreSQL makes them
again after a tenth more."""
LIMIT = 20
OLDEST = 25
"""Incidents that have everything that is asked for."""
AT_MOST = 50 * LIMIT
"""Of a page and its suspects, where three of four are passed over for a
filter, with the blocks of indexes on PostgreSQL; by the index of one filter in
place of two it would be ``ROWS / 4`` at least."""

NAMED = ('noisy', 'rare')
FILTERS = ('host_id', 'project', 'cause', 'outcome')
"""Each is a quarter of all but the oldest, and two are none of these: an index
of only one of them has hundreds or thousands to be passed over."""


class Reads(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        with connect.writing(self.engine) as connection:
            connection.execute(tables.hosts.insert(), [
                {'name': name, 'facts': {}, 'settings': {},
                 'first_seen_s': 0.0, 'last_seen_s': 0.0} for name in 'ab'])
            self.asked, self.other = connection.scalars(sqlalchemy.select(
                tables.hosts.c.id).order_by(tables.hosts.c.id))

    def add(self, first: int, last: int) -> None:
        """Incidents by number, which is also when they begin; each names
        ``noisy``, the oldest ``rare`` too.

        Rows are long: PostgreSQL reads a table of few blocks whole.
        """
        rows, suspects = [], []
        for number in range(first, last):
            row: dict[str, Any] = dict(zip(
                FILTERS, (self.other, *['other'] * 3), strict=True))
            row.update(self.wanted(
                *(FILTERS if number < OLDEST else [FILTERS[number % 4]])))
            victim = 'rare' if number < OLDEST else f'v{number // 20}'
            rows.append({
                **row, 'id': number + 1, 'uuid': f'{number}',
                'victim': victim, 'victim_instance': victim,
                'signal': 'cpi', 'action': 'limited ' * 100, 'evidence': [],
                'begun_s': float(number), 'changed_s': float(number)})
            suspects += [
                {'incident_id': number + 1, 'workload': name,
                 'instance': name[:36], 'antagonist': name in NAMED,
                 'begun_s': float(number)}
                for name in ('noisy', *['rare'] * (number < OLDEST),
                             *(f'/machine/{one}'.ljust(250, '.')
                               for one in range(2)))]
        with connect.writing(self.engine) as connection:
            connection.execute(tables.incidents.insert(), rows)
            connection.execute(tables.suspects.insert(), suspects)

    def wanted(self, *names: str) -> dict[str, Any]:
        return {name: self.asked if name == 'host_id' else 'asked'
                for name in names}

    def listings(self) -> Iterator[dict[str, Any]]:
        """All that is asked for."""
        workloads = [{name: workload} for name, workload in itertools.product(
            ('antagonist', 'antagonist_instance'), NAMED)]
        workloads += [{'victim': 'rare'}, {'victim_instance': 'rare'}]
        filters: list[dict[str, Any]] = [
            {}, *workloads, *map(self.wanted, FILTERS),
            *(self.wanted(*pair)
              for pair in itertools.combinations(FILTERS, 2)),
            *({**one, **self.wanted(name)}
              for one in workloads for name in FILTERS)]
        spans: list[dict[str, Any]] = [
            {}, {'since_s': ROWS - 100.0}, {'until_s': ROWS / 2},
            {'since_s': ROWS / 2, 'until_s': ROWS / 2 + 100.0},
            {'after': (ROWS / 2, ROWS // 2)}]
        for wanted, span in itertools.product(filters, spans):
            yield {**wanted, **span}

    def check(self) -> None:
        with connect.reading(self.engine) as connection:

            def work(wanted: dict[str, Any]) -> None:
                found = incidents.page(connection, **wanted, limit=LIMIT)
                incidents.suspects(connection, [row['id'] for row in found])

            for wanted in self.listings():
                self.assertLess(
                    reads.rows(connection, functools.partial(work, wanted)),
                    AT_MOST, str(wanted))

    def test_reads(self) -> None:
        self.add(0, COUNTED)
        reads.analyze(self.engine, 'incidents', 'suspects')
        self.add(COUNTED, ROWS)
        self.check()
        reads.analyze(self.engine, 'incidents', 'suspects')
        self.check()


class OnMariaDb(Reads, databases.MariaDb):
    pass


class OnPostgreSql(Reads, databases.PostgreSql):
    pass


class OnSqlite(testtools.TestCase):

    def test_reads(self) -> None:
        self.skipTest('SQLite does not count what it reads')
