# SPDX-License-Identifier: Apache-2.0


"""How long the API takes to list among 10,000 to 1,000,000 incidents.

Each size is a new database on MariaDB and on PostgreSQL: 40,000 workloads on
800 hosts, and incidents of 30 days in the order in which they happened, each
with three suspects of which one is named, and an hourly sum; then the totals
are made.  The servers may keep 1 GiB in memory.  scavenger-api answers on one
CPU; requests come at a fixed rate, and a time counts from when a request was
due.  Begin it early in an hour: totals are of whole hours, and what is asked
for stays what it was.  For each listing and filter the median, the 99th
percentile and the longest are printed, and at the end the percentile by size.
A ranking that is summed is cached for up to a minute.  How long one takes
without the cache is printed last: over 26 spans of 3 days, one after another.

    python benchmarks/control_plane/listings.py [--sizes 10000,100000,1000000]
        [--databases mariadb,postgresql] [--seconds 30] [--rate 20]
        [--only antagonists]

A million incidents take some minutes to write and 2 GB of disk; with
--evidence 1 each has its series, as from agents, and it is 10 GB.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import concurrent.futures
import contextlib
import functools
import http.client
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
import urllib.parse
import uuid

import sqlalchemy

from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.db import totals
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import postgresql
from scavenger_openstack.tests.functional.servers import process

HOSTS = 800
WORKLOADS = 50
"""Of each host."""
ALL = HOSTS * WORKLOADS
STRIDE = 7919
"""The workload of an incident is this far from that of the one before, so
that none has two in an hour."""
PROJECTS = 200
CAUSES = ('cpu', 'core', 'disk', 'memory', 'network')
OUTCOMES = ('confirmed', 'confirmed', 'unclear', 'refuted', 'open')
KINDS = ('direct', 'direct', 'share', 'timing', 'trial')
HOUR_S = 3600
SPAN_S = 30 * 24 * HOUR_S
BATCH = 2000
"""Incidents that are written at once."""
CLIENTS = 8
START_S = 60.0
SERVERS = {
    'mariadb': functools.partial(
        mariadb.MariaDb, '--innodb-buffer-pool-size=1G'),
    'postgresql': functools.partial(
        postgresql.PostgreSql, '-c', 'shared_buffers=1GB')}
"""With the memory of a small server of databases, not of a test."""


def host_of(workload: int) -> int:
    return workload // WORKLOADS


def name_of(workload: int) -> str:
    return f'/machine/qemu-{workload}'


def project_of(workload: int) -> str:
    return f'{workload % PROJECTS:032x}'


def incident_of(number: int) -> str:
    return f'{number:032x}'


def fill(engine: sqlalchemy.Engine, size: int, evidence: float, now_s: float
         ) -> None:
    """Write all rows; the ids of hosts and incidents begin at 1."""
    with connect.writing(engine) as connection:
        connection.execute(tables.hosts.insert(), [
            {'name': f'node-{number}', 'facts': {}, 'settings': {},
             'first_seen_s': now_s - SPAN_S, 'last_seen_s': now_s}
            for number in range(HOSTS)])
        hosts = list(connection.scalars(sqlalchemy.select(
            tables.hosts.c.id).order_by(tables.hosts.c.id)))
    for first in range(0, ALL, BATCH):
        with connect.writing(engine) as connection:
            connection.execute(tables.workloads.insert(), [
                {'host_id': hosts[host_of(one)], 'name': name_of(one),
                 'kind': 'instance', 'instance': str(uuid.UUID(int=one)),
                 'display_name': f'vm-{one}', 'flavor': 'm1.large',
                 'project': project_of(one), 'priority': 'foreground',
                 'vcpus': 4.0, 'floor': {}, 'since_s': now_s - SPAN_S}
                for one in range(first, min(ALL, first + BATCH))])
    chosen = random.Random(size)
    for first in range(0, size, BATCH):
        numbers = range(first, min(size, first + BATCH))
        with connect.writing(engine) as connection:
            write(connection, hosts, [
                (number, now_s - SPAN_S * (1 - number / size))
                for number in numbers], evidence, chosen)
    begun = time.monotonic()
    while connect.retried(engine, functools.partial(
            totals.advance, hour_s=reports.hour(time.time()))):
        pass
    print(f'  the totals were made in {time.monotonic() - begun:.0f} s',
          flush=True)
    with engine.connect().execution_options(
            isolation_level='AUTOCOMMIT') as autocommit:
        # As a server does by itself when a tenth is new.
        for table in ('incidents', 'suspects', 'antagonist_hours',
                      'antagonist_totals', 'hosts', 'workloads'):
            autocommit.exec_driver_sql(
                f'VACUUM ANALYZE {table}'
                if engine.dialect.name == 'postgresql'
                else f'ANALYZE TABLE {table}')


def write(connection: sqlalchemy.Connection, hosts: list[int],
          begun: list[tuple[int, float]], evidence: float,
          chosen: random.Random) -> None:
    """Incidents that began then, with their suspects and sums."""
    incidents, suspects, hours = [], [], []
    for number, begun_s in begun:
        culprit = number * STRIDE % ALL
        near = host_of(culprit) * WORKLOADS
        victim, *others = (near + (culprit - near + step) % WORKLOADS
                           for step in (1, 2, 3))
        length_s = chosen.uniform(60, 900)
        cause = chosen.choice(CAUSES)
        outcome = chosen.choice(OUTCOMES)
        incidents.append({
            'id': number + 1, 'host_id': hosts[host_of(culprit)],
            'uuid': incident_of(number), 'victim': name_of(victim),
            'victim_instance': str(uuid.UUID(int=victim)),
            'project': project_of(victim), 'signal': 'run_delay',
            'cause': cause, 'controller': 'attribution', 'value': 0.4,
            'threshold': 0.1, 'outcome': outcome,
            'evidence_kind': chosen.choice(KINDS),
            'action': f'cpu_cores 0.5 for {name_of(culprit)}',
            'begun_s': begun_s, 'changed_s': begun_s + length_s,
            'ended_s': begun_s + length_s,
            'evidence': series(begun_s, (victim, culprit, others[0]))
            if chosen.random() < evidence else []})
        suspects += [
            {'incident_id': number + 1, 'workload': name_of(one),
             'instance': str(uuid.UUID(int=one)), 'project': project_of(one),
             'score': chosen.random(), 'antagonist': one == culprit,
             'begun_s': begun_s}
            for one in (culprit, *others)]
        hours.append({
            'host_id': hosts[host_of(culprit)],
            'hour_s': int(begun_s // HOUR_S * HOUR_S),
            'workload': name_of(culprit),
            'instance': str(uuid.UUID(int=culprit)),
            'project': project_of(culprit), 'victim': name_of(victim),
            'victim_project': project_of(victim), 'cause': cause,
            'incidents': 1, 'interference_s': length_s,
            'confirmed': int(outcome == 'confirmed'),
            'refuted': int(outcome == 'refuted')})
    connection.execute(tables.incidents.insert(), incidents)
    connection.execute(tables.suspects.insert(), suspects)
    connection.execute(tables.antagonist_hours.insert(), hours)


def series(begun_s: float, workloads: tuple[int, ...]) -> list[Any]:
    times = [begun_s - 120 + second for second in range(120)]
    return [{'workload': name_of(one), 'signal': 'run_delay',
             'times_s': times, 'values': [0.123456] * 120}
            for one in workloads]


def paths(size: int, now_s: float, chosen: random.Random
          ) -> dict[str, list[str]]:
    """What is asked, by what is printed of it; another one each time."""
    def url(path: str, **query: object) -> str:
        return f'{path}?{urllib.parse.urlencode(query)}' if query else path

    def when(days: float) -> str:
        return text_of(now_s - days * 86400)

    def many(make: Any) -> list[str]:
        return [make(chosen.randrange(ALL)) for _ in range(50)]

    incidents, antagonists = '/v1/incidents', '/v1/antagonists'
    return {
        'antagonists, last day': [antagonists],
        'antagonists, 7 days': [url(antagonists, since=when(7))],
        'antagonists, 3 days, summed': [url(antagonists, since=when(3))],
        'antagonists, 30 days': [url(antagonists, since=when(30))],
        'antagonists by victims, 30 days': [
            url(antagonists, since=when(30), sort='victims')],
        'antagonists, host': many(lambda one: url(
            antagonists, since=when(30), host=f'node-{host_of(one)}')),
        'antagonists, project': many(lambda one: url(
            antagonists, since=when(30), project=project_of(one))),
        'antagonists, victim project': many(lambda one: url(
            antagonists, since=when(30), victim_project=project_of(one))),
        'incidents': [incidents],
        'incidents, host': many(lambda one: url(
            incidents, host=f'node-{host_of(one)}')),
        'incidents, project': many(lambda one: url(
            incidents, project=project_of(one))),
        'incidents, victim': many(lambda one: url(
            incidents, victim=name_of(one))),
        'incidents, antagonist': many(lambda one: url(
            incidents, antagonist=name_of(one))),
        'incidents, cause': [url(incidents, cause=one) for one in CAUSES],
        'incidents, outcome': [url(incidents, outcome=one)
                               for one in sorted(set(OUTCOMES))],
        'incidents, project and cause': many(lambda one: url(
            incidents, project=project_of(one), cause=CAUSES[one % 5])),
        'incidents, kind of evidence': [
            url(incidents, evidence_kind=one) for one in sorted(set(KINDS))],
        'incidents, cause and kind of evidence': [
            url(incidents, cause=cause, evidence_kind=kind)
            for cause in CAUSES for kind in sorted(set(KINDS))],
        'incidents, cause and outcome': [
            url(incidents, cause=cause, outcome=outcome)
            for cause in CAUSES for outcome in sorted(set(OUTCOMES))],
        'incidents, antagonist and host': many(lambda one: url(
            incidents, antagonist=name_of(one),
            host=f'node-{host_of(one)}')),
        'incidents, an hour': many(lambda one: url(
            incidents, since=when(1 + one / ALL * 28),
            until=when(1 + one / ALL * 28 - 1 / 24))),
        'an incident': [f'{incidents}/{incident_of(chosen.randrange(size))}'
                        for _ in range(50)]}


def text_of(time_s: float) -> str:
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time_s))


def first_times(port: int, now_s: float) -> list[float]:
    """How long rankings took over 3 days until then, each another."""
    found = []
    for days in range(1, 27):
        until_s = now_s - days * 86400
        begun_s = time.monotonic()
        ask(port, '/v1/antagonists?' + urllib.parse.urlencode({
            'since': text_of(until_s - 3 * 86400),
            'until': text_of(until_s)}))
        found.append(time.monotonic() - begun_s)
    return sorted(found)


@contextlib.contextmanager
def api(url: str, cpu: int) -> Iterator[int]:
    """The port of an API on one CPU."""
    port = process.free_port()
    with tempfile.TemporaryDirectory() as here:
        file = pathlib.Path(here, 'scavenger.conf')
        file.write_text(f'[database]\nconnection = {url}\n'
                        f'[api]\nauth_strategy = noauth\nport = {port}\n')
        with subprocess.Popen(
                [sys.executable, '-W', 'ignore', '-m',
                 'scavenger_openstack.cmd.api', '--config-file', str(file)],
                preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
                stderr=subprocess.PIPE, text=True) as found:
            try:
                until_s = time.monotonic() + START_S
                while True:
                    try:
                        ask(port, '/v1/hosts?limit=1')
                        break
                    except OSError:
                        if found.poll() is not None:
                            assert found.stderr is not None
                            sys.exit(found.stderr.read())
                        if time.monotonic() > until_s:
                            raise
                        time.sleep(0.1)
                yield port
            finally:
                found.terminate()


def ask(port: int, path: str) -> dict[str, Any]:
    """
    :raises OSError: no answer, or not a good one
    """
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    try:
        connection.request('GET', path)
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise OSError(f'{path}: {answer.status} {data[:300]!r}')
        found: dict[str, Any] = json.loads(data)
        return found
    finally:
        connection.close()


def measure(port: int, asked: list[str], rate: float, seconds: float
            ) -> list[float]:
    """How long each request took from when it was due, in seconds."""
    ask(port, asked[0])
    begun = time.monotonic() + 0.1

    def one(number: int) -> float:
        due = begun + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        ask(port, asked[number % len(asked)])
        return time.monotonic() - due

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        return sorted(pool.map(one, range(max(1, int(rate * seconds)))))


def percentile(times: list[float], share: float) -> float:
    """Of sorted times: so many of them took no longer."""
    return times[max(0, math.ceil(share * len(times)) - 1)]


def on(name: str, server: Any, sizes: list[int],
       options: argparse.Namespace) -> None:
    curves: dict[str, list[float]] = {}
    for size in sizes:
        url, now_s = server.new_database(), time.time()
        engine = connect.engine(url)
        schema.upgrade(engine)
        begun = time.monotonic()
        fill(engine, size, options.evidence, now_s)
        engine.dispose()
        print(f'{name}, {size:,} incidents, written in '
              f'{time.monotonic() - begun:.0f} s; ms', flush=True)
        print(f'  {"":<34}{"median":>9}{"p99":>9}{"longest":>9}')
        with api(url, options.cpu) as port:
            for what, asked in paths(
                    size, time.time(), random.Random(1)).items():
                if options.only not in what:
                    continue
                times = measure(port, asked, options.rate, options.seconds)
                curves.setdefault(what, []).append(percentile(times, 0.99))
                print(f'  {what:<34}' + ''.join(
                    f'{1e3 * value:9.1f}' for value in (
                        percentile(times, 0.5), curves[what][-1],
                        times[-1])), flush=True)
            times = first_times(port, time.time())
            print(f'  summed, 3 days, each another: '
                  f'{statistics.median(times):.2f} s, '
                  f'longest {times[-1]:.2f} s', flush=True)
    print(f'{name}: p99 in ms by incidents, and the last by the first')
    print(f'  {"":<34}' + ''.join(f'{size:>11,}' for size in sizes))
    for what, values in curves.items():
        print(f'  {what:<34}' + ''.join(
            f'{1e3 * value:11.1f}' for value in values)
            + f'{values[-1] / values[0]:8.1f} times', flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--sizes', default='10000,100000,1000000',
                        help='incidents, with commas between')
    parser.add_argument('--databases', default=','.join(SERVERS),
                        help=f'some of {", ".join(SERVERS)}')
    parser.add_argument('--rate', type=float, default=20.0,
                        help='requests per second (20)')
    parser.add_argument('--seconds', type=float, default=30.0,
                        help='that each listing is asked for (30)')
    parser.add_argument('--only', default='', metavar='TEXT',
                        help='ask only for what has this in its name')
    parser.add_argument('--evidence', type=float, default=0.01,
                        help='share of incidents with their series (0.01)')
    parser.add_argument('--cpu', type=int,
                        default=max(os.sched_getaffinity(0)),
                        help='that the API runs on (the last)')
    options = parser.parse_args()
    names = options.databases.split(',')
    if not set(names) <= SERVERS.keys():
        parser.error(f'--databases: some of {", ".join(SERVERS)}')
    for name in names:
        try:
            server = SERVERS[name]()
        except process.Missing as exc:
            sys.exit(f'listings: {exc}')
        try:
            on(name, server, sorted(map(int, options.sizes.split(','))),
               options)
        finally:
            server.close()


if __name__ == '__main__':
    main()
