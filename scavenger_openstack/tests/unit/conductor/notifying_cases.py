# SPDX-License-Identifier: Apache-2.0

"""What is written down to be sent, on any database."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.conductor import notifications as sending
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.db.resources.notifications import Event
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import batch
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import limit
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import report as wire

A = '/batch/a'

STARTED = wire.AgentEvent(sequence=1, time_s=NOW + 50, what='started')


class Bus:
    """Takes messages, or dies on the way."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.messages: list[tuple[str, str]] = []
        self.payloads: list[Any] = []
        self._fails_after = fails_after

    def send(self, event: str, message_id: str, time: str,
             payload: Any) -> None:
        if len(self.messages) == self._fails_after:
            raise errors.Unreachable('the broker is away')
        self.messages.append((event, message_id))
        self.payloads.append(payload)


class Notifying(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.quiet = self.engine
        self.engine = self.engine.execution_options(
            **{connect.NOTIFIES: True})

    def events(self) -> list[str]:
        """What waits, by the last word of its event; forgets it."""
        waiting = self.rows(tables.notifications, 'event')
        self.delete(tables.notifications)
        return [event.rpartition('.')[2] for event in waiting]

    def payload(self) -> Any:
        return self.rows(tables.notifications, 'payload')[-1]

    def listed(self) -> None:
        self.sync(report(workloads=[vm('web'), batch(A)], digest='d1'))

    def test_an_incident(self) -> None:
        self.listed()
        self.sync(report(incident(1, antagonists=[], others=[A])))
        self.assertEqual(['opened'], self.events())
        self.sync(report(incident(2, what='changed', antagonists=[],
                                  others=[A], value=0.6)))
        self.assertEqual([], self.events())
        self.sync(report(incident(3, what='changed')))
        payload = self.payload()
        self.assertEqual(['named'], self.events())
        self.assertEqual((cloud.HOST, '1.0', [A]), (
            payload['host'], payload['version'],
            [one['workload'] for one in payload['antagonists']]))
        self.sync(report(incident(4, what='ended')))
        self.assertEqual(['closed'], self.events())
        self.sync(report(incident(4, what='ended')))
        self.assertEqual([], self.events())

    def test_all_of_an_incident_in_one_report(self) -> None:
        self.listed()
        self.sync(report(incident(1), incident(2, what='ended')))
        self.assertEqual(['opened', 'named', 'closed'], self.events())

    def test_limits(self) -> None:
        self.listed()
        self.sync(report(limit(1)))
        self.assertEqual('cpu_cores', self.payload()['knob'])
        self.assertEqual(['set'], self.events())
        self.sync(report(limit(2, what='changed', value=0.5)))
        self.assertEqual([], self.events())
        self.sync(report(limit(3, what='removed', value=0.5)))
        self.assertEqual(['removed'], self.events())

    def test_a_limit_in_place_of_another(self) -> None:
        self.listed()
        self.sync(report(limit(1)))
        self.sync(report(limit(2, NOW + 6, since_s=NOW + 5),
                         sent_s=NOW + 10), NOW + 10)
        self.assertEqual(['set', 'set', 'removed'], self.events())

    def test_an_agent_that_begins_again(self) -> None:
        """Ends what its run before has left, and no more than once."""
        self.listed()
        self.sync(report(incident(1), limit(2)))
        self.events()
        self.sync(report(STARTED, run='run-2', sent_s=NOW + 60), NOW + 60)
        self.assertEqual(['removed', 'closed'], self.events())
        self.sync(report(STARTED, run='run-3', sent_s=NOW + 90), NOW + 90)
        self.assertEqual([], self.events())

    def test_a_host_that_is_removed(self) -> None:
        self.listed()
        self.sync(report(incident(1), limit(2)))
        self.events()
        with self.engine.begin() as connection:
            hosts.remove(connection, cloud.HOST, actor='op', now_s=NOW + 9)
        self.assertEqual(['removed', 'closed'], self.events())

    def test_without_topics(self) -> None:
        self.engine = self.quiet
        self.listed()
        self.sync(report(incident(1), limit(2)))
        self.assertEqual([], self.events())

    def test_a_transaction_that_fails(self) -> None:
        with self.engine.connect() as connection:
            notifications.add(connection, Event.SET, [{}], NOW)
            connection.rollback()
        self.assertEqual([], self.events())

    def wait(self, count: int) -> None:
        with self.engine.begin() as connection:
            notifications.add(connection, Event.SET, [
                {'number': number} for number in range(count)], NOW)

    def test_sending(self) -> None:
        """In their order, each once, although the bus and then the conductor
        fail on the way."""
        self.wait(sending.AT_ONCE + 5)
        ids = self.rows(tables.notifications, 'uuid')
        first = Bus(fails_after=3)
        self.assertRaises(errors.Unreachable, sending.Sender(
            self.engine, first).turn, lambda: None)
        self.assertEqual(ids[:3], [id_ for _, id_ in first.messages])
        then = Bus()
        sending.Sender(self.engine, then).turn(lambda: None)
        self.assertEqual(ids[3:], [id_ for _, id_ in then.messages])
        self.assertEqual([], self.events())

    def test_a_conductor_that_dies_between(self) -> None:
        """The message that it has sent comes again, with its id."""
        class Dies(Bus):
            def send(self, *message: Any) -> None:
                super().send(*message)
                raise KeyboardInterrupt

        self.wait(2)
        first, then = Dies(), Bus()
        self.assertRaises(KeyboardInterrupt, sending.Sender(
            self.engine, first).turn, lambda: None)
        sending.Sender(self.engine, then).turn(lambda: None)
        self.assertEqual(2, len(then.messages))
        self.assertEqual(first.messages, then.messages[:1])

    def test_nobody_sends(self) -> None:
        """The oldest go."""
        self.wait(10)
        with self.engine.begin() as connection:
            self.assertEqual(7, notifications.trim(connection, most=3))
        self.assertEqual([7, 8, 9], [
            payload['number'] for payload in self.rows(
                tables.notifications, 'payload')])

    def test_who_pays(self) -> None:
        """Rows for the bus count as those of the report."""
        with self.engine.begin() as connection:
            notifications.add(connection, Event.SET, [{}, {}], NOW)
            self.assertEqual({'notifications': 2},
                             notifications.rows.added_rows(connection))
