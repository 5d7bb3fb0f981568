# SPDX-License-Identifier: Apache-2.0

"""What the API says to requests that are wrong, and of a database that is."""

from __future__ import annotations

import shutil
from typing import Any

from sqlalchemy import event
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.api import auth
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack.tests.unit.api import bad_input_cases
from scavenger_openstack.tests.unit.api import cloud


class BadInput(bad_input_cases.BadInput, cloud.Api):
    pass


class Database(bad_input_cases.HalfMigrated, cloud.Api):
    def test_healthy(self) -> None:
        answer = self.client.get('/healthcheck')
        self.assertEqual(200, answer.status_code)

    def test_gone(self) -> None:
        self.engine.dispose()
        shutil.rmtree(self.directory)
        self.unusable('cannot be used now',
                      'there is no database yet')

    def test_gone_after_a_fault_of_ours(self) -> None:
        """The log has both."""
        def handle(call: Any, connection: Any) -> None:
            self.engine.dispose()
            shutil.rmtree(self.directory)
            raise ZeroDivisionError('ours')

        conf = cloud.configuration()
        bare = app.flask_app(self.engine, conf, 'noauth', [
            route._replace(handle=handle) for route in ROUTES
            if route.path == '/v1/hosts'])
        bare.wsgi_app = auth.protected(    # type: ignore[assignment]
            bare.wsgi_app, 'noauth', conf)
        self.assertEqual(500, bare.test_client().get('/v1/hosts').status_code)
        self.assertIn('ZeroDivisionError: ours', self.log.output)
        self.assertIn('there is no database yet', self.log.output)

    def test_damaged(self) -> None:
        self.engine.dispose()
        for name in ('', '-wal', '-shm'):
            (self.directory / f'scavenger.sqlite{name}').unlink(
                missing_ok=True)
        (self.directory / 'scavenger.sqlite').write_bytes(b'x' * 8192)
        self.unusable('cannot be used now', 'not an SQLite database')

    def test_read_only(self) -> None:
        """Reading goes on; what is written is not lost silently."""
        @event.listens_for(self.engine, 'connect')
        def connected(connection: Any, record: Any) -> None:
            connection.execute('PRAGMA query_only = ON')
        self.engine.dispose()
        self.ok('GET', '/v1/hosts')
        error = self.refused(503, 'POST', bad_input_cases.URL,
                             bad_input_cases.WISH)
        self.assertIn('cannot be used now', error['detail'])
        self.assertIn('it cannot be written', self.log.output)


    def test_health_is_answered_whatever_fails(self) -> None:
        def fail(connection: Any) -> None:
            raise ZeroDivisionError('ours')

        event.listen(self.engine, 'begin', fail)
        for _ in range(2):
            answer = self.client.get('/healthcheck')
            self.assertEqual(503, answer.status_code)
            self.assertNotIn('Zero', answer.text)
        self.assertEqual(1, self.log.output.count('ZeroDivisionError: ours'))
        event.remove(self.engine, 'begin', fail)
        self.assertEqual(200, self.client.get('/healthcheck').status_code)


class Nothing(cloud.Api):

    def test_an_engine_without_tables(self) -> None:
        engine = connect.engine(f'sqlite:///{self.directory}/empty')
        client = Client(app.create(engine, cloud.configuration(), 'noauth'))
        self.assertEqual(503, client.get('/v1/hosts').status_code)
        self.assertEqual(503, client.get('/healthcheck').status_code)
