# SPDX-License-Identifier: Apache-2.0

"""``scavenger-status upgrade check`` on a real database and real files.

They run on every database.
"""

from __future__ import annotations

import json
import pathlib
import time

import bcrypt
import fixtures
import sqlalchemy

from scavenger_openstack.cmd import status
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional.servers import databases

DATABASE, POLICY, AUTHENTICATION, VERSIONS, SILENT, OLD_ROWS = (
    'Database', 'Policy file', 'Authentication', 'Versions of agents',
    'Silent agents', 'Old rows')
NAMES = 'Names of hosts'


class Status(databases.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.policy = self.directory / 'policy.yaml'
        self.passwords = self.directory / 'htpasswd'
        self.passwords.write_text('ann:' + bcrypt.hashpw(
            b'secret', bcrypt.gensalt(4)).decode() + '\n')
        self.passwords.chmod(0o600)
        self.config = self.directory / 'scavenger.conf'
        self.configure()
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.cmd.upgrade_checks.version', lambda: '2.1.0'))

    def configure(self, strategy: str = 'http_basic') -> None:
        self.config.write_text(
            f'[database]\nconnection = {self.url}\n'
            f'[api]\nauth_strategy = {strategy}\n'
            f'http_basic_file = {self.passwords}\n'
            f'[oslo_policy]\npolicy_file = {self.policy}\n'
            f'policy_dirs = {self.directory}/policy.d\n')

    def run_it(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        streams = [self.useFixture(fixtures.StringStream(name)).stream
                   for name in ('stdout', 'stderr')]
        with (fixtures.MonkeyPatch('sys.stdout', streams[0]),
              fixtures.MonkeyPatch('sys.stderr', streams[1])):
            code = status.main(['--config-file', str(self.config),
                                'upgrade', 'check', *words])
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read())
        return code, texts[0], texts[1]

    def assert_found(self, code: int, check: str, *words: str) -> None:
        """Only that check has found something, and says these words."""
        ended, out, _ = self.run_it('--json')
        found = {one['check']: one for one in json.loads(out)['checks']}
        self.assertEqual(
            {name: code if name == check else 0 for name in found},
            {name: one['result'] for name, one in found.items()}, out)
        for word in words:
            self.assertIn(word, found[check]['details'])
        self.assertEqual(code, ended)

    def write(self, statement: sqlalchemy.Insert) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(statement)

    def add(self, name: str, version: str, last_seen_s: float) -> None:
        self.write(tables.hosts.insert().values(
            name=name, version=version, facts={}, settings={},
            first_seen_s=0, last_seen_s=last_seen_s))

    def test_all_is_well(self) -> None:
        self.add('node-1', '2.0.7', time.time())
        code, out, err = self.run_it()
        self.assertEqual((0, ''), (code, err))
        self.assertEqual(7, out.count('Result: Success'), out)
        self.assertIn('| Upgrade Check Results', out)

    def test_names_that_terminals_obey(self) -> None:
        self.add('node\n| ERROR\x1b[31m\u202e', '1.0\nx', time.time() - 1e6)
        _, out, err = self.run_it()
        self.assertIn(r'node\n| ERROR\x1b[31m', out)
        self.assertTrue((out + err).replace('\n', '').isprintable())

    def test_tables_of_another_release(self) -> None:
        with connect.writing(self.engine) as connection:
            version = connection.execute(sqlalchemy.select(
                schema.VERSION.c.version_num)).scalar_one()
            connection.execute(schema.VERSION.delete())
        self.addCleanup(self.write, schema.VERSION.insert().values(
            version_num=version))
        code, out, _ = self.run_it()
        self.assertEqual(2, code)
        self.assertIn('Check: Database', out)
        self.assertIn('scavenger-manage db upgrade', ' '.join(
            out.replace('|', ' ').split()))
        self.assertNotIn('Traceback', out)

    def set_version(self, version: str) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(schema.VERSION.update().values(
                version_num=version))

    def test_tables_of_a_later_release(self) -> None:
        """Before its contract step this release works with them, too."""
        self.addCleanup(self.set_version, schema.newest())
        self.set_version(f'9999_{schema.newest()[:4]}')
        self.assert_found(1, DATABASE, 'of a later release')
        self.set_version('9999_9998')
        code, out, _ = self.run_it()
        self.assertEqual(2, code, out)

    def test_nothing_is_deleted(self) -> None:
        self.config.write_text(self.config.read_text().replace(
            '[database]\n', '[database]\nkeep_days = 0\n'))
        self.assert_found(1, OLD_ROWS, 'keep_days is 0')

    def test_no_database(self) -> None:
        self.config.write_text(self.config.read_text().replace(
            'connection = ', 'max_connections = 5\n#'))
        code, out, _ = self.run_it()
        self.assertEqual(2, code)
        self.assertIn('[database] connection is not set', out)

    def test_policies(self) -> None:
        self.policy.write_text('"interference:hosts:list": "role:reader"\n')
        self.assertEqual(0, self.run_it()[0])
        for text, *words in (
                ('{"interference:hosts:list": "role:reader"}\n',
                 'JSON', 'oslopolicy-convert-json-to-yaml'),
                ('"interference:host:list": "role:reader"\n',
                 'no such rule; did you mean interference:hosts:list?'),
                ('"interference:hosts:list": "role:reader or or"\n',
                 'cannot be understood'),
                ('"interference:hosts:list": "rule:nothing"\n',
                 'does not exist'),
                ('- one\n', str(self.policy)),
                ('"a: [\n', str(self.policy))):
            self.policy.write_text(text)
            self.assert_found(2, POLICY, *words)
        self.assertNotIn('Failed to understand', self.log.output)
        self.policy.write_text('"interference:hosts:list": "!"\n')
        self.assertEqual(0, self.run_it()[0])

    def test_authentication(self) -> None:
        self.passwords.chmod(0o644)
        self.assert_found(2, AUTHENTICATION, 'chmod 600')
        self.passwords.unlink()
        self.assert_found(2, AUTHENTICATION, 'No such file')
        self.configure('noauth')
        self.assert_found(1, AUTHENTICATION, 'every client may do everything')

    def test_hosts(self) -> None:
        self.add('node-1', '2.1.0', time.time())
        for number in range(7):
            self.add(f'old-{number}', '1.9.0', time.time() - 60)
        self.assert_found(1, VERSIONS, '7 of 8 hosts',
                          'old-4 (1.9.0) and 2 more', '2.1.0')
        with connect.writing(self.engine) as connection:
            connection.execute(sqlalchemy.update(tables.hosts).where(
                tables.hosts.c.name != 'node-1').values(
                    version='', last_seen_s=0))
        self.assert_found(1, SILENT, '7 of 8 hosts', 'old-0')

    def test_names_that_nova_does_not_have(self) -> None:
        """With or without a domain they are the same."""
        for name in ('node-1', 'node-2.example.org', 'node-3'):
            self.add(name, '2.1.0', time.time())
        self.assertEqual(0, self.run_it()[0])
        for host in ('node-1.example.org', 'node-2', 'node-3.a', 'node-4'):
            self.write(tables.compute_services.insert().values(host=host))
        self.assertEqual(0, self.run_it()[0])
        self.add('node-5', '2.1.0', time.time())
        self.assert_found(1, NAMES, '1 of 4 hosts', 'node-5',
                          'openstack compute service list')

    def test_a_wrong_configuration(self) -> None:
        self.config.write_text('[database]\nconection = x\n')
        code, out, err = self.run_it()
        self.assertEqual((2, ''), (code, out))
        self.assertIn('did you mean connection?', err)
        self.assertEqual(1, len(err.splitlines()))
