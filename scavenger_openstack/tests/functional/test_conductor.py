# SPDX-License-Identifier: Apache-2.0

"""The conductor on real databases and a real broker, and as a process."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import fixtures
import kombu
import sqlalchemy
import testtools

from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import directives_cases
from scavenger_openstack.tests.unit.conductor import enrolling_cases
from scavenger_openstack.tests.unit.conductor import estimates_cases
from scavenger_openstack.tests.unit.conductor import eviction_cases
from scavenger_openstack.tests.unit.conductor import failing_cases
from scavenger_openstack.tests.unit.conductor import governor_cases
from scavenger_openstack.tests.unit.conductor import hostile_cases
from scavenger_openstack.tests.unit.conductor import periodic_cases
from scavenger_openstack.tests.unit.conductor import profilings_cases
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.tests.unit.conductor import service_cases
from scavenger_openstack.tests.unit.conductor import silence_cases
from scavenger_openstack.tests.unit.conductor import specs_cases
from scavenger_openstack.tests.unit.conductor import sync_cases
from scavenger_openstack.tests.unit.db import totals_cases
from scavenger_openstack.tests.unit import rpc_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire import report as wire

START_S = 60.0

DIES = """
import os, signal, sys
from scavenger_openstack.cmd import conductor
from scavenger_openstack.conductor import service

answer = service.Conductor.answer

def and_dies(self, data, **more):
    answer(self, data, **more)
    os.kill(os.getpid(), signal.SIGKILL)

service.Conductor.answer = and_dies
conductor.main(sys.argv[1:])
"""
"""A conductor that is killed between commit and answer."""


class SyncOnMariaDb(sync_cases.Sync, databases.MariaDb):
    pass


class SyncOnPostgreSql(sync_cases.Sync, databases.PostgreSql):
    pass


class DirectivesOnMariaDb(directives_cases.Directives, databases.MariaDb):
    pass


class DirectivesOnPostgreSql(directives_cases.Directives,
                             databases.PostgreSql):
    pass


class EnrollingOnMariaDb(enrolling_cases.Enrolling, databases.MariaDb):
    pass


class EnrollingOnPostgreSql(enrolling_cases.Enrolling, databases.PostgreSql):
    pass


class GovernorOnMariaDb(governor_cases.Governor, databases.MariaDb):
    seeds = tiers.seeds(2)


class GovernorOnPostgreSql(governor_cases.Governor, databases.PostgreSql):
    seeds = tiers.seeds(2)


class HostileOnMariaDb(hostile_cases.Hostile, databases.MariaDb):
    pass


class HostileOnPostgreSql(hostile_cases.Hostile, databases.PostgreSql):
    pass


class AntagonistsOnMariaDb(eviction_cases.Antagonists, databases.MariaDb):
    pass


class AntagonistsOnPostgreSql(eviction_cases.Antagonists,
                              databases.PostgreSql):
    pass


class ShortagesOnMariaDb(eviction_cases.Shortages, databases.MariaDb):
    pass


class ShortagesOnPostgreSql(eviction_cases.Shortages, databases.PostgreSql):
    pass


class PeriodicOnMariaDb(periodic_cases.Periodic, databases.MariaDb):
    pass


class PeriodicOnPostgreSql(periodic_cases.Periodic, databases.PostgreSql):
    pass


class EstimatesOnMariaDb(estimates_cases.Estimates, databases.MariaDb):
    pass


class EstimatesOnPostgreSql(estimates_cases.Estimates,
                            databases.PostgreSql):
    pass


class ProfilingsOnMariaDb(profilings_cases.Profilings, databases.MariaDb):
    pass


class ProfilingsOnPostgreSql(profilings_cases.Profilings,
                             databases.PostgreSql):
    pass


class SpecsOnMariaDb(specs_cases.Specs, databases.MariaDb):
    pass


class SpecsOnPostgreSql(specs_cases.Specs, databases.PostgreSql):
    pass


class FailingOnMariaDb(failing_cases.Failing, databases.MariaDb):
    seeds = tiers.seeds(4)


class FailingOnPostgreSql(failing_cases.Failing, databases.PostgreSql):
    seeds = tiers.seeds(4)


class SchedulesOnMariaDb(schedules_cases.Schedules, databases.MariaDb):
    seeds = tiers.seeds(4)


class SchedulesOnPostgreSql(schedules_cases.Schedules, databases.PostgreSql):
    seeds = tiers.seeds(4)


class SilenceOnMariaDb(silence_cases.Silence, databases.MariaDb):
    pass


class SilenceOnPostgreSql(silence_cases.Silence, databases.PostgreSql):
    pass


class TotalsOnMariaDb(totals_cases.Totals, databases.MariaDb):
    seeds = tiers.seeds(2)


class TotalsOnPostgreSql(totals_cases.Totals, databases.PostgreSql):
    seeds = tiers.seeds(2)


LATER = {'mysql': ('1047', '1129', '1203', '1226', '1290', '1317', '1792'),
         'postgresql': ('25006', '53200', '57014', '57P01', '58030', 'XX000')}
"""Errors of a database, or of a node of it, that say nothing of a report."""

RAISE = {
    'mysql': ('CREATE TRIGGER bad BEFORE INSERT ON incidents FOR EACH ROW '
              "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}",),
    'postgresql': (
        'CREATE FUNCTION bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN '
        "RAISE EXCEPTION 'no' USING ERRCODE = '{}'; END $$",
        'CREATE TRIGGER bad BEFORE INSERT ON incidents '
        'FOR EACH ROW EXECUTE FUNCTION bad()')}
PASSES = {'mysql': ('DROP TRIGGER IF EXISTS bad',),
          'postgresql': ('DROP TRIGGER IF EXISTS bad ON incidents',
                         'DROP FUNCTION IF EXISTS bad')}
MOVED = '1047', '1290', '1792', '25006'


class Later(service_cases.Service):

    def execute(self, statements: Sequence[str], *parts: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sqlalchemy.text(statement.format(*parts)))

    def test_errors_that_say_nothing_of_the_report(self) -> None:
        """Each is "later", however often it comes; those after a failover
        have the conductor connect again."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.service.PATIENCE_S', 0.0))
        name = self.engine.dialect.name
        self.addCleanup(self.execute, PASSES[name])
        data = codec.encode(cloud.report(cloud.incident(1)))
        for number in LATER[name]:
            self.execute(PASSES[name])
            self.execute(RAISE[name], number)
            made: list[object] = []

            def connected(connection: object, record: object,
                          made: list[object] = made) -> None:
                made.append(connection)

            sqlalchemy.event.listen(self.engine, 'connect', connected)
            for _ in range(4):
                self.assertRaises(errors.Unreachable, self.conductor.answer,
                                  data)
            sqlalchemy.event.remove(self.engine, 'connect', connected)
            if number in MOVED:
                self.assertGreaterEqual(len(made), 3, number)
            elif number != '57P01':
                self.assertEqual([], made, number)
        self.assertNotIn('Traceback', self.log.output)
        self.execute(PASSES[name])
        self.assertEqual(1, self.answer(cloud.report(cloud.incident(1))
                                        ).acknowledged)


