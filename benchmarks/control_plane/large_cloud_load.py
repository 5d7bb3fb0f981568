# SPDX-License-Identifier: Apache-2.0

"""Reports of a large cloud, to two conductors over HTTP, and its summary."""

from __future__ import annotations

from collections.abc import Iterator
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import statistics
import tempfile
import time
from typing import Any

import cloud
import control_plane
import figures
import listings
import senders
import sqlalchemy

from scavenger_openstack.tests.functional.servers import process

CONDUCTORS = 2
SENDERS = 4
"""Processes that send, each to one conductor."""
RATE = 250
"""Hosts that report every 10 s, for each second of the machine's: with more
of them each reports less often while it is played."""
SCHEDULERS = 48
SUMMARY_S = 10.0
"""Each asks for the summary once in so long."""


def play(engine: sqlalchemy.Engine, url: str, measured: figures.Figures,
         hosts: int, seconds: float, server: Any) -> None:
    """
    :param server: of the database
    """
    some = min(hosts, RATE * control_plane.SYNC_S) // SENDERS * SENDERS
    with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as stack:
        here = pathlib.Path(top)
        configure(here, url)
        conductors = [stack.enter_context(conductor(here, number))
                      for number in range(CONDUCTORS)]
        sending = [stack.enter_context(control_plane.child(
            senders.__file__, 'token', conductors[number % CONDUCTORS][1],
            str(seconds), '--cloud',
            f'{hosts // some * number}:{some // SENDERS}:'
            f'{hosts // some * SENDERS}', directory=here))
            for number in range(SENDERS)]
        for child in sending:
            if control_plane.line(child).strip() != senders.READY:
                raise SystemExit('large_cloud: no report is answered')
        pids = [pid for pid, _ in conductors]
        with listings.api(url, 0) as port:
            measured.add('summary, kB', len(answer(port)) / 1e3)
            quiet = listings.measure(port, ['/v1/summary'],
                                     SCHEDULERS / SUMMARY_S, seconds / 4)
            size = control_plane.disk_bytes(engine)
            used = [cpu_s(pids), cpu_s(server.pids)]
            begun_s = time.monotonic()
            for child in sending:
                control_plane.go(child)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                asked = pool.submit(
                    listings.measure, port, ['/v1/summary'],
                    SCHEDULERS / SUMMARY_S, seconds * 0.9)
                answers = [json.loads(control_plane.line(child))
                           for child in sending]
                took_s = time.monotonic() - begun_s
                used = [cpu_s(pids) - used[0], cpu_s(server.pids) - used[1]]
                busy = asked.result()
        size = control_plane.disk_bytes(engine) - size
        times_s = sorted(time_s for sent in answers
                         for time_s in sent['times_s'])
        note = f'{len(times_s):,} reports of {some:,} hosts in {took_s:.0f} s'
        measured.add('reports a second', len(times_s) / took_s, note)
        measured.add('reports that were not taken',
                  sum(sent['refused'] for sent in answers))
        for what, share in ('median', 0.5), ('p99', 0.99):
            measured.add(f'a report, {what}, ms',
                      1e3 * listings.percentile(times_s, share))
        for what, seconds_ in zip(('conductors', 'database'), used,
                                  strict=True):
            measured.add(f'CPU of {what}, ms a report',
                      1e3 * seconds_ / len(times_s))
        all_s = hosts / control_plane.SYNC_S / len(times_s)
        for what, seconds_ in zip(('conductors', 'database'), used,
                                  strict=True):
            measured.add(f'CPUs of {what} for all hosts', seconds_ * all_s,
                      f'{hosts / control_plane.SYNC_S:,.0f} reports/s')
        measured.add('growth an hour for all hosts, MB',
                  size / len(times_s) * hosts * cloud.REPORTS_OF_HOUR / 1e6,
                  'with statistics, which specs are made of each hour')
        for kind in ('reports', 'work'):
            measured.add(f'longest transaction of {kind}, s', max(
                json.loads(file.read_text())[kind]
                for file in here.glob('times-*')))
    for what, times_s in (('alone', quiet), ('beside reports', busy)):
        measured.add(f'summary {what}, median, ms',
                  1e3 * statistics.median(times_s))
        measured.add(f'summary {what}, p99, ms',
                  1e3 * listings.percentile(times_s, 0.99),
                  f'{SCHEDULERS} schedulers')


def configure(directory: pathlib.Path, url: str) -> None:
    """Write what conductors and senders need.

    :param url: of the database
    """
    (directory / 'token').touch(mode=0o600)
    (directory / 'token').write_text(cloud.TOKEN)
    (directory / 'conf').write_text(f'[database]\nconnection = {url}\n')


@contextlib.contextmanager
def conductor(directory: pathlib.Path, number: int, threads: int = 4
              ) -> Iterator[tuple[int, str]]:
    """A conductor of one process: its id, and where it takes reports.

    :param directory: with its ``conf``; gets the times of its transactions
    """
    port = process.free_port()
    with control_plane.child(
            '-c', control_plane.UWSGI, '--http-socket', f'127.0.0.1:{port}',
            '--master', '--die-on-term', '--enable-threads',
            '--processes', '1', '--threads', str(threads),
            '--buffer-size', '16384', '--pythonpath',
            str(pathlib.Path(__file__).parent), '--module',
            'timed_conductor', SCAVENGER_CONFIG_FILE=str(directory / 'conf'),
            SCAVENGER_TIMES=str(directory / f'times-{number}')) as master:
        yield master.pid, f'http://127.0.0.1:{port}'


def cpu_s(pids: list[int]) -> float:
    """CPU time of processes and their children, in seconds."""
    return control_plane.cpu(*(pid for top in pids
                               for pid in control_plane.family(top)))


def answer(port: int) -> bytes:
    """A summary."""
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    connection.request('GET', '/v1/summary')
    body = connection.getresponse().read()
    connection.close()
    return body
