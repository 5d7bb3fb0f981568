# SPDX-License-Identifier: Apache-2.0

"""Requests to an API behind a real socket, whatever it answers."""

from __future__ import annotations

from concurrent import futures
import contextlib
import copy
import socket
import threading
import time
from typing import Any

from horizon import exceptions
from keystoneauth1 import token_endpoint

from scavenger_openstack.dashboard import client
from scavenger_openstack.tests.unit.dashboard import cloud

HOSTS = client.path_of('hosts')


class Trickle:
    """Answers the first request byte by byte, for as long as it is read."""

    def __init__(self, head: bytes) -> None:
        self._head = head

    def __enter__(self) -> str:
        self._socket = socket.create_server(('127.0.0.1', 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f'http://127.0.0.1:{self._socket.getsockname()[1]}'

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client_, _ = self._socket.accept()
            with client_:
                client_.recv(65536)
                client_.sendall(self._head)
                for _ in range(200):
                    client_.sendall(b'x')
                    time.sleep(0.05)

    def __exit__(self, *args: object) -> None:
        self._socket.close()
        self._thread.join()


class Client(cloud.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.api.answers['GET', HOSTS] = {'hosts': [], 'next': None}

    def failed(self, kind: type[Exception], path: str = HOSTS) -> Exception:
        with self.assertRaises(kind) as caught:
            client.get(self.request, path)
        return caught.exception

    def another_request(self) -> Any:
        request = copy.copy(self.request)
        delattr(request, client.DEADLINE)
        return request

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

    def test_answers_that_do_not_end_hold_no_thread(self) -> None:
        """Whether the head or the body of the answer comes byte by byte."""
        for head in (b'HTTP/1.1 200 OK\r\nX: ',
                     b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n'):
            with Trickle(head) as url:
                connections = client.Connections()
                call = client.POOL.submit(
                    client.exchange, connections, token_endpoint.Token(
                        url, 'token'), url, 'GET', {}, None, 5.0)
                self.assertRaises(TimeoutError, call.result, 0.5)
                connections.end()
                self.assertIn(call, futures.wait([call], 2.0).done)

    def test_a_connection_that_comes_too_late(self) -> None:
        with Trickle(b'') as url:
            connections = client.Connections()
            connections.end()
            call = client.POOL.submit(
                client.exchange, connections, token_endpoint.Token(
                    url, 'token'), url, 'GET', {}, None, 5.0)
            self.assertIsNotNone(call.exception(2.0))

    def test_a_slow_call_is_ended(self) -> None:
        """Its thread serves the next one."""
        self.addCleanup(setattr, client, 'POOL', client.POOL)
        client.POOL = futures.ThreadPoolExecutor(1)
        self.addCleanup(client.POOL.shutdown)
        self.api.raw, self.api.dribble_s = b' ' * 400, 0.05
        self.failed(client.Unavailable)
        self.api.raw = None
        self.assertEqual({'hosts': [], 'next': None},
                         client.get(self.another_request(), HOSTS))

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
        self.api.answers['GET', HOSTS] = (302, {})
        self.failed(client.Unavailable)
        self.assertEqual(1, len(self.api.requests))

    def test_messages_are_printable(self) -> None:
        self.api.status, self.api.error = 400, '\x1b[31mred\x07'
        self.assertNotIn('\x1b', str(self.failed(client.Refused)))
