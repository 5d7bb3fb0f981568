# SPDX-License-Identifier: Apache-2.0

"""Serves the metrics of a program over HTTP, where an operator asks for it.

One thread answers one request after the other, so that clients cost little
however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
import http.server
import io
import logging
import socket
import socketserver
import sys
import threading
import time
from typing import Any

LOG = logging.getLogger(__name__)

PATH = '/metrics'
CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'
REQUEST_S = 2.0
"""Time that a client has to send its request, and again to read the answer."""
PAUSE_S = 0.05
"""Pause between two requests: an agent's thread has real-time priority."""
POLL_S = 1.0


class Listener:
    """Listens from the beginning, in a thread: no tick waits for a client.

    It answers one request at a time, and :meth:`stop` waits for the last one.

    :param page: returns what is served, in Prometheus' text format
    :raises OSError: the address cannot be bound.
    :raises RuntimeError: the system has no thread left.
    """

    def __init__(self, host: str, port: int, page: Callable[[], bytes]
                 ) -> None:
        self._server = _Server(host, port, page)
        thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,),
            name='metrics', daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._server.server_close()
            raise

    def stop(self) -> None:
        """Stop listening, after the present request."""
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True

    def __init__(self, host: str, port: int, page: Callable[[], bytes]
                 ) -> None:
        self.page = page
        if ':' in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug('%s: its request for metrics failed: %s', client_address,
                  sys.exception())

    def service_actions(self) -> None:
        time.sleep(PAUSE_S)


class _Request(socket.SocketIO):
    """A request that has to arrive in time, however many reads it takes."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, 'r')
        self._connection = connection
        self._until = time.monotonic() + REQUEST_S

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError('the request did not arrive in time')
        self._connection.settimeout(left_s)
        return super().readinto(buffer)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection))

    def do_GET(self) -> None:
        self.connection.settimeout(REQUEST_S)
        if self.path.partition('?')[0] != PATH:
            self.send_error(404)
            return
        page = self.server.page()
        self.send_response(200)
        self.send_header('Content-Type', CONTENT_TYPE)
        self.send_header('Content-Length', str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def version_string(self) -> str:
        return 'scavenger'

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)
