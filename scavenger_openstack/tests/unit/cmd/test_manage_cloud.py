# SPDX-License-Identifier: Apache-2.0

"""What "scavenger-manage" does in other services, which fail."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import pathlib
import threading

import fixtures
import sqlalchemy
import testtools

from scavenger_openstack.cmd import manage
from scavenger_openstack.conductor import placement
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables

CONFIGURATION = """
[database]
connection = {database}
[openstack]
auth_type = admin_token
endpoint = http://127.0.0.1:{port}
token = admin
"""


class Fails(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.database = f'sqlite:///{self.directory}/scavenger.sqlite'
        self.engine = connect.engine(self.database)
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)

    def run_it(self, port: int, *words: str) -> str:
        file = self.directory / 'conf'
        file.write_text(CONFIGURATION.format(
            database=self.database, port=port))
        with contextlib.redirect_stderr(io.StringIO()) as text, (
                contextlib.redirect_stdout(text)):
            manage.main(['--config-file', str(file), *words])
        return text.getvalue()

    def test_names_that_terminals_obey(self) -> None:
        """Of Nova, in the database, and of Placement."""
        with connect.writing(self.engine) as connection:
            connection.execute(tables.aggregate_hosts.insert().values(
                aggregate='rack\nERROR', host='h\x1b[31m', named=False,
                nova=True))
        port = self.serve_one('h\nERROR\x1b[31m' + placement.SUFFIX)
        for words, count in ((('aggregate', 'list'), 1),
                             (('placement', 'remove'), 1)):
            out = self.run_it(port, *words)
            self.assertIn(r'\nERROR', out)
            self.assertEqual(count, out.count('\n'), out)
            self.assertTrue(out.replace('\n', '').isprintable())

    def serve_one(self, name: str) -> int:
        """The port of a Placement with a provider that is in use."""
        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self) -> None:
                self.answer(200, {'resource_providers': [] if '?' in self.path
                                  else [{'uuid': 'u', 'name': name,
                                         'root_provider_uuid': 'r'}]})

            def do_DELETE(self) -> None:
                self.answer(409 if 'provider' in self.path else 404, {
                    'errors': []})

            def answer(self, status: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header('Content-Length', str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return self.start(Handler)

    def start(self, handler: type[http.server.BaseHTTPRequestHandler]
              ) -> int:
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, args=(0.02,),
                         daemon=True).start()
        return server.server_port

    def serve(self, broken: threading.Event) -> int:
        """The port of a Placement that fails, and with it the database."""
        engine = self.engine

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self) -> None:
                with connect.writing(engine) as connection:
                    connection.execute(sqlalchemy.text('DROP TABLE claims'))
                broken.set()
                self.send_error(500)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return self.start(Handler)

    def test_placement_and_then_the_database(self) -> None:
        """What failed first is told."""
        broken, file = threading.Event(), self.directory / 'conf'
        file.write_text(CONFIGURATION.format(
            database=self.database, port=self.serve(broken)))
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(1, manage.main([
                '--config-file', str(file), 'placement', 'remove']))
        self.assertTrue(broken.is_set())
        self.assertIn('Placement', err.getvalue())
        self.assertEqual(1, err.getvalue().count('\n'))
