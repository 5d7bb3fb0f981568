# SPDX-License-Identifier: Apache-2.0

"""What the control plane of a large cloud costs, and what a conductor reads.

A new database on MariaDB and on PostgreSQL, filled with the rows of cloud.py:
hosts with 40 workloads each, their hourly sums, totals, tags and statistics.
Then, one after another:

hourly     what is due each hour: totals, specs, deletion
reads      what is read each minute and hour: times, rows; --explain: plans
placement  a round of a Placement that takes 40 ms for each call, when a
           conductor starts and when all hosts offer something else
nova       all instances of a Nova that takes 5 s for a page of 500, on a
           clock of its own, and then some hours in which they change
reports    those of an hour, as fast as two conductors of one process each
           take them, and the summary for 48 schedulers meanwhile

Placement has some of the hosts, specs are made of a tenth of the statistics
that an hour has, and reports are played for some minutes from hosts that then
report every 10 s; what is printed for all is extrapolated, and says from
what.  --save FILE keeps the figures, --beside FILE prints those of another run
beside them.  With PYTHONPATH it measures another version of the package, as
far as that has what is measured.

    python benchmarks/control_plane/large_cloud.py [--hosts 10000]
        [--databases mariadb,postgresql] [--only reads,nova] [--explain]
        [--seconds 120] [--save FILE] [--beside FILE]

10,000 hosts take some ten minutes a database; --hosts 200 --seconds 5 shows
that it works.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import functools
import json
import logging
import pathlib
import sys
import time
from typing import Any

import cloud
import control_plane
import figures
import large_cloud_load
import large_cloud_played
from listings import SERVERS
import sqlalchemy
import transactions

from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import directives
from scavenger_openstack.db import eviction_policy
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import placed
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import reads

STATISTICS_OF_HOST = 600
"""Rows that a host sends in an hour: 25 applications, 2 signals, 12 times."""
DAY_S = 86400


def works(now: float, instances: frozenset[str]
          ) -> dict[str, Callable[[sqlalchemy.Connection], Any]]:
    """What is read, in one transaction each.

    :param instances: all that Nova lists
    """
    # Both comparisons with Nova in an hour of the clock.
    half_s = reports.hour(now) + 1800.0
    return {
        'the summary': hosts.all_with_load,
        'candidates of eviction': lambda connection:
            eviction_policy.candidates(connection, now - DAY_S, 5, now),
        'candidates of 30 days': lambda connection:
            eviction_policy.candidates(connection, now - 30 * DAY_S, 5, now),
        'hosts short of CPU': lambda connection:
            eviction_policy.short(connection, 1.0, now),
        'Nova and hosts, all of an hour': lambda connection:
            (connection.execute(tables.claims.delete()),
             list(placed.wrong(connection, half_s))),
        'Nova and hosts, a minute later': lambda connection:
            list(placed.wrong(connection, half_s + 60)),
        'specs for a host': lambda connection: directives.specs(
            connection, 'AMD EPYC', {
                (cloud.project(number), cloud.application(number))
                for number in range(cloud.WORKLOADS)}, 50, 5),
        'hosts that are silent': lambda connection:
            hosts.silent(connection, now - 120),
        'tags that only the broker told': lambda connection:
            flavor_tags.from_broker(connection, 50),
        'instances that Nova does not list': lambda connection:
            flavor_tags.others(connection, instances, 0.0),
        'what would be deleted': lambda connection:
            purge.count(connection, now_s=now, older_than_s=30 * DAY_S,
                        audit_older_than_s=30 * DAY_S)}


def read(engine: sqlalchemy.Engine, measured: figures.Figures,
         options: argparse.Namespace, now: float) -> None:
    instances = frozenset(map(cloud.instance, range(
        options.hosts * cloud.WORKLOADS)))
    with connect.writing(engine) as connection:
        for what, work in works(now, instances).items():
            begun_s = time.perf_counter()
            try:
                work(connection)
            except (AttributeError, TypeError) as exc:
                print(f'  {what}: not in this version: {exc}')
                continue
            took_s = time.perf_counter() - begun_s
            count = reads.rows(connection, functools.partial(work,
                                                             connection))
            measured.add(f'{what}, ms', 1e3 * took_s, f'{count:,} rows read')
            if options.explain:
                explain(connection, work)


def hourly(engine: sqlalchemy.Engine, measured: figures.Figures,
           options: argparse.Namespace, now: float,
           longest: transactions.Longest) -> None:
    """What a conductor does each hour: of this hour, and totals of the
    next."""
    share = options.hosts * STATISTICS_OF_HOST / options.statistics
    for what, name, clock_s, factor in (
            ('specs', 'specs', now, share),
            ('deletion of what an hour adds', 'deleted', now, 1.0),
            ('totals of antagonists', 'totals', now + 3600, 1.0)):
        conductor = service.Conductor(engine, clock=lambda at_s=clock_s: at_s,
                                      keep_days=30)
        work = next(work for text, work in conductor.works if name in text)
        longest.taken_s()
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        done = work()
        took_s = time.perf_counter() - begun_s
        measured.add(f'{what}, s', factor * took_s,
                  f'{done:,} rows or hosts in {took_s:.1f} s'
                  + (f', of {options.statistics:,} statistics'
                     if factor != 1 else ''))
        measured.add(f'{what}, s of CPU of a conductor',
                  factor * (time.process_time() - cpu_s))
        measured.add(f'{what}, longest transaction, s', longest.taken_s())


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


def on(name: str, options: argparse.Namespace,
       measured: figures.Figures, longest: transactions.Longest) -> None:
    server = SERVERS[name]()
    try:
        url = server.new_database()
        engine = connect.engine(url, statement_s=600)
        schema.upgrade(engine)
        now = begun_s = time.time()
        cloud.Rows(engine, options.hosts, now).fill(options.statistics)
        print(f'{name}: {options.hosts * cloud.WORKLOADS:,} workloads on '
              f'{options.hosts:,} hosts, written in '
              f'{time.time() - begun_s:.0f} s', flush=True)
        measured.add('database, MB', control_plane.disk_bytes(engine) / 1e6)
        parts: dict[str, Callable[[], None]] = {
            'hourly': lambda: hourly(engine, measured, options, now, longest),
            'reads': lambda: read(engine, measured, options, now),
            'placement': lambda: large_cloud_played.placement_rounds(
                engine, measured, options.hosts, options.placement_hosts,
                options.call_ms / 1e3),
            'nova': lambda: large_cloud_played.nova_reads(
                engine, measured, options.hosts, longest),
            'reports': lambda: large_cloud_load.play(
                engine, url, measured, options.hosts, options.seconds,
                server)}
        for part, work in parts.items():
            if part in options.only.split(','):
                begun_s = time.time()
                work()
                print(f'  -- {part}: {time.time() - begun_s:.0f} s',
                      flush=True)
        engine.dispose()
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=10_000)
    parser.add_argument('--statistics', type=int, default=0,
                        help='rows that specs are made of (a tenth of those '
                             'of an hour)')
    parser.add_argument('--databases', default=','.join(SERVERS),
                        help=f'some of {", ".join(SERVERS)}')
    parser.add_argument('--only', metavar='PARTS',
                        default='hourly,reads,placement,nova,reports')
    parser.add_argument('--explain', action='store_true',
                        help='print how the database finds the rows')
    parser.add_argument('--placement-hosts', type=int, default=300,
                        help='hosts that Placement has (300)')
    parser.add_argument('--call-ms', type=float, default=40.0,
                        help='of each call of Placement (40)')
    parser.add_argument('--seconds', type=float, default=120.0,
                        help='that reports are played (120)')
    parser.add_argument('--save', metavar='FILE')
    parser.add_argument('--beside', metavar='FILE', default='')
    options = parser.parse_args()
    options.statistics = options.statistics or options.hosts * 60
    options.placement_hosts = min(options.placement_hosts, options.hosts)
    logging.disable(logging.WARNING)
    beside, longest = figures.read(options.beside), transactions.Longest()
    kept: dict[str, dict[str, float]] = {}
    for name in options.databases.split(','):
        measured = figures.Figures(beside.get(name, {}))
        kept[name] = measured.values
        try:
            on(name, options, measured, longest)
        except process.Missing as exc:
            sys.exit(f'large_cloud: {exc}')
    if options.save:
        pathlib.Path(options.save).write_text(json.dumps(kept, indent=1))


if __name__ == '__main__':
    main()
