# SPDX-License-Identifier: Apache-2.0

"""A database with hosts that report, for tests of the conductor."""

from __future__ import annotations

from collections.abc import Sequence
import functools
import sqlite3
from typing import Any
from typing import TYPE_CHECKING

import sqlalchemy
from sqlalchemy import Engine
from sqlalchemy import Table
import testtools

from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import sync
from scavenger_openstack.db import generation
from scavenger_openstack.db import tables
from scavenger_openstack.wire import report as wire

NOW = 1_750_000_000.0
"""A quarter past an hour: 15:06:40 UTC."""

HOST = 'node-1'

if TYPE_CHECKING:
    _Base = testtools.TestCase
else:
    _Base = object


class Mixin(_Base):
    """What tests on every database need; they bring ``engine``."""

    engine: Engine

    def sync(self, report: wire.Report, now: float = NOW,
             wishes: directives.Wishes | None = None, **more: Any
             ) -> wire.Answer:
        with self.engine.begin() as connection:
            return sync.sync(connection, report, now, wishes=wishes, **more)

    def rows(self, table: Table, *columns: str) -> list[Any]:
        """All rows, of one column or as tuples, by id."""
        with self.engine.begin() as connection:
            found = connection.execute(sqlalchemy.select(*(
                table.c[name] for name in columns or table.c.keys())
            ).order_by(*table.primary_key)).all()
        return [row[0] if len(columns) == 1 else tuple(row) for row in found]

    def add(self, table: Table, **row: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(table).values(**row))

    def changed(self) -> None:
        """What each write of an operator leaves."""
        with self.engine.begin() as connection:
            generation.count(connection)

    def add_services(self, *hosts: str) -> None:
        """Nova has a compute service on each of these hosts."""
        for host in hosts:
            self.add(tables.compute_services, host=host)
        self.changed()

    def delete(self, table: Table) -> None:
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.delete(table))


@functools.cache
def _tables() -> sqlite3.Connection:
    """All tables, empty; to copy them takes a tenth of making them."""
    made = sqlalchemy.create_engine('sqlite://',
                                    poolclass=sqlalchemy.StaticPool)
    tables.METADATA.create_all(made)
    found = made.raw_connection().driver_connection
    assert isinstance(found, sqlite3.Connection)
    return found


class Sqlite(testtools.TestCase):
    """A database in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.engine = sqlalchemy.create_engine(
            'sqlite://', poolclass=sqlalchemy.StaticPool)
        self.addCleanup(self.engine.dispose)
        with self.engine.connect() as connection:
            there = connection.connection.driver_connection
            assert isinstance(there, sqlite3.Connection)
            _tables().backup(there)


def report(*entries: wire.AnyEntry, host: str = HOST, run: str = 'run-1',
           workloads: Sequence[wire.Workload] | None = None,
           digest: str = '', sent_s: float = NOW, holds: str = '',
           facts: wire.Facts | None = None, **more: Any) -> wire.Report:
    """A report of a host."""
    return wire.Report(
        host=host, boot_id='boot-1', run_id=run, sent_s=sent_s,
        facts=facts or wire.Facts(version='1.0', cpu_model='epyc'),
        workloads=None if workloads is None else list(workloads),
        workloads_digest=digest, entries=list(entries),
        directives_digest=holds, **more)


def vm(name: str, project: str = 'p1', application: str = '', **more: Any
       ) -> wire.Workload:
    return wire.Workload(
        id=name, priority='foreground', kind='instance', instance=f'u-{name}',
        project=project, application=application or f'app-{name}', vcpus=2.0,
        **more)


def batch(name: str, **more: Any) -> wire.Workload:
    return wire.Workload(id=name, priority='background',
                         floor={'cpu_cores': 0.1}, **more)


def incident(sequence: int, time_s: float = NOW, what: str = 'began',
             number: int = 1, victim: str = 'web',
             antagonists: Sequence[str] = ('/batch/a',),
             others: Sequence[str] = (), begun_s: float = NOW - 60,
             **more: Any) -> wire.Incident:
    fields: dict[str, Any] = {
        'signal': 'run_delay', 'cause': 'cpu', 'controller': 'attribution',
        'value': 0.5, 'threshold': 0.2, **more}
    return wire.Incident(
        sequence=sequence, time_s=time_s, id=f'{number:032x}',
        what=what,     # type: ignore[arg-type]
        begun_s=begun_s, victim=victim, suspects=[
            *(wire.Suspect(workload=name, score=0.9, antagonist=True)
              for name in antagonists),
            *(wire.Suspect(workload=name, score=0.1) for name in others)],
        **fields)


def limit(sequence: int, time_s: float = NOW, what: str = 'set',
          workload: str = '/batch/a', knob: str = 'cpu_cores',
          since_s: float = NOW, value: float | str = 0.5, **more: Any
          ) -> wire.Limit:
    return wire.Limit(
        sequence=sequence, time_s=time_s, workload=workload,
        knob=knob,
        what=what,      # type: ignore[arg-type]
        since_s=since_s, value=value, original=2.0,
        **{'owner': 'attribution', 'reason': 'it disturbs web', **more})


def of_shop(*entries: wire.AnyEntry, **more: Any) -> wire.Report:
    """A report of a host that has the application of :func:`statistics`."""
    return report(*entries, workloads=[
        batch('web', project='p1', application='shop')],
        digest='shop', **more)


def statistics(sequence: int, hour_s: float, n: int, mean: float, m2: float,
               application: str = 'shop', project: str = 'p1',
               signal: str = 'run_delay', **more: Any) -> wire.Statistics:
    return wire.Statistics(
        sequence=sequence, time_s=hour_s + 3600, project=project,
        application=application, cpu_model='epyc', signal=signal,
        hour_s=hour_s, n=n, mean=mean, m2=m2, least=mean, most=mean, **more)
