# SPDX-License-Identifier: Apache-2.0

"""Reports over HTTP, to a real WSGI server.  They run on every database."""

from __future__ import annotations

from http import client
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any
from wsgiref import simple_server

import fixtures
from sqlalchemy import Engine

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor import http
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire


SERVED = """
import sys
from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor import silence
from scavenger_openstack.wsgi import conductor

periodic.EVERY_S = silence.EVERY_S = 0.1
conductor.application({'PATH_INFO': '/'}, lambda status, headers: None)
sys.stdin.read()
"""
"""A process of a WSGI server after its first request, with less patience."""


class Quiet(simple_server.WSGIRequestHandler):

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Http(cloud.Mixin, databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        with connect.writing(self.engine) as connection:
            self.token = enrollment.enroll(
                connection, HOST, now_s=NOW).token
        self.serve(self.engine)

    def serve(self, engine: Engine) -> None:
        """Requests from here on go to a conductor with that database."""
        conductor = service.Conductor(engine, lambda: NOW)
        self.addCleanup(conductor.stop)
        self.wsgi = simple_server.make_server(
            '127.0.0.1', 0, http.Application(conductor), handler_class=Quiet)
        self.addCleanup(self.wsgi.server_close)
        thread = threading.Thread(target=self.wsgi.serve_forever,
                                  kwargs={'poll_interval': 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.wsgi.shutdown)

    def away_url(self) -> str:
        """The URL of a database that is not there."""
        raise NotImplementedError

    def send(self, body: bytes = b'', path: str = http.PATH,
             method: str = 'POST', **headers: str | None
             ) -> tuple[int, Any, Any]:
        """Status, document and headers of the answer."""
        given = {'Authorization': f'Bearer {self.token}',
                 'X-Scavenger-Host': HOST,
                 **{name.replace('_', '-'): value
                    for name, value in headers.items()}}
        connection = client.HTTPConnection(
            '127.0.0.1', self.wsgi.server_port, timeout=30)
        try:
            connection.request(method, path, body, {
                name: value for name, value in given.items()
                if value is not None})
            response = connection.getresponse()
            return (response.status, json.loads(response.read()),
                    response.headers)
        finally:
            connection.close()

    def refused(self, code: int, *args: Any, **more: Any) -> str:
        status, document, _ = self.send(*args, **more)
        self.assertEqual((code, ['error']), (status, list(document)))
        return document['error']

    def test_a_report(self) -> None:
        status, document, headers = self.send(codec.encode(
            report(incident(1))))
        self.assertEqual((200, 1, 'application/json'), (
            status, document['acknowledged'], headers['Content-Type']))
        self.assertEqual(1, len(self.rows(tables.incidents)))

    def test_another_token_of_the_host(self) -> None:
        """The new one counts at once, and the old one for a while."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.admission.keys.PROVED_S', 0.5))
        old, body = self.token, codec.encode(report())
        self.assertEqual(200, self.send(body)[0])
        with connect.writing(self.engine) as connection:
            new = enrollment.enroll(
                connection, HOST, now_s=NOW).token
        self.assertEqual(200, self.send(body)[0])
        self.refused(401, body, Authorization='Bearer made-up')
        self.refused(401, body, X_Scavenger_Host='node-2')
        self.token = new
        self.assertEqual(200, self.send(body)[0])
        self.refused(401, body, Authorization=f'Bearer {old}')

    def test_a_token_that_was_the_hosts(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.admission.keys.PROVED_S', 0.0))
        body = codec.encode(report())
        self.assertEqual(200, self.send(body)[0])
        with connect.writing(self.engine) as connection:
            enrollment.enroll(connection, HOST, now_s=NOW)
        self.refused(401, body)

    def test_who_may(self) -> None:
        body = codec.encode(report(incident(1)))
        for headers in ({'Authorization': None}, {'X_Scavenger_Host': None},
                        {'Authorization': 'Bearer '},
                        {'Authorization': self.token},
                        {'Authorization': 'Bearer x'},
                        {'Authorization': 'Bearer ' + 'x' * 5000},
                        {'Authorization': 'Bearer \xff\xfe'},
                        {'X_Scavenger_Host': 'node-2'},
                        {'X_Scavenger_Host': 'x' * 300}):
            self.refused(401, body, **headers)
        self.assertEqual([], self.rows(tables.incidents))
        self.assertIn('another', self.log.output)
        self.assertNotIn(self.token, self.log.output)

    def test_a_token_in_the_wrong_place(self) -> None:
        """It does not count there, and is shown nowhere."""
        with connect.writing(self.engine) as connection:
            other = enrollment.enroll(connection, 'node-2', now_s=NOW).token
        body, token = codec.encode(report(incident(1))), self.token
        in_body = json.dumps({**json.loads(body), 'token': token,
                              'Authorization': f'Bearer {token}'}).encode()
        answers = [self.refused(401, *args, Authorization=None, **headers)
                   for args, headers in (
            ((body, f'{http.PATH}?token={token}&access_token={token}'), {}),
            ((in_body,), {}), ((body,), {'X_Auth_Token': token}),
            ((body,), {'Cookie': f'Authorization=Bearer {token}'}),
            ((body,), {'Proxy_Authorization': f'Bearer {token}'}),
            ((body,), {'X_Scavenger_Host': f'{HOST} Bearer {token}'}))]
        answers += [self.refused(401, body, Authorization=text) for text in (
            f'Basic {token}', f'Bearer Bearer {token}',
            f'Bearer {HOST}:{token}', f'Bearer {other}',
            f'Bearer {token} {other}')]
        answers.append(self.refused(404, body, f'{http.PATH}/{token}'))
        for text in (self.log.output, *answers):
            self.assertNotIn(token, text)
            self.assertNotIn(other, text)
        self.assertEqual([], self.rows(tables.incidents))

    def test_in_the_name_of_another_host(self) -> None:
        self.assertIn('in the name of node-2', self.refused(
            403, codec.encode(report(incident(1), host='node-2'))))
        self.assertEqual([('scavenger-manage', 'host.enroll'),
                          (f'agent {HOST}', 'report.refused')], self.rows(
            tables.audit, 'actor', 'action'))
        self.assertEqual([HOST], self.rows(tables.hosts, 'name'))

    def test_of_another_release(self) -> None:
        self.assertIn('upgrade the older', self.refused(
            409, codec.encode(report(schema=wire.SCHEMA + 1))))

    def test_what_is_no_report(self) -> None:
        self.assertIn('truncated', self.refused(400, b'{'))
        self.assertIn('bytes', self.refused(
            413, b'', Content_Length=str(wire.MAX_REPORT_BYTES + 1)))
        self.refused(413, b'', Content_Length='9' * 4000)
        self.refused(411, b'', Content_Length='-1')
        self.refused(404, b'', path='/')
        self.refused(404, b'', path='/v1/sync/')
        _, _, headers = self.send(method='GET')
        self.assertEqual('POST', headers['Allow'])
        self.refused(405, b'', method='GET')

    def test_a_database_that_is_away(self) -> None:
        away = connect.engine(self.away_url())
        self.addCleanup(away.dispose)
        self.serve(away)
        status, document, headers = self.send(codec.encode(report()))
        self.assertEqual((503, '10'), (status, headers['Retry-After']))
        self.assertNotIn(str(away.url.database), document['error'])

    def test_a_host_that_sends_too_much(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.admission.accounts.HOST', {
                **accounts.HOST, accounts.BYTES: accounts.Rate(0.0, 1.0)}))
        self.assertEqual(200, self.send(codec.encode(report()))[0])
        status, _, headers = self.send(codec.encode(report()))
        self.assertEqual((429, '10'), (status, headers['Retry-After']))

    def test_where_a_request_comes_from(self) -> None:
        """What a web server here says, not what the client does."""
        self.refused(401, b'', Authorization='Bearer x',
                     X_Forwarded_For='198.51.100.1, 203.0.113.7')
        self.assertIn('from 203.0.113.7:', self.log.output)
        self.assertNotIn('198.51.100.1', self.log.output)

    def test_a_database_without_tables(self) -> None:
        empty = connect.engine(self.empty_url())
        self.addCleanup(empty.dispose)
        self.serve(empty)
        status, document, _ = self.send(codec.encode(report()))
        self.assertEqual(503, status)
        self.assertNotIn(str(empty.url.database), document['error'])

    def test_a_database_without_the_newest_column(self) -> None:
        """Of an upgrade that is not done: the report waits at its host."""
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql(
                'ALTER TABLE incidents RENAME COLUMN cause TO cause_before')
        try:
            body = codec.encode(report(incident(1)))
            for _ in range(2 * service.TRIES):
                self.assertEqual(503, self.send(body)[0])
        finally:
            with connect.writing(self.engine) as connection:
                connection.exec_driver_sql(
                    'ALTER TABLE incidents RENAME COLUMN cause_before TO '
                    'cause')
        self.assertIn('db upgrade', self.log.output)
        self.assertEqual([], self.rows(tables.runs))
        self.assertEqual(200, self.send(body)[0])
        self.assertEqual(1, len(self.rows(tables.incidents)))

    def configured(self, more: str = '') -> dict[str, str]:
        """The environment of a process that uses this database."""
        file = self.directory / 'conf'
        file.write_text(f'[database]\nconnection = {self.url}\n' + more)
        return {**os.environ, 'SCAVENGER_CONFIG_FILE': str(file)}

    def test_what_is_due_from_time_to_time(self) -> None:
        """Also where no scavenger-conductor runs: old rows are deleted, and
        a silent host is noted."""
        self.add(tables.audit, time_s=NOW, actor='admin', action='x',
                 target='', reason='')
        self.add(tables.hosts, name='node-9', facts={}, settings={},
                 first_seen_s=NOW, last_seen_s=NOW)
        log = self.directory / 'log'
        with log.open('w') as stderr:
            process = subprocess.Popen(
                [sys.executable, '-c', SERVED], stdin=subprocess.PIPE,
                stderr=stderr, env=self.configured(
                    'keep_days = 3\nkeep_audit_days = 3\n'
                    '[api]\nsilent_s = 1\n'))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            if (not self.rows(tables.audit)
                    and 'from node-9: ' in log.read_text()):
                break
            time.sleep(0.05)
        process.communicate(timeout=60)
        self.assertEqual([], self.rows(tables.audit), log.read_text())
        self.assertIn('no report for more than 1 s from node-9: ',
                      log.read_text())

    def test_the_application_without_tables(self) -> None:
        """It does not start: no report could be stored."""
        self.url = self.empty_url()
        done = subprocess.run(
            [sys.executable, '-c',
             'from scavenger_openstack.wsgi import conductor'],
            env=self.configured(), capture_output=True, text=True,
            timeout=60)
        self.assertEqual(1, done.returncode)
        self.assertIn('scavenger-manage db upgrade', done.stderr)

    def test_the_application(self) -> None:
        """As WSGI servers load it."""
        done = subprocess.run(
            [sys.executable, '-c',
             'from scavenger_openstack.wsgi import conductor\n'
             'print(callable(conductor.application))'],
            env=self.configured(), capture_output=True, text=True,
            timeout=60)
        self.assertEqual((0, 'True\n'), (done.returncode, done.stdout),
                         done.stderr)
