# SPDX-License-Identifier: Apache-2.0

"""A call for each URL of the API, and the samples that the reference shows.

``python -m scavenger_openstack.tests.unit.sdk.calls`` prints the samples.
"""

from __future__ import annotations

from collections.abc import Iterator
import json
import pathlib
import re
import sys
import tempfile
from typing import Any
import uuid

from openstack import connection

from scavenger_openstack.api import app
from scavenger_openstack.api.routes import Route
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack import sdk
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.sdk import connected

SAMPLES = pathlib.Path(__file__).parents[4] / (
    'doc/source/reference/api-samples.json')
NOW_S = 1_900_000_800.0
HOUR_S = 3600
RANDOM = re.compile(r'req-[0-9a-f-]{36}|\b[0-9a-f]{32}\b')

WHY: Any = {'reason': 'a test'}
PROJECT: Any = {'scope': 'project', 'target': cloud.ONE, **WHY}
CAP = cloud.HOST, 'cpu_cores', cloud.BATCH
PAGE: Any = {'limit': 1}
PROJECT = {'scope': 'project', 'target': cloud.ONE, **WHY}
CAP = cloud.HOST, 'cpu_cores', cloud.BATCH


def calls() -> tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]:
    """Return methods of the proxy, in an order in which each is allowed,
    and their arguments."""
    return (
        ('hosts', (), PAGE), ('get_host', (cloud.HOST,), {}),
        ('update_host', (cloud.HOST,), {'modes': {'cpi2': 'observe'}, **WHY}),
        ('get_aggregate', ('racks',), {}),
        ('update_aggregate', ('racks',), {'profiling': True, **WHY}),
        ('get_summary', (), {}), ('get_overview', (), {}),
        ('get_report', (), {'limit': 5}),
        ('workloads', (), {'gone': True, **PAGE}),
        ('incidents', (), PAGE), ('get_incident', (cloud.INCIDENT,), {}),
        ('antagonists', (), PAGE), ('evictions', (), PAGE),
        ('create_eviction', (), {'instance': cloud.NOISY, 'how': 'pause',
                                 'dry_run': True, **WHY}),
        ('get_eviction', (cloud.EVICTION,), {}),
        ('caps', (), {'in_force': True, **PAGE}), ('overrides', (), PAGE),
        ('set_override', CAP, {'value': 0.4, 'expires_at': cloud.at(HOUR_S),
                               **WHY}),
        ('delete_override', CAP, WHY), ('priorities', (), PAGE),
        ('set_priority', (), {'value': 'background', **PROJECT}),
        ('delete_priority', (cloud.PRIORITY,), WHY), ('exemptions', (), PAGE),
        ('set_exemption', (), PROJECT),
        ('delete_exemption', (cloud.EXEMPTION,), WHY), ('profiles', (), PAGE),
        ('create_profile', (), cloud.profile()),
        ('get_profile', (cloud.PROFILE,), {}),
        ('delete_profile', (cloud.PROFILE,), WHY), ('profilings', (), PAGE),
        ('get_profiling', (cloud.PROFILING,), {}),
        ('delete_profiling', (cloud.PROFILING,), WHY), ('specs', (), PAGE),
        ('protection', (), PAGE),
        ('set_protection', (), {'scope': 'host', 'target': cloud.HOST,
                                'enabled': True, **WHY}),
        ('create_profiling', (), {'host': cloud.HOST, 'workload': cloud.VICTIM,
                                  **WHY}),
        ('governor', (), PAGE),
        ('set_governor', (), {'scope': 'cloud', 'target': '',
                              'caps_per_minute': None, **WHY}),
        ('audit', (), PAGE))


def route_of(method: str, url: str) -> Route:
    """Return the most literal route of a URL."""
    for route in sorted(ROUTES, key=lambda route: '{' in route.path):
        path = re.sub('{workload}', '.+', route.path)
        path = re.sub('{.*?}', '[^/]+', path)
        if route.method == method and re.fullmatch(path, url):
            return route
    raise LookupError(f'{method} {url}')


def call(client: Any, name: str, words: tuple[Any, ...],
         options: dict[str, Any]) -> Any:
    """Return what a call returns; of a listing the first row."""
    answer = getattr(client, name)(*words, **options)
    return next(answer) if isinstance(answer, Iterator) else answer


def samples(client: connection.Connection) -> dict[str, dict[str, Any]]:
    """Return the request and the answer of each call, by their route."""
    made = {}

    def note(response: Any, *words: Any, **more: Any) -> None:
        request = response.request
        path, _, _ = request.path_url.partition('?')
        made[route_of(request.method, path).id] = {
            'request': f'{request.method} {request.path_url}',
            'body': dict(sorted(json.loads(request.body).items()))
            if request.body else None,
            'answer': response.json() if response.content else None}

    sdk.register(client)
    client.session.session.hooks['response'].append(note)
    for name, words, options in calls():
        call(client.interference, name, words,    # type: ignore
             options)
    return made


def text() -> str:
    """Return the samples of the cloud of the tests, at a fixed time; ids
    that are made up at random are numbered."""
    cloud.NOW_S = NOW_S
    numbers: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        id_ = match[0]
        if len(set(id_)) == 1:      # of the cloud itself
            return id_
        made = f'{len(numbers) + 1:032x}'
        if id_.startswith('req-'):
            made = f'req-{uuid.UUID(made)}'
        return numbers.setdefault(id_, made)

    with tempfile.TemporaryDirectory() as top:
        path = pathlib.Path(top, 'database')
        path.write_bytes(cloud._filled())
        engine = connect.engine(f'sqlite:///{path}')
        try:
            application = app.create(engine, cloud.configuration(), 'noauth',
                                     clock=lambda: NOW_S)
            made = samples(connected.connect(
                application, headers=cloud.ROLES['admin']))
        finally:
            engine.dispose()
    return RANDOM.sub(number, json.dumps(made, indent=1)) + '\n'


if __name__ == '__main__':
    sys.stdout.write(text())
