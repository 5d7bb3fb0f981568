# SPDX-License-Identifier: Apache-2.0

"""How long Horizon's server takes for each page of the panel.

The database is that of listings.py: incidents of 30 days, each with suspects,
on 800 hosts with 40,000 workloads.  scavenger-api answers on one CPU, and the
plug-in's views run in Horizon's interpreter on another, with a user whose
catalogue has that API.  For each page the median and the 95th percentile of
the time in the server, the bytes of the page, and the same of the calls of
the API that it makes.  A page that takes more than 300 ms in the 95th
percentile is marked.  Begin it early in an hour: totals are of whole hours.

    .venv/bin/python benchmarks/control_plane/panel_pages.py
        [--incidents 1000000] [--database mariadb] [--times 50]

A million incidents take some minutes to write and 2 GB of disk;
--incidents 10000 --times 5 shows that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import listings
import sqlalchemy

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.db import schema
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.wire import profile

VIEWS = pathlib.Path(__file__).with_name('panel_views.py')
MOST_S = 0.3
"""Of the server part of a page, in the 95th percentile."""
VIEWS_S = 3600.0


def evaluate(port: int, times: int, wanted: list[dict[str, Any]]
             ) -> list[dict[str, Any]]:
    """Return what :mod:`panel_views` measured, by page."""
    environment = packages.environment()
    with tempfile.TemporaryDirectory() as top:
        plugins = packages.plugins(pathlib.Path(top, 'plugins'))
        done = subprocess.run(
            [str(environment / 'bin/python'), '-P', '-W', 'ignore', '-c',
             'import panel_views, sys; sys.exit(panel_views.main())',
             json.dumps({
                 'url': f'http://127.0.0.1:{port}', 'times': times,
                 'pages': wanted})],
            cwd=top, stdout=subprocess.PIPE, text=True, timeout=VIEWS_S,
            stdin=subprocess.DEVNULL, env={
                'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': top,
                'TMPDIR': top, 'PYTHONPATH': f'{plugins}:{VIEWS.parent}',
                'LC_ALL': 'C.UTF-8', 'PYTHONDONTWRITEBYTECODE': '1'})
    if done.returncode:
        sys.exit(f'panel_pages: {VIEWS.name} ended with {done.returncode}')
    measured: list[dict[str, Any]] = json.loads(
        done.stdout.splitlines()[-1])
    return measured


def store_profiles(engine: sqlalchemy.Engine) -> list[str]:
    """Store profiles of two applications of each project; return their ids.
    """
    estimate = {'value': 0.4, 'low': 0.3, 'high': 0.5}
    with engine.begin() as connection:
        changes = [profiles.set_profile(connection, profile.of_json({
            'kind': 'application', 'target': name, 'source': 'measured',
            'project': listings.project_of(number), 'measured_s': time.time(),
            'tolerated': dict.fromkeys(profile.SOI_NAMES, estimate),
            'caused': dict.fromkeys(profile.SOI_NAMES, estimate)}),
            created_by='panel_pages', now_s=time.time())
            for number in range(listings.PROJECTS)
            for name in ('shop', 'batch')]
    return [change.after['uuid'] for change in changes if change]


def pages(incidents: int, profile_ids: list[str]) -> list[dict[str, Any]]:
    """Return the pages: what is printed, the name of the URL, and arguments,
    queries and projects of the user, of which each request takes the next.
    """
    admin, project = ('horizon:admin:interference:',
                      'horizon:project:disturbances:')
    newest = [listings.incident_of(incidents - 1 - number)
              for number in range(20)]
    oldest = [listings.incident_of(number) for number in range(20)]

    def tab(slug: str, *queries: dict[str, str]) -> dict[str, Any]:
        text = ' and '.join(queries[0]) if queries else ''
        return {'name': f'{slug}{text and ", " + text}',
                'url': f'{admin}index', 'queries': [
                    {'tab': f'interference__{slug}', **query}
                    for query in queries or ({},)]}

    workloads = range(0, listings.ALL, listings.ALL // 20)
    return [
        tab('overview'), tab('incidents'),
        tab('incidents', *({'host': f'node-{listings.host_of(one)}'}
                           for one in workloads)),
        tab('incidents', *({'project': listings.project_of(one)}
                           for one in workloads)),
        tab('incidents', *({'cause': one} for one in listings.CAUSES)),
        tab('incidents', *({'cause': cause, 'outcome': outcome}
                           for cause in listings.CAUSES
                           for outcome in sorted(set(listings.OUTCOMES)))),
        tab('antagonists'), tab('limits'), tab('hosts'),
        {'name': 'an incident of today', 'url': f'{admin}incident',
         'arguments': [[one] for one in newest]},
        {'name': 'an incident of last month', 'url': f'{admin}incident',
         'arguments': [[one] for one in oldest]},
        tab('profiles'),
        {'name': 'a profile', 'url': f'{admin}profile',
         'arguments': [[one] for one in profile_ids]},
        {'name': 'a tenant: profiles', 'url': f'{project}profiles',
         'projects': [listings.project_of(one) for one in range(20)]},
        {'name': 'a tenant: its instances', 'url': f'{project}index',
         'projects': [listings.project_of(one) for one in range(20)]}]


def show(rows: list[dict[str, Any]]) -> None:
    print(f'{"page":<28}{"p50 ms":>8}{"p95 ms":>8}{"kB":>8}'
          f'{"API p50":>9}{"API p95":>9}{"API kB":>8}  calls')
    for row in rows:
        if 'skipped' in row:
            print(f'{row["name"]:<28}  {row["skipped"]}')
            continue
        pages_s, calls_s = sorted(row['page_s']), sorted(row['api_s'])
        p95_s = listings.percentile(pages_s, 0.95)
        print(f'{row["name"]:<28}'
              f'{1e3 * listings.percentile(pages_s, 0.5):8.1f}'
              f'{1e3 * p95_s:8.1f}{row["page_bytes"] / 1e3:8.1f}'
              f'{1e3 * listings.percentile(calls_s, 0.5):9.1f}'
              f'{1e3 * listings.percentile(calls_s, 0.95):9.1f}'
              f'{row["api_bytes"] / 1e3:8.1f}  {", ".join(row["calls"])}'
              f'{"  MORE THAN 300 ms" if p95_s > MOST_S else ""}')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--incidents', type=int, default=1_000_000)
    parser.add_argument('--database', default='mariadb',
                        choices=sorted(listings.SERVERS))
    parser.add_argument('--times', type=int, default=50,
                        help='that each page is asked for (50)')
    parser.add_argument('--evidence', type=float, default=0.01,
                        help='share of incidents with their series (0.01)')
    parser.add_argument('--cpu', type=int,
                        default=max(os.sched_getaffinity(0)),
                        help='that the API runs on (the last)')
    options = parser.parse_args()
    try:
        server = listings.SERVERS[options.database]()
    except process.Missing as exc:
        sys.exit(f'panel_pages: {exc}')
    try:
        url, began_s = server.new_database(), time.monotonic()
        engine = connect.engine(url)
        schema.upgrade(engine)
        listings.fill(engine, options.incidents, options.evidence,
                      time.time())
        profile_ids = store_profiles(engine)
        engine.dispose()
        print(f'{options.database}, {options.incidents:,} incidents, written '
              f'in {time.monotonic() - began_s:.0f} s', flush=True)
        with listings.api(url, options.cpu) as port:
            show(evaluate(port, options.times,
                          pages(options.incidents, profile_ids)))
    finally:
        server.close()


if __name__ == '__main__':
    main()
