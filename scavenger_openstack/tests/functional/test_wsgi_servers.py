# SPDX-License-Identifier: Apache-2.0

"""API and conductor under WSGI servers, with the examples of ``etc``."""

from __future__ import annotations

from importlib import util
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import fixtures

from scavenger_openstack.conductor import http
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.wire import codec

ETC = pathlib.Path(__file__).parents[3] / 'etc'
API_PORT, CONDUCTOR_PORT = 8799, 8798
START_S = 60.0

UWSGI = 'import pyuwsgi; pyuwsgi.run()'
"""A program that takes uWSGI's options."""


class Server(cloud.Mixin, databases.Sqlite):

    processes = 0
    """Of uWSGI."""

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.file = self.directory / 'scavenger.conf'
        self.log = self.directory / 'log'
        self.configure('noauth')
        self.port = process.free_port()

    def configure(self, strategy: str, more: str = '') -> None:
        self.file.write_text(f'[database]\nconnection = {self.url}\n'
                             f'[api]\nauth_strategy = {strategy}\n{more}')

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        with self.log.open('wb') as output:
            found = subprocess.Popen(
                [sys.executable, *program], stdout=output, stderr=output,
                env={**os.environ, 'SCAVENGER_CONFIG_FILE': str(self.file),
                     'HOME': str(self.directory)},
                start_new_session=True)
        self.addCleanup(self.end, found)
        return found

    def end(self, found: subprocess.Popen[bytes]) -> int:
        """SIGTERM, as systemd does."""
        if found.poll() is None:
            found.send_signal(signal.SIGTERM)
        try:
            return found.wait(START_S)
        except subprocess.TimeoutExpired:
            os.killpg(found.pid, signal.SIGKILL)
            self.fail('it does not end: ' + self.log.read_text())

    def uwsgi(self, name: str, port: int) -> subprocess.Popen[bytes]:
        """With an example, on a port that is free."""
        if not util.find_spec('pyuwsgi'):
            self.skipTest('needs pyuwsgi')
        file = self.directory / 'uwsgi.ini'
        text = (ETC / 'scavenger' / name).read_text()
        self.assertIn(f':{port}\n', text)
        [self.processes] = map(int, re.findall(r'processes = (\d+)', text))
        file.write_text(text.replace(f':{port}\n', f':{self.port}\n'))
        return self.start('-c', UWSGI, '--ini', str(file),
                          '--binary-path', sys.executable)

    def gunicorn(self, name: str, port: int) -> subprocess.Popen[bytes]:
        """As a unit has it."""
        if not util.find_spec('gunicorn'):
            self.skipTest('needs gunicorn')
        text = re.sub(r'\n# *', ' ', (ETC / 'systemd' / name).read_text())
        [command] = re.findall(r'ExecStart=gunicorn (.*?:application)', text)
        return self.start('-m', 'gunicorn', *(
            word.replace(f':{port}', f':{self.port}')
            for word in shlex.split(command)))

    def status(self, path: str, data: bytes | None = None, **headers: str
               ) -> int:
        """Of an answer; 0 without one."""
        try:
            with urllib.request.urlopen(urllib.request.Request(
                    f'http://127.0.0.1:{self.port}{path}', data, {
                        name.replace('_', '-'): value
                        for name, value in headers.items()}),
                    timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return 0

    def until(self, status: int, path: str, data: bytes | None = None,
              **headers: str) -> None:
        deadline = time.monotonic() + START_S
        while (found := self.status(path, data, **headers)) != status:
            if time.monotonic() > deadline:
                self.fail(f'{path}: {found} in place of {status}: '
                          + self.log.read_text())
            time.sleep(0.1)

    def until_loaded(self, times: int) -> None:
        """Before that a process of uWSGI does not notice SIGTERM."""
        deadline = time.monotonic() + START_S
        while self.log.read_text().count('WSGI app 0') < (
                self.processes * times):
            self.assertLess(time.monotonic(), deadline, self.log.read_text())
            time.sleep(0.1)

    def check_api(self, found: subprocess.Popen[bytes]) -> None:
        self.until(200, '/healthcheck')
        self.assertEqual(200, self.status('/v1/hosts'))
        passwords = self.directory / 'htpasswd'
        passwords.touch(0o600)
        self.configure('http_basic', f'http_basic_file = {passwords}\n')
        found.send_signal(signal.SIGHUP)
        self.until(401, '/v1/hosts')
        self.assertEqual(200, self.status('/healthcheck'))
        self.until_loaded(2)
        self.assertEqual(0, self.end(found), self.log.read_text())

    def check_conductor(self, found: subprocess.Popen[bytes]) -> None:
        with connect.writing(self.engine) as connection:
            token = enrollment.enroll(
                connection, cloud.HOST, now_s=time.time()).token
        report = codec.encode(cloud.report(cloud.incident(1)))
        self.until(404, '/')
        self.assertEqual(401, self.status(http.PATH, report))
        self.assertEqual(200, self.status(
            http.PATH, report, X_Scavenger_Host=cloud.HOST,
            Authorization=f'Bearer {token}'))
        self.assertEqual(1, len(self.rows(tables.incidents)))
        self.until_loaded(1)
        self.assertEqual(0, self.end(found), self.log.read_text())
        self.assertNotIn('Traceback', self.log.read_text())

    def test_the_api_under_uwsgi(self) -> None:
        self.check_api(self.uwsgi('uwsgi-api.ini.example', API_PORT))

    @tiers.only_in_all('uWSGI serves the same applications in the gate')
    def test_the_api_under_gunicorn(self) -> None:
        self.check_api(self.gunicorn('scavenger-api.service.example',
                                     API_PORT))

    def test_the_conductor_under_uwsgi(self) -> None:
        self.check_conductor(self.uwsgi('uwsgi-conductor.ini.example',
                                        CONDUCTOR_PORT))

    @tiers.only_in_all('uWSGI serves the same applications in the gate')
    def test_the_conductor_under_gunicorn(self) -> None:
        self.check_conductor(self.gunicorn(
            'scavenger-conductor-http.service.example', CONDUCTOR_PORT))

    def test_reports_of_each_process(self) -> None:
        """By a file: signals are the server's."""
        file = self.directory / 'report'
        self.configure('noauth', '[oslo_reports]\nfile_event_handler = '
                       f'{file}\nlog_dir = {self.directory}\n')
        for name, port, program in (
                ('api', API_PORT, 'scavenger-api'),
                ('conductor', CONDUCTOR_PORT, 'scavenger-conductor')):
            file.touch()
            found = self.uwsgi(f'uwsgi-{name}.ini.example', port)
            self.until_loaded(1)
            time.sleep(0.1)     # times of files are not as exact
            file.touch()
            deadline = time.monotonic() + START_S
            while len(made := [path.read_text() for path in
                               self.directory.glob(f'{program}-*_guru*')
                               if path.stat().st_size]) < self.processes:
                self.assertLess(time.monotonic(), deadline, made)
                time.sleep(0.1)
            for text in made:
                self.assertIn('connection = ***', text)
                self.assertIn('Thread #', text)
                self.assertNotIn(self.url, text)
            self.assertEqual(0, self.end(found), self.log.read_text())
