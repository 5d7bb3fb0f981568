# SPDX-License-Identifier: Apache-2.0

"""Requests made at random out of the document that describes the API.

None may be a fault of the API, and each answer is of the published schema.
``REQUESTS`` and ``SEED`` in the environment make more and other ones.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any
from typing import TYPE_CHECKING
from urllib.parse import quote

import jsonschema

from scavenger_openstack.api.routes import Route
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.api import schemas
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.examples import SEED

REQUESTS = int(os.environ.get('REQUESTS', '500'))

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63, 10 ** 30, -2 ** 63, 0.5,
    1e308, -1e-308, '', ' ', 'x', 'x' * 300, 'x' * 3000, '\x00', '\x1f',
    '\ud800', '\U0001f525', '%', '_', "'; --", '\\', '/', '//', '..', 'null',
    'NaN', '1e999', '9999-12-31T23:59:59Z', '0001-01-01T00:00:00+14:00',
    '2026-02-30', '24:00', '٣', '0-99999', '4-2', '0,,1', [], [[]], {}, {
        'a': {}}, [1], 'ß' * 255)

KNOWN = (cloud.HOST, cloud.BATCH, cloud.VICTIM, cloud.NOISY, cloud.ONE,
         cloud.INCIDENT, cloud.PRIORITY, 'racks', 'cpu_cores', 'cpu_set',
         '2026-01-01', '2999-01-01T00:00:00Z', 'WyJob3N0cyIsMV0')

if TYPE_CHECKING:
    Base = cloud.Api
else:
    Base = object


class Random(Base):
    """On whatever database ``engine`` is."""

    requests = REQUESTS


    def value(self, schema: dict[str, Any]) -> Any:
        """Often what the schema takes, now and then anything."""
        pick = self.random.random()
        if pick < 0.15:
            return self.random.choice(ODD)
        if pick < 0.4:
            return self.random.choice(KNOWN)
        if 'enum' in schema:
            return self.random.choice(schema['enum'])
        kinds = schema.get('type', 'string')
        kind = self.random.choice(kinds) if isinstance(kinds, list) else kinds
        if kind == 'object':
            properties = list(schema.get('properties', {}).items())
            some = self.random.sample(properties, self.random.randint(
                0, min(3, len(properties))))
            some += [(name, inner) for name, inner in properties
                     if name in schema.get('required', ())
                     and self.random.random() < 0.95]
            return {name: self.value(inner) for name, inner in some}
        if kind == 'boolean':
            return self.random.random() < 0.5
        if kind in ('number', 'integer'):
            return self.random.choice((0, 1, 2, 0.3, 7, 100, 1e6))
        if kind == 'null':
            return None
        if schema.get('format') == 'date-time':
            return cloud.at(self.random.uniform(-1e5, 1e5))
        return self.random.choice(('x', 'a reason', cloud.BATCH, '0-3'))

    def request(self, route: Route) -> tuple[str, Any]:
        url = cloud.url(route)
        if self.random.random() < 0.2:
            odd = str(self.random.choice((*ODD, *KNOWN)))
            head, _, tail = url.rpartition('/')
            url = f'{head}/{_quoted(odd) or tail}'
        if self.random.random() < 0.7:
            query = self.value(route.query)
            if isinstance(query, dict):
                url += '?' + '&'.join(
                    f'{_quoted(str(name))}={_quoted(_text(value))}'
                    for name, value in query.items())
        body = None
        if route.body is not None:
            body = json.dumps(self.value(route.body)).encode()
            if self.random.random() < 0.05:
                cut = self.random.randrange(len(body) + 1)
                body = body[:cut] + self.random.randbytes(3)
        return url, body

    def test_random_requests(self) -> None:
        self.random = random.Random(SEED)
        statuses: dict[int, int] = {}
        for number in range(self.requests):
            route = self.random.choice(ROUTES)
            url, body = self.request(route)
            role = self.random.choice((*('admin',) * 8, *cloud.ROLES))
            answer = self.call(route.method, url, body, role=role)
            where = (f'SEED={SEED} request {number} as {role}: '
                     f'{route.method} {url[:300]} {str(body)[:300]}: '
                     f'{answer.status_code} {answer.text[:500]}')
            self.assertLess(answer.status_code, 500, where)
            statuses[answer.status_code] = statuses.get(
                answer.status_code, 0) + 1
            if answer.status_code == 204:
                continue
            schema = (route.answer if answer.status_code == 200
                      else schemas.ERROR)
            self.assertIsNotNone(schema, where)
            try:
                cloud.validate(answer, schema or {})
            except jsonschema.ValidationError as exc:
                self.fail(f'{where}\n{exc}')
        self.assertGreater(statuses[200], self.requests / 10, statuses)
        self.assertGreater(statuses[400], self.requests / 20, statuses)


def _text(value: Any) -> str:
    return (str(value).lower() if isinstance(value, bool) else str(value))


def _quoted(text: str) -> str:
    return quote(text.encode('utf-8', 'surrogatepass'), safe='')
