# SPDX-License-Identifier: Apache-2.0

"""Who asks: passwords of a file, and tokens."""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any
from typing import ClassVar

import bcrypt
import fixtures
from oslo_config import cfg
from werkzeug.test import Client
from werkzeug.test import TestResponse

from scavenger_openstack.api import app
from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.api import cloud

FORGED = {'X-Roles': 'admin', 'X-User-Id': 'eve', 'X-Project-Id': 'p',
          'X-Identity-Status': 'Confirmed'}


class HttpBasic(cloud.Api):

    def setUp(self) -> None:
        super().setUp()
        self.file = pathlib.Path(self.password_file())
        self.write('ann', 'secret')
        self.basic = Client(self.made())

    def made(self) -> Any:
        return app.create(self.engine, cloud.configuration(
            http_basic_file=str(self.file)), 'http_basic')

    def write(self, *names: str) -> None:
        """NAME, PASSWORD, and so on."""
        lines = [f'{name}:{bcrypt.hashpw(word.encode(), bcrypt.gensalt(4))!s}'
                 .replace("b'", '').replace("'", '')
                 for name, word in zip(names[::2], names[1::2], strict=True)]
        self.file.write_text('# users\n' + '\n'.join(lines) + '\n')

    def as_(self, name: str, password: str, **options: Any) -> TestResponse:
        return self.basic.get('/v1/hosts', auth=(name, password), **options)

    def test_passwords(self) -> None:
        for name, password, status in (
                ('ann', 'secret', 200), ('ann', 'secret', 200),
                ('ann', 'wrong', 401), ('ann', '', 401),
                ('bob', 'secret', 401), ('', '', 401),
                ('ann', 'secret\x00', 401), ('ann', 'x' * 5000, 401),
                ('# users', '', 401)):
            answer = self.as_(name, password)
            self.assertEqual(status, answer.status_code,
                             f'{name} {password}')
        self.assertEqual('Basic realm="interference"',
                         answer.headers['WWW-Authenticate'])
        self.assertEqual(401, cloud.error_of(answer)['code'])
        self.assertNotIn('secret', self.log.output)

    def test_headers_that_are_wrong(self) -> None:
        for text in ('Basic', 'Basic !', 'Bearer x', 'Basic \xff',
                     'Basic YW5u', 'Basic ' + 'A' * 4000):
            answer = self.basic.get('/v1/hosts',
                                    headers={'Authorization': text})
            self.assertEqual(401, answer.status_code, text)

    def test_nobody_becomes_somebody_by_saying_so(self) -> None:
        answer = self.basic.get('/v1/hosts', headers=FORGED)
        self.assertEqual(401, answer.status_code)
        self.basic.put('/v1/protection', headers=FORGED,
                       auth=('ann', 'secret'), json={
                           'scope': 'cloud', 'enabled': True, 'reason': 'x'})
        self.assertEqual(('ann', ''), tuple(
            self.audited()[0][name] for name in ('actor', 'project')))

    def test_a_changed_file_holds_at_once(self) -> None:
        self.assertEqual(200, self.as_('ann', 'secret').status_code)
        self.write('ann', 'another', 'bob', 'secret')
        self.assertEqual(401, self.as_('ann', 'secret').status_code)
        self.assertEqual(200, self.as_('ann', 'another').status_code)
        self.assertEqual(200, self.as_('bob', 'secret').status_code)
        self.file.unlink()
        self.assertEqual(401, self.as_('bob', 'secret').status_code)

    def test_what_fitted_is_remembered(self) -> None:
        """A hash that takes long is computed once."""
        self.file.write_bytes(b'ann:' + bcrypt.hashpw(
            b'secret', bcrypt.gensalt(10)) + b'\n')
        self.as_('ann', 'secret')
        began = time.process_time()
        for _ in range(5):
            self.assertEqual(200, self.as_('ann', 'secret').status_code)
        again = time.process_time() - began
        began = time.process_time()
        for _ in range(5):
            self.assertEqual(401, self.as_('ann', 'wrong').status_code)
        self.assertLess(again, (time.process_time() - began) / 2)

    def test_files_that_are_refused(self) -> None:
        def refused(words: str) -> None:
            exc = self.assertRaises(errors.ConfigError, self.made)
            self.assertIn(words, str(exc))
            self.assertIn(str(self.file), str(exc))
        self.file.chmod(0o640)
        refused('chmod 600')
        self.file.unlink()
        os.mkfifo(self.file, 0o600)
        refused('chmod 600')
        self.file.unlink()
        self.file.touch(0o600)
        with self.file.open('ab') as file:
            file.truncate(2 << 20)
        refused('longer than 1048576 bytes')
        self.file.write_text('')
        self.file.chmod(0o600)
        self.file.write_text('ann:secret\n')
        refused('line 1 is not NAME:HASH')
        self.file.write_text('# x\nann\n')
        refused('line 2 is not NAME:HASH')
        self.file.unlink()
        refused('No such file')

    def test_what_needs_no_name(self) -> None:
        for url in ('/', '/v1', '/v1/', '/v1/openapi.json', '/healthcheck'):
            self.assertEqual(200, self.basic.get(url).status_code, url)


