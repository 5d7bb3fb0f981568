# SPDX-License-Identifier: Apache-2.0

"""What a page of a listing by id reads, however many rows the table has.

Of workloads, limits, the audit and evictions, on MariaDB and PostgreSQL;
SQLite does not count what it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
from typing import Any
from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Connection
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import evictions
from scavenger_openstack.db.resources import audit
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import workloads
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import reads

ROWS = 4000
LIMIT = 20
OLDEST = 25
"""Rows that are asked for, all older than the rest."""
AT_MOST = 15 * LIMIT
"""Of a page with its hosts; without an index it would be ``ROWS / 2`` at
least."""


class Listing(NamedTuple):
    """A table, its filters, how to ask for a page, and what is over.

    ``ended`` is the column that is NULL until a row is over.
    """

    table: sqlalchemy.Table
    filters: tuple[str, ...]
    page: Callable[..., Any]
    row: dict[str, Any]
    ended: str = ''


WORKLOADS = Listing(
    tables.workloads, ('host_id', 'instance', 'project', 'application',
                       'priority'), workloads.page,
    {'kind': 'instance', 'vcpus': 1.0, 'floor': {'cpu_cores': 1.0},
     'display_name': 'x' * 200, 'since_s': 1.0}, 'until_s')
CAPS = Listing(
    tables.caps, ('host_id', 'instance', 'project', 'knob'), caps.page,
    {'owner': 'attribution', 'reason': 'x' * 200, 'why': '',
     'changed_s': 1.0}, 'removed_s')
AUDIT = Listing(
    tables.audit, ('target', 'action', 'actor'), audit.page,
    {'reason': 'x' * 200})
EVICTIONS = Listing(
    tables.evictions, ('instance', 'host', 'state'), evictions.page,
    {'project': 'p', 'how': 'stop', 'reason': 'x' * 200, 'created_by': 'ann',
     'created_s': 1.0, 'detail': '', 'changed_s': 1.0})


class Reads(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        with connect.writing(self.engine) as connection:
            connection.execute(tables.hosts.insert(), [
                {'name': name, 'facts': {}, 'settings': {},
                 'first_seen_s': 0.0, 'last_seen_s': 0.0}
                for name in ('asked', 'other', 'rare')])
            self.hosts = {name: id_ for id_, name in connection.execute(
                sqlalchemy.select(tables.hosts.c.id, tables.hosts.c.name))}

    def value(self, name: str, text: str) -> Any:
        return self.hosts[text] if name == 'host_id' else text

    def add(self, listing: Listing) -> None:
        """The oldest are asked for by each filter and not over, or are what
        is rare and over; of the rest half is over, and asked for by one
        filter, and half is neither."""
        rows = []
        many = listing.filters if listing.ended else ()
        for number in range(ROWS):
            texts = dict.fromkeys(listing.filters, 'other')
            over = number % 2 == 0
            if number < 2 * OLDEST:
                texts = dict.fromkeys(listing.filters,
                                      'rare' if over else 'asked')
            elif over and many:
                texts[many[number // 2 % len(many)]] = 'asked'
            row = {**listing.row, **{
                name: self.value(name, text) for name, text in texts.items()}}
            for column, value in (('uuid', f'{number}'), ('set_s', number),
                                  ('name', f'w{number}'), ('time_s', number),
                                  ('workload', f'w{number}')):
                if column in listing.table.c:
                    row[column] = value
            if listing.ended:
                row[listing.ended] = number if over else None
            rows.append(row)
        with connect.writing(self.engine) as connection:
            connection.execute(listing.table.insert(), rows)
        reads.analyze(self.engine, listing.table.name)

    def wishes(self, listing: Listing) -> Iterator[dict[str, Any]]:
        yield {}
        for name in listing.filters:
            for text in ('asked', 'rare'):
                yield {name: self.value(name, text)}

    def check(self, listing: Listing, *more: dict[str, Any]) -> None:
        self.add(listing)
        worse = {}
        with connect.reading(self.engine) as connection:
            for wish in [wish | other for wish in self.wishes(listing)
                         for other in more or ({},)]:
                worse[str(wish)] = reads.rows(connection, functools.partial(
                    _page, listing, connection, wish))
        self.assertEqual({}, {wish: count for wish, count in worse.items()
                              if count > AT_MOST})

    def only_the_oldest_have_ended(self, listing: Listing,
                                   over: dict[str, Any]) -> None:
        """A page of what is over, with a filter and without."""
        table = listing.table
        with connect.writing(self.engine) as connection:
            connection.execute(table.update().values({listing.ended: None}))
            first = connection.scalars(sqlalchemy.select(table.c.id).order_by(
                table.c.id)).all()
            connection.execute(table.update().where(
                table.c.id < first[OLDEST]).values({listing.ended: 1.0}))
        reads.analyze(self.engine, table.name)
        with connect.reading(self.engine) as connection:
            for wish in ({}, *self.wishes(listing)):
                self.assertLess(reads.rows(connection, functools.partial(
                    _page, listing, connection, wish | over)), AT_MOST,
                    str(wish))

    def end_all_but_the_oldest(self, listing: Listing) -> None:
        """A page without a filter, too, is of few of many rows then."""
        table, ended = listing.table, listing.table.c[listing.ended]
        with connect.writing(self.engine) as connection:
            last = connection.scalars(sqlalchemy.select(table.c.id).where(
                ended.is_(None)).order_by(table.c.id)).all()[OLDEST]
            connection.execute(table.update().where(
                table.c.id >= last, ended.is_(None)).values(
                    {listing.ended: float(ROWS)}))
        reads.analyze(self.engine, table.name)
        with connect.reading(self.engine) as connection:
            self.assertLess(reads.rows(connection, functools.partial(
                _page, listing, connection, {})), AT_MOST)

    def test_workloads(self) -> None:
        self.check(WORKLOADS, {}, {'gone': True})
        self.end_all_but_the_oldest(WORKLOADS)
        self.only_the_oldest_have_ended(WORKLOADS, {'gone': True})

    def test_caps(self) -> None:
        self.check(CAPS, {}, {'in_force': False})
        self.end_all_but_the_oldest(CAPS)
        self.only_the_oldest_have_ended(CAPS, {'in_force': False})

    def test_audit(self) -> None:
        self.check(AUDIT, {}, {'since_s': ROWS - 5.0}, {'since_s': ROWS / 2},
                   {'since_s': ROWS + 1.0})

    def test_evictions(self) -> None:
        self.check(EVICTIONS)


def _page(listing: Listing, connection: Connection, wish: dict[str, Any]
          ) -> None:
    listing.page(connection, **wish, limit=LIMIT)


class OnMariaDb(Reads, databases.MariaDb):
    pass


class OnPostgreSql(Reads, databases.PostgreSql):
    pass


class OnSqlite(testtools.TestCase):

    def test_reads(self) -> None:
        self.skipTest('SQLite does not count what it reads')
