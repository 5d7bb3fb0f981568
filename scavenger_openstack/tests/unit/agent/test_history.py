# SPDX-License-Identifier: Apache-2.0

"""What the history and the log say of limits and incidents."""

from __future__ import annotations

from collections.abc import Sequence
import json
import os
import pathlib
import resource
import time
from typing import Any

import fixtures
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent import history
from scavenger_openstack.agent import names
from scavenger_openstack.agent import transitions
from scavenger_openstack.agent.transitions import AgentEvent
from scavenger_openstack.agent.transitions import Event
from scavenger_openstack.agent.transitions import IncidentEvent
from scavenger_openstack.agent.transitions import KillEvent
from scavenger_openstack.agent.transitions import LimitEvent
from scavenger_openstack.algorithms.scavenger import leftover
from scavenger_openstack import errors
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob

KEY = ('/batch/a', Knob.CPU_CORES)
TEXT = statuses.TEXT
TIME = st.floats(0, 2.0 ** 40)

EVENTS = (
    st.builds(AgentEvent, TIME, TEXT, TEXT, st.integers(0, 2 ** 22))
    | st.builds(IncidentEvent, TIME, TEXT, TEXT, statuses.INCIDENTS, TIME)
    | st.builds(KillEvent, TIME, statuses.ACTIONS,
                st.integers(0, 2 ** 22))
    | statuses.CAPS.flatmap(lambda cap: st.builds(
        LimitEvent, TIME, TEXT, st.just(cap.workload), st.just(cap.knob),
        TEXT, TEXT, *[st.none() | st.just(cap.value)] * 4, TIME, TEXT,
        st.lists(TEXT, max_size=3).map(tuple))))


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
        self.transitions = transitions.Transitions()

    def step(self, now: float, *caps: Cap, held: bool | None = None,
             why: str = '', pending: bool = False) -> list[str]:
        """What is printed for the limits at ``now``."""
        in_force = {one[:2]: one for one in caps}
        originals = {KEY: None} if (
            bool(caps) if held is None else held) else {}
        return [transitions.sentence(event) for event
                in self.transitions.limits(now, 1e9 + now, in_force,
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
        # Another controller's is told, and that it follows again.
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
               answered: tuple[str, ...] = ()) -> list[LimitEvent]:
        return [event for event in self.transitions.limits(
            now, 1e9 + now, {one[:2]: one for one in caps},
            {KEY: None} if caps else {}, answered={KEY: answered}
            ) if isinstance(event, LimitEvent)]

    def test_another_incident_that_it_answers_has_a_line_soon(self) -> None:
        lines = [(now, event.what, event.incidents)
                 for now, answered in ((0, ('i',)), (1, ('i',)),
                                       (2, ('i', 'j')), (3, ('i', 'j')),
                                       (4, ('j',)), (5, ('j', 'k')))
                 for event in self.events(now, cap(1.0), answered=answered)]
        self.assertEqual([(0, 'set', ('i',)), (2, 'changed', ('i', 'j')),
                          (5, 'changed', ('j', 'k'))], lines)
        [event] = self.events(6)
        self.assertEqual(('removed', ('j', 'k')),
                         (event.what, event.incidents))

    def test_incidents_that_come_and_go_are_bounded(self) -> None:
        lines = [event for now in range(600) for event in self.events(
            now, cap(1.0), answered=(f'i{now}',))]
        self.assertLessEqual(len(lines), 4 * 10 + 4)
        self.assertEqual(('i599',), self.events(
            700, cap(1.0), answered=('i599',))[-1].incidents)

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
        found = transitions.Transitions()
        now, times, told = 0.0, [], None
        value: float | None = None
        quiet = [(1.0, steps[-1][1] if steps else None)] * 130
        for ahead_s, value in [*steps, *quiet]:
            now += ahead_s
            in_force = {} if value is None else {KEY: cap(value)}
            for event in found.limits(now, now, in_force,
                                      dict.fromkeys(in_force, 4.0)):
                assert isinstance(event, LimitEvent)
                times.append(now)
                told = None if event.what == 'removed' else event.value
                self.assertEqual(4.0, event.original)
        for index, began in enumerate(times[transitions.BURST:]):
            self.assertGreaterEqual(began - times[index], transitions.AGAIN_S)
        self.assertEqual(value, told)


class IncidentsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.transitions = transitions.Transitions()

    def step(self, now: float, *incidents: Incident) -> list[Event]:
        return self.transitions.incidents(
            now, 1e9 + now, {('attribution', one.id): one
                             for one in incidents})

    def whats(self, now: float, *incidents: Incident) -> list[str]:
        found = self.step(now, *incidents)
        return [one.what for one in found if isinstance(one, IncidentEvent)]

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
            self.assertIn(fact, transitions.sentence(event))

    def test_grounds_that_change_materially(self) -> None:
        """Not each tick: but what drifts is told when it is far enough."""
        ground = Ground('/batch/a', GroundKind.DIRECT, 0.5, 1.9, 2.0)
        self.assertEqual(['began'], self.whats(0, incident()))
        self.assertEqual(['changed'], self.whats(1, incident(
            grounds=(ground,))))
        told = [now for now in range(2, 40) if self.whats(now, incident(
            grounds=(ground._replace(share=0.5 + now / 128, waited_s=now),)))]
        self.assertEqual([13, 26], told)    # at most four lines a minute
        [event] = self.step(80)
        for fact in ('/batch/a ran during 80 % of', '39 s', 'CPU'):
            self.assertIn(fact, transitions.sentence(event))

    def test_it_began_before_it_was_named(self) -> None:
        [event] = self.step(90.0, incident(time_s=5.0))
        self.assertIn(' 85 s ago', transitions.sentence(event))

    def test_none_that_has_ended_is_open(self) -> None:
        for outcome, last in (('open', 'ended'), ('confirmed', 'confirmed'),
                              ('unclear', 'unclear')):
            self.transitions = transitions.Transitions()
            self.step(10, incident(outcome=outcome))
            [event] = self.step(20)
            assert isinstance(event, IncidentEvent)
            self.assertEqual(('ended', last),
                             (event.what, event.incident.outcome))

    def test_one_that_a_limit_answers_is_told_at_once(self) -> None:
        for now in range(20):
            self.whats(now, incident(id=str(now)))
        [event] = self.transitions.incidents(
            20, 20, {('attribution', 'x'): incident(id='x')}, {'x'})
        assert isinstance(event, IncidentEvent)
        self.assertEqual('began', event.what)

    def test_the_end_tells_what_was_done(self) -> None:
        for actions, told in (
                (('', 'limit /a, /b', 'limit /b', 'nothing now'), 'limit /b'),
                (('would limit /a', 'nothing now'), 'would limit /a'),
                (('limit /a', 'would limit /a'), 'limit /a'),
                (('', 'nothing now'), 'nothing now')):
            self.transitions = transitions.Transitions()
            for now, action in enumerate(actions):
                [event] = self.step(now, incident(action=action))
                assert isinstance(event, IncidentEvent)
                self.assertEqual(action, event.incident.action)
            [event] = self.step(80)
            assert isinstance(event, IncidentEvent)
            self.assertEqual(('ended', told),
                             (event.what, event.incident.action))

    def test_one_victim_cannot_fill_the_history(self) -> None:
        said = [what for now in range(600) for what in self.whats(
            now, incident(id=str(now)))]
        self.assertLessEqual(len(said), 44)

    def test_what_was_held_back_is_told_later(self) -> None:
        for now in range(20):
            self.whats(now, incident(outcome=str(now)))
        self.assertEqual(['changed'], self.whats(90, incident(outcome='19')))


class FilesTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'below' / 'history.jsonl'
        self.log = self.useFixture(fixtures.FakeLogger())

    def history(self, most_bytes: int = 1 << 20) -> history.History:
        found = history.History(self.path, most_bytes)
        self.addCleanup(found.close)
        return found

    def events(self) -> list[Event]:
        reader = history.Reader(self.path)
        found = list(reader.events())
        self.unreadable = reader.unreadable
        return found

    @staticmethod
    def some(first: int, count: int) -> list[Event]:
        return [LimitEvent(float(number), 'set', '/batch/a', Knob.CPU_CORES,
                           'o', 'r', None, 0.5, 0.5, 0.5)
                for number in range(first, first + count)]

    @settings(deadline=None)
    @given(EVENTS)
    def test_what_is_read_is_what_was_written(self, event: Event) -> None:
        known = names.Names()
        line = json.loads(json.dumps(history.as_line(event, known)))
        self.assertEqual(event, history.of_line(line))
        self.assertTrue(history.line(event, known).isprintable())

    def test_names_of_vms_are_kept(self) -> None:
        """Also of one that has ended since, and in a later process."""
        uuid = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
        known = names.Names()
        one = history.History(self.path, 1 << 20, known)
        self.addCleanup(one.close)
        for name in ('web', 'web\n2'):
            known.learn(uuid, 'instance-00000001', name)
            one.add([LimitEvent(1.0, 'set', uuid, Knob.CPU_CORES, 'o', 'r',
                                None, 0.5, 0.5, 0.5)])
        one.add(self.some(2, 1))
        reader = history.Reader(self.path)
        lines, documents = zip(*(
            (history.line(event, reader.names),
             history.as_line(event, reader.names))
            for event in reader.events()), strict=True)
        for line, shown in zip(lines, ('web', 'web 2'), strict=False):
            self.assertIn(f'limit set: instance-00000001 ({shown}, {uuid}) '
                          'cpu_cores = 0.5 cores', line)
        self.assertEqual(
            [(uuid, 'web'), (uuid, 'web\n2'), ('/batch/a', None)],
            [(one['workload'], one.get('names', {}).get(uuid, {}).get(
                'display_name')) for one in documents])

    def test_it_goes_on_after_a_restart(self) -> None:
        for first in (0, 3):
            one = self.history()
            one.add(self.some(first, 3))
            one.close()
        self.assertEqual(self.some(0, 6), self.events())

    def test_both_files_together_stay_below_the_bound(self) -> None:
        one, most = self.history(20_000), 0
        for first in range(0, 1000, 10):
            one.add(self.some(first, 10))
            most = max(most, sum(file.stat().st_size for file
                                 in self.path.parent.iterdir()))
        self.assertLessEqual(most, 20_000)
        self.assertGreater(most, 10_000)
        events = self.events()
        self.assertEqual(self.some(1000 - len(events), len(events)), events)

    def test_a_line_that_a_kill_cut_off(self) -> None:
        self.history().add(self.some(0, 2))
        with self.path.open('r+b') as file:
            file.truncate(self.path.stat().st_size - 9)
        self.assertEqual(self.some(0, 1), self.events())
        self.assertEqual(1, self.unreadable)
        self.history().add(self.some(2, 1))
        self.assertEqual(self.some(0, 1) + self.some(2, 1), self.events())

    def test_half_a_line_is_taken_away(self) -> None:
        """The kernel writes what has room."""
        one = self.history()
        one.add(self.some(0, 1))
        size = self.path.stat().st_size
        _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
        try:
            one.add(self.some(1, 1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertIn('No space left', one.fault)
        self.assertEqual(size, self.path.stat().st_size)
        one.add(self.some(2, 1))
        self.assertEqual(self.some(0, 1) + self.some(2, 1), self.events())
        self.assertEqual((0, ''), (self.unreadable, one.fault))

    def test_flipped_bits(self) -> None:
        self.history().add(self.some(0, 8))
        whole = self.path.read_bytes()
        for place in range(0, len(whole), 7):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            self.path.write_bytes(damaged)
            self.assertGreaterEqual(len(self.events()), 6)
        for junk in (b'\x00' * 4096, b'[' * 100_000, b'\xff\n{}\n7\nnull\n',
                     b'{"type":[]}', b'{"type":{}}', b'{"type":null}',
                     b'7' * (history.MOST_LINE + 9)):
            self.path.write_bytes(junk + b'\n' + whole)
            self.assertEqual(self.some(0, 8), self.events())
            self.assertEqual(max(1, junk.count(b'\n')), self.unreadable)

    def test_there_is_none(self) -> None:
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*no history.*'):
            self.events()

    def test_it_is_not_ours(self) -> None:
        self.path.parent.mkdir()
        other = self.directory / 'other'
        other.write_text('x\n')
        for count, make in enumerate((
                lambda: self.path.symlink_to(other),
                lambda: os.link(other, self.path),
                lambda: os.mkfifo(self.path), self.path.mkdir), 1):
            make()
            one = self.history()
            for first in range(3):
                one.add(self.some(first, 1))
            self.assertIn(str(self.path), one.fault)
            self.assertEqual(count, self.log.output.count('is not written'))
            self.assertEqual('x\n', other.read_text())
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()
            else:
                self.path.unlink()

    def test_of_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest('needs root: it gives files away')
        self.history().add(self.some(0, 1))
        os.chown(self.path, 12345, 12345)
        with testtools.ExpectedException(errors.ScavengerError,
                                         '.*owner 12345.*'):
            self.events()
        one = self.history()
        one.add(self.some(1, 1))
        self.assertIn('user 12345', one.fault)

    def test_the_directory_goes_and_comes_back(self) -> None:
        """What is open goes on; after a fault it is opened again."""
        self.path.parent.mkdir()
        one = self.history(600)     # a line or two in each file
        one.add(self.some(0, 1))
        (self.path.parent / 'history.jsonl.1').mkdir()
        (self.path.parent / 'history.jsonl.1' / 'x').touch()
        for first in range(1, 9):
            one.add(self.some(first, 1))
        self.assertIn('history.jsonl', one.fault)
        (self.path.parent / 'history.jsonl.1' / 'x').unlink()
        (self.path.parent / 'history.jsonl.1').rmdir()
        one.add(self.some(9, 1))
        self.assertEqual('', one.fault)
        self.assertEqual(1, self.log.output.count('is not written'))
        self.assertEqual(1, self.log.output.count('is written again'))
        self.assertEqual(self.some(9, 1), self.events()[-1:])

    def test_the_log_is_bounded_and_the_file_has_all(self) -> None:
        events: Sequence[Event] = self.some(0, 1)
        one = self.history()
        for _ in range(history.LOG_LINES + 50):
            one.add(events)
        self.assertEqual(history.LOG_LINES, self.log.output.count('limit set'))
        self.assertEqual(history.LOG_LINES + 50, len(self.events()))
        one.add(self.some(61, 1))
        self.assertIn('within 60 s: 50; ', self.log.output)

    def test_the_limits_of_a_workload_have_one_line_in_the_log(self) -> None:
        """As after a reboot of a VM; the file has a line for each."""
        knobs = {Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 64.0 * 2 ** 20,
                 Knob.IO_BYTES_PER_S: 1e7}
        one = self.history()
        for time_s, what, why in ((1.0, 'removed', 'it ended'),
                                  (2.0, 'set', '')):
            one.add([LimitEvent(time_s, what, workload, knob, 'o', 'r', None,
                                value, value, value, 0.0, why)
                     for knob, value in knobs.items()
                     for workload in ('vm1', 'vm2')])
        self.assertEqual([line for workload in ('vm1', 'vm2') for line in (
            f'3 limits removed: {workload} cpu_cores has no limit, '
            'memory_bytes has no limit, io_bytes_per_s has no limit: it '
            'ended (o); see scavenger-agent history for each',
            f'3 limits set: {workload} cpu_cores = 0.5 cores, memory_bytes = '
            '64 MiB, io_bytes_per_s = 10 MB/s (o); see scavenger-agent '
            'history for each')], sorted(
                self.log.output.splitlines(), key=lambda line: (
                    'vm2' in line, 'set' in line.split(':')[0])))
        self.assertEqual(12, len(self.events()))

    def test_others_have_a_line_each(self) -> None:
        """Other workloads, other words, incidents, names of terminals."""
        found = [*self.some(0, 1), *(
            LimitEvent(0.0, what, workload, Knob.CPU_IDLE, 'o', 'r', 0.0, 1.0,
                       1.0, 1.0, 0.0, why)
            for what, workload, why in (
                ('removed', '/batch/a', ''), ('removed', '/batch/c', 'x'),
                ('set', '/batch/b', ''))),
            IncidentEvent(0.0, 'began', 'cpi2', incident())]
        self.assertEqual([transitions.sentence(one) for one in found],
                         transitions.sentences(found))
        odd, = transitions.sentences([
            LimitEvent(0.0, 'set', '\x1b\n', knob, 'o', 'r', 0.0, 1.0)
            for knob in (Knob.CPU_IDLE, Knob.PAUSED)])
        self.assertTrue(odd.isprintable(), odd)

    def test_each_cause_is_told_once(self) -> None:
        [line] = transitions.sentences([
            LimitEvent(0.0, 'removed', '/batch/a', knob, 'o', 'r', why=why)
            for knob, why in ((Knob.CPU_CORES, 'x'), (Knob.CPU_SET, 'y'),
                              (Knob.PAUSED, 'x'), (Knob.LLC_WAYS, ''))])
        self.assertIn('llc_ways has no limit: x; y (o); see', line)

    def test_none_is_wanted(self) -> None:
        self.history(0).add(self.some(0, 1))
        self.assertFalse(self.path.exists())
        self.assertIn('limit set', self.log.output)


class SinceTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(time.tzset)     # after the variable is set back
        self.useFixture(fixtures.EnvironmentVariable('TZ', 'Asia/Tokyo'))
        time.tzset()

    def test_one_time_zone(self) -> None:
        """UTC, as in what "openstack" prints and takes."""
        self.assertEqual(60.0, history.since('1970-01-01T00:01', 1000.0))
        self.assertTrue(history.line(LimitEvent(
            60.0, 'set', '/a', Knob.CPU_CORES, 'o', 'r'), names.Names()
            ).startswith('1970-01-01 00:01:00+00:00  '))

    def test_durations_and_times(self) -> None:
        for text, wanted in (('90s', 910), ('2m', 880), ('0h', 1000),
                             ('1h30m', -4400), ('1w', -603800),
                             ('1970-01-01T00:01:00+00:00', 60),
                             ('1970-01-01T00:01:00Z', 60)):
            self.assertEqual(wanted, history.since(text, 1000.0))

    def test_garbage(self) -> None:
        for text in ('', 'h', '-1h', '2y', '2h ', '\u0663h', 'yesterday',
                     '9999999'):
            with testtools.ExpectedException(errors.ConfigError):
                history.since(text, 1000.0)


class KillTest(testtools.TestCase):

    def test_in_words(self) -> None:
        self.assertEqual('killed 3 processes of /a: r (o)',
                         transitions.sentence(KillEvent(
                             1.0, Action('/a', 'kill', 'o', 'r'), 3)))
