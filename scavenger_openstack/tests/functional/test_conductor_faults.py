# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Conductors, their database and their broker are killed while hosts report.

Afterwards each incident, limit and kill is stored once, hourly sums are those
of all incidents, and specs those of all samples.
"""

from __future__ import annotations

import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import fixtures
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.functional.servers import mariadb
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.tests.unit import rpc_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOSTS = 3
CONDUCTORS = 2
DRAIN_S = 90.0
SEED = 7


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
        self.engine = connect.engine(url)
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        self.useFixture(fixtures.FakeLogger())
        (self.directory / 'conf').write_text(
            f'[DEFAULT]\ntransport_url = {self.broker.url}\n'
            '[oslo_messaging_rabbit]\nkombu_reconnect_splay = 0\n'
            f'[database]\nconnection = {url}\n')
        self.random = random.Random(self.seed)
        self.done = threading.Event()
        self.answered = 0
        self.conductors = [self.conductor() for _ in range(CONDUCTORS)]
        self.addCleanup(self.end)

    def conductor(self) -> subprocess.Popen[bytes]:
        with open(self.directory / 'log', 'ab') as log:
            return subprocess.Popen(
                [sys.executable, '-m', 'scavenger_openstack.cmd.conductor',
                 '--config-file', str(self.directory / 'conf')],
                stdout=log, stderr=log)

    def end(self) -> None:
        for one in self.conductors:
            one.kill()
            one.wait()

    def runs(self, host: schedules_cases.Host) -> None:
        """One agent, until all that happened is acknowledged."""
        conf = rpc_cases.configuration(self.broker.url)
        conf.set_override('kombu_reconnect_splay', 0.0,
                          'oslo_messaging_rabbit')
        client = rpc.Client(conf, timeout_s=1.0)
        while not self.done.is_set() or host.waiting:
            now = time.time()
            if not self.done.is_set() and len(host.waiting) < 100:
                host.happens(now)
            report = host.report(now)
            data = codec.encode(report)
            for _ in range(1 + (host.random.random() < 0.3)):   # doubled
                try:
                    answer = codec.decode(client.sync(data), wire.Answer,
                                          wire.MAX_ANSWER_BYTES)
                except errors.Unreachable:
                    continue
                if host.random.random() < 0.8:      # or it is lost
                    host.answered(report.run_id, answer)
                    self.answered += 1
            if host.random.random() < 0.1:
                host.restart()
            if time.time() > self.deadline:
                break
            time.sleep(0.05)
        client.close()

    def kill_conductor(self) -> None:
        one = self.conductors.pop(self.random.randrange(CONDUCTORS))
        one.send_signal(signal.SIGKILL)
        one.wait()
        self.conductors.append(self.conductor())

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.begin()

    def kill_database(self) -> None:
        self.database.kill()
        self.database.begin()

    def test_all_is_stored_once(self) -> None:
        hosts = [schedules_cases.Host(f'node-{number}', self.seed)
                 for number in range(HOSTS)]
        self.deadline = time.time() + 4 * DRAIN_S
        threads = [threading.Thread(target=self.runs, args=(host,))
                   for host in hosts]
        for thread in threads:
            thread.start()
        self.progress()
        faults = [self.kill_conductor, self.kill_database, self.kill_broker]
        for fault in self.random.sample(faults, len(faults)):
            fault()
            self.progress()
        self.done.set()
        self.deadline = time.time() + DRAIN_S
        for thread in threads:
            thread.join()
        self.assertEqual([[]] * HOSTS, [host.waiting for host in hosts],
                         (self.directory / 'log').read_text()[-3000:])
        self.check(hosts, time.time(), 'after all faults')
        self.assertLess(2, sum(len(host.incidents) for host in hosts))

    def progress(self) -> None:
        """Wait until reports are answered again."""
        wanted = self.answered + 10
        deadline = time.monotonic() + DRAIN_S
        while self.answered < wanted:
            if time.monotonic() > deadline:
                self.fail((self.directory / 'log').read_text()[-3000:])
            time.sleep(0.05)
