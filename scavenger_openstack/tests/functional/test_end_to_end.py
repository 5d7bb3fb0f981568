# SPDX-License-Identifier: Apache-2.0

"""An agent, a broker and a conductor, each a process, on real cgroups."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import time
from typing import Any
import uuid

from sqlalchemy import select
import testtools

from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq

SYNC_S = 1.0
START_S = 60.0
MOST_MIB = 100
"""Of an agent: section 8 of the design."""


class EndToEnd(agents.AgentTestCase, databases.Sqlite):

    def setUp(self) -> None:
        super().setUp()
        try:
            self.broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.host = f'host-{uuid.uuid4().hex[:8]}'
        self.configure(
            f'[DEFAULT]\ntransport_url = {self.broker.url}',
            f'control_exchange = exchange-{self.host}',
            f'[agent]\nhost = {self.host}',
            # On cgroup v1 a container's quota is never above its group's.
            '[scavenger]\nmode = enforce\nuse_cpu_leftover = false',
            f'[conductor]\nenabled = true\nsync_s = {SYNC_S}',
            f'token_file = {self.directory}/token',
            f'[database]\nconnection = {self.url}')
        self.conductor()
        self.agent = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      START_S)
        self.wait_for('the host is known', lambda: self.rows(tables.hosts),
                      START_S)

    def conductor(self) -> subprocess.Popen[bytes]:
        log = (self.directory / 'conductor.log').open('ab')
        self.addCleanup(log.close)
        found = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.conductor',
             '--config-file', str(self.config)], stdout=log, stderr=log)
        self.addCleanup(found.wait, START_S)
        self.addCleanup(found.kill)
        return found

    def rows(self, table: Any, **values: Any) -> list[Any]:
        """The rows of a table with these values."""
        with connect.reading(self.engine) as connection:
            return list(connection.execute(select(table).filter_by(**values)))

    def put(self, table: Any, **values: Any) -> None:
        """As an operator does by the API: with a row of the audit."""
        with connect.writing(self.engine) as connection:
            connection.execute(table.insert().values(**values))
            self.audit(connection)

    def audit(self, connection: Any) -> None:
        connection.execute(tables.audit.insert().values(
            time_s=time.time(), actor='operator', action='test', target='x',
            reason='the test'))

    def took(self, what: str, began: float) -> None:
        self.addDetail(what, testtools.content.text_content(
            f'{time.monotonic() - began:.2f} s'))

    def test_what_happens_is_in_the_database(self) -> None:
        [host] = self.rows(tables.hosts)
        self.assertEqual((self.host, True), (host.name, host.enforcing))
        self.wait_for('the limit', lambda: [
            row for row in self.rows(tables.caps, removed_s=None)
            if row.knob == 'cpu_idle' and row.owner == 'scavenger'])
        names = {row.name: row.priority for row in self.rows(
            tables.workloads, until_s=None)}
        self.assertEqual({f'{self.tree.name}/batch/a': 'background',
                          f'{self.tree.name}/services/s': 'foreground'},
                         names)

    def test_memory_of_an_agent(self) -> None:
        """With 100 workloads, and the library that speaks to the broker."""
        for number in range(49):
            self.tree.make(f'/batch/w{number}')
            self.tree.make(f'/services/w{number}')
        self.wait_for('all are known', lambda: len(self.rows(
            tables.workloads, until_s=None)) == 100)
        status = pathlib.Path(f'/proc/{self.agent.pid}/status').read_text()
        [peak] = re.findall(r'VmHWM:\s+(\d+) kB', status)
        self.addDetail('MiB', testtools.content.text_content(
            f'{int(peak) / 1024:.1f}'))
        self.assertLess(int(peak) / 1024, MOST_MIB)

    def test_what_operators_want_is_on_the_host(self) -> None:
        [host] = self.rows(tables.hosts)
        began = time.monotonic()
        self.put(tables.overrides, host_id=host.id, uuid='1' * 32,
                 workload=f'{self.tree.name}/batch/a', knob='cpu_cores',
                 value=0.5, reason='the test', created_by='operator',
                 created_s=time.time(), expires_s=time.time() + 12)
        self.wait_for('in the cgroup', lambda: self.tree.get(
            'quota', '/batch/a').startswith('50000'))
        self.took('override', began)
        self.wait_for('it is known', lambda: [
            row for row in self.rows(tables.caps, removed_s=None)
            if row.owner == 'operator'])
        self.wait_for('it ran out', lambda: self.tree.get(
            'quota', '/batch/a').startswith('-1'))
        began = time.monotonic()
        self.put(tables.switches, scope='cloud', target='', protection=False,
                 reason='power cut', changed_by='operator',
                 changed_s=time.time())
        self.wait_for('no limit', lambda: self.idle() == '0')
        self.took('kill switch', began)
        self.wait_for('that is known', lambda: not self.rows(
            tables.caps, removed_s=None)
            and not self.rows(tables.hosts)[0].enforcing)

    def test_parameters_hold_while_it_runs(self) -> None:
        """And as in the file again, when they are taken away."""
        [host] = self.rows(tables.hosts)
        for parameters, idle, refused in (
                ({'scavenger.use_cpu_idle': 'false',
                  'scavenger.memory_window_s': 30.0, 'scavenger.memory_c': -1},
                 '0', {'parameter scavenger.memory_window_s',
                       'parameter scavenger.memory_c'}),
                ({}, '1', set())):
            with connect.writing(self.engine) as connection:
                hosts.set_settings(connection, host.id,
                                   {'parameters': parameters})
                self.audit(connection)
            self.wait_for(f'idle class is {idle}',
                          lambda idle=idle: self.idle() == idle)
            self.wait_for('it is known what is refused', lambda refused=
                          refused: refused == set(
                              self.rows(tables.hosts)[0].facts.get(
                                  'refused', {})))

    def test_a_host_that_was_enrolled(self) -> None:
        """Nothing without its token counts from then on."""
        with connect.writing(self.engine) as connection:
            token = enrollment.enroll(
                connection, self.host, now_s=time.time()).token
        self.wait_for('it is refused', lambda: 'token' in str(
            self.conductor_facts().get('fault')), START_S)
        file = self.directory / 'token'
        file.touch(0o600)
        file.write_text(token)
        self.wait_for('it is known again', lambda: not (
            self.conductor_facts().get('fault')), START_S)

    def conductor_facts(self) -> dict[str, Any]:
        found: Any = self.status().get('conductor')
        return found or {}

    def test_a_broker_that_hangs(self) -> None:
        """The host goes on; what happened is known when it is back."""
        self.wait_for('the limit', lambda: self.rows(
            tables.caps, removed_s=None))
        self.broker.freeze()
        try:
            ticks = self.ticks()
            self.wait_for('the agent says so', lambda: dict(
                self.status().get('conductor') or {}).get('fault'), START_S)  # type: ignore[call-overload]
            self.wait_for('it goes on', lambda: self.ticks() > ticks + 10)
            (self.state_dir / 'stop').touch()
            self.wait_for('no limit', lambda: self.idle() == '0')
        finally:
            self.broker.thaw()
        self.wait_for('it is known', lambda: not self.rows(
            tables.caps, removed_s=None), START_S)
        (self.state_dir / 'stop').unlink()
        self.wait_for('limits again', lambda: self.idle() == '1')
        self.wait_for('that is known', lambda: self.rows(
            tables.caps, removed_s=None), START_S)
        # Each once.
        self.assertEqual(2, len([row for row in self.rows(tables.caps)
                                 if row.knob == 'cpu_idle']))
