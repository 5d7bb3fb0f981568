# SPDX-License-Identifier: Apache-2.0

"""What a report costs the conductor: CPU, time, transactions and bytes.

First in one thread, on each database: reports as most are (facts, nothing
new), with a new incident, with the list of 50 workloads; and from that what an
hour of a host takes.  Then over a real broker, and over HTTP to a real uWSGI,
with agents in processes of their own and 1 and 2 conductors, on MariaDB.  From
that: what 10,000 hosts at a report in 10 s take.

    python benchmarks/control_plane/control_plane.py \\
        [--reports 1000] [--seconds 10] [--threads 8]

Listings among 1,000,000 incidents are in listings.py, what reports cost an
agent in benchmarks/agent/sync_cost.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import senders
from senders import AGENTS
from senders import Host
from senders import HOSTS
import sqlalchemy

from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import postgresql
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq

UWSGI = 'import pyuwsgi; pyuwsgi.run()'
"""A program that takes uWSGI's options."""

IN_AN_HOUR = {'facts': 360, 'incident': 1, 'workloads': 1}
"""Reports of a host."""

CLOUD_HOSTS = 10_000
SYNC_S = 10

def one_thread(url: str, count: int) -> None:
    """Print what reports cost on a database."""
    engine = connect.engine(url)
    schema.upgrade(engine)
    conductor = service.Conductor(engine)
    hosts = [Host(f'node-{number}') for number in range(HOSTS)]
    for host in hosts:
        for _ in range(2):
            host.answered(conductor.answer(host.report('facts')))
    transactions = [0]

    @sqlalchemy.event.listens_for(engine, 'begin')
    def begun(connection: sqlalchemy.Connection) -> None:
        transactions[0] += 1

    hour = {'wire': 0.0, 'disk': 0.0}
    for kind in ('facts', 'incident', 'workloads'):
        reports = [(hosts[number % HOSTS],
                    hosts[number % HOSTS].report(kind))
                   for number in range(count)]
        size = sum(len(data) for _, data in reports) / count
        had, transactions[0] = disk_bytes(engine), 0
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        answers = [(host, conductor.answer(data)) for host, data in reports]
        cpu_s, wall_s = (time.thread_time() - cpu_s,
                         time.perf_counter() - wall_s)
        answer = sum(len(data) for _, data in answers) / count
        each = transactions[0] / count
        disk = (disk_bytes(engine) - had) / count
        print(f'  {engine.dialect.name:<11}{kind:<10}'
              f'{1e3 * cpu_s / count:8.2f}{1e3 * wall_s / count:10.2f}'
              f'{count / wall_s:10.0f}{each:6.1f}{size:9.0f}{answer:9.0f}'
              f'{disk:9.0f}', flush=True)
        for host, data in answers:
            host.answered(data)
        hour['wire'] += IN_AN_HOUR[kind] * (size + answer)
        hour['disk'] += IN_AN_HOUR[kind] * disk
    print(f'  {engine.dialect.name:<11}an hour of a host, with '
          + ', '.join(f'{number} x {kind}'
                      for kind, number in IN_AN_HOUR.items())
          + f': {hour["wire"] / 1e3:.0f} kB on the wire, '
          f'{hour["disk"] / 1e3:.0f} kB more on disk', flush=True)
    engine.dispose()


def disk_bytes(engine: sqlalchemy.Engine) -> float:
    """What the database has on disk, without its log of transactions."""
    with engine.connect().execution_options(
            isolation_level='AUTOCOMMIT') as connection:
        if engine.dialect.name == 'sqlite':
            connection.exec_driver_sql('PRAGMA wal_checkpoint')
            pages, size = (connection.exec_driver_sql(
                f'PRAGMA {name}').scalar_one()
                for name in ('page_count', 'page_size'))
            return float(pages * size)
        if engine.dialect.name == 'postgresql':
            return float(connection.exec_driver_sql(
                'SELECT pg_database_size(current_database())').scalar_one())
        for name in tables.METADATA.tables:
            connection.exec_driver_sql(f'ANALYZE TABLE {name}')
        return float(connection.exec_driver_sql(
            'SELECT SUM(data_length + index_length) FROM '
            'information_schema.tables WHERE table_schema = DATABASE()'
            ).scalar_one())


def over_the_network(seconds: float, threads: int) -> None:
    """Print what reports cost that come from other processes."""
    broker = rabbitmq.RabbitMq()
    database = mariadb.MariaDb()
    url = database.new_database()
    engine = connect.engine(url)
    schema.upgrade(engine)
    with tempfile.TemporaryDirectory() as top:
        here = pathlib.Path(top)
        file = here / 'conf'
        file.write_text(f'[DEFAULT]\ntransport_url = {broker.url}\n'
                        f'executor_thread_pool_size = {threads}\n'
                        f'[database]\nconnection = {url}\n')
        enroll(engine, here)
        for count in (1, 2):
            with contextlib.ExitStack() as stack:
                pids = [stack.enter_context(child(
                    '-m', 'scavenger_openstack.cmd.conductor',
                    '--config-file', str(file))).pid for _ in range(count)]
                take(f'RabbitMQ, {count} conductors', pids, broker.url,
                     seconds, here, {'MariaDB': database.pids,
                                     'RabbitMQ': broker.pids})
        for count in (1, 2):
            port = process.free_port()
            with child('-c', UWSGI, '--http-socket', f'127.0.0.1:{port}',
                       '--master', '--die-on-term', '--enable-threads',
                       '--processes', str(count), '--threads', '4',
                       '--module', 'scavenger_openstack.wsgi.conductor',
                       SCAVENGER_CONFIG_FILE=str(file)) as master:
                take(f'HTTP, {count} processes of uWSGI', [master.pid],
                     f'http://127.0.0.1:{port}', seconds, here,
                     {'MariaDB': database.pids})
    engine.dispose()
    database.close()
    broker.close()


