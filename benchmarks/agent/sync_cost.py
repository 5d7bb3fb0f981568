# SPDX-License-Identifier: Apache-2.0

"""What it costs the agent to report to a conductor.

Runs the agent as slow_loop.py beside this file does, by turns without a
control plane and with one: RabbitMQ, and a conductor on SQLite, each a process
of its own.  Prints CPU per tick, of the thread that does the ticks and of the
whole agent, its memory both times, and the ratios in each pair: what the
control plane costs the ticks, and what its own thread takes besides.

    python benchmarks/agent/sync_cost.py [--workloads 50] [--pairs 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import slow_loop
import sqlalchemy

from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq

AGENT = '''[DEFAULT]
transport_url = {url}
[conductor]
enabled = true
sync_s = {sync_s:g}
'''


@contextlib.contextmanager
def control_plane(url: str) -> Iterator[connect.Engine]:
    """Its database, with a conductor that takes calls from the broker."""
    with tempfile.TemporaryDirectory() as where:
        directory = pathlib.Path(where)
        database = f'sqlite:///{directory}/database'
        engine = connect.engine(database)
        schema.upgrade(engine)
        file = directory / 'conf'
        file.write_text(f'[DEFAULT]\ntransport_url = {url}\n'
                        f'[database]\nconnection = {database}\n')
        with (directory / 'log').open('w') as log, subprocess.Popen(
                [sys.executable, '-m', 'scavenger_openstack.cmd.conductor',
                 '--config-file', str(file)], stderr=log) as conductor:
            try:
                yield engine
            finally:
                conductor.terminate()
                engine.dispose()


def last_report_s(engine: connect.Engine) -> float:
    """When the agent was heard last, in UNIX time; 0 for never."""
    with connect.reading(engine) as connection:
        return connection.scalar(sqlalchemy.select(sqlalchemy.func.max(
            tables.hosts.c.last_seen_s))) or 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--workloads', type=int, default=50,
                        help='of the host (50)')
    parser.add_argument('--pairs', type=int, default=3,
                        help='measurements without and with (3)')
    parser.add_argument('--sync-s', type=float, default=10,
                        help='seconds between reports (10)')
    parser.add_argument('--warm-up', type=float, default=12,
                        help='seconds before each measurement (12)')
    parser.add_argument('--seconds', type=float, default=30,
                        help='of each measurement (30)')
    args = parser.parse_args()
    try:
        broker = rabbitmq.RabbitMq()
    except process.Missing as exc:
        sys.exit(f'sync_cost: {exc}')
    try:
        with control_plane(broker.url) as engine:
            ratios = [pair(engine, broker.url, args)
                      for _ in range(args.pairs)]
    finally:
        broker.close()
    ticks, agent = (statistics.median(kind)
                    for kind in zip(*ratios, strict=True))
    print(f'median of {len(ratios)} pairs: a tick {ticks:.3f} times, the '
          f'agent with all threads {agent:.3f} times')
    return 0


def pair(engine: connect.Engine, url: str, args: argparse.Namespace
         ) -> tuple[float, float]:
    """Measure without and with; the ratios of ticks and of the agent."""
    rows = []
    for config in ('', AGENT.format(url=url, sync_s=args.sync_s)):
        rows.append(slow_loop.measure(args.workloads, 10, args.warm_up,
                                      args.seconds, config=config))
    if time.time() - last_report_s(engine) > args.seconds:
        sys.exit('sync_cost: the conductor was not reached')
    without, with_ = rows
    ticks = with_['tick_us'] / without['tick_us']
    agent = with_['us_per_workload'] / without['us_per_workload']
    print(f'{args.workloads} workloads, without and with: '
          + ', '.join(f'{row["tick_us"]:.0f} us of CPU per tick, '
                      f'{row["us_per_workload"] * args.workloads:.0f} with '
                      f'all threads, {row["rss_bytes"] / 2**20:.1f} MiB'
                      for row in rows)
          + f'; {ticks:.3f} and {agent:.3f} times', flush=True)
    return ticks, agent


if __name__ == '__main__':
    sys.exit(main())
