# SPDX-License-Identifier: Apache-2.0

"""Reports over HTTPS: the agent's caller, the conductor's application, and a
database that all conductors would share."""

from __future__ import annotations

from collections.abc import Callable
import pathlib
import socketserver
import threading
import time
from typing import Any
from wsgiref import simple_server

import fixtures

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.events import store
from scavenger_openstack.conductor import http
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.agent.control_plane import certificates
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that do not trust it go away."""


class Quiet(simple_server.WSGIRequestHandler):

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Https(cloud.Mixin, databases.MariaDb):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        for name in certificates.PROXIES:
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.pem, key = certificates.make(self, self.top)
        with connect.writing(self.engine) as connection:
            self.token = enrollment.enroll(
                connection, HOST, now_s=time.time()).token
        conductor = service.Conductor(self.engine)
        self.addCleanup(conductor.stop)
        server = simple_server.make_server(
            '127.0.0.1', 0, http.Application(conductor),
            server_class=Server, handler_class=Quiet)
        server.socket = certificates.context(self.pem, key).wrap_socket(
            server.socket, server_side=True)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever,
                                  kwargs={'poll_interval': 0.02})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.port = server.server_port

    def caller(self, token: str = '', trusts: pathlib.Path | None = None,
               name: str = '127.0.0.1') -> Callable[[bytes], bytes]:
        file = self.top / 'token'
        file.write_text(token or self.token)
        file.chmod(0o600)
        return https.caller(f'https://{name}:{self.port}', HOST, file,
                            str(trusts or self.pem))

    def refused(self, call: Callable[[bytes], bytes]) -> str:
        """Why a report is not answered; nothing of it is stored."""
        error = self.assertRaises(errors.Unreachable, call,
                                  codec.encode(report(incident(1))))
        self.assertEqual([], self.rows(tables.incidents))
        return str(error)

    def test_a_report_and_its_answer(self) -> None:
        call = self.caller()
        answer = codec.decode(call(codec.encode(report(
            incident(1), sent_s=time.time()))), wire.Answer,
            wire.MAX_ANSWER_BYTES)
        self.assertEqual(1, answer.acknowledged)
        self.assertEqual([f'{1:032x}'], self.rows(tables.incidents, 'uuid'))
        assert answer.directives is not None
        answer = codec.decode(call(codec.encode(report(
            sent_s=time.time(), holds=answer.directives.digest))),
            wire.Answer, wire.MAX_ANSWER_BYTES)
        self.assertIsNone(answer.directives)

    def test_an_agent(self) -> None:
        self.add(tables.switches, scope='cloud', target='', protection=False,
                 reason='power cut', changed_by='admin', changed_s=1.0)
        agent = sync.make(
            self.caller(), self.top / 'sync', store.Store(
                self.top / 'history', 2 ** 20, 2 ** 20), host=HOST,
            boot_id='b', version='1.2', sync_s=10.0)
        self.assertTrue(agent.turn(), agent.facts()['fault'])
        self.assertEqual('the control plane: switched off for the cloud: '
                         'power cut', agent.orders.stopped)
        self.assertEqual([(HOST, '1.2')],
                         self.rows(tables.hosts, 'name', 'version'))

    def test_another_token(self) -> None:
        self.assertIn(': 401 this is not the token of this host',
                      self.refused(self.caller('made-up')))
        self.assertNotIn('made-up', self.log.output)

    def test_certificates_that_are_not_trusted(self) -> None:
        other, _ = certificates.make(self, self.top, '127.0.0.2')
        for call in (self.caller(trusts=other),
                     self.caller(name='localhost')):
            self.assertIn('certificate verify failed', self.refused(call))
