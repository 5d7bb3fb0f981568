# SPDX-License-Identifier: Apache-2.0

"""What "scavenger-manage" does in other services, which fail."""

from __future__ import annotations

import contextlib
import http.server
import io
import pathlib
import threading

import fixtures
import sqlalchemy
import testtools

from scavenger_openstack.cmd import manage
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema

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

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, args=(0.02,),
                         daemon=True).start()
        return server.server_port

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
