# SPDX-License-Identifier: Apache-2.0

"""What a real Placement is told, from reports on."""

from __future__ import annotations

import pathlib
from typing import Any
import uuid

import fixtures
from keystoneauth1 import adapter
import testtools

from scavenger_openstack.cmd import manage
from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor.placement import MEMORY_MIB
from scavenger_openstack.conductor.placement import VCPU
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.conductor import sync
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional import placement_server
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.wire import report as wire

NOW = 1_750_000_000.0
MIB = 2 ** 20
PARAMS = placement.Params(smooth_s=300.0, step=0.1, interval_s=60.0,
                          silent_s=120.0)

CONFIGURATION = """
[database]
connection = {database}
[openstack]
auth_type = admin_token
endpoint = {url}
token = admin
"""


def nothing() -> None:
    """The claim is still ours."""


class Faulty(adapter.Adapter):
    """Placement with a fault at so many writes of inventories, before or
    after it wrote."""

    def __init__(self, raw: adapter.Adapter, times: int, *, writes: bool
                 ) -> None:
        super().__init__(raw.session)
        self._raw = raw
        self._times = times
        self._writes = writes

    def request(self, url: str, method: str, **more: Any) -> Any:
        fails = (url.endswith('/inventories') and method == 'PUT'
                 and self._times > 0)
        answer = self._raw.request(
            url if self._writes or not fails else '/', method, **more)
        if fails:
            self._times -= 1
            answer.status_code = 500
        return answer