class ServiceOnMariaDb(Later, databases.MariaDb):
    pass


class ServiceOnPostgreSql(Later, databases.PostgreSql):
    pass


class Broker(rpc_cases.Mixin, testtools.TestCase):
    """Both ends of the call, and RabbitMQ."""

    @classmethod
    def url(cls) -> str:
        try:
            return rabbitmq.shared().url
        except process.Missing as exc:
            raise cls.skipException(str(exc)) from exc

    def test_a_refusal_with_lines(self) -> None:
        """What the other end says forges no line of a log."""
        self.fault = errors.WireError('no\nERROR forged')
        self.assertEqual('no\\nERROR forged', str(self.assertRaises(
            errors.WireError, self.client.sync, b'{}')))

    def test_a_refusal_without_a_proof(self) -> None:
        """Another client of the broker may have sent it: no entry is left
        out for it."""
        def refuse(data: bytes, sender: proof.Proof) -> dict[str, str]:
            raise errors.WireError('no')

        _, client = self.enrolled()
        type(self).signed_answers = staticmethod(refuse)
        self.assertEqual('no', str(self.assertRaises(
            errors.Unreachable, client.sync, b'{}')))

    def test_an_agent_that_the_broker_refuses(self) -> None:
        """It goes on, and tries again; the line says why."""
        client = rpc.Client(rpc_cases.configuration(
            self.url().replace('guest:guest', 'guest:wrong')), timeout_s=30.0)
        self.addCleanup(client.close)
        for _ in range(2):
            why = str(self.assertRaises(errors.Unreachable, client.sync,
                                        b'{}'))
            self.assertIn('ACCESS_REFUSED', why)
            self.assertNotIn('wrong', why)

    def test_what_a_token_or_another_conductor_would_change(self) -> None:
        for kind in (errors.ForeignReport, errors.OtherRelease,
                     errors.DatabaseError, errors.ConfigError):
            self.fault = kind('not now')
            self.assertEqual('not now', str(self.assertRaises(
                errors.Unreachable, self.client.sync, b'{}')))


