# SPDX-License-Identifier: Apache-2.0

"""Requests of pages that come from elsewhere (CORS)."""

from __future__ import annotations

import pathlib

import fixtures
from oslo_config import cfg
from werkzeug.test import Client
from werkzeug.test import TestResponse

from scavenger_openstack.api import app
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack import conf as conf_
from scavenger_openstack.tests.unit.api import cloud

HORIZON = 'https://horizon.example.org'
PREFIX = 'access-control-'
OTHER = 'https://other.example.org'


class Cors(cloud.Api):

    def setUp(self) -> None:
        super().setUp()
        self.configure(f'[cors]\nallowed_origin = {HORIZON}\n')

    def configure(self, text: str) -> None:
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text(f'{text}[api]\nhttp_basic_file = '
                        f'{self.password_file()}\n')
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf(['--config-file', str(file)], default_config_dirs=[])
        self.client = Client(app.create(self.engine, conf, 'http_basic'))

    def preflight(self, origin: str, method: str, *headers: str
                  ) -> dict[str, str]:
        """The answer to a preflight request of a browser."""
        return _cors(self.client.options('/v1/protection', headers={
            'Origin': origin, 'Access-Control-Request-Method': method,
            'Access-Control-Request-Headers': ','.join(headers)}))

    def test_before_a_request(self) -> None:
        """It has no credentials yet."""
        for method in {route.method for route in ROUTES}:
            found = self.preflight(
                HORIZON, method, 'x-auth-token', 'authorization',
                'content-type', 'openstack-api-version',
                'x-openstack-request-id')
            self.assertEqual((HORIZON, method, 'true'), tuple(
                found[f'allow-{name}'] for name in ('origin', 'methods',
                                                    'credentials')))
            self.assertIn('x-auth-token', found['allow-headers'])

    def test_before_one_that_is_not_allowed(self) -> None:
        self.assertEqual({}, self.preflight(OTHER, 'GET', 'x-auth-token'))
        self.assertEqual({}, self.preflight(HORIZON, 'TRACE'))
        self.assertEqual({}, self.preflight(HORIZON, 'GET', 'x-roles'))

    def test_a_request(self) -> None:
        """Also one that is refused: the page may read why."""
        for url in ('/v1', '/v1/hosts', '/healthcheck'):
            answer = self.client.get(url, headers={'Origin': HORIZON})
            found = _cors(answer)
            self.assertEqual(HORIZON, found['allow-origin'], url)
            self.assertEqual(
                {'OpenStack-API-Version', 'X-OpenStack-Request-ID'},
                set(found['expose-headers'].split(',')))
            self.assertIn('X-Openstack-Request-Id', answer.headers)

    def test_a_request_of_another_origin(self) -> None:
        for headers in ({'Origin': OTHER}, {'Origin': HORIZON + '.evil'}, {}):
            answer = self.client.get('/v1', headers=headers)
            self.assertEqual((200, {}), (answer.status_code, _cors(answer)))

    def test_none_is_allowed_by_default(self) -> None:
        self.configure('')
        self.assertEqual({}, self.preflight(HORIZON, 'GET'))
        self.assertEqual({}, _cors(self.client.get(
            '/v1', headers={'Origin': HORIZON})))

    def test_other_headers(self) -> None:
        self.configure(f'[cors]\nallowed_origin = {HORIZON}\n'
                       'allow_headers = X-Mine\n')
        self.assertNotEqual({}, self.preflight(HORIZON, 'GET', 'X-Mine'))
        self.assertEqual({}, self.preflight(HORIZON, 'GET', 'X-Auth-Token'))


def _cors(answer: TestResponse) -> dict[str, str]:
    """Its headers of CORS, without what all their names begin with."""
    return {name.lower().removeprefix(PREFIX): value
            for name, value in answer.headers.items()
            if name.lower().startswith(PREFIX)}
