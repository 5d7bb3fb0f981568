# SPDX-License-Identifier: Apache-2.0

"""What the API reads and writes, on servers of the test's own."""

from __future__ import annotations

from collections.abc import Callable
import pathlib
import signal
import subprocess
import sys
from typing import Any
import urllib.request

import fixtures
import testtools
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import postgresql
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.unit.api import bad_input_cases
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.api import evictions_cases
from scavenger_openstack.tests.unit.api import following_cases
from scavenger_openstack.tests.unit.api import policies_cases
from scavenger_openstack.tests.unit.api import profiles_cases
from scavenger_openstack.tests.unit.api import random_cases
from scavenger_openstack.tests.unit.api import reads_cases
from scavenger_openstack.tests.unit.api import writes_cases


class ReadsOnMariaDb(reads_cases.Reads, cloud.Api, databases.MariaDb):
    pass


class WritesOnMariaDb(writes_cases.Writes, cloud.Api, databases.MariaDb):
    pass


class ReadsOnPostgreSql(reads_cases.Reads, cloud.Api, databases.PostgreSql):
    pass


class WritesOnPostgreSql(writes_cases.Writes, cloud.Api,
                         databases.PostgreSql):
    pass


class PoliciesOnMariaDb(policies_cases.Policies, cloud.Api,
                        databases.MariaDb):
    pass


class PoliciesOnPostgreSql(policies_cases.Policies, cloud.Api,
                           databases.PostgreSql):
    pass


class ProfilesOnMariaDb(profiles_cases.Profiles, cloud.Api,
                        databases.MariaDb):
    pass


class ProfilesOnPostgreSql(profiles_cases.Profiles, cloud.Api,
                           databases.PostgreSql):
    pass


class BadInputOnMariaDb(bad_input_cases.BadInput, cloud.Api,
                        databases.MariaDb):
    pass


class BadInputOnPostgreSql(bad_input_cases.BadInput, cloud.Api,
                           databases.PostgreSql):
    pass


class FollowingOnMariaDb(following_cases.Following, cloud.Api,
                         databases.MariaDb):
    pass


class FollowingOnPostgreSql(following_cases.Following, cloud.Api,
                            databases.PostgreSql):
    pass


class EvictionsOnMariaDb(evictions_cases.Evictions, cloud.Api,
                         databases.MariaDb):
    pass


class EvictionsOnPostgreSql(evictions_cases.Evictions, cloud.Api,
                            databases.PostgreSql):
    pass


class RandomOnMariaDb(random_cases.Random, cloud.Api, databases.MariaDb):
    requests = 300


class RandomOnPostgreSql(random_cases.Random, cloud.Api,
                         databases.PostgreSql):
    requests = 300


class OwnDatabase(databases.Base):
    """Instead of the one that the tests have one after another."""

    empty_url: Callable[[], str]

    def setUp(self) -> None:
        super().setUp()
        self.engine = connect.engine(self.empty_url())
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)


class HalfMigratedOnMariaDb(bad_input_cases.HalfMigrated, cloud.Api,
                            OwnDatabase, databases.MariaDb):
    pass


class HalfMigratedOnPostgreSql(bad_input_cases.HalfMigrated, cloud.Api,
                               OwnDatabase, databases.PostgreSql):
    pass


class Outages(testtools.TestCase):
    """The server is killed, is back, becomes read-only and takes changes
    again, as after a failover."""

    def on(self, start: Callable[[], Any], setting: str, *more: str) -> None:
        """
        :param setting: a statement that makes it read-only, with ON or OFF
        """
        log = self.useFixture(fixtures.FakeLogger())
        try:
            server = start()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.addCleanup(server.close)
        engine = connect.engine(server.new_database())
        self.addCleanup(engine.dispose)
        schema.upgrade(engine)
        client = Client(app.create(engine, auth='noauth'))
        wish = {'scope': 'cloud', 'enabled': False, 'reason': 'a test'}

        def statuses() -> list[int]:
            return [client.get('/v1/protection').status_code,
                    client.put('/v1/protection', json=wish).status_code,
                    client.get('/healthcheck').status_code]

        self.assertEqual([200, 200, 200], statuses())
        server.kill()
        self.assertEqual([503, 503, 503], statuses())
        self.assertNotIn('Traceback', log.output)
        server.begin()
        self.assertEqual([200, 200, 200], statuses())
        for statement in (setting.format('ON'), *more):
            server.execute(statement)
        engine.dispose()
        self.assertEqual([200, 503, 503], statuses())
        self.assertIn('it is read-only', log.output)
        rows: Any = client.get('/v1/audit').json
        self.assertEqual(2, len(rows['audit']))
        for statement in (setting.format('OFF'), *more):
            server.execute(statement)
        # A session stays as it was made, so all have to be new ones.
        self.assertEqual([200, 200, 200], statuses())

    def test_mariadb(self) -> None:
        # Not read_only: the tests' user would be exempt.
        self.on(mariadb.MariaDb, 'SET GLOBAL tx_read_only = {}')

    def test_postgresql(self) -> None:
        self.on(postgresql.PostgreSql,
                'ALTER SYSTEM SET default_transaction_read_only = {}',
                'SELECT pg_reload_conf()')


class Signals(base.FunctionalTestCase, databases.Sqlite):

    def test_log_levels_and_a_report(self) -> None:
        """SIGHUP and SIGUSR2; it goes on, and SIGTERM ends it."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        file = directory / 'scavenger.conf'
        port = process.free_port()
        text = (f'[database]\nconnection = {self.url}\n'
                f'[api]\nauth_strategy = noauth\nport = {port}\n')
        file.write_text(text)
        log = directory / 'log'
        with log.open('wb') as output:
            api = subprocess.Popen(
                [sys.executable, '-m', 'scavenger_openstack.cmd.api',
                 '--config-file', str(file)], stdout=output, stderr=output)
        self.addCleanup(api.wait)
        self.addCleanup(api.kill)

        def until(words: str) -> None:
            self.wait_for(words, lambda: words in log.read_text(), 60)

        until('the API answers')
        file.write_text('[DEFAULT]\ndebug = true\n' + text)
        api.send_signal(signal.SIGHUP)
        until('read the configuration again')
        with urllib.request.urlopen(f'http://127.0.0.1:{port}/v1') as answer:
            self.assertEqual(200, answer.status)
        until('GET /v1')
        file.write_text(text + 'prot = 1\n')
        api.send_signal(signal.SIGHUP)
        until('did you mean port?')
        api.send_signal(signal.SIGUSR2)
        until('max_connections')
        self.assertIn('connection = ***', log.read_text())
        self.assertNotIn(self.url, log.read_text())
        api.terminate()
        self.assertEqual(0, api.wait(60))
