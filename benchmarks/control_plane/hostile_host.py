# SPDX-License-Identifier: Apache-2.0

"""What one hostile host costs honest ones, over HTTP to a real uWSGI.

Honest hosts report once a second each, and the time until each answer is
taken: first alone, then while a hostile host sends legal reports that cost as
much as one can, several at once.

    python benchmarks/control_plane/hostile_host.py \\
        [--hosts 20] [--seconds 20] [--at-once 8] [--sqlite]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import uuid

import control_plane
from senders import Host
import sqlalchemy

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOSTILE = 'hostile'
READY_S = 60.0


def costly() -> bytes:
    """95 incidents of 64 antagonists each, in a run of its own."""
    now = time.time()
    return codec.encode(wire.Report(
        host=HOSTILE, boot_id='b', run_id=uuid.uuid4().hex, sent_s=now,
        entries=[wire.Incident(
            sequence=number, time_s=now, what='began', id=uuid.uuid4().hex,
            begun_s=now - 10, victim=f'/v/{number}', signal='run_delay',
            suspects=[wire.Suspect(workload=f'/a/{number}/{one}', score=0.5,
                                   antagonist=True) for one in range(64)])
            for number in range(1, 96)]))


def attack(url: str, token_file: pathlib.Path, at_once: int) -> None:
    """Send such reports until a line comes; print how many were sent."""
    call = https.caller(url, HOSTILE, token_file)
    stop, counts = threading.Event(), [0]

    def send() -> None:
        while not stop.is_set():
            data = costly()
            counts[0] += 1
            try:
                call(data)
            except errors.ScavengerError:
                stop.wait(0.1)

    threads = [threading.Thread(target=send) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    print(*counts, flush=True)
    stop.set()
    for thread in threads:
        thread.join()


def honest(host: Host, call: Callable[[bytes], bytes], until_s: float,
           times_s: list[float]) -> None:
    """Report once a second, and note how long each answer takes."""
    due_s = time.monotonic()
    while due_s < until_s:
        time.sleep(max(0.0, due_s - time.monotonic()))
        data, began_s = host.report('facts'), time.monotonic()
        try:
            host.answered(call(data))
        except errors.ScavengerError as exc:
            print(f'  {host.name}: {exc}', file=sys.stderr)
        times_s.append(time.monotonic() - began_s)
        due_s = max(due_s + 1.0, time.monotonic())


def measured(hosts: list[tuple[Host, Callable[[bytes], bytes]]],
             seconds: float) -> list[float]:
    """How long all answers to the honest hosts took."""
    times_s: list[float] = []
    threads = [threading.Thread(target=honest, args=(
        host, call, time.monotonic() + seconds, times_s))
        for host, call in hosts]
    for thread in threads:
        thread.start()
        time.sleep(1.0 / len(hosts))
    for thread in threads:
        thread.join()
    return times_s


def show(what: str, times_s: list[float]) -> None:
    ordered = sorted(times_s)
    print(f'  {what}: {len(ordered)} reports, median '
          f'{1e3 * statistics.median(ordered):.1f} ms, 95 % '
          f'{1e3 * ordered[int(0.95 * len(ordered))]:.1f} ms, longest '
          f'{1e3 * ordered[-1]:.0f} ms', flush=True)


def run(url: str, options: argparse.Namespace, here: pathlib.Path) -> None:
    """Print the times with and without the hostile host."""
    engine = connect.engine(url)
    schema.upgrade(engine)
    file = here / 'conf'
    file.write_text(f'[database]\nconnection = {url}\n')
    port = process.free_port()

    def caller(name: str) -> Callable[[bytes], bytes]:
        with connect.writing(engine) as connection:
            token = enrollment.enroll(connection, name,
                                      now_s=time.time()).token
        path = here / name
        path.touch(mode=0o600)
        path.write_text(token)
        return https.caller(f'http://127.0.0.1:{port}', name, path)

    hosts = [(Host(name), caller(name)) for name in (
        f'honest-{number}' for number in range(options.hosts))]
    caller(HOSTILE)
    with control_plane.child(
            '-c', control_plane.UWSGI, '--http-socket', f'127.0.0.1:{port}',
            '--master', '--die-on-term', '--enable-threads', '--processes',
            '1', '--threads', '4', '--module',
            'scavenger_openstack.wsgi.conductor',
            SCAVENGER_CONFIG_FILE=str(file)):
        until_s = time.monotonic() + READY_S
        for host, call in hosts:
            while not host.workloads_digest:
                try:
                    host.answered(call(host.report('facts')))
                except errors.Unreachable:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.2)
        show('without', measured(hosts, options.seconds))
        with control_plane.child(
                str(pathlib.Path(__file__).resolve()), '--at-once',
                str(options.at_once), '--attack', f'http://127.0.0.1:{port}',
                directory=here) as hostile:
            for part in (1, 2, 3):
                show(f'beside it, part {part}',
                     measured(hosts, options.seconds))
            control_plane.go(hostile)
            sent = int(control_plane.line(hostile))
            with connect.reading(engine) as connection:
                stored = connection.execute(sqlalchemy.select(
                    sqlalchemy.func.count()).where(
                        tables.incidents.c.victim == '/v/1')).scalar_one()
            print(f'  of the hostile host: {sent} reports sent, {stored} '
                  'stored')
    engine.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=20, help='honest (20)')
    parser.add_argument('--seconds', type=float, default=20.0,
                        help='of each part (20)')
    parser.add_argument('--at-once', type=int, default=8,
                        help='reports of the hostile host (8)')
    parser.add_argument('--sqlite', action='store_true',
                        help='in place of MariaDB')
    parser.add_argument('--attack', metavar='URL', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, pathlib.Path(HOSTILE), options.at_once)
        return
    try:
        with tempfile.TemporaryDirectory() as top:
            here = pathlib.Path(top)
            if options.sqlite:
                run(f'sqlite:///{here}/db', options, here)
                return
            database = mariadb.MariaDb()
            run(database.new_database(), options, here)
            database.close()
    except (process.Missing, errors.ScavengerError) as exc:
        sys.exit(f'hostile_host: {exc}')


if __name__ == '__main__':
    main()
