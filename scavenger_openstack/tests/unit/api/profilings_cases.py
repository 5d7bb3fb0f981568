# SPDX-License-Identifier: Apache-2.0

"""``/v1/profilings``, on whatever database ``engine`` is."""

from __future__ import annotations

from typing import Any
from typing import TYPE_CHECKING

from sqlalchemy import delete
from sqlalchemy import event
from sqlalchemy import update

from scavenger_openstack.api.resources import profilings as resource
from scavenger_openstack.db import connect
from scavenger_openstack.db import generation
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud

if TYPE_CHECKING:
    Base = cloud.Api
else:
    Base = object

ALLOW = {'profiling': True, 'reason': 'quiet hours'}


class Profilings(Base):

    WISH = {'host': cloud.HOST, 'workload': cloud.VICTIM,
            'reason': 'a new release'}

    def setUp(self) -> None:
        super().setUp()
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.switches).values(
                protection=True))
            connection.execute(delete(tables.profilings))

    def allow(self) -> None:
        self.ok('PATCH', '/v1/aggregates/racks', ALLOW)

    def ask(self, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ok(
            'POST', '/v1/profilings', {**self.WISH, **more})['profiling']
        return found

    def generation(self) -> int:
        """By which conductors notice a write."""
        with connect.reading(self.engine) as connection:
            return generation.current(connection)

    def refusal(self, code: int = 409, **more: Any) -> str:
        return str(self.refused(code, 'POST', '/v1/profilings', {
            **self.WISH, **more})['detail'])

    def test_off_by_default(self) -> None:
        self.assertIs(False, self.ok('GET', '/v1/aggregates/racks')[
            'aggregate']['settings']['profiling'])
        self.assertIn('--profiling', self.refusal())
        self.allow()
        before = self.generation()
        self.ask()
        self.assertGreater(self.generation(), before)

    def test_not_allowed_any_more(self) -> None:
        for value in (False, None):
            self.allow()
            self.ok('PATCH', '/v1/aggregates/racks',
                    {**ALLOW, 'profiling': value})
            self.refusal()

    def test_other_settings_of_the_aggregate_stay(self) -> None:
        self.allow()
        self.ok('PATCH', '/v1/aggregates/racks', {
            'modes': {'scavenger': 'observe'}, 'reason': 'x'})
        self.assertEqual(
            {'modes': {'scavenger': 'observe'}, 'parameters': {},
             'profiling': True}, self.ok('GET', '/v1/aggregates/racks')[
                 'aggregate']['settings'])

    def test_asked(self) -> None:
        self.allow()
        made = self.ask(form='long', seconds=50)
        self.assertEqual(
            (cloud.HOST, cloud.VICTIM, 'application', 'web', cloud.ONE,
             'long', 50, 'asked', 'ann'), tuple(made[name] for name in (
                 'host', 'workload', 'kind', 'target', 'project', 'form',
                 'seconds', 'state', 'created_by')))
        self.assertEqual(made, self.ok(
            'GET', f'/v1/profilings/{made["id"]}')['profiling'])
        self.assertEqual([made], self.ok(
            'GET', f'/v1/profilings?host={cloud.HOST}&state=asked')[
                'profilings'])
        self.assertEqual(['profiling.ask'], [row['action'] for row in self.ok(
            'GET', f'/v1/audit?target={cloud.VICTIM}')['audit']])

    def test_one_at_a_time(self) -> None:
        self.allow()
        made = self.ask()
        self.assertIn(made['id'], self.refusal(workload=cloud.NOISY,
                                               kind='application',
                                               target='batch'))
        self.ok('DELETE', f'/v1/profilings/{made["id"]}?reason=x')
        self.refused(409, 'DELETE', f'/v1/profilings/{made["id"]}?reason=x')
        self.ask()

    def test_so_many_hosts(self) -> None:
        self.start(profile_hosts=0)
        self.allow()
        self.assertIn('profile_hosts', self.refusal())

    def test_two_at_once(self) -> None:
        """The second waits for the first before it reads anything."""
        self.allow()
        statements: list[str] = []

        def note(connection: Any, cursor: Any, statement: str, *rest: Any
                 ) -> None:
            statements.append(statement)

        event.listen(self.engine, 'before_cursor_execute', note)
        self.addCleanup(event.remove, self.engine, 'before_cursor_execute',
                        note)
        self.ask()
        self.assertIn('UPDATE claims', [
            statement for statement in statements
            if statement.split()[0] in ('SELECT', 'UPDATE', 'INSERT')][0])

    def test_budget_of_a_day(self) -> None:
        self.start(profile_seconds_per_day=100.0)
        self.allow()
        first = self.ask(seconds=70)
        self.ok('DELETE', f'/v1/profilings/{first["id"]}?reason=x')
        # Nothing is known of how much it took.
        second = self.ask(seconds=70)
        self.assertEqual(30, second['seconds'])
        self.ok('DELETE', f'/v1/profilings/{second["id"]}?reason=x')
        self.assertIn('profile_seconds_per_day', self.refusal())
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.profilings).values(
                created_s=cloud.NOW_S - 86500))
        self.ask(seconds=70)

    def test_a_host_that_says_nothing(self) -> None:
        self.allow()
        made = self.ask()
        self.later_s = resource.BEGIN_S + 1
        self.ask()
        self.assertEqual('failed', self.ok(
            'GET', f'/v1/profilings/{made["id"]}')['profiling']['state'])

    def test_not_here_or_not_now(self) -> None:
        self.allow()
        self.refusal(400, workload='/no/such')
        self.refusal(400, host='no-such')
        self.refusal(400, workload='/batch/gone')
        self.assertIn('application', self.refusal(400, workload=cloud.BATCH))
        self.refusal(400, kind='flavor')
        for target in ('big ', 'b\x01g'):
            self.refusal(400, kind='flavor', target=target)
        for values in ({'enforcing': False}, {'last_seen_s': 1.0}):
            with connect.writing(self.engine) as connection:
                connection.execute(update(tables.hosts).where(
                    tables.hosts.c.name == cloud.HOST).values(values))
            self.refusal()
        self.ok('PUT', '/v1/protection', {
            'scope': 'cloud', 'enabled': False, 'reason': 'a drill'})
        self.assertIn('a drill', self.refusal())

    def test_only_administrators(self) -> None:
        self.allow()
        for role in ('operator', 'reader', 'member'):
            self.assertEqual(403, self.call(
                'POST', '/v1/profilings', self.WISH, role=role).status_code)
