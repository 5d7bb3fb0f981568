# SPDX-License-Identifier: Apache-2.0


"""A small cloud: agents, a conductor and the API, each a process of its own.

With MariaDB, RabbitMQ and the real ``openstack``; the agents' cgroups are real
and apart from each other.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import pathlib
import signal
import sys
import time
from typing import Any
from typing import TypeVar
import uuid

import bcrypt
import fixtures
from sqlalchemy import select
from testtools import content

from scavenger_openstack.agent.events import history
from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.demo import product
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import blunt
from scavenger_openstack.tests.functional import embedded
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional import openstack_shell
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.wire import report

TOP = pathlib.Path(__file__).parents[3]

HOSTS = 3
SYNC_S = 1.0
TICK_S = 0.5
LEASE_S = 3.0
START_S = 120.0

BACKGROUND = ('/batch/a', '/batch/b', '/batch/hog')
FOREGROUND = '/services/s'

LOG_CHARS = 30_000
REPORT_S = 5.0
"""A conductor that is stuck may take no signal."""
REPORT_AGAIN_S = 0.05
THREADS_END = 'Green Threads'
"""In the log when the report of its threads is."""

T = TypeVar('T')

CONTROL = """
[DEFAULT]
transport_url = {broker}
control_exchange = {exchange}
[database]
connection = {database}
[api]
port = {port}
auth_strategy = http_basic
http_basic_file = {users}
"""

AGENT = """
[DEFAULT]
transport_url = {broker}
control_exchange = {exchange}
[agent]
host = {host}
interval_s = {tick_s}
lease_s = {lease_s}
controllers = scavenger, {blunt}
[libvirt]
uri =
[cgroups]
background_parents = {tree}/batch
foreground_parents = {tree}/services
[scavenger]
mode = enforce
memory_window_s = 3
# On cgroup v1 a container's quota is never above its group's.
use_cpu_leftover = false
[conductor]
enabled = true
sync_s = {sync_s}
token_file = {directory}/token
"""


class Host:
    """An agent with its watcher, on a cgroup tree of its own.

    :param directory: for its file and its state
    """

    def __init__(self, name: str, tree: base.CgroupTree,
                 directory: pathlib.Path) -> None:
        self.name = name
        self.tree = tree
        self.directory = directory
        self.state_dir = directory / 'state'
        self.config = directory / 'scavenger.conf'
        self._status = product.Status(directory)

    def workload(self, below: str) -> str:
        return self.tree.name + below

    def status(self) -> dict[str, Any]:
        """As the last tick wrote it; empty before the first."""
        self._status.refresh()
        return self._status.last

    def reports(self) -> bool:
        """Whether the conductor has answered."""
        told = self.status().get('conductor') or {}
        return bool(told.get('answered_s') and not told.get('fault'))

    def limited_s(self, below: str, cores: float | None) -> float:
        """The end of the last tick, UNIX time, if a workload has that limit
        by then, ``None`` for none; else 0."""
        status = self.status()
        found = [cap['value'] for cap in status.get('caps', ())
                 if (cap['workload'], cap['knob']) == (
                     self.workload(below), 'cpu_cores')]
        wanted = [] if cores is None else [cores]
        return status['wall_time_s'] if found == wanted else 0.0

    def free_s(self) -> float:
        """As :meth:`limited_s`, if nothing has a limit by then."""
        found = self.status()
        return found['wall_time_s'] if not (
            found['caps'] or self.leases()) else 0.0

    def leases(self) -> list[pathlib.Path]:
        return list((self.state_dir / 'leases').glob('*.json'))

    def named_s(self, below: str) -> float:
        """When this workload was named, UNIX time; 0 if it was not."""
        return max((event.time_s for event in history.Reader(
            self.state_dir / 'history').events()
            if isinstance(event, report.Incident) and event.what == 'began'
            and self.workload(below) in [
                suspect.workload for suspect in event.suspects
                if suspect.antagonist]), default=0.0)

    def idle(self) -> str:
        return self.tree.get('idle', '/batch')

    def cores(self, below: str) -> float | None:
        """The limit in the cgroup."""
        text = self.tree.get('quota', below)
        return None if text == '-1' else int(text) / 100_000

    def watchers(self) -> list[int]:
        return embedded.processes('scavenger_openstack.restore.program',
                                  str(self.state_dir))


class FleetTestCase(base.FunctionalTestCase, databases.MariaDb):
    """``hosts``, of which the control plane knows all workloads."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.port = process.free_port()
        # An exchange of its own: no test gets the calls of another.
        self.exchange = f'exchange-{uuid.uuid4().hex[:8]}'
        self.hosts = [self._host(number) for number in range(HOSTS)]
        self.programs: dict[str, services.Service] = {}
        self.addOnException(self._attach)
        self._start()
        self.wait_for('every workload is known', lambda: len(self.rows(
            tables.workloads, until_s=None)) == HOSTS * len(
                (*BACKGROUND, FOREGROUND)), START_S)
        for host in self.hosts:
            self.wait_for('background is idle class',
                          lambda host=host: host.idle() == '1', START_S)

    def _host(self, number: int) -> Host:
        tree = self.cgroups()
        for below in (*BACKGROUND, FOREGROUND):
            tree.make(below)
        directory = self.directory / f'host-{number}'
        directory.mkdir()
        found = Host(f'{self.exchange}-{number}', tree, directory)
        found.config.write_text(AGENT.format(
            broker=self.broker.url, exchange=self.exchange, host=found.name,
            tick_s=TICK_S, lease_s=LEASE_S, sync_s=SYNC_S, blunt=blunt.NAME,
            tree=tree.name, directory=directory))
        return found

    def _start(self) -> None:
        users = self.directory / 'users'
        users.touch(mode=0o600)
        users.write_bytes(b'admin:' + bcrypt.hashpw(
            openstack_shell.PASSWORD.encode(), bcrypt.gensalt(4)) + b'\n')
        control = self.directory / 'control.conf'
        control.write_text(CONTROL.format(
            broker=self.broker.url, exchange=self.exchange,
            database=self.url, port=self.port, users=users))
        url = f'http://127.0.0.1:{self.port}'
        conductor = self._program('conductor', TOP, control, ready=lambda: (
            'calls are taken' in self.programs['conductor'].log.read_text()))
        api = self._program('api', TOP, control, ready=lambda: (
            services.answers(f'{url}/healthcheck', self.port)))
        # A report that no conductor takes is sent again some seconds later.
        conductor.wait()
        path = f'{blunt.plugin(self.directory / "plugins")}:{TOP}'
        agents = [self._program(
            'standalone', path, host.config, '--state-dir',
            str(host.state_dir), name=host.directory.name,
            ready=host.reports) for host in self.hosts]
        self.addCleanup(self._end_agents)     # before each is waited for
        for one in (api, *agents):
            one.wait()
        self.useFixture(openstack_shell.Environment(
            self.directory, OS_AUTH_TYPE='http_basic', OS_ENDPOINT=url,
            OS_USERNAME='admin', OS_PASSWORD=openstack_shell.PASSWORD))

    def _program(self, kind: str, path: object, config: pathlib.Path,
                 *words: str, ready: services.Ready, name: str = ''
                 ) -> services.Service:
        """Start one.

        :param kind: its module in :mod:`scavenger_openstack.cmd`
        :param path: for ``PYTHONPATH``
        """
        name = name or kind
        found = self.programs[name] = services.Service(
            name, [sys.executable, '-P', '-m',
                   f'scavenger_openstack.cmd.{kind}', '--config-file',
                   str(config), *words], {'PYTHONPATH': str(path)}, ready)
        self.addCleanup(found.close)
        self.addCleanup(found.stop)
        found.launch()
        return found

    def _end_agents(self) -> None:
        """All at once, which takes less time; their watchers, too."""
        for host in self.hosts:
            one = self.programs.get(host.directory.name)
            for pid in one.pids if one and one.running else ():
                os.kill(pid, signal.SIGTERM)

    def _attach(self, exc_info: object) -> None:
        """What each program wrote, and what the conductor does now."""
        one = self.programs.get('conductor')
        if one and one.running:
            os.kill(one.pids[0], signal.SIGUSR2)
            until = time.monotonic() + REPORT_S
            while (THREADS_END not in one.log.read_text(errors='replace')
                   and time.monotonic() < until):
                time.sleep(REPORT_AGAIN_S)
        for name, log in [*((name, one.log) for name, one in
                            self.programs.items()),
                          ('broker', self.broker.log)]:
            self.addDetail(name, content.text_content(
                log.read_text(errors='replace')[-LOG_CHARS:]))

    def rows(self, table: Any, **values: Any) -> list[Any]:
        """The rows of a table with these values."""
        with connect.reading(self.engine) as connection:
            return list(connection.execute(select(table).filter_by(**values)))

    def text(self, *words: str) -> str:
        """What ``openstack`` writes."""
        done = openstack_shell.openstack(*words)
        self.assertEqual(0, done.status, str(done))
        return done.out

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, '-f', 'json'))

    def until(self, what: str, look: Callable[[], T]) -> T:
        """Wait until that is true, and return it."""
        found: list[T] = []

        def there() -> bool:
            found[:] = [look()]
            return bool(found[0])

        self.wait_for(what, there)
        return found[0]
