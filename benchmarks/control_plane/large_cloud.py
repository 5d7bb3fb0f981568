# SPDX-License-Identifier: Apache-2.0

"""What a conductor reads each minute and hour in a large cloud.

A new database on MariaDB and on PostgreSQL: hosts with 40 workloads each, of
which a tenth is background, two hourly sums a workload and day, and statistics
of an hour.  Printed: the time of each piece of work, the rows that it reads,
and with --explain the plans.

    python benchmarks/control_plane/large_cloud.py [--hosts 1000]
        [--statistics 200000] [--databases mariadb,postgresql] [--explain]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import functools
import itertools
import sys
import time
from typing import Any

from listings import SERVERS
import sqlalchemy

from scavenger_openstack.conductor import specs
from scavenger_openstack.db import connect
from scavenger_openstack.db import eviction_policy
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import placed
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import summary
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import reads

WORKLOADS = 40
"""Of each host."""
BATCH = 5000
DAY_S = 86400


def rows(hosts: int, now: float) -> Iterator[tuple[sqlalchemy.Table, Any]]:
    """All rows, but for hosts and statistics."""
    hour_s = reports.hour(now)
    for number in range(hosts * WORKLOADS):
        host, background = number // WORKLOADS + 1, number % 10 == 0
        yield tables.workloads, {
            'host_id': host, 'name': f'vm-{number}', 'kind': 'instance',
            'instance': f'u-{number}', 'project': f'p{number % 200}',
            'priority': 'background' if background else 'foreground',
            'vcpus': 2.0, 'floor': {}, 'since_s': now - 9 * DAY_S}
        yield tables.flavor_tags, {
            'instance': f'u-{number}', 'host': f'node-{host}',
            'short': f'node-{host}', 'project': f'p{number % 200}',
            'priority': 'background',
            'source': 'flavor', 'application': '', 'floor': {},
            'protect': True, 'changed_s': now - 9 * DAY_S,
            'from_broker': False}
        for hours in range(1, 3):
            yield tables.antagonist_hours, {
                'host_id': host, 'workload': f'vm-{number}',
                'hour_s': hour_s - 3600 * hours * (number % 12 + 1),
                'instance': f'u-{number}', 'project': f'p{number % 200}',
                'application': '', 'victim': 'web', 'victim_project': 'p1',
                'cause': 'cpu', 'incidents': 1, 'interference_s': 60.0,
                'confirmed': 3 if number % 1000 == 0 else number % 2,
                'refuted': 0}


def statistics(count: int, hosts: int, now: float) -> Iterator[Any]:
    """Of 25 applications on each host, as they arrive."""
    for number in range(count):
        yield {'host_id': number // 50 % hosts + 1,
               'hour_s': reports.hour(now), 'project': f'p{number % 200}',
               'application': f'm1.large@image-{number % 25}',
               'cpu_model': 'epyc', 'signal': ('run_delay', 'cpi')[number % 2],
               'n': 30, 'mean': 1.0 + number % 7, 'm2': 3.0, 'least': 0.5,
               'most': 9.0}


def written(engine: sqlalchemy.Engine, pairs: Iterator[tuple[Any, Any]]
            ) -> None:
    while some := list(itertools.islice(pairs, BATCH)):
        by_table: dict[Any, list[Any]] = {}
        for table, row in some:
            by_table.setdefault(table, []).append(row)
        with connect.writing(engine) as connection:
            for table, its in by_table.items():
                connection.execute(table.insert(), its)


def fill(engine: sqlalchemy.Engine, options: argparse.Namespace, now: float
         ) -> None:
    written(engine, ((tables.hosts, {
        'name': f'node-{number + 1}', 'enforcing': True, 'settings': {},
        'facts': {'used': {'cpu': 1.0}, 'headroom': {'cpu': 99.0}},
        'first_seen_s': 0.0, 'last_seen_s': now})
        for number in range(options.hosts)))
    written(engine, rows(options.hosts, now))
    written(engine, ((tables.statistics, row) for row in statistics(
        options.statistics, options.hosts, now)))
    while connect.retried(engine, lambda connection: totals.advance(
            connection, reports.hour(now))):
        pass
    reads.analyze(engine, *(table.name
                            for table in tables.METADATA.sorted_tables))


def works(now: float) -> dict[str, Callable[[sqlalchemy.Connection], Any]]:
    """What is measured, in one transaction each."""
    return {
        'the summary': summary.hosts,
        'candidates of eviction': lambda connection:
            eviction_policy.candidates(connection, now - DAY_S, 5, now),
        'hosts short of CPU': lambda connection:
            eviction_policy.short(connection, 1.0, now),
        'Nova and hosts, all of an hour': lambda connection:
            (connection.execute(tables.claims.delete()),
             list(placed.wrong(connection, now - 300))),
        'Nova and hosts, a minute later': lambda connection:
            list(placed.wrong(connection, now - 240)),
        'tags that only the broker told': lambda connection:
            flavor_tags.from_broker(connection, 50),
        'instances that Nova does not list': lambda connection:
            flavor_tags.others(connection, {'u-1'}, 0.0),
        'what would be deleted': lambda connection:
            purge.count(connection, now_s=now, older_than_s=30 * DAY_S,
                        audit_older_than_s=30 * DAY_S)}


def on(name: str, options: argparse.Namespace) -> None:
    server = SERVERS[name]()
    try:
        engine = connect.engine(server.new_database(), statement_s=600)
        # Both calls of one comparison in an hour of the clock.
        schema.upgrade(engine)
        now = reports.hour(time.time()) + 1800.0
        fill(engine, options, now)
        print(f'{name}: {options.hosts * WORKLOADS:,} workloads on '
              f'{options.hosts:,} hosts', flush=True)
        with connect.writing(engine) as connection:
            for what, work in works(now).items():
                begun_s = time.perf_counter()
                work(connection)
                took_s = time.perf_counter() - begun_s
                count = reads.rows(connection, functools.partial(
                    work, connection))
                print(f'  {what:<36}{1e3 * took_s:9.1f} ms{count:9,} rows '
                      'read', flush=True)
                if options.explain:
                    explain(connection, work)
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        longest_s, last_s = 0.0, begun_s
        for _ in specs.refresh(engine, now):
            longest_s = max(longest_s, time.perf_counter() - last_s)
            last_s = time.perf_counter()
        print(f'  specs of {options.statistics:,} statistics: '
              f'{time.perf_counter() - begun_s:.1f} s, '
              f'{time.process_time() - cpu_s:.1f} s of CPU, longest '
              f'transaction {longest_s:.2f} s', flush=True)
        engine.dispose()
    finally:
        server.close()


def explain(connection: sqlalchemy.Connection,
            work: Callable[[sqlalchemy.Connection], Any]) -> None:
    asked: list[tuple[str, Any]] = []

    def before(connection: Any, cursor: Any, statement: str, parameters: Any,
               *more: Any) -> None:
        asked.append((statement, parameters))

    sqlalchemy.event.listen(connection, 'before_cursor_execute', before)
    work(connection)
    sqlalchemy.event.remove(connection, 'before_cursor_execute', before)
    for statement, parameters in asked[:4]:
        for row in connection.exec_driver_sql('EXPLAIN ' + statement,
                                              parameters):
            print('     ', *row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--statistics', type=int, default=200_000,
                        help='rows that hosts reported in the hour (200000)')
    parser.add_argument('--databases', default=','.join(SERVERS),
                        help=f'some of {", ".join(SERVERS)}')
    parser.add_argument('--explain', action='store_true',
                        help='print how the database finds the rows')
    options = parser.parse_args()
    for name in options.databases.split(','):
        try:
            on(name, options)
        except process.Missing as exc:
            sys.exit(f'large_cloud: {exc}')


if __name__ == '__main__':
    main()