class Writing(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            _, self.url = placement_server.server()
        except (packages.Unavailable, process.Missing) as exc:
            self.skipTest(str(exc))
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.database = f'sqlite:///{directory}/scavenger.sqlite'
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.engine = connect.engine(self.database)
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.raw = placement_server.client(self.url)
        self.api = placement_api.Placement(self.raw)
        self.addCleanup(self.api.remove)
        self.now, self.step_s = NOW, 0.0
        self.host = f'host-{uuid.uuid4().hex[:8]}'
        self.root = self.ask('POST', '/resource_providers',
                             {'name': self.host})['uuid']
        self.writer = self.another()

    def another(self, api: adapter.Adapter | None = None
                ) -> placement_writer.Writer:
        """That of a conductor that has just started."""
        return placement_writer.Writer(
            self.engine, placement_api.Placement(api or self.raw), PARAMS,
            lambda: self.now + self.step_s, lambda: self.now)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As Nova does it."""
        answer = self.raw.request(
            path, method, json=body, raise_exc=False, headers={
                'OpenStack-API-Version': 'placement 1.39'})
        return answer.json() if answer.content else {}

    def report(self, cores: float, host: str | None = None,
               **facts: Any) -> None:
        """The agent says that so many cores are free, and 2 GiB."""
        with connect.writing(self.engine) as connection:
            sync.sync(connection, wire.Report(
                host=host or self.host, boot_id='b', run_id='r',
                sent_s=self.now, workloads=None, workloads_digest='',
                entries=[], directives_digest='', facts=wire.Facts(**{
                    'enforcing': True, 'grade': 'B',
                    'headroom': {'cpu': cores, 'memory': 2048.0 * MIB},
                    'used': {'cpu': 0.0, 'memory': 0.0}, **facts})),
                self.now + self.step_s)

    def later(self, seconds: float, cores: float | None = None,
              **facts: Any) -> int:
        """One turn after that; how many hosts were written."""
        self.now += seconds
        if cores is not None:
            self.report(cores, **facts)
        return self.writer.turn(nothing)

    def offered(self) -> dict[str, int]:
        _, children = self.api.listed()
        return {name: one.offered for name, one in self.api.inventory(
            children[self.host]).items()}

    def traits(self) -> set[str]:
        return set(self.ask(
            'GET', f'/resource_providers/{self.root}/traits')['traits'])

    def allocate(self, vcpu: int) -> None:
        consumer = str(uuid.uuid4())
        _, children = self.api.listed()
        self.ask('PUT', f'/allocations/{consumer}', {
            'allocations': {children[self.host]: {'resources': {VCPU: vcpu}}},
            'project_id': 'p', 'user_id': 'u', 'consumer_generation': None,
            'consumer_type': 'INSTANCE'})
        self.addCleanup(self.ask, 'DELETE', f'/allocations/{consumer}')

    def test_what_is_free_is_offered(self) -> None:
        self.assertEqual(1, self.later(0, 3.5))
        self.assertEqual({VCPU: 3, MEMORY_MIB: 2048}, self.offered())
        self.assertEqual({'CUSTOM_SCAVENGER_GRADE_B'}, self.traits())
        self.assertEqual(0, self.later(10, 3.5))

    def test_no_more_than_nova_has_written(self) -> None:
        generation = self.ask('GET', f'/resource_providers/{self.root}')[
            'generation']
        self.ask('PUT', f'/resource_providers/{self.root}/inventories', {
            'resource_provider_generation': generation, 'inventories': {
                'VCPU': {'total': 8}, 'MEMORY_MB': {'total': 1024}}})
        self.later(0, 2.0 ** 60)
        self.assertEqual({VCPU: 8, MEMORY_MIB: 1024}, self.offered())

    def test_what_it_uses_is_offered_besides(self) -> None:
        self.later(0, 1.5, used={'cpu': 2.0, 'memory': 1024.0 * MIB})
        self.assertEqual({VCPU: 3, MEMORY_MIB: 3072}, self.offered())

    def test_less_at_once_more_slowly(self) -> None:
        self.later(0, 4.0)
        self.assertEqual(0, self.later(30, 1.0))    # too soon
        self.assertEqual(1, self.later(30, 1.0))
        self.assertEqual(1, self.offered()[VCPU])
        self.later(60, 4.0)
        self.assertEqual(1, self.offered()[VCPU])
        for _ in range(40):
            self.later(60, 4.0)
        self.assertEqual(3, self.offered()[VCPU])   # 4 in the limit only

    def test_a_silent_host_offers_nothing_new(self) -> None:
        self.later(0, 4.0)
        self.allocate(2)
        self.assertEqual(1, self.later(PARAMS.silent_s + 1))
        self.assertEqual({VCPU: 0, MEMORY_MIB: 0}, self.offered())
        self.assertEqual(set(), self.traits())
        _, children = self.api.listed()
        self.assertEqual(2, self.api.inventory(
            children[self.host])[VCPU].total)

    def test_a_host_that_sets_no_limits_offers_nothing(self) -> None:
        self.later(0, 4.0, enforcing=False)
        self.assertEqual({VCPU: 0, MEMORY_MIB: 0}, self.offered())

    def test_a_new_conductor_goes_on_slowly(self) -> None:
        """It knows no more than what is written."""
        self.later(0, 1.0)
        self.writer = self.another()
        self.later(60, 8.0)
        self.assertEqual(1, self.offered()[VCPU])

    def test_another_name_of_the_host(self) -> None:
        self.report(4.0, host=f'{self.host}.example.org')
        self.writer.turn(nothing)
        self.assertEqual(4, self.offered()[VCPU])

    def test_a_host_of_that_name_elsewhere(self) -> None:
        """Of another domain it is another one."""
        full = f'{self.host}-2.a.example.org'
        self.ask('POST', '/resource_providers', {'name': full})
        self.report(4.0, host=f'{self.host}-2.b.example.org')
        self.writer.turn(nothing)
        self.assertNotIn(full, self.api.listed()[1])

    def test_two_agents_for_one_host(self) -> None:
        for name in (self.host, f'{self.host}.example.org'):
            self.report(4.0, host=name)
        self.later(0)
        self.later(10)
        self.assertEqual(1, self.log.output.count(
            f'{self.host}.example.org: an agent of another name reports'))

    def test_a_host_that_was_renamed(self) -> None:
        """That the old name is silent does not count, whichever is first."""
        for old, new in ((self.host, f'{self.host}.example.org'),
                         (f'{self.host}.example.org', self.host)):
            self.report(2.0, host=old)
            self.now += 10 * PARAMS.silent_s + 600
            self.report(4.0, host=new)
            self.another().turn(nothing)
            self.assertEqual(4, self.offered()[VCPU])

    def test_a_host_that_placement_does_not_know(self) -> None:
        self.report(4.0, host='elsewhere')
        self.later(0)
        self.assertEqual('', self.log.output)
        for _ in range(2):
            self.later(placement_writer.LIST_S, 4.0, host='elsewhere')
        self.assertEqual(1, self.log.output.count(
            'elsewhere: Placement has no provider of that name'))

    def test_a_host_of_another_name_now(self) -> None:
        """Its provider stays, and offers nothing."""
        self.later(0, 4.0)
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql('DELETE FROM hosts')
        self.later(PARAMS.silent_s)
        self.assertEqual({VCPU: 0, MEMORY_MIB: 0}, self.offered())

    def test_a_provider_that_was_deleted(self) -> None:
        self.later(0, 4.0)
        _, children = self.api.listed()
        self.ask('DELETE', f'/resource_providers/{children[self.host]}')
        self.later(60, 1.0)     # finds out
        self.later(60, 1.0)
        self.assertEqual(1, self.offered()[VCPU])

    def test_all_of_it_was_deleted(self) -> None:
        """As by a restored database; the classes and traits, too."""
        self.later(0, 4.0)
        self.api.remove()
        for _ in range(4):
            self.later(60, 1.0)
        self.assertEqual(1, self.offered().get(VCPU))
        self.assertEqual({'CUSTOM_SCAVENGER_GRADE_B'}, self.traits())

    def test_no_placement(self) -> None:
        writer = self.another(placement_server.client('http://127.0.0.1:9'))
        self.report(4.0)
        self.assertRaises(errors.Unreachable, writer.turn, nothing)

    def test_faults_of_placement(self) -> None:
        """Its host is tried again, after longer and longer pauses."""
        self.report(4.0)
        self.writer = self.another(Faulty(self.raw, 1, writes=False))
        self.assertEqual([0, 1], [self.later(10), self.later(10)])
        self.writer = self.another(Faulty(self.raw, 1, writes=True))
        self.assertEqual([0, 0, 1], [
            self.later(60, cores) for cores in (2.0, 2.0, 1.0)])
        self.assertEqual(1, self.offered()[VCPU])
        self.report(4.0)
        self.writer = self.another(Faulty(self.raw, 3, writes=False))
        self.assertEqual([0, 0, 0, 1], [
            self.later(60, 0.0) for _ in range(4)])
        self.assertIn('HTTP 500', self.log.output)

    def test_a_clock_that_is_set(self) -> None:
        """Of the conductor that writes, or of one that answers the host: a
        host that reports is not silent, and one that does not is."""
        self.later(0, 8.0)
        offered = self.offered()
        self.assertEqual(8, offered[placement.VCPU])
        for step_s in (60.0, -60.0, 3600.0, -3600.0, 32 * 86400.0,
                       -32 * 86400.0, 0.0):
            for self.step_s in (step_s, 0.0, step_s):
                for _ in range(4):      # of it, too, each 20 s
                    self.writer.turn(nothing)
                    self.later(20, 8.0)
                    self.assertEqual(offered, self.offered(), str(step_s))
            # One that starts by such a clock.
            self.writer = self.another()
            self.later(20)
            self.assertEqual(offered, self.offered(), str(step_s))
            self.later(20, 8.0)
        for self.step_s in (0.0, 3600.0, -3600.0):
            self.later(PARAMS.silent_s + 1)
        self.assertEqual(0, self.offered()[placement.VCPU])

    # --- one of all conductors

    def leader(self, name: str) -> leader.Leader:
        return leader.Leader(
            self.engine, placement_writer.CLAIM, name, lambda: self.now,
            self.another().turn, every_s=1.0, what='not told',
            elapsed=lambda: self.now)

    def test_one_conductor_writes(self) -> None:
        self.report(4.0)
        one, two = self.leader('one'), self.leader('two')
        self.assertEqual([True, False, True], [
            each.step() for each in (one, two, one)])
        one.stop()
        self.assertEqual([True, False], [two.step(), one.step()])

    def test_a_conductor_that_hangs_loses_it(self) -> None:
        self.report(4.0)
        one, two = self.leader('one'), self.leader('two')
        self.assertEqual([True, False], [one.step(), two.step()])
        self.now += leader.HOLD_S
        self.report(4.0)
        self.assertEqual([True, False], [two.step(), one.step()])

    # --- scavenger-manage

    def remove(self) -> tuple[int, str]:
        """Exit code, and what is printed."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'c')
        path.write_text(CONFIGURATION.format(database=self.database,
                                             url=self.url))
        said = self.useFixture(fixtures.StringStream('said')).stream
        with (fixtures.MonkeyPatch('sys.stdout', said),
              fixtures.MonkeyPatch('sys.stderr', said)):
            code = manage.main(['--config-file', str(path), 'placement',
                                'remove'])
        said.seek(0)
        return code, said.read()

    def test_it_is_taken_away(self) -> None:
        self.later(0, 4.0)
        self.assertEqual(0, self.remove()[0])
        self.assertNotIn(self.host, self.api.listed()[1])
        with connect.reading(self.engine) as connection:
            self.assertEqual([('placement.remove', {'stays': 0})], [
                (row.action, row.after) for row in connection.execute(
                    tables.audit.select())])
        self.assertEqual(set(), self.traits())

    def test_what_is_in_use_is_not_taken_away(self) -> None:
        self.later(0, 4.0)
        self.allocate(1)
        code, said = self.remove()
        self.assertEqual(1, code)
        self.assertIn('stays: ' + self.host + placement.SUFFIX, said)

    def test_not_while_a_conductor_writes(self) -> None:
        self.report(4.0)
        self.now = 4e9      # the clock of the command is the machine's
        self.leader('one').step()
        code, said = self.remove()
        self.assertEqual(2, code)
        self.assertIn('set [placement] enabled = false', said)
