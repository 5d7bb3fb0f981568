# SPDX-License-Identifier: Apache-2.0

"""Profiles that hosts are asked to measure, on any database."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any

import fixtures
from sqlalchemy import event

from scavenger_openstack.agent.control_plane import directives as agent
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import upkeep
from scavenger_openstack.db import tables
from scavenger_openstack.decision import orders
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import report as wire

ID = 'a' * 32
ESTIMATE = {'value': 0.4, 'low': 0.3, 'high': 0.5}
MEASURED: dict[str, Any] = {
    'kind': 'image', 'target': 'mine', 'source': 'estimated',
    'measured_s': 5.0, 'qos': {'signal': 'cpi', 'alone': 1.0, 'bound': 1.05},
    'tolerated': {'integer': ESTIMATE}, 'missing': {'l1i': 'one CPU'}}


class Profilings(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.wishes = directives.Wishes()
        self.holds = ''
        self.send(workloads=[vm('web', application='shop')], digest='1')
        self.add(tables.aggregate_hosts, aggregate='racks', host=HOST,
                 named=True, nova=False)
        self.add(tables.aggregate_settings, aggregate='racks',
                 settings={'profiling': True})
        [host_id] = self.rows(tables.hosts, 'id')
        self.add(tables.profilings, uuid=ID, host_id=host_id, workload='web',
                 instance='u-web', kind='application', target='shop',
                 project='p1', form='short', seconds=60.0, used_s=60.0,
                 reason='new release', created_by='ann', created_s=NOW,
                 state='asked', detail='', changed_s=NOW,
                 until_s=NOW + 300, unfinished=host_id)
        self.changed()

    def send(self, *entries: wire.AnyEntry, now: float = NOW, **more: Any
             ) -> wire.Answer:
        return self.sync(report(*entries, holds=self.holds, sent_s=now,
                                **more), now, self.wishes)

    def order(self, now: float = NOW) -> wire.ProfilingOrder | None:
        """What the directives of now ask for."""
        self.wishes = directives.Wishes()
        found = self.send(now=now).directives
        assert found is not None
        return found.profiling

    def say(self, what: str, sequence: int = 1, now: float = NOW + 30,
            **more: Any) -> None:
        self.send(wire.Profiling(
            sequence=sequence, time_s=now, id=ID, workload='web', seconds=7.5,
            what=what, **more), now=now)    # type: ignore[arg-type]

    def state(self) -> tuple[str, str, float, int | None]:
        [row] = self.rows(tables.profilings, 'state', 'detail', 'used_s',
                          'unfinished')
        return row

    def test_to_the_agent(self) -> None:
        """Its times count from when the directives were issued."""
        answer = self.send()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        host = agent.Directives(directory)
        host.load(100.0, NOW)
        host.follow_answer(answer, b'', 500.0)
        wanted = orders.ProfilingOrder(ID, 'web', 'u-web', 'short', 60.0,
                                       800.0)
        self.assertEqual(wanted, host.orders.profiling)
        # What was kept may be what ended the agent.
        again = agent.Directives(directory)
        again.load(600.0, NOW + 100)
        self.assertEqual((None, False), (again.orders.profiling,
                                         bool(again.orders.stopped)))

    def test_only_where_an_aggregate_allows_it(self) -> None:
        self.assertIsNotNone(self.order())
        for settings in ({'profiling': False}, {}):
            self.delete(tables.aggregate_settings)
            self.add(tables.aggregate_settings, aggregate='racks',
                     settings=settings)
            self.changed()
            self.assertIsNone(self.order())

    def test_only_until_it_is_given_up(self) -> None:
        self.assertIsNone(self.order(NOW + 301))

    def test_a_host_that_says_nothing(self) -> None:
        """What is asked for ends all the same, for what waits for it."""
        for now_s, state in ((NOW + 299, 'asked'), (NOW + 301, 'failed')):
            upkeep.make_advancing(
                self.engine, 'a', functools.partial(float, now_s),
                lambda: False).turn()
            self.assertEqual(state, self.state()[0])
        self.assertEqual((60.0, None), self.state()[2:])

    def test_measured(self) -> None:
        self.say('began')
        [host_id] = self.rows(tables.hosts, 'id')
        self.assertEqual(('measuring', '', 60.0, host_id), self.state())
        # It may take longer than it may take to begin.
        self.assertIsNotNone(self.order(NOW + 90))
        self.say('measured', 2, profile=json.dumps(MEASURED))
        self.assertEqual(('done', '', 7.5, None), self.state())
        [document] = self.rows(tables.profiles, 'document')
        self.assertEqual(
            ('application', 'shop', 'p1', 'measured', 'short', HOST,
             NOW + 30), tuple(document[name] for name in (
                 'kind', 'target', 'project', 'source', 'form', 'host',
                 'measured_s')))
        for name in ('qos', 'tolerated', 'missing'):
            self.assertEqual(MEASURED[name], document[name])
        self.assertIsNone(self.order(NOW + 60))
        self.assertIn('profiling.done', self.rows(tables.audit, 'action'))

    def test_ended(self) -> None:
        self.say('ended', detail='an incident is open')
        self.assertEqual(('failed', 'an incident is open', 7.5, None),
                         self.state())
        self.assertEqual([], self.rows(tables.profiles))

    def test_an_agent_that_starts(self) -> None:
        """It goes on with nothing, and may have used all the time."""
        started = wire.AgentEvent(sequence=1, time_s=NOW, what='started')
        self.send(started)
        self.assertEqual('asked', self.state()[0])
        self.say('began', 2)
        self.send(started, run='run-2', now=NOW + 40)
        state, detail, used_s, unfinished = self.state()
        self.assertEqual(('failed', 60.0, None), (state, used_s, unfinished))
        self.assertIn('started', detail)
        self.assertIsNone(self.order(NOW + 45))
        # What the earlier run reports late changes nothing.
        self.say('ended', 3, now=NOW + 50, detail='x')
        self.assertEqual((state, detail, used_s, unfinished), self.state())
        self.assertIn('profiling.failed', self.rows(tables.audit, 'action'))

    def test_seconds_that_cannot_be(self) -> None:
        self.send(wire.Profiling(
            sequence=1, time_s=NOW, id=ID, workload='web', what='ended',
            seconds=1e308))
        self.assertLess(self.state()[2], 300)

    def test_profiles_that_are_none(self) -> None:
        for number, text in enumerate((
                '', '[]', '{', 'null', '[' * 9000, '{"tolerated": {}}',
                json.dumps({'tolerated': {'no_such': ESTIMATE}}),
                json.dumps({'tolerated': {'l1i': {**ESTIMATE, 'low': 0.9}}}),
                '{"tolerated": {"l1i": {"value": NaN, "low": 0, "high": 1}}}'
                ), 1):
            self.say('measured', number, profile=text)
            state, detail, *_ = self.state()
            self.assertEqual('failed', state, text)
            self.assertTrue(detail)
            self.delete(tables.profilings)
            self.setUpRow()
        self.assertEqual([], self.rows(tables.profiles))

    def setUpRow(self) -> None:
        [host_id] = self.rows(tables.hosts, 'id')
        self.add(tables.profilings, uuid=ID, host_id=host_id, workload='web',
                 instance='u-web', kind='application', target='shop',
                 project='p1', form='short', seconds=60.0, used_s=60.0,
                 reason='', created_by='ann', created_s=NOW, state='asked',
                 detail='', changed_s=NOW, until_s=NOW + 300,
                 unfinished=host_id)

    def test_only_the_host_that_was_asked(self) -> None:
        self.sync(report(wire.Profiling(
            sequence=1, time_s=NOW, id=ID, workload='web', what='measured',
            profile=json.dumps(MEASURED)), host='other'))
        self.assertEqual('asked', self.state()[0])
        self.assertEqual([], self.rows(tables.profiles))

    def test_removed_while_it_is_reported(self) -> None:
        """Nothing is stored of what an operator has just removed."""
        def remove(connection: Any, cursor: Any, statement: str, *rest: Any
                   ) -> None:
            if 'FROM profilings' in statement:
                connection.exec_driver_sql(
                    "UPDATE profilings SET unfinished = NULL, "
                    "state = 'failed', detail = 'removed by ann'")

        event.listen(self.engine, 'after_cursor_execute', remove)
        self.send(wire.Profiling(
            sequence=1, time_s=NOW, id=ID, workload='web', what='measured',
            seconds=7.5, profile=json.dumps(MEASURED)))
        event.remove(self.engine, 'after_cursor_execute', remove)
        self.assertEqual(('failed', 'removed by ann'), self.state()[:2])
        self.assertEqual([], self.rows(tables.profiles))
        self.assertNotIn('profiling.done', self.rows(tables.audit, 'action'))

    def test_after_its_end_nothing_changes(self) -> None:
        self.say('ended', detail='x')
        self.say('measured', 2, profile=json.dumps(MEASURED))
        self.assertEqual('failed', self.state()[0])
        self.assertEqual([], self.rows(tables.profiles))
