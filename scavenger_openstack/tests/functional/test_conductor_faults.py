# SPDX-License-Identifier: Apache-2.0

"""Conductors, agents, the database and the broker are killed while hosts
report and an operator sets and deletes overrides; the database is read-only
for a while, and gives no connection; one host is cut off meanwhile.

Afterwards each incident, limit and row of the audit is stored once, hourly
sums are those of all incidents, specs those of all samples, and no override is
lost or comes back.
"""

from __future__ import annotations

import collections
from concurrent import futures
import pathlib
import random
import subprocess
import sys
import threading
import time

import fixtures
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import directives
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.functional import fault_operator
from scavenger_openstack.tests.functional.fault_processes import Agent
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.tests.unit import rpc_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOSTS = 3
CONDUCTORS = 2
DRAIN_S = 90.0
SEED = 7
USER = 'scavenger@localhost'
MOST = 200
"""Entries that wait at one host, at most."""

CONDUCTOR = """
import os, signal, sys
from scavenger_openstack.cmd import conductor
from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor import service

answer = service.Conductor.answer
die = sys.argv.pop(1)

def and_may_die(self, data, **more):
    found = answer(self, data, **more)
    try:
        os.unlink(die)
    except FileNotFoundError:
        return found
    os.kill(os.getpid(), signal.SIGKILL)

service.Conductor.answer = and_may_die
periodic.EVERY_S = 1.0
conductor.main(sys.argv[1:])
"""
"""A conductor that looks each second whether totals, specs and old rows are
due.  When there is a file of its first argument, it is killed between commit
and answer."""


