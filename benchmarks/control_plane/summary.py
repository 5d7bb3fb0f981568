# SPDX-License-Identifier: Apache-2.0

"""What a summary of the cloud costs with interference profiles and without.

A new SQLite database with hosts of 40 workloads, each of an application or a
flavor that has a profile of all 17 sources of interference; then requests for
/v1/summary, each after the cache of the one before has ended.  Of each host
the share of workloads that --changed says is another one each time.  The
least CPU time of --times requests is printed, and that of the first.

    python benchmarks/control_plane/summary.py [--hosts 1000]
        [--profiles 500] [--changed 0.01] [--times 40]
"""

from __future__ import annotations

import argparse
import pathlib
import random
import tempfile
import time

import cloud
import sqlalchemy
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import profile

FLAVORS = 100
EXPIRED_S = 6.0
AT_ONCE = 5000


def fill(engine: sqlalchemy.Engine, hosts: int) -> None:
    facts, now = codec.plain(cloud.FACTS), time.time()
    with connect.writing(engine) as connection:
        connection.execute(tables.hosts.insert(), [
            {'name': cloud.host_name(number), 'enforcing': True,
             'facts': facts, 'settings': {}, 'first_seen_s': now,
             'last_seen_s': now, 'workloads_digest': cloud.DIGEST}
            for number in range(hosts)])
        for first in range(0, hosts * cloud.WORKLOADS, AT_ONCE):
            connection.execute(tables.workloads.insert(), [
                {'host_id': number // cloud.WORKLOADS + 1,
                 'name': cloud.instance(number), 'kind': 'instance',
                 'flavor': f'm{number % FLAVORS}',
                 'project': cloud.project(number),
                 'application': cloud.application(number) * (number % 3 > 0),
                 'priority': cloud.priority(number), 'vcpus': 2.0,
                 'floor': {}, 'since_s': now}
                for number in range(first, min(
                    first + AT_ONCE, hosts * cloud.WORKLOADS))])


def add_profiles(engine: sqlalchemy.Engine, count: int) -> None:
    """Of all flavors first, and then of applications of projects."""
    chance = random.Random(1)

    def side() -> dict[str, dict[str, float]]:
        return {soi: {'value': round(chance.random(), 3), 'low': 0.0,
                      'high': 1.0} for soi in profile.SOI_NAMES}

    with connect.writing(engine) as connection:
        for number in range(count):
            of = {'kind': 'flavor', 'target': f'm{number}'} \
                if number < FLAVORS else {
                    'kind': 'application', 'project': cloud.project(number),
                    'target': cloud.application(number)}
            profiles.set_profile(connection, profile.of_json({
                **of, 'source': 'measured', 'measured_s': 0.0,
                'tolerated': side(), 'caused': side()}), created_by='',
                now_s=0.0)


def change(engine: sqlalchemy.Engine, hosts: int, share: float, turn: int
           ) -> None:
    """Let that share of the hosts report another list of workloads."""
    first = turn * round(hosts * share) % hosts
    with connect.writing(engine) as connection:
        connection.execute(tables.hosts.update().where(
            tables.hosts.c.id > first,
            tables.hosts.c.id <= first + hosts * share).values(
                workloads_digest=f'turn-{turn}'))


def measure(engine: sqlalchemy.Engine, arguments: argparse.Namespace
            ) -> str:
    clock = [time.time()]
    client = Client(app.create(engine, auth='noauth',
                               clock=lambda: clock[0]))
    took_s, answer = [], b''
    for turn in range(arguments.times):
        change(engine, arguments.hosts, arguments.changed, turn)
        clock[0] += EXPIRED_S
        began_s = time.process_time()
        answer = client.get('/v1/summary', headers={
            'X-Roles': 'admin', 'X-Project-Id': 'p'}).data
        took_s.append(time.process_time() - began_s)
    return (f'{1e3 * min(took_s[1:]):6.1f} ms, the first '
            f'{1e3 * took_s[0]:6.1f} ms; {len(answer) / 1e3:,.0f} kB')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--profiles', type=int, default=500)
    parser.add_argument('--changed', type=float, default=0.01)
    parser.add_argument('--times', type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        engine = connect.engine(
            f'sqlite:///{pathlib.Path(directory, "scavenger.sqlite")}')
        schema.upgrade(engine)
        fill(engine, arguments.hosts)
        print(f'{arguments.hosts} hosts, {cloud.WORKLOADS} workloads each, '
              f'CPU time of one summary:\n  without profiles '
              f'{measure(engine, arguments)}')
        add_profiles(engine, arguments.profiles)
        print(f'  {arguments.profiles:8} profiles '
              f'{measure(engine, arguments)}')
        engine.dispose()


if __name__ == '__main__':
    main()