class Processes(cloud.Mixin, databases.Mixin):
    """Conductors of their own processes, with RabbitMQ, on each database."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        self.configuration = self.directory / 'scavenger.conf'
        # An exchange of its own: no test gets the calls of another.
        exchange = f'exchange-{time.monotonic_ns()}'
        self.configuration.write_text(
            f'[DEFAULT]\ntransport_url = {self.broker.url}\n'
            f'control_exchange = {exchange}\n'
            f'[database]\nconnection = {self.url}\n')
        conf = rpc_cases.configuration(self.broker.url)
        conf.set_override('control_exchange', exchange)
        self.client = rpc.Client(conf, timeout_s=2.0)
        self.addCleanup(self.client.close)

    def start(self, *program: str) -> subprocess.Popen[str]:
        log = self.directory / f'{time.monotonic_ns()}.log'
        with open(log, 'w') as out:
            found = subprocess.Popen(
                [sys.executable, *(program or (
                    '-m', 'scavenger_openstack.cmd.conductor')),
                 '--config-file', str(self.configuration)],
                stdout=out, stderr=out, text=True)
        self.addCleanup(self.end, found)
        self.log = log
        return found

    def until(self, text: str) -> None:
        """Wait for a line of the log."""
        deadline = time.monotonic() + START_S
        while text not in self.log.read_text():
            if time.monotonic() > deadline:
                self.fail(f'no {text!r} in {self.log.read_text()}')
            time.sleep(0.05)

    def end(self, found: subprocess.Popen[str],
            number: signal.Signals = signal.SIGTERM) -> int:
        if found.poll() is None:
            found.send_signal(number)
        return found.wait(START_S)

    def sent(self, report: wire.Report) -> wire.Answer:
        """What the agent does: again until it is answered."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                return codec.decode(self.client.sync(codec.encode(report)),
                                    wire.Answer, wire.MAX_ANSWER_BYTES)
            except errors.Unreachable:
                if time.monotonic() > deadline:
                    raise

    def test_killed_between_commit_and_answer(self) -> None:
        now = time.time()
        entries: list[wire.AnyEntry] = [
            cloud.incident(1, now, begun_s=now - 60),
            cloud.limit(2, now, since_s=now),
            cloud.statistics(3, now // 3600 * 3600, 10, 1.0, 0.5),
            wire.Kill(sequence=4, time_s=now, workload='/batch/a',
                      processes=1, owner='scavenger')]
        dying = self.start('-c', DIES)
        self.until('calls are taken')
        self.assertRaises(errors.Unreachable, self.client.sync, codec.encode(
            cloud.of_shop(*entries, sent_s=now)))
        self.assertEqual(-signal.SIGKILL, dying.wait(START_S))
        self.assertEqual(1, len(self.rows(tables.incidents)))
        self.start()
        self.assertEqual(4, self.sent(
            cloud.of_shop(*entries, sent_s=now)).acknowledged)
        for table in (tables.incidents, tables.suspects, tables.caps,
                      tables.statistics, tables.audit):
            self.assertEqual(1, len(self.rows(table)), table.name)
        self.assertEqual(1, sum(self.rows(tables.antagonist_hours,
                                          'incidents')))

    def test_a_report_of_its_state(self) -> None:
        """On SIGUSR2, without passwords; it goes on."""
        conductor = self.start()
        self.until('calls are taken')
        conductor.send_signal(signal.SIGUSR2)
        self.until('max_connections')
        self.sent(cloud.report())
        self.assertEqual(0, self.end(conductor))
        report = self.log.read_text()
        self.assertIn('scavenger-conductor', report)
        self.assertIn('connection = ***', report)
        self.assertIn('transport_url = ***', report)
        self.assertNotIn(self.url, report)

    def test_no_tables(self) -> None:
        self.configuration.write_text(
            self.configuration.read_text().replace(self.url,
                                                   self.empty_url()))
        conductor = self.start()
        self.assertEqual(1, conductor.wait(START_S))
        [line] = [line for line in self.log.read_text().splitlines()
                  if line.startswith('scavenger-conductor')]
        self.assertIn('scavenger-manage db upgrade', line)


class ConductorsOnMariaDb(Processes, databases.MariaDb):
    """And what concerns no database."""

    def test_signals(self) -> None:
        conductor = self.start()
        self.until('calls are taken')
        self.configuration.write_text(
            '[DEFAULT]\ndebug = true\n'
            + self.configuration.read_text().replace('[DEFAULT]', ''))
        conductor.send_signal(signal.SIGHUP)
        self.until('read the configuration again')
        self.sent(cloud.report())
        self.until('node-1: 0 entries')
        right = self.configuration.read_text()
        self.configuration.write_text(right + '[database]\nconection = x\n')
        conductor.send_signal(signal.SIGHUP)
        self.until('what was read before holds')
        self.until('did you mean connection?')
        self.configuration.write_text(right)
        self.assertEqual(0, self.end(conductor, signal.SIGTERM))
        conductor = self.start()
        self.until('calls are taken')
        self.assertEqual(0, self.end(conductor, signal.SIGINT))
        self.assertNotIn('Traceback', self.log.read_text())

    def test_no_broker(self) -> None:
        """It waits, and ends when it is told."""
        self.configuration.write_text(
            self.configuration.read_text().replace(
                f':{self.broker.port}/', f':{process.free_port()}/'))
        conductor = self.start()
        self.until('Connection refused')
        self.assertEqual(0, self.end(conductor))

    def test_a_broker_that_never_answers(self) -> None:
        """It says so in one line, waits, and ends when it is told."""
        with socket.create_server(('127.0.0.1', 0)) as silent:
            self.configuration.write_text(
                self.configuration.read_text().replace(
                    f':{self.broker.port}/', f':{silent.getsockname()[1]}/'))
            conductor = self.start()
            self.until('timed out')
            self.assertEqual(0, self.end(conductor))
        self.assertNotIn('Traceback', self.log.read_text())

    def refused(self) -> str:
        """The line of a conductor that ends since its broker refuses it.

        It waits a second for each answer, and no longer.
        """
        conductor = self.start('-c', (
            'import sys\nfrom scavenger_openstack.cmd import conductor\n'
            'from scavenger_openstack import rpc\nrpc.TIMEOUT_S = 1.0\n'
            'sys.exit(conductor.main())'))
        self.assertEqual(1, conductor.wait(2 * START_S))
        log = self.log.read_text()
        self.assertNotIn('calls are taken', log)
        [line] = [line for line in log.splitlines()
                  if line.startswith('scavenger-conductor: ')]
        self.assertIn('lets this conductor take no calls', line)
        return line

    def test_a_password_that_the_broker_refuses(self) -> None:
        self.configuration.write_text(
            self.configuration.read_text().replace('guest:guest',
                                                   'guest:wrong'))
        self.assertNotIn('wrong', self.refused())

    def queue(self, **options: Any) -> Any:
        """The queue that conductors share, as another client makes it."""
        conf = self.configuration.read_text()
        exchange = conf.partition('control_exchange = ')[2].split()[0]
        connection = kombu.Connection(self.broker.url.replace(
            'rabbit:', 'amqp:'))
        self.addCleanup(connection.release)
        channel = connection.channel()
        queue = kombu.Queue(
            rpc.TOPIC, kombu.Exchange(exchange, 'topic', durable=False,
                                      channel=channel),
            routing_key=rpc.TOPIC, channel=channel, **options)
        self.addCleanup(queue.delete)
        queue.delete()
        queue.declare()
        return queue

    def test_a_queue_of_another_kind(self) -> None:
        """PRECONDITION_FAILED."""
        self.queue(durable=True, queue_arguments={'x-max-length': 7})
        self.assertIn('406', self.refused())

    def test_a_queue_that_it_may_not_read(self) -> None:
        """ACCESS_REFUSED when it consumes, which the libraries only log."""
        queue = self.queue(durable=False, auto_delete=False)
        queue.channel.basic_consume(queue.name, exclusive=True)
        self.assertIn('not answered', self.refused())

    def test_what_systemd_hears(self) -> None:
        path = self.directory / 'notify'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
            ear.bind(str(path))
            ear.settimeout(START_S)
            self.useFixture(fixtures.EnvironmentVariable('NOTIFY_SOCKET',
                                                         str(path)))
            conductor = self.start('-c', (
                'from scavenger_openstack.cmd import conductor\n'
                'conductor.CHECK_S = 0.1\nconductor.main()'))
            self.assertEqual(b'READY=1', ear.recv(1000))
            while (heard := ear.recv(1000)) != (
                    b'WATCHDOG=1\nSTATUS=takes reports'):
                self.assertIn(b'waits for the message broker', heard)
            with self.engine.begin() as connection:
                connection.execute(sqlalchemy.text(
                    'ALTER TABLE hosts RENAME TO gone'))
            try:
                self.assertRaises(errors.Unreachable, self.client.sync,
                                  codec.encode(cloud.report()))
                while b'scavenger-manage db upgrade' not in ear.recv(1000):
                    pass
            finally:
                with self.engine.begin() as connection:
                    connection.execute(sqlalchemy.text(
                        'ALTER TABLE gone RENAME TO hosts'))
            self.sent(cloud.report())
            while ear.recv(1000) != b'WATCHDOG=1\nSTATUS=takes reports':
                pass
            conductor.terminate()
            while ear.recv(1000) != b'STOPPING=1':
                pass
        self.assertEqual(0, self.end(conductor))

    def test_no_database_named(self) -> None:
        self.configuration.write_text('[DEFAULT]\n')
        conductor = self.start()
        self.assertEqual(2, conductor.wait(START_S))
        self.assertIn('[database] connection', self.log.read_text())


class ConductorsOnPostgreSql(Processes, databases.PostgreSql):
    pass


@tiers.only_in_all('processes of conductors share MariaDB in the gate')
class ConductorsOnSqlite(Processes, databases.Sqlite):
    """One host with a broker."""
