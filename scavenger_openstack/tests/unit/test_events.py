# SPDX-License-Identifier: Apache-2.0

"""Which changes of limits and incidents are events, and what they say."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import report

KEY = ('/batch/a', Knob.CPU_CORES)


def cap(value: float, reason: str = 'r', owner: str = 'o') -> Cap:
    return Cap(*KEY, value, owner, reason)


def incident(**differing: Any) -> Incident:
    return Incident(**{
        'id': '1', 'time_s': 5.0, 'host': 'h', 'victim': 'v',
        'signal': 'cpi', 'value': 2.0, 'threshold': 1.0, 'cause': 'cpu',
        **differing})


class LimitsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tracker = tick_events.new_tracker()

    def step(self, now: float, *caps: Cap, held: bool | None = None,
             why: str = '', pending: bool = False) -> list[str]:
        """What is printed for the limits at ``now``."""
        in_force = {one[:2]: one for one in caps}
        originals = {KEY: None} if (
            bool(caps) if held is None else held) else {}
        return [sentences.sentence(event) for event
                in self.tracker.limits(now, 1e9 + now, in_force,
                                           originals, lambda _: why,
                                           [KEY] * pending)]

    def test_begin_and_end(self) -> None:
        self.assertEqual(
            ['limit set: /batch/a cpu_cores = 0.5 cores, before: no limit: '
             'why (o)'], self.step(0, cap(0.5, 'why')))
        self.assertEqual([], self.step(1, cap(0.5, 'other numbers')))
        self.assertEqual(
            ['limit removed: /batch/a cpu_cores has no limit again; it was '
             '0.5 cores for 300 s: the agent ends (o)'],
            self.step(300, why='the agent ends'))
        self.assertEqual([], self.step(301))

    def test_changes_once_a_minute_with_the_range(self) -> None:
        self.step(0, cap(1.0))
        said = [line for now in range(1, 60) for line in self.step(
            now, cap(0.5 if now < 30 else 2.0))]
        self.assertEqual([], said)
        self.assertEqual(
            ['limit changed: /batch/a cpu_cores = 1.5 cores, from 0.5 cores '
             'to 2 cores since the last line: r (o)'],
            self.step(60, cap(1.5)))
        self.assertEqual([], self.step(61, cap(0.2)))

    def test_noise_is_no_change(self) -> None:
        self.step(0, cap(1.0))
        for now in range(1, 200):
            self.assertEqual([], self.step(now, cap(1.0 + 0.09 * (now % 2))))
        self.assertEqual(1, len(self.step(200, cap(1.2))))

    def test_one_that_follows_the_load_is_not_told_each_time(self) -> None:
        self.step(0, cap(1.0, owner=leftover.OWNER))
        for now in range(1, 300):
            self.assertEqual([], self.step(
                now, cap(0.1 + now % 7, owner=leftover.OWNER)))
        # Another owner is an event, and so is the first one again.
        for now, owner in ((300, 'o'), (400, leftover.OWNER)):
            line, = self.step(now, cap(0.5, owner=owner))
            self.assertIn(f'({owner})', line)
        line, = self.step(500)
        self.assertIn('limit removed: /batch/a cpu_cores', line)

    def test_another_owner(self) -> None:
        """It has a line after five seconds, and the time counts from when it
        took the limit over."""
        self.step(0, cap(1.0, owner=leftover.OWNER))
        told = [(now, one) for now in range(20, 30)
                for one in self.events(now, cap(0.5))]
        [(now, event)] = told
        self.assertEqual((25, 'changed', 1e9 + 20),
                         (now, event.what, event.since_s))
        self.assertIn('it was 0.5 cores for 20 s: r (o)',
                      self.step(40, why='r')[0])

    def test_owners_that_change_all_the_time(self) -> None:
        self.step(0, cap(1.0, owner=leftover.OWNER))
        self.assertEqual([60, 122], [
            now for now in range(1, 150) for _ in self.step(
                now, cap(0.5, owner='o' if now // 2 % 2 else 'p'))])

    def test_an_owner_that_was_not_told(self) -> None:
        """The end is that of the limit that had a line."""
        self.step(0, cap(1.0, owner='o'))
        self.step(9, cap(0.5, owner=leftover.OWNER))
        [event] = self.events(10)
        self.assertEqual(('removed', 'o', 1e9), (
            event.what, event.owner, event.since_s))

    def events(self, now: float, *caps: Cap,
               answered: tuple[str, ...] = ()) -> list[report.Limit]:
        return [event for event in self.tracker.limits(
            now, 1e9 + now, {one[:2]: one for one in caps},
            {KEY: None} if caps else {}, answered={KEY: answered}
            ) if isinstance(event, report.Limit)]

    def test_another_incident_that_it_answers_has_a_line_soon(self) -> None:
        lines = [(now, event.what, [name[0] for name in event.incidents])
                 for now, answered in ((0, 'a'), (1, 'a'), (2, 'ab'),
                                       (3, 'ab'), (4, 'b'), (5, 'bc'))
                 for event in self.events(now, cap(1.0), answered=tuple(
                     32 * name for name in answered))]
        self.assertEqual([(0, 'set', ['a']), (2, 'changed', ['a', 'b']),
                          (5, 'changed', ['b', 'c'])], lines)
        [event] = self.events(6)
        self.assertEqual(('removed', ['b' * 32, 'c' * 32]),
                         (event.what, event.incidents))

    def test_incidents_that_come_and_go_are_bounded(self) -> None:
        lines = [event for now in range(600) for event in self.events(
            now, cap(1.0), answered=(f'{now:032x}',))]
        self.assertLessEqual(len(lines), 4 * 10 + 4)
        self.assertEqual([f'{599:032x}'], self.events(
            700, cap(1.0), answered=(f'{599:032x}',))[-1].incidents)

    def test_a_limit_lasts_as_long_as_its_lease(self) -> None:
        self.step(0, cap(1.0))
        self.assertEqual([], self.step(1, held=True))
        self.assertEqual(1, len(self.step(2, held=False)))

    def test_what_is_being_written_is_told_when_that_has_ended(self) -> None:
        self.assertEqual([], self.step(0, cap(0.5), pending=True))
        self.assertEqual(1, len(self.step(1, cap(0.5))))
        self.assertEqual([], self.step(2, pending=True))
        self.assertEqual([], self.step(3, cap(0.5)))
        self.assertEqual([], self.step(4, pending=True))
        [line] = self.step(5, why='the VM shut down')
        self.assertIn('for 4 s: the VM shut down (o)', line)

    def test_the_range_is_that_of_this_limit(self) -> None:
        self.step(0, cap(1.0))
        self.step(1)
        [line] = self.step(2, cap(3.0))
        self.assertNotIn('from', line)

    def test_one_that_comes_and_goes_is_not_told_each_time(self) -> None:
        said = [line for now in range(600) for line in self.step(
            now, *[cap(1.0)] * (now % 2))]
        # Four at once, then two in six seconds.
        self.assertEqual(202, len(said))
        quiet = [line for now in range(600, 700) for line in self.step(now)]
        self.assertLessEqual(len(quiet), 1)
        self.assertIn('removed', (said + quiet)[-1])

    def test_one_that_stays_is_told_soon(self) -> None:
        """After a VM was stopped and started a few times."""
        for now in range(0, 8, 2):
            self.step(now, cap(1.0))
            self.step(now + 1)
        self.assertEqual([], self.step(7.5, cap(1.0)))
        self.assertEqual(1, len(self.step(8, cap(1.0))))

    def test_an_end_is_told_at_once(self) -> None:
        for now in range(0, 600, 3):
            begun = [*self.step(now, cap(1.0)), *self.step(now + 1, cap(3.0))]
            self.assertEqual(len(begun), len(self.step(now + 2)))

    @settings(deadline=None)
    @given(st.lists(st.tuples(
        st.floats(0.1, 40), st.sampled_from([None, 0.1, 0.5, 1.0, 8.0])),
        max_size=60))
    def test_bounded_and_true_in_the_end(
            self, steps: list[tuple[float, float | None]]) -> None:
        found = tick_events.new_tracker()
        now, times, told = 0.0, [], None
        value: float | None = None
        quiet = [(1.0, steps[-1][1] if steps else None)] * 130
        for ahead_s, value in [*steps, *quiet]:
            now += ahead_s
            in_force = {} if value is None else {KEY: cap(value)}
            for event in found.limits(now, now, in_force,
                                      dict.fromkeys(in_force, 4.0)):
                assert isinstance(event, report.Limit)
                times.append(now)
                told = None if event.what == 'removed' else event.value
                self.assertEqual(4.0, event.original)
        for index, began in enumerate(times[events.BURST:]):
            self.assertGreaterEqual(began - times[index], events.AGAIN_S)
        self.assertEqual(value, told)


class IncidentsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tracker = tick_events.new_tracker()

    def step(self, now: float, *incidents: Incident) -> list[Event]:
        return self.tracker.incidents(
            now, 1e9 + now, {('attribution', one.id): one
                             for one in incidents})

    def whats(self, now: float, *incidents: Incident) -> list[str]:
        found = self.step(now, *incidents)
        return [one.what for one in found if isinstance(one, report.Incident)]

    def test_begin_change_and_end(self) -> None:
        self.assertEqual(['began'], self.whats(0, incident()))
        self.assertEqual([], self.whats(1, incident(value=9.0)))
        self.assertEqual(['changed'], self.whats(2, incident(
            antagonists=('/batch/a',), action='limit /batch/a')))
        last = incident(antagonists=('/batch/a',), action='limit /batch/a',
                        outcome='confirmed')
        self.assertEqual(['changed'], self.whats(3, last))
        [event] = self.step(80)
        for fact in ('ended', ' 80 s', 'attribution', ' v,', 'cpu', 'cpi 2',
                     'threshold 1', 'limit /batch/a', 'confirmed'):
            self.assertIn(fact, sentences.sentence(event))

    def test_grounds_that_change_materially(self) -> None:
        """Not in each tick, but once a drift is large enough."""
        ground = Ground('/batch/a', GroundKind.DIRECT, 0.5, 1.9, 2.0)
        self.assertEqual(['began'], self.whats(0, incident()))
        self.assertEqual(['changed'], self.whats(1, incident(
            grounds=(ground,))))
        told = [now for now in range(2, 40) if self.whats(now, incident(
            grounds=(ground._replace(share=0.5 + now / 128, waited_s=now),)))]
        self.assertEqual([13, 26], told)    # at most four lines a minute
        [event] = self.step(80)
        for fact in ('/batch/a ran during 80 % of', '39 s', 'CPU'):
            self.assertIn(fact, sentences.sentence(event))

    def test_it_began_before_it_was_named(self) -> None:
        [event] = self.step(90.0, incident(time_s=5.0))
        self.assertIn(' 85 s ago', sentences.sentence(event))

    def test_none_that_has_ended_is_open(self) -> None:
        for outcome, last in (('open', 'ended'), ('confirmed', 'confirmed'),
                              ('unclear', 'unclear')):
            self.tracker = tick_events.new_tracker()
            self.step(10, incident(outcome=outcome))
            [event] = self.step(20)
            assert isinstance(event, report.Incident)
            self.assertEqual(('ended', last),
                             (event.what, event.outcome))

    def test_one_that_a_limit_answers_is_told_at_once(self) -> None:
        for now in range(20):
            self.whats(now, incident(id=str(now)))
        [event] = self.tracker.incidents(
            20, 20, {('attribution', 'x'): incident(id='x')}, {'x'})
        assert isinstance(event, report.Incident)
        self.assertEqual('began', event.what)

    def test_the_end_tells_what_was_done(self) -> None:
        for actions, told in (
                (('', 'limit /a, /b', 'limit /b', 'nothing now'), 'limit /b'),
                (('would limit /a', 'nothing now'), 'would limit /a'),
                (('limit /a', 'would limit /a'), 'limit /a'),
                (('', 'nothing now'), 'nothing now')):
            self.tracker = tick_events.new_tracker()
            for now, action in enumerate(actions):
                [event] = self.step(now, incident(action=action))
                assert isinstance(event, report.Incident)
                self.assertEqual(action, event.action)
            [event] = self.step(80)
            assert isinstance(event, report.Incident)
            self.assertEqual(('ended', told),
                             (event.what, event.action))

    def test_one_victim_cannot_fill_the_history(self) -> None:
        said = [what for now in range(600) for what in self.whats(
            now, incident(id=str(now)))]
        self.assertLessEqual(len(said), 44)

    def test_what_was_held_back_is_told_later(self) -> None:
        for now in range(20):
            self.whats(now, incident(outcome=str(now)))
        self.assertEqual(['changed'], self.whats(90, incident(outcome='19')))


class EntriesTest(testtools.TestCase):
    """What an incident of a controller is as an event."""

    def events(self, *outcomes: str, ends: bool = True
               ) -> list[report.Incident]:
        """The events of an incident that began 30 s before it was named."""
        tracker = tick_events.new_tracker()
        steps = [incident(id='0' * 32, time_s=90.0, outcome=outcome)
                 for outcome in outcomes]
        return [event for number, step in enumerate([*steps, None][
            :len(steps) + ends]) for event in tracker.incidents(
                120.0 + number, 1000.0 + number,
                {('cpi2', step.id): step} if step else {},
                evidence=lambda controller, incident: [
                    ('v', controller, [90.0, 95.0], [1.0, None])])
            if isinstance(event, report.Incident)]

    def test_suspects_of_the_whole_incident(self) -> None:
        event = events.incident_event(1000.0, 'changed', 'c', incident(
            suspects=(('/c', 0.5), ('/a', 0.9)), antagonists=('/a',),
            named_earlier=('/b',), threshold=float('nan')), 990.0)
        self.assertEqual(
            [('/a', 0.9, True, False), ('/b', None, True, True),
             ('/c', 0.5, False, False)],
            [(suspect.workload, suspect.score, suspect.antagonist,
              suspect.earlier) for suspect in event.suspects])
        self.assertIsNone(event.threshold)

    def test_it_begins_where_its_measurements_do(self) -> None:
        [event] = self.events('open', ends=False)
        self.assertEqual((1000.0, 970.0, [report.Series(
            workload='v', signal='cpi2', times_s=[970.0, 975.0],
            values=[1.0, None])]), (event.time_s, event.begun_s,
                                    event.evidence))

    def test_measurements_when_a_limit_was_judged_and_at_the_end(self
                                                                 ) -> None:
        self.assertEqual(
            [('began', 1), ('changed', 1), ('changed', 0), ('ended', 1)],
            [(event.what, len(event.evidence)) for event in self.events(
                'open', 'refuted', 'open')])

    def test_one_that_goes_on(self) -> None:
        """It is reported now and then, or it seems to be over long ago."""
        tracker = tick_events.new_tracker()
        lasting: list[tuple[float, report.Incident]] = []
        for now in range(0, 1000, 10):
            present = {('c', name): incident(id=name, time_s=0.0)
                       for name, end in (('a', 1000), ('b', 20)) if now < end}
            tracker.incidents(now, 1e9 + now, present)
            lasting += [(now, event) for event in tracker.lasting(
                now, 1e9 + now) if isinstance(event, report.Incident)]
        self.assertEqual(
            [(now, 'a', 'changed', 1e9) for now in (300, 600, 900)],
            [(now, event.id, event.what, event.begun_s)
             for now, event in lasting])


class SentencesTest(testtools.TestCase):

    def limit(self, what: str, workload: str, knob: Knob, why: str = '',
              original: float | None = None) -> report.Limit:
        return events.limit_event(
            0.0, what, Cap(workload, knob, 1.0, 'o', 'r'), original=original,
            lowest=1.0, highest=1.0, why=why)

    def test_others_have_a_line_each(self) -> None:
        """Other workloads, other words, incidents, names of terminals."""
        several: list[Event] = [
            *(self.limit(what, workload, Knob.CPU_IDLE, why, 0.0)
              for what, workload, why in (
                  ('set', '/batch/a', ''), ('removed', '/batch/a', ''),
                  ('removed', '/batch/c', 'x'), ('set', '/batch/b', ''))),
            events.incident_event(0.0, 'began', 'cpi2', incident(), 0.0)]
        self.assertEqual([sentences.sentence(event) for event in several],
                         sentences.sentences(several))
        odd, = sentences.sentences([
            self.limit('set', '\x1b\n', knob)
            for knob in (Knob.CPU_IDLE, Knob.PAUSED)])
        self.assertTrue(odd.isprintable(), odd)

    def test_each_cause_is_named_once(self) -> None:
        [line] = sentences.sentences([
            self.limit('removed', '/batch/a', knob, why)
            for knob, why in ((Knob.CPU_CORES, 'x'), (Knob.CPU_SET, 'y'),
                              (Knob.PAUSED, 'x'), (Knob.LLC_WAYS, ''))])
        self.assertIn('llc_ways has no limit: x; y (o); see', line)

    def test_kill(self) -> None:
        self.assertEqual('killed 3 processes of /a: r (o)',
                         sentences.sentence(report.Kill(
                             sequence=1, time_s=1.0, workload='/a',
                             processes=3, owner='o', reason='r')))
