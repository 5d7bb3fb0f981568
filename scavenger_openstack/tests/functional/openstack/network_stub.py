# SPDX-License-Identifier: Apache-2.0

"""Answers in the place of Neutron: there is nothing of anything.

Nova asks it about instances without networks, too.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import json
import socketserver
import threading
from typing import Any
from wsgiref import simple_server

import fixtures

QUOTAS = ('floatingip', 'network', 'port', 'security_group',
          'security_group_rule')


class NetworkStub(fixtures.Fixture):
    """``port`` of loopback is where it listens, in a thread."""

    port: int

    def _setUp(self) -> None:
        server = simple_server.make_server(
            '127.0.0.1', 0, _answer, _Server, _Quiet)
        self.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.05,),
                                  daemon=True)
        self.addCleanup(thread.join, 10)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        thread.start()


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):

    daemon_threads = True


class _Quiet(simple_server.WSGIRequestHandler):

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def _answer(environ: dict[str, Any], start: Callable[..., Any]
            ) -> Iterable[bytes]:
    # /v2.0/ports, or / for the versions.
    parts = environ['PATH_INFO'].strip('/').split('/')
    body: dict[str, Any]
    if parts == ['']:
        url = f'http://{environ["HTTP_HOST"]}/v2.0/'
        body = {'versions': [{'id': 'v2.0', 'status': 'CURRENT', 'links': [
            {'rel': 'self', 'href': url}]}]}
    elif len(parts) == 1:
        body = {'resources': []}
    elif parts[1] == 'quotas':
        body = {'quota': {name: {'limit': 10, 'used': 0, 'reserved': 0}
                          for name in QUOTAS}}
    else:
        body = {parts[1].replace('-', '_'): []}
    data = json.dumps(body).encode()
    start('200 OK', [('Content-Type', 'application/json'),
                     ('Content-Length', str(len(data)))])
    return [data]