class _Identity(http.server.BaseHTTPRequestHandler):
    """What Keystone answers to those who ask it about tokens."""

    tokens: ClassVar[dict[str, dict[str, Any]]] = {}

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.send_header('X-Subject-Token', 'of-the-api')
        self.end_headers()
        self.wfile.write(data)

    def _token(self, **values: Any) -> dict[str, Any]:
        return {'token': {
            'methods': ['password'], 'expires_at': '2999-01-01T00:00:00Z',
            'issued_at': '2026-01-01T00:00:00Z', 'audit_ids': ['x'],
            'user': {'id': 'u', 'name': 'u', 'domain': {
                'id': 'default', 'name': 'Default'}}, **values}}

    def do_POST(self) -> None:
        url = f'http://{self.headers["Host"]}/v3'
        self._answer(201, self._token(catalog=[{
            'type': 'identity', 'id': 'i', 'name': 'keystone', 'endpoints': [
                {'id': interface, 'interface': interface, 'url': url,
                 'region': 'one', 'region_id': 'one'}
                for interface in ('internal', 'admin')]}]))

    def do_GET(self) -> None:
        if not self.path.startswith('/v3/auth/tokens'):
            host = f'http://{self.headers["Host"]}/v3/'
            self._answer(200, {'version': {
                'id': 'v3.14', 'status': 'stable',
                'links': [{'rel': 'self', 'href': host}]}})
            return
        said = self.tokens.get(self.headers['X-Subject-Token'])
        if said is None:
            self._answer(404, {'error': {'code': 404}})
        else:
            self._answer(200, self._token(**said))

    def log_message(self, *args: Any) -> None:
        pass


