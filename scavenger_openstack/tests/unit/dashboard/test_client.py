# SPDX-License-Identifier: Apache-2.0

"""Requests to an API behind a real socket, whatever it answers."""

from __future__ import annotations

import time

from horizon import exceptions

from scavenger_openstack.dashboard import client
from scavenger_openstack.tests.unit.dashboard import cloud

HOSTS = client.path_of('hosts')


class Client(cloud.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.api.answers['GET', HOSTS] = {'hosts': [], 'next': None}

    def failed(self, kind: type[Exception], path: str = HOSTS) -> Exception:
        with self.assertRaises(kind) as caught:
            client.get(self.request, path)
        return caught.exception

    def test_what_is_sent(self) -> None:
        client.get(self.request, HOSTS, limit=3, enforcing=False, host='',
                   marker=None, name='a b&c')
        (seen,) = self.api.requests
        self.assertEqual({'limit': '3', 'enforcing': 'false',
                          'name': 'a b&c'}, seen.query)
        self.assertEqual(self.token.id, seen.headers['X-Auth-Token'])
        self.assertEqual('interference 1.0',
                         seen.headers['OpenStack-API-Version'])

    def test_paths(self) -> None:
        self.assertEqual('/v1/caps/h%2F1/%2Fbatch%2Fa%3Fb%23c',
                         client.path_of('caps', 'h/1', '/batch/a?b#c'))
        for part in ('', '.', '..'):
            self.assertRaises(client.NotFound, client.path_of, 'hosts', part)

    def test_slow(self) -> None:
        """All calls of a page together have two seconds."""
        self.api.delay_s = 1.2
        begun_s = time.monotonic()
        client.get(self.request, HOSTS)
        self.failed(client.Unavailable)
        self.failed(client.Unavailable)
        self.assertLess(time.monotonic() - begun_s, 3.0)

    def test_an_answer_that_does_not_end(self) -> None:
        self.api.raw, self.api.dribble_s = b' ' * 100, 0.1
        begun_s = time.monotonic()
        self.failed(client.Unavailable)
        self.assertLess(time.monotonic() - begun_s, 4.0)

    def test_a_change_has_time_of_its_own(self) -> None:
        self.api.delay_s = 1.2
        client.get(self.request, HOSTS)
        self.api.answers['PUT', HOSTS] = {'hosts': []}
        self.assertEqual({'hosts': []}, client.send(
            self.request, 'PUT', HOSTS, {'enabled': True}))
        self.assertEqual([{'enabled': True}],
                         [seen.body for seen in self.api.sent('PUT')])

    def test_down(self) -> None:
        self.api.shutdown()
        self.api.server_close()
        self.failed(client.Unavailable)

    def test_not_in_the_catalogue(self) -> None:
        self.request.user.service_catalog = [
            service for service in self.request.user.service_catalog
            if service['type'] != 'interference']
        self.assertIn('interference', str(self.failed(client.Unavailable)))

    def test_refused(self) -> None:
        for status, kind in ((400, client.Refused), (403, client.Forbidden),
                             (404, client.NotFound), (409, client.Refused),
                             (500, client.Unavailable),
                             (503, client.Unavailable)):
            self.api.status, self.api.error = status, f'why {status}'
            problem = self.failed(kind)
            self.assertIn(str(status), str(problem))
            # A fault of the API is none of its readers.
            self.assertEqual(status < 500, 'why' in str(problem))

    def test_expired(self) -> None:
        """Horizon asks for a new login."""
        self.api.status = 401
        self.failed(exceptions.NotAuthenticated)

    def test_foreign_answers(self) -> None:
        for raw in (b'<html>', b'[]', b'1', b'', b'\xff', b'[' * 100_000):
            self.api.raw = raw
            self.failed(client.Unavailable)
        self.api.raw = b'"' + b'x' * client.ANSWER_BYTES + b'"'
        self.failed(client.Unavailable)

    def test_a_redirect_is_not_followed(self) -> None:
        """The token is not taken elsewhere."""
        self.api.status, self.api.answers['GET', HOSTS] = 302, {}
        self.failed(client.Unavailable)
        self.assertEqual(1, len(self.api.requests))

    def test_messages_are_printable(self) -> None:
        self.api.status, self.api.error = 400, '\x1b[31mred\x07'
        self.assertNotIn('\x1b', str(self.failed(client.Refused)))
