# SPDX-License-Identifier: Apache-2.0

"""Serves the agent's metrics over HTTP, where an operator asks for it.

The page is the one that the tick has made: a request reads nothing else, and
one thread answers one request after the other, so that clients cost little
however many there are.
"""

from __future__ import annotations

import contextlib
import http.server
import math
import socket
import socketserver
import sys
import threading
import time
from typing import Any

from oslo_log import log

from scavenger_openstack.agent.metrics.text_format import CONTENT_TYPE
from scavenger_openstack.drivers import calls

LOG = log.getLogger(__name__)

PATH = '/metrics'
REQUEST_S = 2.0
"""A client that takes longer for its request is cut off with the next page."""
PAUSE_S = 0.05
"""Between two requests: the thread has the agent's real-time priority."""
POLL_S = 1.0


class Listener:
    """Listens from the beginning.

    :raises OSError: the address cannot be had.
    :raises NoThread: the system has no thread left.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = _Server(host, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,),
            name='metrics', daemon=True)
        try:
            calls.start(self._thread)
        except calls.NoThread:
            self._server.server_close()
            raise

    def publish(self, page: bytes) -> None:
        """Serve this page from now on."""
        self._server.page = page
        self._server.cut_off(time.monotonic() - REQUEST_S)

    def stop(self) -> None:
        """Listen no more."""
        self._server.cut_off(math.inf)
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.TCPServer):
    allow_reuse_address = True

    def __init__(self, host: str, port: int) -> None:
        self.page = b''
        self.served: tuple[socket.socket, float] | None = None
        if ':' in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def cut_off(self, before: float) -> None:
        """End the request at hand if it began before then; the timeout of a
        connection is of one read, and there may be any number of these."""
        served = self.served
        if served is not None and served[1] < before:
            with contextlib.suppress(OSError):      # it has ended by itself
                served[0].shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug('%s: its request for metrics failed: %s', client_address,
                  sys.exception())

    def service_actions(self) -> None:
        time.sleep(PAUSE_S)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S

    def handle(self) -> None:
        self.server.served = self.connection, time.monotonic()
        try:
            super().handle()
        finally:
            self.server.served = None

    def do_GET(self) -> None:
        if self.path.partition('?')[0] != PATH:
            self.send_error(404)
            return
        page = self.server.page
        self.send_response(200)
        self.send_header('Content-Type', CONTENT_TYPE)
        self.send_header('Content-Length', str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def version_string(self) -> str:
        return 'scavenger-agent'

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)
