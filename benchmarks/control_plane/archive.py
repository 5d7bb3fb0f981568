#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""A week of many hosts in the archive, and each question answered.

    archive.py [--hosts 1000] [--spark PYTHON]

Fills an SQLite database with what such hosts leave in a week (three
incidents a host and day, each with five suspects and a limit; sums of each
hour), archives it, and has DuckDB answer each SQL file, and with --spark
Spark, too, run by an interpreter that has pyspark.  Prints rows, bytes and
seconds, and whether both answer the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import json
import pathlib
import random
import subprocess
import tempfile
import time
from typing import Any

import duckdb
import sqlalchemy

from scavenger_openstack.archive import files
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import archive as rows
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables

DAYS = 7
INCIDENTS = 3
NOW = 1_750_032_000.0 // rows.DAY_S * rows.DAY_S

QUERIES = pathlib.Path(files.__file__).parents[2].joinpath(
    'etc', 'scavenger', 'archive')

SPARK = '''
import json, sys, time
from pyspark.sql import SparkSession
top, parts, *files = sys.argv[1:]
spark = (SparkSession.builder.master('local[2]')
         .config('spark.ui.enabled', 'false')
         .config('spark.ui.showConsoleProgress', 'false')
         .config('spark.sql.shuffle.partitions', 4)
         .config('spark.log.level', 'ERROR').getOrCreate())
for part in parts.split(','):
    spark.read.parquet(f'{top}/{part}').createOrReplaceTempView(part)
for name in files:
    began_s = time.monotonic()
    answer = spark.sql(open(name).read()).collect()
    print(json.dumps([time.monotonic() - began_s,
                      [list(row) for row in answer]], default=str))
spark.stop()
'''


def main() -> None:
    options = argparse.ArgumentParser(
        description='A week of many hosts in the archive.')
    options.add_argument('--hosts', type=int, default=1000)
    options.add_argument('--spark', metavar='PYTHON')
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        top = pathlib.Path(directory, 'archive')
        engine = connect.engine(f'sqlite:///{directory}/database')
        schema.upgrade(engine)
        fill(engine, asked.hosts)
        began_s, cpu_s = time.monotonic(), time.process_time()
        written = list(files.write(engine, str(top), NOW))
        print(f'{asked.hosts} hosts, {DAYS} days: {len(written)} files, '
              f'{sum(one.rows for one in written)} rows, '
              f'{sum(one.size_bytes for one in written) / 1e6:.1f} MB in '
              f'{time.monotonic() - began_s:.1f} s '
              f'({time.process_time() - cpu_s:.1f} s of CPU)')
        queries = sorted(QUERIES.glob('*.sql'))
        by_duckdb = dict(zip(queries, of_duckdb(top, queries), strict=True))
        by_spark = dict(zip(queries, of_spark(asked.spark, top, queries),
                            strict=True)) if asked.spark else {}
        for file in queries:
            seconds, answer = by_duckdb[file]
            line = (f'{file.stem}: {len(answer)} rows, DuckDB '
                    f'{seconds:.2f} s')
            if file in by_spark:
                spark_s, other = by_spark[file]
                line += (f', Spark {spark_s:.2f} s, ' + (
                    'the same' if same(answer, other) else 'ANOTHER ANSWER'))
            print(line)


def fill(engine: connect.Engine, hosts: int) -> None:
    """Play the hosts of a week."""
    chance = random.Random(7)
    begin_s = NOW - rows.SETTLED_S - DAYS * rows.DAY_S
    with connect.writing(engine) as connection:
        insert(connection, tables.hosts, (
            {'id': host, 'name': f'host-{host}', 'facts': {}, 'settings': {},
             'short': f'host-{host}', 'first_seen_s': begin_s,
             'last_seen_s': NOW} for host in range(1, hosts + 1)))
        for day in range(DAYS):
            day_s = begin_s + day * rows.DAY_S
            play(connection, day_s, hosts, chance)


