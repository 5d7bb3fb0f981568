# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
import http.server
import pathlib
import socket
import ssl
import threading
import time

import fixtures
import testtools

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.agent.control_plane import certificates


class Server(fixtures.Fixture):
    """A web server on loopback; keeps what it was sent."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.status, self.body = 200, b'{}'
        self.headers: dict[str, str] = {}
        self.drip_s = 0.0
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    def _setUp(self) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_POST(self) -> None:
                outer.got.append((
                    self.path, dict(self.headers),
                    self.rfile.read(int(self.headers['Content-Length']))))
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not outer.drip_s:
                    self.wfile.write(outer.body)
                    return
                for place in range(len(outer.body)):
                    self.wfile.write(outer.body[place:place + 1])
                    time.sleep(outer.drip_s)

            do_GET = do_POST

            def log_message(self, *args: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *args: None    # type: ignore[method-assign]
        if self._context:
            server.socket = self._context.wrap_socket(server.socket,
                                                      server_side=True)
        thread = threading.Thread(target=server.serve_forever,
                                  kwargs={'poll_interval': 0.02})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.address = f'127.0.0.1:{server.server_address[1]}'


class HttpsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        for name in certificates.PROXIES:
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.token = self.top / 'token'
        self.token.write_text('secret\n')
        self.token.chmod(0o600)
        self.server = self.useFixture(Server())

    def caller(self, url: str = '', timeout_s: float = 5.0
               ) -> Callable[[bytes], bytes]:
        return https.caller(url or f'http://{self.server.address}', 'h\u017f',
                            self.token, timeout_s=timeout_s)

    def test_an_answer(self) -> None:
        self.server.body = b'{"acknowledged":1}'
        self.assertEqual(self.server.body, self.caller(
            f'http://{self.server.address}/conductor/')(b'{"host":"h1"}'))
        [(path, headers, body)] = self.server.got
        self.assertEqual(
            ('/conductor/v1/sync', 'Bearer secret', 'h\u017f',
             b'{"host":"h1"}'),
            (path, headers['Authorization'], headers['X-Scavenger-Host']
             .encode('latin-1').decode(), body))

    def test_refused(self) -> None:
        """A report that is too long by anything, for another reason only by
        a conductor: a proxy knows nothing of a report."""
        for status in (400, 413, 422):
            for body, why in ((b'{"error": "a\\nsentence"}', 'a\\nsentence'),
                              (b'"a sentence\\nof it"', 'a sentence\\nof it'),
                              (b'{"error": {"detail": "so"}}', 'so'),
                              (b'<html>', ''), (b'[' * 9999, '')):
                self.server.status, self.server.body = status, body
                is_refused = status == 413 or (
                    status == 400 and b'"error": "' in body)
                error = self.assertRaises(
                    errors.WireError if is_refused else errors.Unreachable,
                    self.caller(), b'{}')
                self.assertIn(f'{status} {why}', str(error))
                self.assertTrue(str(error).isprintable())

    def test_a_conductor_that_takes_no_more(self) -> None:
        self.server.status = 429
        self.assertRaises(errors.Busy, self.caller(), b'{}')

    def test_later_again(self) -> None:
        """Also what another token or release would change."""
        for status in (401, 403, 404, 409, 429, 500, 503):
            self.server.status = status
            self.server.body = b'{"error": "a token"}'
            self.assertIn('a token', str(self.assertRaises(
                errors.Unreachable, self.caller(), b'{}')))

    def test_no_redirection_is_followed(self) -> None:
        other = self.useFixture(Server())
        self.server.headers = {'Location': f'http://{other.address}/'}
        for status in (301, 302, 303, 307, 308):
            self.server.status = status
            self.assertRaises(errors.Unreachable, self.caller(), b'{}')
        self.assertEqual([], other.got)

    def test_nobody_there(self) -> None:
        with socket.socket() as found:
            found.bind(('127.0.0.1', 0))
            url = f'http://127.0.0.1:{found.getsockname()[1]}'
            self.assertRaises(errors.Unreachable, self.caller(url), b'{}')

    def test_one_that_never_answers(self) -> None:
        with socket.create_server(('127.0.0.1', 0)) as found:
            url = f'http://127.0.0.1:{found.getsockname()[1]}'
            self.assertRaises(errors.Unreachable, self.caller(url, 0.2),
                              b'{}')

    def test_one_that_answers_by_the_byte(self) -> None:
        self.server.body, self.server.drip_s = b'x' * 2000, 0.05
        began = time.monotonic()
        self.assertRaises(errors.Unreachable, self.caller(timeout_s=0.3),
                          b'{}')
        self.assertLess(time.monotonic() - began, 60)

    def test_tokens(self) -> None:
        for text, mode in (('', 0o600), ('a b', 0o600), ('\xff', 0o600),
                           ('secret', 0o640), ('secret', 0o604)):
            self.token.write_bytes(text.encode('latin-1'))
            self.token.chmod(mode)
            error = self.assertRaises(errors.ScavengerError, self.caller(),
                                      b'{}')
            self.assertNotIn('secret', str(error))
        self.token.unlink()
        error = self.assertRaises(errors.ScavengerError, self.caller(), b'{}')
        self.assertIn('host enroll', str(error))
        self.assertEqual([], self.server.got)

    def test_addresses(self) -> None:
        for url in ('http://conductor', 'conductor', 'ftp://127.0.0.1',
                    'https://', 'https://u:p@conductor', 'https://c/?a=b',
                    'https://[::1', 'https://c:99999', 'https://c:x',
                    'https://a..b/', 'https://' + 'x' * 64 + '/',
                    'https://c/\xe9'):
            self.assertRaises(errors.ConfigError, self.caller, url)
        self.assertRaises(
            errors.ConfigError, https.caller, 'https://conductor', 'h',
            self.token, str(self.top / 'none.pem'))

    def test_certificates(self) -> None:
        pem, key = certificates.make(self, self.top)
        server = self.useFixture(Server(certificates.context(pem, key)))
        url = f'https://{server.address}'
        self.assertEqual(b'{}', https.caller(url, 'h', self.token, str(pem))(
            b'{}'))
        self.assertRaises(errors.Unreachable, self.caller(url), b'{}')
