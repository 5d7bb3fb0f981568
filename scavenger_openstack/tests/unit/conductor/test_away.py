# SPDX-License-Identifier: Apache-2.0

"""Keystone, Nova and Placement that fail for a while: one line says so, one
that it is over, and what happened meanwhile is not lost.

The clients are the real ones; what they ask is played over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
import http.server
import json
import logging
import pathlib
import threading
import time
from typing import Any
import uuid

import fixtures
from keystoneauth1 import fixture as keystone
from oslo_config import cfg
import testtools

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor.nova import reconciling
from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.conductor import sessions
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import schema

PARAMS = placement.Params(smooth_s=300.0, step=0.1, interval_s=60.0,
                          silent_s=120.0)
EVERY_S = 0.01
TRIES = 3
"""So often each fault is met; the pause doubles each time."""

WAIT_S = 30.0
FAILED, OVER = 'not done', 'not done: that is over'

OK = 200
EXPIRED = 401
"""Also what other services say to a token whose password has changed."""


class Services:
    """All three on one port; ``status`` is that of each answer."""

    def __init__(self) -> None:
        self.status = OK
        self.asked = 0
        self.servers: list[str] = []
        self._open(0)

    def _open(self, port: int) -> None:
        self._server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', port), self._handler())
        self.port = self._server.server_port
        self.url = f'http://127.0.0.1:{self.port}'
        threading.Thread(target=self._server.serve_forever, args=(0.02,),
                         daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def open_again(self) -> None:
        self._open(self.port)

    def answer(self, path: str, query: str) -> Any:
        """What is there, by the end of a path."""
        if path.endswith('/auth/tokens'):
            token = keystone.V3Token(project_id='p')
            for service in ('compute', 'placement'):
                token.add_service(service).add_standard_endpoints(
                    internal=f'{self.url}/{service}', region='here')
            return token
        if path == '/v3':
            return {'version': keystone.V3Discovery(f'{self.url}/v3')}
        if path.rstrip('/') == '/compute':
            return {'version': {
                'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96',
                'min_version': '2.1', 'links': []}}
        return {'servers': [] if 'marker' in query else [{
            'id': one, 'tenant_id': 'p', 'status': 'ACTIVE',
            'OS-EXT-SRV-ATTR:host': 'node-1', 'flavor': {'extra_specs': {
                'scavenger:priority': 'background'}}}
            for one in self.servers],
            'server_groups': [], 'resource_providers': []}

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self) -> None:
                services.asked += 1
                path, _, query = self.path.partition('?')
                data = json.dumps(
                    services.answer(path, query) if services.status == OK
                    else {'error': {'code': services.status, 'title': 'No',
                                    'message': 'The test says no'}}).encode()
                self.rfile.read(int(self.headers.get('Content-Length', 0)))
                self.send_response(services.status)
                # Another one each time, and in what the clients raise.
                self.send_header('x-openstack-request-id',
                                 f'req-{uuid.uuid4()}')
                self.send_header('X-Subject-Token', uuid.uuid4().hex)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


class Log(logging.Handler):
    """Lines that one thread writes and another reads."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Away(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.services = Services()
        self.addCleanup(lambda: self.services.close())
        self.log = Log()
        self.useFixture(fixtures.LogHandler(self.log, 'scavenger_openstack',
                                            logging.INFO))
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.engine = connect.engine(f'sqlite:///{directory}/database')
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        file = directory / 'scavenger.conf'
        file.write_text(
            '[openstack]\nauth_type = password\nusername = scavenger\n'
            'password = secret\nproject_name = service\n'
            'user_domain_name = Default\nproject_domain_name = Default\n'
            f'region_name = here\nauth_url = {self.services.url}/v3\n')
        self.conf = cfg.ConfigOpts()
        self.conf([], default_config_files=[str(file)],
                  default_config_dirs=[])
        self.session = sessions.make_session(self.conf)
        self.tried = self.done = 0

    def wait(self, what: str, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(EVERY_S)

    def start(self, claim: str, work: Callable[[Callable[[], None]], object]
              ) -> None:
        """What a conductor does, only more often."""
        def turn(still: Callable[[], None]) -> None:
            self.tried += 1
            work(still)
            self.done += 1

        one = leader.Leader(self.engine, claim, 'one', time.time, turn,
                            every_s=EVERY_S, what=FAILED)
        self.addCleanup(one.stop)
        one.start()

    def outages(self) -> None:
        for status, says in ((EXPIRED, 'HTTP 401'), (500, 'HTTP 500'),
                             (503, 'HTTP 503'), (None, 'refused')):
            self.outage(status, says)

    def outage(self, status: int | None, says: str) -> None:
        """All answers are errors for a while, or there are none.

        :param says: part of the one line about that
        """
        done = self.done
        self.wait('a turn', lambda: self.done > done + 1)
        began, tried = len(self.log.lines), self.tried
        if status is None:
            self.services.close()
        else:
            self.services.status = status
        self.wait('turns that fail', lambda: self.tried > tried + TRIES)
        self.services.servers.append(str(uuid.uuid4()))
        self.services.status = OK
        if status is None:
            self.services.open_again()
        self.wait('it is over', lambda: OVER in self.log.lines[began:])
        said = self.log.lines[began:]
        # Connections that are open end in some way before new ones are
        # refused; that is another fault, once.
        self.assertLessEqual(len(said), 3 if status is None else 2, str(said))
        self.assertIn(f'{FAILED}, tried again in', said[-2])
        self.assertIn(says, said[-2])
        self.assertNotIn('secret', said[-2])

    def test_nova(self) -> None:
        self.start(reconciling.CLAIM, reconciling.Reconciler(
            self.engine, sessions.make_nova(self.conf, self.session),
            time.time).turn)
        self.outages()

        def known() -> set[str]:
            with connect.reading(self.engine) as connection:
                return set(flavor_tags.of_instances(
                    connection, self.services.servers))

        self.wait('nothing is lost',
                  lambda: known() == set(self.services.servers))

    def test_placement(self) -> None:
        self.start(placement_writer.CLAIM, placement_writer.Writer(
            self.engine, placement_api.Placement(sessions.make_placement(
                self.conf, self.session)),
            PARAMS, time.time).turn)
        # It lists them each minute.
        self.useFixture(fixtures.MonkeyPatch(
            f'{placement_writer.__name__}.LIST_S', 0.0))
        self.outages()