@tiers.only_in_all('schedules of faults are played on each database')
class Faults(schedules_cases.Stored, testtools.TestCase):
    """benchmarks/control_plane/fault_schedules.py plays it with many seeds."""

    seed = SEED

    def setUp(self) -> None:
        super().setUp()
        try:
            self.database = mariadb.MariaDb()
            self.addCleanup(self.database.close)
            self.broker = rabbitmq.RabbitMq()
            self.addCleanup(self.broker.close)
        except process.Missing as exc:
            self.skipTest(str(exc))
        url = self.database.new_database()
        # Administrators may write what is read-only.
        for statement in (f'CREATE USER {USER}', f'GRANT ALL ON *.* TO {USER}',
                          f'REVOKE READ_ONLY ADMIN, SUPER ON *.* FROM {USER}'):
            self.database.execute(statement)
        url = url.replace('root@', f'{USER.partition("@")[0]}@')
        self.engine = connect.engine(url)
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        self.useFixture(fixtures.FakeLogger())
        (self.directory / 'conf').write_text(
            f'[DEFAULT]\ntransport_url = {self.broker.url}\n'
            '[oslo_messaging_rabbit]\nkombu_reconnect_splay = 0\n'
            f'[database]\nconnection = {url}\nkeep_days = 30\n')
        self.random = random.Random(self.seed)
        self.done = threading.Event()
        self.answered = collections.Counter[str]()
        self.unanswered = 0
        self.away = ''
        self.doomed: set[str] = set()
        self.counts = collections.Counter[str]()
        self.conductors = [self.conductor() for _ in range(CONDUCTORS)]
        self.addCleanup(self.end)

    def conductor(self) -> subprocess.Popen[bytes]:
        with open(self.directory / 'log', 'ab') as log:
            return subprocess.Popen(
                [sys.executable, '-c', CONDUCTOR, str(self.directory / 'die'),
                 '--config-file', str(self.directory / 'conf')],
                stdout=log, stderr=log)

    def end(self) -> None:
        for one in self.conductors:
            one.kill()
            one.wait()

    def client(self) -> rpc.Client:
        conf = rpc_cases.configuration(self.broker.url)
        conf.set_override('kombu_reconnect_splay', 0.0,
                          'oslo_messaging_rabbit')
        return rpc.Client(conf, timeout_s=1.0)

    def runs(self, agent: Agent) -> collections.Counter[str]:
        """One agent, until all that happened is acknowledged.

        :return: how many reports were sent, and of what kind
        """
        name = agent.host.name
        choose = random.Random(f'{name} {self.seed}')
        client, sent = self.client(), []
        counts = collections.Counter[str]()
        while ((not self.done.is_set() or agent.waiting())
               and time.time() < self.deadline):
            now = time.time()
            if not self.done.is_set() and agent.waiting() < MOST:
                kill = name in self.doomed
                agent.happens(now, kill=kill)
                if kill:
                    self.doomed.discard(name)
            if name != self.away:
                sent.append(agent.report(now))
                doubled = choose.random() < 0.3
                old = choose.sample(sent, min(len(sent), choose.choice(
                    (0, 0, 3))))        # in any order
                for report in (*[sent[-1]] * (1 + doubled), *old):
                    counts['reports'] += 1
                    counts['reports of an earlier run'] += (
                        report.run_id != sent[-1].run_id)
                    answer = self.told(client, report)
                    if answer and choose.random() < 0.8:    # or it is lost
                        agent.answered(report.run_id, answer.acknowledged,
                                       now, kill=choose.random() < 0.02)
                        self.answered[name] += 1
            time.sleep(0.05)
        client.close()
        return counts

    def told(self, client: rpc.Client, report: wire.Report
             ) -> wire.Answer | None:
        try:
            return codec.decode(client.sync(codec.encode(report)),
                                wire.Answer, wire.MAX_ANSWER_BYTES)
        except errors.Unreachable:
            self.unanswered += 1
            return None

    def directed(self, client: rpc.Client, agent: Agent) -> dict[
            tuple[str, str], float | str | None]:
        """The overrides that the directives of a host have."""
        deadline = time.monotonic() + DRAIN_S
        while not (answer := self.told(client, agent.report(time.time()))):
            self.assertLess(time.monotonic(), deadline, self.log())
        assert answer.directives is not None
        return {(one.workload, one.knob): one.value
                for one in answer.directives.overrides}

    def overrides(self, operator: fault_operator.Operator) -> None:
        while not self.done.is_set():
            operator.override(time.time())
            time.sleep(0.5)

    def kill_conductor(self) -> None:
        """At any moment."""
        self.conductors[self.random.randrange(CONDUCTORS)].kill()
        self.replace_conductor()

    def kill_conductor_at_answer(self) -> None:
        (self.directory / 'die').touch()
        self.replace_conductor()

    def replace_conductor(self) -> None:
        """Wait for the end of one, and start another."""
        deadline = time.monotonic() + DRAIN_S
        while all(one.poll() is None for one in self.conductors):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.conductors = [one if one.poll() is None else self.conductor()
                           for one in self.conductors]

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.begin()

    def kill_database(self) -> None:
        self.database.kill()
        self.database.begin()

    def refuse_changes(self) -> None:
        """As after a failover: 1290."""
        self.database.execute('SET GLOBAL read_only = 1')
        self.refused()
        self.database.execute('SET GLOBAL read_only = 0')

    def refuse_connections(self) -> None:
        """Some conductor gets none: 1226, or 1203."""
        self.database.execute(
            f'ALTER USER {USER} WITH MAX_USER_CONNECTIONS 1')
        self.database.execute(f'KILL USER {USER}')
        self.refused()
        self.database.execute(
            f'ALTER USER {USER} WITH MAX_USER_CONNECTIONS 0')

    def refused(self) -> None:
        """Wait until reports are not stored."""
        until = self.unanswered + 4
        deadline = time.monotonic() + DRAIN_S
        while self.unanswered < until:
            self.assertLess(time.monotonic(), deadline, self.log())
            time.sleep(0.05)

    def kill_agents(self) -> None:
        """In the middle of writing down what happened."""
        self.doomed.update(agent.host.name for agent in self.agents)
        deadline = time.monotonic() + DRAIN_S
        while self.doomed - {self.away}:    # nothing may happen there now
            self.assertLess(time.monotonic(), deadline, self.log())
            time.sleep(0.01)

    def test_all_is_stored_once(self) -> None:
        names = [f'node-{number}' for number in range(HOSTS)]
        operator = fault_operator.Operator(self.engine, names, self.seed)
        self.agents = [Agent(name, self.seed, self.directory, fork=False)
                       for name in names]
        for agent in self.agents:
            self.addCleanup(agent.end)
        self.deadline = time.time() + 4 * DRAIN_S
        faults = [
            (self.kill_conductor, 'conductors'),
            (self.kill_conductor_at_answer, 'conductors before the answer'),
            (self.kill_database, 'MariaDB'), (self.kill_broker, 'RabbitMQ'),
            (self.kill_agents, 'agents'),
            (self.refuse_changes, ''),
            (self.refuse_connections, '')]
        with futures.ThreadPoolExecutor() as pool:
            try:
                work = [pool.submit(self.runs, agent)
                        for agent in self.agents]
                self.progress()
                operating = pool.submit(self.overrides, operator)
                self.away = self.random.choice(names)
                for kill, what in self.random.sample(faults, len(faults)):
                    self.counts[f'kills of {what}' if what else
                                'refusals of MariaDB'] += 1
                    kill()
                    self.progress()
                self.assertLess(0, sum(
                    agent.waiting() for agent in self.agents
                    if agent.host.name == self.away))
                self.away = ''
                self.progress()
            finally:
                self.done.set()
                self.deadline = time.time() + DRAIN_S
            for one in work:
                self.counts += one.result()
            operating.result()
        self.counts['kills of agents'] = sum(
            agent.kills for agent in self.agents)
        self.counts += operator.counts
        self.assertEqual([0] * HOSTS, [agent.waiting()
                                       for agent in self.agents], self.log())
        client = self.client()
        self.addCleanup(client.close)
        for agent in self.agents:
            self.assertEqual(operator.held[agent.host.name],
                             self.directed(client, agent))
        # No specs are made twice at one time.
        specs = {row for row in self.rows(
            tables.audit, 'time_s', 'action', 'target', 'actor')
            if row[1] == directives.SPECS}
        self.check([agent.host for agent in self.agents], time.time(),
                   'after all faults', audit=operator.audit, perhaps=specs)
        self.assertLess(2, sum(len(agent.host.incidents)
                               for agent in self.agents))

    def progress(self) -> None:
        """Wait until reports of each host are answered again."""
        wanted = {agent.host.name: self.answered[agent.host.name] + 4
                  for agent in self.agents
                  if agent.host.name != self.away}
        deadline = time.monotonic() + DRAIN_S
        while any(self.answered[name] < number
                  for name, number in wanted.items()):
            if time.monotonic() > deadline:
                self.fail(self.log())
            time.sleep(0.05)

    def log(self) -> str:
        """The end of the conductors' log."""
        return (self.directory / 'log').read_text()[-3000:]
