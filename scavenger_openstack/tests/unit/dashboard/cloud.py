# SPDX-License-Identifier: Apache-2.0

"""A user of Horizon, and an API of canned answers behind a real socket."""

from __future__ import annotations

from http import server
import json
import threading
import time
from typing import Any
from typing import NamedTuple
import urllib.parse

from django.conf import settings
from django.test import override_settings
from openstack_auth import utils
from openstack_dashboard.test import helpers
from urllib3 import connection

ROLES = {'admin': [{'id': '1', 'name': 'admin'}],
         'member': [{'id': '2', 'name': 'member'}],
         'reader': [{'id': '3', 'name': 'reader'}]}
NAMES = ('<script>alert(1)</script>', '"><img src=x onerror=alert(1)>',
         "it's; DROP", '\u202egnp.exe', '{{ 7 }}{% now "Y" %}',
         '{$ 7*6 $}', 'ü' * 255)
"""What tenants may call their instances."""
DATA: dict[str, Any] = {}
"""What Horizon's tests know of a cloud: names of attributes to values."""

without_scripts = override_settings(COMPRESS_ENABLED=True)
"""Decorator of a test that looks for what no page has: Horizon's scripts are
files then."""


class Seen(NamedTuple):
    """One request that reached the API."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


class Api(server.ThreadingHTTPServer):
    """Answers from a table: ``(method, path)`` to a body, or to a function
    of the request that returns one; ``status`` and ``delay_s`` for all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.answers: dict[tuple[str, str], Any] = {}
        self.requests: list[Seen] = []
        self.status = 200
        self.error = ''
        self.raw: bytes | None = None
        self.delay_s = 0.0
        self.dribble_s = 0.0
        self.url = f'http://127.0.0.1:{self.server_port}'

    def sent(self, method: str) -> list[Seen]:
        """The requests of one method."""
        return [one for one in self.requests if one.method == method]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no fault."""


class Handler(server.BaseHTTPRequestHandler):

    server: Api

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        seen = Seen(self.command, url.path,
                    dict(urllib.parse.parse_qsl(url.query)), body,
                    dict(self.headers))
        api = self.server
        api.requests.append(seen)
        time.sleep(api.delay_s)
        status, answer = api.status, api.answers.get(
            (self.command, url.path))
        if callable(answer):
            answer = answer(seen)
        if isinstance(answer, tuple):
            status, answer = answer
        if status >= 400:
            answer = {'error': {'code': status, 'title': 'Refused',
                                'detail': answer if isinstance(answer, str)
                                else api.error}}
        elif answer is None and self.command == 'GET':
            status, answer = 404, {'error': {
                'code': 404, 'title': 'Not Found',
                'detail': f'There is no {url.path}.'}}
        content = api.raw if api.raw is not None else (
            json.dumps(answer).encode() if answer is not None else b'')
        self.send_response(status if content or status >= 300 else 204)
        if 300 <= status < 400:
            self.send_header('Location', f'{api.url}/v1/elsewhere')
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        step = 1 if api.dribble_s else max(len(content), 1)
        for at in range(0, len(content), step):
            self.wfile.write(content[at:at + step])
            self.wfile.flush()
            time.sleep(api.dribble_s)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def log_message(self, *args: Any) -> None:
        """Nothing: the tests read ``requests``."""


class TestCase(helpers.TestCase):
    """A user with one role; the API is in the catalogue."""

    databases: set[str] = set()
    role = 'admin'

    def setUp(self) -> None:
        self.api = Api()
        thread = threading.Thread(target=self.api.serve_forever,
                                  kwargs={'poll_interval': 0.02})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.api.server_close)
        self.addCleanup(self.api.shutdown)
        super().setUp()
        # Horizon's tests refuse all connections; ours have a server.
        connection.HTTPConnection.connect = (   # type: ignore[method-assign]
            self._real_conn_request)
        settings.POLICY_CHECK_FUNCTION = 'openstack_auth.policy.check'
        self.addCleanup(setattr, settings, 'POLICY_CHECK_FUNCTION', None)
        self.request.user = utils.get_user(self.request)

    def _setup_test_data(self) -> None:
        """Horizon's own, made once: no test changes it."""
        if not DATA:
            before = set(vars(self))
            super()._setup_test_data()
            DATA.update({name: value for name, value in vars(self).items()
                         if name not in before})
        self.__dict__.update(DATA)

    def _setup_user(self, **kwargs: Any) -> None:
        catalog = [*self.service_catalog, {
            'type': 'interference', 'name': 'scavenger', 'endpoints': [{
                'region': 'RegionOne', 'region_id': 'RegionOne',
                'interface': interface, 'url': self.api.url}
                for interface in ('public', 'internal', 'admin')]}]
        super()._setup_user(service_catalog=catalog, roles=ROLES[self.role],
                            **kwargs)
