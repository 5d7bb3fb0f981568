# SPDX-License-Identifier: Apache-2.0

"""The API behind HTTP on loopback, for one host and for trying it.

Elsewhere a WSGI server runs it.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import Any

from werkzeug import serving
from werkzeug import test

from scavenger_openstack.api import health
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

ADDRESS = '127.0.0.1'
IDLE_S = 30
"""After so long without a request a connection is closed."""


class Server:
    """Listens from the beginning, answers from :meth:`run` on.

    :param port: 0 for any, see :attr:`port`
    :param around: the application with what is around it for clients alone
    :raises ConfigError: the port cannot be had.
    """

    def __init__(self, application: Any, port: int, around: Any = None
                 ) -> None:
        self._application = application
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((ADDRESS, port))
            except OSError as exc:
                raise errors.ConfigError(
                    f'[api] port: {ADDRESS}:{port}: {exc.strerror}; choose '
                    'another port') from exc
            listening.listen(64)
            self._server = serving.make_server(
                ADDRESS, port, around or application, threaded=True,
                request_handler=_Handler, fd=listening.fileno())
        self.port: int = self._server.socket.getsockname()[1]

    def warm_up(self) -> None:
        """Load what is loaded with the first requests."""
        client = test.Client(self._application)
        for path in ('/', '/v1', '/v1/openapi.json', '/v1/hosts',
                     health.PATH):
            client.get(path, headers={'Authorization': 'Basic Og=='})

    def run(self) -> None:
        """Answer until :meth:`stop`."""
        self._server.serve_forever()
        self._server.server_close()

    def stop(self) -> None:
        """Stop; a signal handler in the thread of :meth:`run` may do so: a
        thread waits for that in its place, until the request at hand ends."""
        threading.Thread(target=self._server.shutdown, name='stop').start()


class _Handler(serving.WSGIRequestHandler):
    timeout = IDLE_S

    def version_string(self) -> str:
        return 'scavenger-api'

    def log(self, type: str, message: str, *args: Any) -> None:
        LOG.debug(message, *args)