def enroll(engine: connect.Engine, directory: pathlib.Path) -> None:
    """Give each host a token, in a file with its name."""
    with connect.writing(engine) as connection:
        for agent in range(AGENTS):
            for number in range(HOSTS // AGENTS):
                file = directory / f'agent-{agent}-{number}'
                token = enrollment.enroll(connection, file.name,
                                          now_s=time.time()).token
                file.touch(mode=0o600)
                file.write_text(token)


def take(what: str, conductors: list[int], url: str, seconds: float,
         directory: pathlib.Path, servers: dict[str, list[int]]) -> None:
    """Have agents send reports; print what each cost.

    :param conductors: processes, each with its children
    :param url: for the agents, which run in the directory
    :param servers: processes of what else works for it, by name
    """
    with contextlib.ExitStack() as stack:
        sending = [stack.enter_context(child(
            senders.__file__, f'agent-{number}', url, str(seconds),
            directory=directory))
            for number in range(AGENTS)]
        for one in sending:
            if line(one).strip() != senders.READY:
                raise errors.ScavengerError(f'{what}: no report is answered')
        used = cpu(*(pid for top in conductors for pid in family(top)))
        before = {name: cpu(*pids) for name, pids in servers.items()}
        for one in sending:
            go(one)
        count = sum(len(json.loads(line(one))['times_s'])
                    for one in sending)
        used = cpu(*(pid for top in conductors for pid in family(top))) - used
        others = ''.join(
            f', {1e3 * (cpu(*pids) - before[name]) / count:.2f} ms of {name}'
            for name, pids in servers.items())
    rate = CLOUD_HOSTS / SYNC_S
    print(f'  {what}: {count / seconds:.0f} reports/s, '
          f'{1e3 * used / count:.2f} ms of conductor CPU each{others}\n'
          f'     {CLOUD_HOSTS} hosts at a report in {SYNC_S} s: '
          f'{rate:.0f} reports/s, {rate * used / count:.1f} CPUs of '
          'conductors', flush=True)


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = pathlib.Path(f'/proc/{pid}/task/{pid}/children').read_text()
    return [pid, *(int(word) for word in children.split())]


@contextlib.contextmanager
def child(*words: str, directory: pathlib.Path | None = None,
          **variables: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
            [sys.executable, '-W', 'ignore', *words], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd=directory,
            env={**os.environ, **variables}) as found:
        try:
            yield found
        finally:
            found.terminate()


def line(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    return one.stdout.readline()


def go(one: subprocess.Popen[str]) -> None:
    assert one.stdin is not None
    one.stdin.write('\n')
    one.stdin.flush()


def cpu(*pids: int) -> float:
    """CPU time of processes so far, with that of their children that have
    ended, in seconds."""
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(
            ')')[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf('SC_CLK_TCK')


def one_thread_each(reports: int) -> None:
    """Print what reports cost in one thread, on each database."""
    print(f'{HOSTS} hosts of {senders.WORKLOADS} workloads, {reports} '
          'reports, one thread; ms, reports/s, transactions, bytes')
    print(f'  {"database":<11}{"report":<10}{"CPU":>8}{"time":>10}'
          f'{"rate":>10}{"trans":>6}{"sent":>9}{"answer":>9}{"disk":>9}')
    with tempfile.TemporaryDirectory() as here:
        one_thread(f'sqlite:///{here}/db', reports)
    shared: tuple[Callable[[], mariadb.MariaDb | postgresql.PostgreSql], ...]
    shared = mariadb.MariaDb, postgresql.PostgreSql
    for start in shared:
        server = start()
        one_thread(server.new_database(), reports)
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--reports', type=int, default=1000,
                        help='of each kind and database (1000); 0: none, '
                             'only those from other processes')
    parser.add_argument('--seconds', type=float, default=10.0,
                        help='that reports come from other processes (10)')
    parser.add_argument('--threads', type=int, default=rpc.THREADS,
                        help='of a conductor over RabbitMQ (8)')
    options = parser.parse_args()
    try:
        if options.reports:
            one_thread_each(options.reports)
        print('from other processes, MariaDB:')
        over_the_network(options.seconds, options.threads)
    except (process.Missing, errors.ScavengerError) as exc:
        sys.exit(f'control_plane: {exc}')


if __name__ == '__main__':
    main()