class Keystone(cloud.Api):

    def setUp(self) -> None:
        super().setUp()
        self.identity = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), _Identity)
        thread = threading.Thread(target=self.identity.serve_forever,
                                  kwargs={'poll_interval': 0.05})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.identity.server_close)
        self.addCleanup(self.identity.shutdown)
        self.url = f'http://127.0.0.1:{self.identity.server_address[1]}'

    def asked(self, url: str, **settings: str) -> Client:
        """An API that asks the Keystone at ``url``."""
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        said = {'www_authenticate_uri': url, 'auth_url': url + '/v3',
                'auth_type': 'password', 'username': 'u', 'password': 'p',
                'user_domain_id': 'default', 'project_name': 'service',
                'project_domain_id': 'default', 'http_connect_timeout': '2',
                'http_request_max_retries': '0', **settings}
        file.write_text('\n'.join((
            '[keystone_authtoken]',
            *(f'{name} = {value}' for name, value in said.items() if value),
            '[api]', f'operator_projects = {cloud.OPERATORS}')))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf(['--config-file', str(file)])
        return Client(app.create(self.engine, conf))

    def test_tokens(self) -> None:
        def token(project: str, *roles: str) -> dict[str, Any]:
            return {'project': {'id': project, 'name': project, 'domain': {
                'id': 'default', 'name': 'Default'}},
                'roles': [{'id': role, 'name': role} for role in roles]}
        _Identity.tokens = {
            'ann': token(cloud.OPERATORS, 'admin'),
            'operator': token(cloud.OPERATORS, 'reader'),
            'tenant': token(cloud.ONE, 'member', 'reader'),
            'nobody': token(cloud.ONE),
            'domain': {'domain': {'id': 'one', 'name': 'one'},
                       'roles': [{'id': 'admin', 'name': 'admin'}]},
            'system': {'system': {'all': True},
                       'roles': [{'id': 'admin', 'name': 'admin'}]}}
        client = self.asked(self.url)
        for name, hosts, incidents in (
                ('ann', 200, 200), ('operator', 200, 200),
                ('tenant', 403, 200), ('nobody', 403, 403),
                ('domain', 403, 403), ('system', 403, 403),
                ('forged', 401, 401)):
            for url, status in (('/v1/hosts', hosts),
                                ('/v1/incidents', incidents)):
                answer = client.get(url, headers={**FORGED,
                                                  'X-Auth-Token': name})
                self.assertEqual(status, answer.status_code,
                                 f'{name} {url}')
        for headers in ({}, FORGED):
            answer = client.get('/v1/hosts', headers=headers)
            self.assertEqual((401, 401), (answer.status_code,
                                          cloud.error_of(answer)['code']))
            self.assertIn(self.url, answer.headers['WWW-Authenticate'])
        self.assertEqual(200, client.get('/').status_code)

    def test_a_keystone_that_does_not_answer(self) -> None:
        client = self.asked('http://127.0.0.1:9')
        answer = client.get('/v1/hosts', headers={'X-Auth-Token': 'x'})
        self.assertEqual(401, cloud.error_of(answer)['code'])
        self.assertIn('Unable to establish connection to http://127.0.0.1:9',
                      self.log.output)

    def test_without_its_section(self) -> None:
        for missing in ('www_authenticate_uri', 'auth_type'):
            exc = self.assertRaises(errors.ConfigError, self.asked, self.url,
                                    **{missing: ''})
            self.assertIn(f'[keystone_authtoken] {missing}: not set',
                          str(exc))


class Wsgi(cloud.Api):
    """As a server for WSGI loads it."""

    def loaded(self, text: str) -> subprocess.CompletedProcess[str]:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        file = directory / 'scavenger.conf'
        file.write_text(text)
        return subprocess.run(
            [sys.executable, '-c',
             'from scavenger_openstack.wsgi.api import application\n'
             'from werkzeug.test import Client\n'
             'print(Client(application).get("/healthcheck").status,'
             ' Client(application).get("/v1/hosts").status)'],
            capture_output=True, text=True, timeout=60,
            env={**os.environ, 'SCAVENGER_CONFIG_FILE': str(file)})

    def test_loaded(self) -> None:
        database = f'[database]\nconnection = {self.engine.url}\n'
        done = self.loaded(database + '[api]\nauth_strategy = noauth\n')
        self.assertEqual('200 OK 200 OK\n', done.stdout, done.stderr)

    def test_a_file_for_reports_that_is_not_there(self) -> None:
        done = self.loaded(
            f'[database]\nconnection = {self.engine.url}\n'
            '[api]\nauth_strategy = noauth\n'
            '[oslo_reports]\nfile_event_handler = /nowhere/report\n')
        self.assertEqual('200 OK 200 OK\n', done.stdout, done.stderr)
        self.assertIn('file_event_handler = /nowhere/report: No such file',
                      done.stderr)

    def test_a_way_in_that_is_unknown(self) -> None:
        done = self.loaded('[api]\nauth_strategy = magic\n')
        self.assertNotEqual(0, done.returncode)
        self.assertIn('auth_strategy', done.stderr)