def play(connection: Any, day_s: float, hosts: int, chance: random.Random
         ) -> None:
    incidents, suspects, limits, pairs, victims = [], [], [], {}, {}
    for host in range(1, hosts + 1):
        for _ in range(INCIDENTS):
            begun_s = day_s + chance.random() * 80_000
            ended_s = begun_s + chance.expovariate(1 / 300)
            victim, shop = chance.randrange(20), chance.randrange(200)
            uuid = f'{chance.getrandbits(128):032x}'
            id_ = chance.getrandbits(48)
            incidents.append({
                'id': id_, 'host_id': host, 'uuid': uuid,
                'victim': f'web-{victim}', 'project': f'p{shop % 40}',
                'signal': 'run_delay', 'cause': 'core', 'value': 0.4,
                'threshold': 0.1, 'action': 'cpu_cores 0.5',
                'outcome': chance.choice(['confirmed'] * 9 + ['refuted']),
                'begun_s': begun_s, 'changed_s': ended_s, 'ended_s': ended_s,
                'evidence': [{'workload': f'web-{victim}',
                              'signal': 'run_delay', 'times_s': [1.0] * 60,
                              'values': [0.1] * 60}]})
            for place in range(5):
                suspects.append({
                    'incident_id': id_, 'workload': f'batch-{place}',
                    'score': chance.random(), 'antagonist': place == 0,
                    'begun_s': begun_s})
            limits.append({
                'host_id': host, 'workload': 'batch-0', 'knob': 'cpu_cores',
                'value': 0.5, 'owner': 'attribution', 'reason': '',
                'why': '', 'incidents': uuid, 'set_s': begun_s,
                'changed_s': ended_s, 'removed_s': ended_s})
            hour_s = int(begun_s // 3600 * 3600)
            pairs[hour_s, host, 'batch-0', f'web-{victim}'] = {
                'host_id': host, 'hour_s': hour_s, 'workload': 'batch-0',
                'application': f'render-{host % 50}',
                'victim': f'web-{victim}', 'cause': 'core', 'incidents': 1,
                'interference_s': ended_s - begun_s, 'confirmed': 1,
                'refuted': 0}
            victims[hour_s, host, f'web-{victim}'] = {
                'host_id': host, 'hour_s': hour_s, 'victim': f'web-{victim}',
                'project': f'p{shop % 40}', 'application': 'shop'
                if shop < 5 else f'shop-{shop}', 'incidents': 1,
                'interference_s': ended_s - begun_s}
    for table, played in (
            (tables.incidents, incidents), (tables.suspects, suspects),
            (tables.caps, limits), (tables.antagonist_hours, pairs.values()),
            (tables.victim_hours, victims.values())):
        insert(connection, table, played)
    insert(connection, tables.background_hours, (
        {'host_id': host, 'hour_s': int(day_s) + hour * 3600,
         'core_s': chance.random() * 36_000,
         'byte_s': chance.random() * 2 ** 35 * 3600}
        for host in range(1, hosts + 1) for hour in range(24)))


def insert(connection: Any, table: sqlalchemy.Table, played: Any) -> None:
    connection.execute(sqlalchemy.insert(table), list(played))


def of_duckdb(top: pathlib.Path, files: list[pathlib.Path]
              ) -> Iterator[tuple[float, list[Any]]]:
    with duckdb.connect() as connection:
        for part in rows.PARTS:
            connection.execute(
                f'CREATE VIEW {part.name} AS SELECT * FROM read_parquet('
                f"'{top}/{part.name}/*/*.parquet', hive_partitioning = true)")
        for file in files:
            began_s = time.monotonic()
            answer = connection.execute(file.read_text()).fetchall()
            yield time.monotonic() - began_s, answer


def of_spark(python: str, top: pathlib.Path, files: list[pathlib.Path]
             ) -> Iterator[tuple[float, list[Any]]]:
    done = subprocess.run(
        [python, '-c', SPARK, str(top), ','.join(
            part.name for part in rows.PARTS), *map(str, files)],
        check=True, stdout=subprocess.PIPE, text=True)
    for line in done.stdout.splitlines():
        if line.startswith('['):
            seconds, answer = json.loads(line)
            yield seconds, answer


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether two answers are equal but for rounding."""
    return len(one) == len(other) and all(
        plain(mine) == plain(its) for mine, its in zip(
            one, other, strict=True))


def plain(row: Any) -> list[str]:
    cells = []
    for cell in row:
        try:
            cells.append(f'{float(cell):.6g}')
        except (TypeError, ValueError):
            cells.append(str(cell))
    return cells


if __name__ == '__main__':
    main()
