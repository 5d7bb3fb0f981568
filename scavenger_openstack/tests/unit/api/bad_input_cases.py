# SPDX-License-Identifier: Apache-2.0

"""Requests that are wrong, and a database that cannot be used."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.api import auth
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack.tests.unit.api import cloud

URL = '/v1/exemptions'
WISH = {'scope': 'project', 'target': 'p', 'reason': 'r'}


class BadInput:
    """On whatever database :attr:`engine` is."""

    assertEqual: Any
    assertIn: Any
    assertLess: Any
    call: Any
    client: Any
    engine: Any
    log: Any
    ok: Any
    refused: Any

    def test_urls_and_methods(self) -> None:
        for url in ('/v2', '/v1/nothing', '/v1/hosts/', '/v1//hosts',
                    '/v1/hosts/a/b', '/v1/caps/a/b', '/healthcheck/x',
                    '/v1/%00', '/%ff'):
            self.refused(404, 'GET', url)
        for method, url in (('POST', '/v1/hosts'), ('DELETE', '/v1/audit'),
                            ('PUT', '/'), ('BREW', '/v1/caps')):
            error = self.refused(405, method, url)
            self.assertIn('GET', error['allowed'])

    def test_names_in_urls(self) -> None:
        for name in ('%00', '%ff', 'a%00b', '%ed%a0%80'):
            error = self.refused(400, 'GET', f'/v1/hosts/{name}')
            self.assertEqual('name', error['field'])
        self.refused(404, 'GET', '/v1/hosts/' + 'x' * 5000)

    def test_a_path_in_the_log(self) -> None:
        """Of a request that the API fails at."""
        broken: Any = None
        client = Client(app.create(broken, cloud.configuration(), 'noauth'))
        answer = client.get('/v1/hosts/a%0AERROR%1B[31m%E2%80%A8',
                            headers=cloud.ROLES['admin'])
        self.assertEqual(500, answer.status_code)
        [line] = [line for line in self.log.output.splitlines()
                  if ' failed' in line]
        self.assertIn(r'/v1/hosts/a\nERROR\x1b[31m\u2028', line)

    def test_filters(self) -> None:
        for url, field in (
                ('/v1/hosts?x=1', 'x'), ('/v1/hosts?limit=0', 'limit'),
                ('/v1/hosts?limit=1001', 'limit'),
                ('/v1/hosts?limit=-1', 'limit'),
                ('/v1/hosts?limit=1e2', 'limit'),
                ('/v1/hosts?limit=%D9%A1', 'limit'),
                ('/v1/hosts?limit=' + '9' * 5000, 'limit'),
                ('/v1/hosts?limit=5&limit=6', 'limit'),
                ('/v1/hosts?enforcing=maybe', 'enforcing'),
                ('/v1/hosts?aggregate=', 'aggregate'),
                ('/v1/hosts?aggregate=nowhere', 'aggregate'),
                ('/v1/hosts?aggregate=%ff', 'aggregate'),
                ('/v1/hosts?aggregate=%00', 'aggregate'),
                ('/v1/hosts?%00=1', '\x00'),
                ('/v1/workloads?host=nowhere', 'host'),
                ('/v1/workloads?instance=x', 'instance'),
                (f'/v1/workloads?instance={cloud.VICTIM}%0A', 'instance'),
                ('/v1/workloads?priority=high', 'priority'),
                ('/v1/incidents?outcome=good', 'outcome'),
                ('/v1/incidents?since=yesterday', 'since'),
                ('/v1/incidents?since=2026-13-01', 'since'),
                ('/v1/antagonists?sort=name', 'sort'),
                ('/v1/antagonists?since=2026-01-02&until=2026-01-01',
                 'since'),
                ('/v1/caps?knob=nice', 'knob')):
            error = self.refused(400, 'GET', url)
            self.assertEqual(field, error['field'], url)
            self.assertIn('allowed', error)

    def test_bodies(self) -> None:
        deep = b'{"scope": ' + b'[' * 30000
        for body, words in (
                (b'', 'not JSON'), (b'{', 'not JSON'), (b'null', 'body'),
                (b'[]', 'body'), (b'\xff\xfe', 'UTF-8'),
                (json.dumps(WISH).encode('utf-16'), 'UTF-8'),
                (b'{"scope": NaN}', 'NaN'), (b'{"a": Infinity}', 'Infinity'),
                (b'{"a": 1e999}', 'large'), (b'{"a": ' + b'9' * 9999 + b'}',
                                             'what JSON has not'),
                (b'{"a": 99999999999999999999}', 'large'),
                (b'{"a": 1, "a": 2}', 'twice'), (deep, ''),
                (b'{"reason":' + b'[' * 40 + b']' * 40 + b'}', 'deep'),
                (b'{"reason": "\\ud800"}', 'surrogate'),
                (b'{"reason": "\\u0000"}', 'NUL'),
                (b'{"\\ud800": 1}', 'surrogate')):
            error = self.refused(400, 'POST', URL, body)
            self.assertIn(words, error['detail'], str(body[:60]))
            self.assertLess(len(json.dumps(error)), 1000)

    def test_bodies_that_are_too_long(self) -> None:
        for body in (b'x' * 10_000_000, b'{"reason": "' + b'x' * 70_000):
            error = self.refused(413, 'POST', URL, body)
            self.assertEqual('65536 bytes', error['allowed'])

    def test_bodies_of_another_type(self) -> None:
        answer = self.client.post(URL, data='<xml/>',
                                  content_type='text/xml')
        self.assertEqual((415, 415), (answer.status_code,
                                      cloud.error_of(answer)['code']))

    def test_versions(self) -> None:
        for said, status in (('interference 1.0', 200),
                             ('interference latest', 200),
                             ('compute 2.90', 200),
                             ('compute 2.1, interference 1.0', 200),
                             ('interference 1.1', 406),
                             ('interference 2.0', 406),
                             ('interference x', 400)):
            answer = self.call('GET', '/v1/hosts',
                               headers={'OpenStack-API-Version': said})
            self.assertEqual(status, answer.status_code, said)
            self.assertEqual('interference 1.0',
                             answer.headers['OpenStack-API-Version'])

    def test_a_route_that_asks_no_policy_changes_nothing(self) -> None:
        """It is a fault of ours, and nothing comes out or is stored."""
        (route,) = (route for route in ROUTES
                    if route.id == 'set_exemption')
        bare = app.flask_app(self.engine, cloud.configuration(), 'noauth', (
            route._replace(policy=''),))
        bare.wsgi_app = auth.protected(    # type: ignore[assignment]
            bare.wsgi_app, 'noauth', cloud.configuration())
        answer = bare.test_client().post(URL, json=WISH)
        self.assertEqual(500, answer.status_code)
        self.assertIn('no policy was enforced', self.log.output)
        self.assertEqual(1, len(self.ok('GET', URL)['exemptions']))


class HalfMigrated:
    """What is unusable is one clear line for clients, and one with the cause
    in the log."""

    assertEqual: Any
    assertIn: Any
    assertNotIn: Any
    client: Any
    engine: Any
    log: Any
    refused: Any

    def unusable(self, words: str, cause: str) -> None:
        self.engine.dispose()
        for method, url, body in (('GET', '/v1/incidents', None),
                                  ('GET', '/v1/hosts', None),
                                  ('POST', URL, WISH)):
            error = self.refused(503, method, url, body)
            self.assertIn(words, error['detail'])
        answer = self.client.get('/healthcheck')
        self.assertEqual(503, answer.status_code)
        self.assertIn(words, answer.text)
        self.assertIn(cause, self.log.output)
        self.assertNotIn('Traceback', self.log.output)
        for answer in (self.client.get('/'),
                       self.client.get('/v1/openapi.json')):
            self.assertEqual(200, answer.status_code)

    def changed(self, *statements: str) -> None:
        with connect.writing(self.engine) as connection:
            for statement in statements:
                connection.execute(text(statement))

    def test_half_migrated(self) -> None:
        self.changed('ALTER TABLE incidents RENAME TO i',
                     'ALTER TABLE hosts DROP COLUMN version',
                     'DROP TABLE rules',
                     "UPDATE alembic_version SET version_num = '0000'")
        self.unusable('scavenger-manage db upgrade', 'db upgrade')
