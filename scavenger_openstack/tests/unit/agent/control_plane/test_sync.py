# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import itertools
import json
import os
import pathlib
import time
from typing import Any

import fixtures
from hypothesis import given
from hypothesis import settings
import testtools

from scavenger_openstack.agent.control_plane import directives
from scavenger_openstack.agent.control_plane import head
from scavenger_openstack.agent.control_plane import sums
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.control_plane import tries
from scavenger_openstack.agent.events import store
from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.decision import orders
from scavenger_openstack import errors
from scavenger_openstack import knobs
from scavenger_openstack.restore import records
from scavenger_openstack.tests.unit.wire import messages
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

VM = '11111111-1111-1111-1111-111111111111'
WEB = Workload(VM, Priority.FOREGROUND, 'flavor', 'p', 'p/web', 4.0, VM,
               {Knob.CPU_CORES: 0.1}, instance=VM)
BATCH = Workload('/batch/\udcff', Priority.BACKGROUND, 'parent',
                 group='/batch')
INSTANCE = Instance(VM, 'instance-1', 'web\n1', 'small', Priority.FOREGROUND,
                    'flavor', 4, 2 ** 30, True)
DOCUMENT = {
    'state': 'running', 'cpu_share': 0.004, 'grade': {'letter': 'B'},
    'isolation': {'mode': Mode.OBSERVE},
    'controllers': {
        'scavenger': {'mode': Mode.ENFORCE, 'facts': {
            'memory': {'budget': 3e9, 'upper': 1e9}}},
        'attribution': {'mode': Mode.OBSERVE, 'facts': {
            'suffering': {VM: 'nothing to compare with yet'},
            'remembered': {'/batch/\udcff': 340.2},
            'tried': {'confirmed': 3, 'refuted': 1, 'unclear': 0}}}}}
DIRECTIVES = report.Directives(
    issued_s=1000.0, digest='one', modes={'scavenger': 'observe'},
    exempt=['p'], tags=[report.Tag(instance='a', priority='foreground',
                                     application='web'),
                        report.Tag(instance='b', priority='background',
                                   protect=False)],
    parameters={'scavenger.memory_c': 3.0}, specs=[report.Spec(
        project='p', application='p/web', cpu_model='cpu', signal=signal,
        mean=mean, stddev=0.1, n=500)
        for signal, mean in (('cpi', 1.8), ('x', 1.0), ('io_wait', 0.0),
                             ('run_delay', 1e300))],
    governed=True,
    overrides=[report.Override(id='o', workload='/batch/a', knob='cpu_cores',
                               value=0.5, reason='why', expires_s=1100.0)])


def sample(time_s: float, wall_s: float = 1_700_000_000.0) -> HostSample:
    return HostSample(
        'h', 'b', time_s, wall_s + time_s, (
            WorkloadSample(BATCH, cpu_s=time_s, memory_bytes=1_000_000_000),
            WorkloadSample(WEB, cpu_s=2 * time_s, run_delay_s=time_s / 10,
                           throttled_s=0.0)),
        cpu_model='cpu', cpu_busy_s={0: time_s, 1: time_s / 2},
        memory_total_bytes=8 * 10 ** 9, links={'eth0': 1e9})


def kill(name: str, reason: str = 'why') -> report.Kill:
    return report.Kill(sequence=1, time_s=1.0, workload=name, processes=1,
                       owner='o', reason=reason)


class Conductor:
    """Takes reports and keeps what was in them; fails as it is told to."""

    def __init__(self) -> None:
        self.reports: list[report.Report] = []
        self.entries: list[tuple[str, report.AnyEntry]] = []
        self.answer: dict[str, Any] = {}
        self.fault: Callable[[report.Report], Exception | None]
        self.fault = lambda told: None

    def __call__(self, data: bytes) -> bytes:
        told = codec.decode(data, report.Report, report.MAX_REPORT_BYTES)
        fault = self.fault(told)
        if fault is not None:
            raise fault
        self.reports.append(told)
        self.entries += [(told.run_id, one) for one in told.entries]
        return codec.encode(report.Answer(**{
            'acknowledged': told.entries[-1].sequence if told.entries else 0,
            'workloads_digest': told.workloads_digest, **self.answer}))

    def names(self) -> list[str]:
        return [one.workload for _, one in self.entries
                if isinstance(one, report.Kill)]


class SyncTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'sync'
        self.conductor = Conductor()
        self.sync = self.make()
        self.log = self.useFixture(fixtures.FakeLogger())

    def make(self, call: Any = None, **options: Any) -> sync.Sync:
        self.store = store.Store(self.directory / 'history', 2 ** 20, 2 ** 20)
        self.addCleanup(self.store.close)
        return sync.make(call or self.conductor, self.directory, self.store,
                         **{'host': 'h', 'boot_id': 'b', 'version': '1',
                            'sync_s': 10.0, **options})

    def turn(self, *seen: HostSample) -> bool:
        for one in seen:
            self.sync.update(one, DOCUMENT, [INSTANCE], {'override x': 'gone'})
            self.sync.take()
        return self.sync.turn()


class ReportTest(SyncTestCase):

    def test_what_it_tells(self) -> None:
        self.assertTrue(self.turn(sample(10), sample(20)))
        [told] = self.conductor.reports
        self.assertEqual(('h', 'b'), (told.host, told.boot_id))
        facts = told.facts
        self.assertEqual(
            ('1', True, '', 'B', 'cpu', 0.004, {'override x': 'gone'}),
            (facts.version, facts.enforcing, facts.stopped, facts.grade,
             facts.cpu_model, facts.tick_cpu_share, facts.refused))
        self.assertEqual({'scavenger': 'enforce', 'attribution': 'observe',
                          'perfiso': 'observe'}, facts.modes)
        self.assertEqual({VM: 'nothing to compare with yet'}, facts.suffering)
        self.assertEqual([340.0], list(facts.remembered.values()))
        self.assertEqual({'cpu': 2.0, 'memory': 8e9, 'network': 1e9},
                         facts.capacity)
        self.assertEqual({'cpu': 0.5, 'memory': 2e9}, facts.headroom)
        self.assertEqual({'cpu': 1.0, 'memory': 1e9}, facts.used)
        self.assertEqual(
            {'attribution': report.Precision(confirmed=3, refuted=1)},
            facts.precision)
        assert told.workloads is not None
        web, batch = told.workloads
        self.assertEqual(report.Workload(
            id=VM, priority='foreground', kind='instance', source='flavor',
            instance=VM, display_name='web\\n1', flavor='small', project='p',
            application='p/web', vcpus=4.0, floor={'cpu_cores': 0.1}), web)
        self.assertEqual(('/batch/\\udcff', 'container'),
                         (batch.id, batch.kind))

    def test_sums_only_where_each_part_is_known(self) -> None:
        other = Workload('/batch/b', Priority.BACKGROUND, group='/batch')
        cases: tuple[tuple[dict[str, Any], dict[str, float], float | None],
                     ...] = (
                ({}, {'cpu': 2.0, 'memory': 1e9 + 5}, 2e9 - 5),
                ({'cpu_s': None}, {'memory': 1e9 + 5}, 2e9 - 5),
                ({'memory_bytes': None}, {'cpu': 2.0}, None))
        for unknown, used, free_bytes in cases:
            self.sync = self.make()
            self.turn(*(dataclasses.replace(one, workloads=(
                *one.workloads, WorkloadSample(
                    other, cpu_s=one.time_s,
                    memory_bytes=5)._replace(**unknown)))
                for one in (sample(10), sample(20))))
            facts = self.conductor.reports[-1].facts
            self.assertEqual((used, free_bytes), (
                facts.used, facts.headroom.get('memory')))

    def test_why_it_sets_no_limits(self) -> None:
        """The field says that it is stopped: what it holds does not."""
        for state, why in (('stopped: the stop file is there',
                            'the stop file is there'),
                           ('holding back: no watcher',
                            'holding back: no watcher')):
            self.sync.update(sample(10), {**DOCUMENT, 'state': state}, [], {})
            self.sync.turn()
            self.assertEqual(why, self.conductor.reports[-1].facts.stopped)

    def test_headroom_after_calls_that_failed(self) -> None:
        """Also when the last one took long to fail, and the next was late."""
        longest_s = sync.MOST_WAIT * 10.0 + sync.SLOW_S
        for later_s, headroom in ((longest_s, {'cpu': 0.5, 'memory': 2e9}),
                                  (longest_s + 1.0, {})):
            self.sync = self.make()
            self.turn(sample(10), sample(10 + later_s))
            self.assertEqual(headroom, self.conductor.reports[-1].facts
                             .headroom)

    def test_workloads_only_when_they_change(self) -> None:
        self.turn(sample(10))
        self.turn(sample(20))
        self.assertEqual([True, False], [
            told.workloads is not None for told in self.conductor.reports])
        self.conductor.answer = {'workloads_digest': ''}    # it forgot them
        self.turn()
        self.turn()
        self.assertIsNotNone(self.conductor.reports[-1].workloads)

    def test_statistics(self) -> None:
        """What two hosts tell of an hour makes the whole when merged."""
        values = [1.0, 2.5, 2.0, 7.0]
        parts = []
        for some in (values[:1], values[1:]):
            one = sums.Sums()
            for value in some:
                one.add([WorkloadRates(WEB, 10.0, cpu_cores=1.0, cpi=value),
                         WorkloadRates(BATCH, 10.0, cpu_cores=1.0, cpi=9.0)],
                        'cpu', 7200.0 + value)
            [found] = one.drain(7300.0)
            self.assertEqual([], one.drain(7300.0))
            parts.append(found)
        first, second = parts
        self.assertEqual(('p', 'p/web', 'cpi', 'cpu', 7200.0, 3, 2.0, 7.0), (
            second.project, second.application, second.signal,
            second.cpu_model, second.hour_s, second.n, second.least,
            second.most))
        n = first.n + second.n
        delta = second.mean - first.mean
        m2 = first.m2 + second.m2 + delta ** 2 * first.n * second.n / n
        mean = sum(values) / 4
        self.assertAlmostEqual(
            sum((value - mean) ** 2 for value in values), m2, 9)

    def test_statistics_of_the_samples_between_reports(self) -> None:
        self.sync.stop()        # then they are told at once
        self.turn(sample(10), sample(20))
        found = [one for _, one in self.conductor.entries
                 if isinstance(one, report.Statistics)]
        self.assertEqual([('run_delay', 0.05, 1)], [
            (one.signal, round(one.mean, 6), one.n) for one in found])


class FaultTest(SyncTestCase):

    def test_nothing_is_lost_or_told_twice(self) -> None:
        self.conductor.fault = lambda told: errors.ScavengerError('gone')
        for name in 'abc':
            self.store.add([kill(name)])
            self.assertFalse(self.turn())
        self.assertEqual(1, self.log.output.count('gone'))
        self.conductor.fault = lambda told: None
        self.assertTrue(self.turn())
        self.assertEqual(['a', 'b', 'c'], self.conductor.names())
        self.assertIn('answers again', self.log.output)
        self.assertTrue(self.turn())
        self.assertEqual(['a', 'b', 'c'], self.conductor.names())

    def test_another_start(self) -> None:
        """What the run before did not tell comes first, under its id."""
        self.store.add([kill('a')])
        self.sync.take()
        self.store.close()
        after = self.make()
        self.store.add([kill('b')])
        self.assertTrue(after.turn())
        self.assertEqual([self.sync.store.run_id, after.store.run_id],
                         [run for run, _ in self.conductor.entries])
        self.assertEqual(['a', 'b'], self.conductor.names())

    def test_it_has_less_than_it_was_sent(self) -> None:
        self.conductor.answer = {'acknowledged': 1}
        self.store.add(map(kill, 'abc'))
        self.turn()
        self.conductor.answer = {}
        self.turn()
        self.assertEqual(['a', 'b', 'c', 'b', 'c'], self.conductor.names())

    def test_it_says_it_has_more_than_it_was_sent(self) -> None:
        self.conductor.answer = {'acknowledged': 10 ** 6}
        self.store.add([kill('a')])
        self.turn()
        self.store.add([kill('b')])
        self.turn()
        self.assertEqual(['a', 'b'], self.conductor.names())

    def test_long_backlog(self) -> None:
        self.store.add(kill(f'k{number}') for number in range(1200))
        self.assertTrue(self.turn())
        self.assertEqual(1200, len(self.conductor.names()))
        self.assertEqual(3, len(self.conductor.reports))

    def test_one_entry_is_refused(self) -> None:
        """It is left out in the end, with a line; all others arrive."""
        def fault(told: report.Report) -> Exception | None:
            return errors.WireError('$.entries: bad') if any(
                getattr(one, 'workload', '') == 'bad'
                for one in told.entries) else None
        self.conductor.fault = fault
        self.store.add(map(kill, ['a', 'b', 'bad', 'c']))
        for _ in range(20):
            self.turn()
        self.assertEqual(['a', 'b', 'c'], self.conductor.names())
        self.assertEqual(1, self.log.output.count('it is left out'))

    def refuse(self, error: Callable[[str], Exception], *names: str
               ) -> None:
        """Reports with one of these are not taken."""
        self.conductor.fault = lambda told: error('bad') if any(
            getattr(one, 'workload', '') in names
            for one in told.entries) else None

    def test_one_of_two_conductors_refuses(self) -> None:
        """Nothing is lost."""
        count = itertools.count()

        def fault(told: report.Report) -> Exception | None:
            return errors.WireError('bad') if (
                told.entries and next(count) % 7) else None
        self.conductor.fault = fault
        self.store.add(map(kill, 'abcde'))
        for _ in range(20):
            self.turn()
        self.assertEqual([*'abcde'], self.conductor.names())

    def test_one_entry_is_never_stored(self) -> None:
        """As one that takes the conductor too long: the directives arrive
        all the while, and at last what follows it."""
        self.refuse(errors.Unreachable, 'bad')
        self.conductor.answer = {'directives': DIRECTIVES}
        self.store.add(map(kill, ['a', 'b', 'bad', 'c']))
        for _ in range(5 * head.PATIENCE):
            self.turn()
        self.assertEqual('one', self.sync.directives.digest)
        self.assertEqual(['a', 'b'], self.conductor.names())
        for _ in range(2 * head.LATER_TRIES):
            self.turn()
        self.assertEqual(['a', 'b', 'c'], self.conductor.names())
        self.assertEqual(1, self.sync.facts()['set_aside'])

    def test_an_outage(self) -> None:
        """However long it is nothing is set aside."""
        self.store.add(map(kill, 'abc'))
        self.conductor.fault = lambda told: errors.Unreachable('away')
        for _ in range(3 * head.LATER_TRIES):
            self.assertFalse(self.turn())
        self.conductor.fault = lambda told: None
        self.assertTrue(self.turn())
        self.assertEqual([*'abc'], self.conductor.names())
        self.assertEqual(0, self.sync.facts()['set_aside'])

    def test_a_conductor_that_takes_no_more(self) -> None:
        """Of this host, for however long: nothing is set aside, directives
        arrive, and then all goes on at once."""
        self.store.add(map(kill, 'abc'))
        self.conductor.fault = lambda told: errors.Busy(
            'no more') if told.entries else None
        self.conductor.answer = {'directives': DIRECTIVES}
        for _ in range(3 * head.LATER_TRIES):
            self.turn()
        self.assertEqual('one', self.sync.directives.digest)
        self.conductor.fault = lambda told: None
        self.assertTrue(self.turn())
        self.assertEqual([*'abc'], self.conductor.names())
        self.assertEqual(0, self.sync.facts()['set_aside'])

    def test_one_entry_is_never_acknowledged(self) -> None:
        """Each report is answered, and all the same nothing moves."""
        self.store.add(map(kill, 'ab'))
        self.conductor.answer = {'acknowledged': 0}
        for _ in range(head.TRIES):
            self.assertTrue(self.turn())
        facts = self.sync.facts()
        self.assertEqual(1, facts['set_aside'])
        self.assertGreater(facts['waiting_s'], 1000.0)
        self.assertGreater(facts['spool_bytes'], 0)
        self.conductor.answer = {}
        self.assertTrue(self.turn())
        self.assertEqual('b', self.conductor.names()[-1])
        self.assertEqual(0.0, self.sync.facts()['waiting_s'])
        self.turn()
        last = self.conductor.reports[-1].facts
        self.assertEqual((1, 0.0), (last.set_aside, last.waiting_s))

    def test_an_answer_that_is_not_understood(self) -> None:
        """What it acknowledges is not sent again."""
        for odd in ({'directives': 'all'}, {'workloads_digest': 1}):
            self.sync = self.make(lambda data: json.dumps({
                **json.loads(self.conductor(data)),
                **odd}).encode())           # noqa: B023
            self.store.add([kill('a'), kill('b')])
            for _ in range(3):
                self.assertFalse(self.turn())
        self.assertEqual([*'abab'], self.conductor.names())
        # One that says nothing of it is no proof against an entry.
        self.sync = self.make(lambda data: b'[]')
        self.store.add([kill('c')])
        for _ in range(3 * head.TRIES):
            self.assertFalse(self.turn())
        self.assertEqual(0, self.sync.facts()['set_aside'])

    def test_all_is_refused(self) -> None:
        """As by another version: nothing is lost."""
        self.conductor.fault = lambda told: errors.WireError('version')
        self.store.add(map(kill, 'abc'))
        for _ in range(10):
            self.assertFalse(self.turn())
        self.conductor.fault = lambda told: None
        for _ in range(3):
            self.turn()
        self.assertEqual(['a', 'b', 'c'], self.conductor.names())
        self.assertEqual(1, self.log.output.count('do not reach'))

    def test_answers_that_are_none(self) -> None:
        for data in (b'', b'{}', b'[' * 10000, b'\xff', b'{"acknowledged":-1}',
                     b'{"acknowledged":0,"directives":{"issued_s":NaN}}'):
            one = self.make(lambda told, data=data: data)
            self.assertFalse(one.turn())
        self.assertEqual(orders.NO_ORDERS, one.orders._replace(budget=None))

    def test_errors_that_forge_lines(self) -> None:
        def fault(told: report.Report) -> Exception | None:
            return errors.WireError('no\nERROR forged ' + 'x' * 10 ** 6
                                    ) if told.entries else None
        self.conductor.fault = fault
        self.store.add([kill('a')])
        for _ in range(4):
            self.turn()
        self.assertIn('it is left out', self.log.output)
        self.assertIn('no\\nERROR forged', self.log.output)
        self.assertNotIn('\nERROR', self.log.output)
        self.assertLess(len(self.log.output), 5000)
        self.assertLess(len(self.sync.facts()['fault']), 400)

    def test_a_fault_of_ours(self) -> None:
        def fail(data: bytes) -> bytes:
            raise ZeroDivisionError
        one = self.make(fail)
        self.assertFalse(one.turn())
        self.assertIn('unexpected failure', self.log.output)

    def test_too_many_workloads(self) -> None:
        many = tuple(WorkloadSample(Workload(
            f'/batch/{number}-' + 'ä' * 240, Priority.BACKGROUND,
            source='ö' * 255, application='ü' * 255))
            for number in range(3000))
        self.turn(HostSample('h', 'b', 1.0, 1.0, many))
        [told] = self.conductor.reports
        assert told.workloads
        self.assertLess(len(told.workloads), 2001)
        self.assertEqual('', told.workloads_digest)

    def test_workloads_and_entries_are_too_long_together(self) -> None:
        """The conductor gets all workloads, not half of them."""
        many = tuple(WorkloadSample(Workload(
            f'/batch/{number}-' + 'a' * 230, Priority.BACKGROUND,
            source='b' * 255, application='c' * 255))
            for number in range(900))
        self.store.add(kill(str(number), 'x' * 1900)
                           for number in range(300))
        self.turn(HostSample('h', 'b', 1.0, 1.0, many))
        self.turn()
        self.turn()
        told = [one for one in self.conductor.reports
                if one.workloads is not None]
        self.assertEqual({900}, {len(one.workloads or ()) for one in told})
        self.assertEqual(300, len(self.conductor.names()))
        self.assertEqual({'', told[0].workloads_digest}, {
            one.workloads_digest for one in self.conductor.reports})

    def test_the_thread(self) -> None:
        """It calls by itself, and says the rest when it ends."""
        one = self.make(sync_s=0.05)
        self.store.add([kill('a')])
        one.start()
        for _ in range(200):
            if self.conductor.names() == ['a']:
                break
            time.sleep(0.05)
        self.store.add([kill('b')])
        one.stop()
        self.assertEqual(['a', 'b'], self.conductor.names())
        self.assertEqual('', one.facts()['fault'])

    def test_the_end_before_the_start(self) -> None:
        """An agent that could not start says why, not this."""
        self.make().stop()


class DirectivesTest(SyncTestCase):

    def follow(self, found: report.Directives, now: float = 5.0
               ) -> directives.Directives:
        one = directives.Directives(self.directory)
        self.directory.mkdir(0o700, exist_ok=True)
        one.follow(found, now)
        self.go_on(one)
        return one

    @staticmethod
    def go_on(one: directives.Directives) -> None:
        """The agent does, with what it follows."""
        for _ in range(directives.TICKS):
            one.ticked()
        one.keep()

    def test_what_is_followed(self) -> None:
        one = self.follow(DIRECTIVES)
        self.assertEqual(orders.Orders(
            '', {'scavenger': Mode.OBSERVE}, {'scavenger.memory_c': 3.0},
            frozenset({'a'}), {}, frozenset({'b'}), frozenset(),
            {'a': 'web'}, frozenset({'b'}),
            frozenset({'p'}), orders.Overrides((orders.Override(
                'o', '/batch/a', '', Knob.CPU_CORES, 0.5, 'why', 105.0),)),
            Budget(0, 5.0, 0.0), {
                ('p', 'p/web', 'cpu', 'cpi'): specs.Spec(
                    1.8, 0.1, 500, 0, 'directive')}), one.orders)
        self.assertEqual({}, one.refused)

    def test_a_notice_for_the_operator(self) -> None:
        """It is logged when it is new, and shown while it holds."""
        log = self.useFixture(fixtures.FakeLogger())
        for notice, count in (('a\x1b[31m' + 'b' * 3000, 1), ('', 1),
                              ('c', 2)):
            for _ in range(2):
                self.conductor.answer = {'directives': codec.replace(
                    DIRECTIVES, notice=notice[:2000])}
                self.turn()
                shown = self.sync.facts()['notice']
                self.assertEqual((notice[:1], True), (
                    shown[:1], shown.isprintable()))
            self.assertEqual(count, log.output.count('the control plane: '))

    def test_background_where_the_host_allows_it(self) -> None:
        """What is called both is foreground."""
        asked = codec.replace(DIRECTIVES, tags=[
            *DIRECTIVES.tags, report.Tag(instance='a', priority='background'),
            report.Tag(instance='c', priority='background')])
        one = self.follow(asked)
        self.assertEqual((frozenset({'a'}), {}, {'a', 'b', 'c'}), (
            one.orders.foreground, one.orders.background, one.orders.denied))
        one = directives.Directives(self.directory, allow_background=True)
        one.load(5.0, 1000.0)
        self.assertEqual((frozenset({'a'}), {'b': {}, 'c': {}}),
                         (one.orders.foreground, one.orders.background))
        self.assertEqual({}, one.refused)

    def test_sources_of_foreground(self) -> None:
        """Those of flavor, project and aggregate are for VMs whose definition
        says nothing; a tag of no priority has none."""
        one = self.follow(codec.replace(DIRECTIVES, tags=[
            report.Tag(instance=source, priority='foreground', source=source)
            for source in ('instance', 'flavor', 'project', 'aggregate',
                           'default', 'later')]))
        self.assertEqual(
            ({'instance', 'flavor', 'project', 'aggregate', 'later'},
             {'flavor', 'project', 'aggregate'}),
            (one.orders.foreground, one.orders.unless_flavor))

    def test_floors(self) -> None:
        """What is not valid is passed over, and in the status."""
        self.follow(DIRECTIVES)
        one = directives.Directives(self.directory, allow_background=True)
        one.follow(codec.replace(DIRECTIVES, tags=[
            report.Tag(instance='b', priority='background', floor={
                'cpu_cores': 0.5, 'cpu_idle': 1, 'io_ops_per_s': 1e300,
                'memory_bytes': 2.0 ** 29}),
            report.Tag(instance='a', priority='foreground',
                       floor={'paused': 1}),
            report.Tag(instance='c', priority='background',
                       floor={'egress_bytes_per_s': 1e5})]), 5.0)
        self.assertEqual(
            {'b': {Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 2 ** 29},
             'c': {Knob.EGRESS_BYTES_PER_S: 1e5}}, one.orders.background)
        [(what, why)] = one.refused.items()
        self.assertEqual('floor b', what)
        self.assertIn('cpu_idle has no floor', why)
        self.assertIn('io_ops_per_s: not a number', why)

    def test_what_the_conductor_left_out(self) -> None:
        """It is not followed, also after a restart; the rest is."""
        one = self.follow(codec.replace(
            DIRECTIVES, specs=[], left_out=['specs', 'overrides', 'later']))
        for _ in range(2):
            self.assertEqual(['specs', 'more overrides', 'later'],
                             list(one.refused))
            self.assertEqual(1, len(one.orders.overrides))
            one = directives.Directives(self.directory)
            one.load(5.0, 1000.0)
        one.follow(DIRECTIVES, 6.0)
        self.assertEqual({}, one.refused)

    def test_the_kill_switch(self) -> None:
        one = self.follow(codec.replace(
            DIRECTIVES, protection=False, protection_reason='power\ncut'))
        self.assertEqual('the control plane: power\\ncut',
                         one.orders.stopped)
        one.follow(DIRECTIVES, 6.0)
        self.assertEqual('', one.orders.stopped)

    def test_clocks(self) -> None:
        """What was kept lasts no longer than it was meant to."""
        self.follow(DIRECTIVES)
        for wall_s, until_s in ((1000.0, 105.0), (1050.0, 55.0),
                                (0.0, 105.0), (2000.0, -895.0)):
            one = directives.Directives(self.directory)
            one.load(5.0, wall_s)
            one.end()
            [override] = one.orders.overrides
            self.assertEqual(until_s, override.until_s)

    def test_a_clock_that_is_ahead(self) -> None:
        """What comes now lasts as long as the conductor says."""
        began, issued_s = records.now_s(), time.time() - 3600
        self.conductor.answer = {'time_s': issued_s, 'budget': report.Budget(
            limits=0, until_s=issued_s + 60), 'directives': codec.replace(
                DIRECTIVES, issued_s=issued_s, overrides=[codec.replace(
                    DIRECTIVES.overrides[0], expires_s=issued_s + 100)])}
        self.turn()
        [one] = self.sync.orders.overrides
        self.assertGreater(one.until_s, began + 99)
        assert self.sync.orders.budget is not None
        self.assertGreater(self.sync.orders.budget.until_s, began + 59)

    def test_they_are_kept(self) -> None:
        first = self.follow(DIRECTIVES)
        path = self.directory / directives.FILE
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        second = directives.Directives(self.directory)
        second.load(5.0, 1000.0)
        self.assertEqual(
            (first.orders._replace(budget=Budget(0, 5.0, 0.0)), 'one',
             1000.0), (second.orders, second.digest, second.issued_s))

    def test_a_budget_over_a_restart(self) -> None:
        """What was used of its minute is not known any more."""
        first = self.follow(DIRECTIVES)
        self.budget(first, 3, 1060.0, 1000.0, 5.0)
        self.assertEqual(Budget(3, 65.0, 1060.0), first.orders.budget)
        one = directives.Directives(self.directory)
        one.load(15.0, 1010.0)
        self.assertEqual(Budget(0, 15.0, 0.0), one.orders.budget)
        self.budget(one, 3, 1060.0, 1020.0, 25.0)
        self.assertEqual(Budget(0, 65.0, 1060.0), one.orders.budget)
        self.budget(one, 3, 1120.0, 1061.0, 66.0)
        self.assertEqual(Budget(3, 125.0, 1120.0), one.orders.budget)

    def budget(self, one: directives.Directives, limits: int, until_s: float,
               time_s: float, now: float, **more: Any) -> None:
        """An answer that was given at ``time_s``."""
        one.follow_answer(report.Answer(
            acknowledged=0, time_s=time_s, budget=report.Budget(
                limits=limits, until_s=until_s), **more), b'', now)

    def test_a_budget_alone(self) -> None:
        """With each answer, and never on disk."""
        one = self.follow(DIRECTIVES)
        path = self.directory / directives.FILE
        kept = path.stat()
        for minute in range(5):
            self.budget(one, 3, 1060.0 + 60 * minute, 1000.0 + 60 * minute,
                        5.0 + 60 * minute)
            budget = one.orders.budget
            self.assertEqual(Budget(3, 65.0 + 60 * minute,
                                    1060.0 + 60 * minute), budget)
            # Later in the minute: it ends when it was first known to.
            self.budget(one, 3, 1060.0 + 60 * minute, 1010.0 + 60 * minute,
                        14.0 + 60 * minute)
            self.assertIs(budget, one.orders.budget)
            self.assertEqual({'p'}, one.orders.exempt)
        self.assertEqual((kept.st_ino, kept.st_mtime_ns), (
            path.stat().st_ino, path.stat().st_mtime_ns))
        one.follow_answer(report.Answer(acknowledged=0), b'', 400.0)
        self.assertIsNone(one.orders.budget)

    def test_a_budget_beside_directives_that_are_not_followed(self) -> None:
        one = self.follow(DIRECTIVES)
        self.assertRaises(
            errors.WireError, self.budget, one, 3, 1060.0, 1000.0, 5.0,
            directives=codec.replace(DIRECTIVES, schema=report.SCHEMA + 1))
        self.assertEqual(Budget(3, 65.0, 1060.0), one.orders.budget)

    def test_a_budget_lasts_a_minute_at_most(self) -> None:
        """Whatever the conductor says the time is."""
        one = directives.Directives(self.directory)
        one.load(5.0, 1000.0)
        for time_s, until_s in ((0.0, 1.7e9), (0.0, 2.0 ** 53),
                                (1e9, 2.0 ** 53)):
            self.budget(one, 3, until_s, time_s, 10.0)
            self.assertEqual(Budget(3, 70.0, until_s), one.orders.budget)

    def test_without_a_governor_over_a_restart(self) -> None:
        """Detectors protect before the control plane answers."""
        one = directives.Directives(self.directory)
        one.load(15.0, 1010.0)
        self.assertIsNone(one.orders.budget)
        self.follow(codec.replace(DIRECTIVES, governed=False))
        one.load(15.0, 1010.0)
        self.assertIsNone(one.orders.budget)

    def test_a_budget_that_was_long_on_its_way(self) -> None:
        asked_s: list[float] = []

        def call(data: bytes) -> bytes:
            asked_s.append(records.now_s())
            time.sleep(0.05)
            issued_s = time.time()
            self.conductor.answer = {
                'time_s': issued_s, 'directives': DIRECTIVES,
                'budget': report.Budget(limits=3, until_s=issued_s + 60)}
            return self.conductor(data)

        self.sync = self.make(call)
        self.turn()
        assert self.sync.orders.budget is not None
        self.assertLess(self.sync.orders.budget.until_s, asked_s[0] + 60.01)

    def test_kept_ones_that_are_damaged(self) -> None:
        self.follow(DIRECTIVES)
        path = self.directory / directives.FILE
        good = path.read_bytes()
        other = path.with_name('other')

        def look() -> None:
            one = directives.Directives(self.directory)
            one.load(5.0, 1000.0)
            self.assertEqual(
                orders.NO_ORDERS._replace(stopped='the control plane: '
                                     + directives.LOST), one.orders)

        for data in (good[:-9], b'\xff' * 99, b''):
            path.write_bytes(data)
            look()
        path.write_bytes(good)
        path.chmod(0o666)
        look()
        path.rename(other)
        path.symlink_to(other)
        look()
        path.unlink()
        os.mkfifo(path)
        look()
        self.assertEqual(6, self.log.output.count('not usable'))

    def test_they_are_kept_at_once(self) -> None:
        """Also before the first tick with them: they may have a budget."""
        one = self.follow(DIRECTIVES)
        one.follow(codec.replace(DIRECTIVES, digest='two', exempt=['q']), 6.0)
        after = directives.Directives(self.directory)
        after.load(7.0, 1000.0)
        self.assertEqual(({'q'}, Budget(0, 7.0, 0.0)),
                         (after.orders.exempt, after.orders.budget))

    def test_directives_that_end_the_agent(self) -> None:
        """They are tried a few times, over all starts; then only their kill
        switch is followed."""
        bad = codec.replace(DIRECTIVES, digest='bad', exempt=['bad'])
        self.follow(DIRECTIVES)
        for start in range(3 * tries.MOST):
            one = directives.Directives(self.directory)
            one.load(5.0, 1000.0)
            followed = start < tries.MOST
            self.assertEqual({'bad'} if start and followed else {'p'},
                             one.orders.exempt)
            if start:
                self.assertEqual('', one.orders.stopped)
            if not followed:
                self.go_on(one)
            if not start or not followed:
                one.follow(bad, 6.0)
            self.assertEqual({'bad'} if followed else {'p'},
                             one.orders.exempt)
            self.assertEqual(not followed, directives.ALL in one.refused)
        other = codec.replace(bad, digest='other')
        one.follow(other, 7.0)
        self.assertEqual({'bad'}, one.orders.exempt)
        one.follow(codec.replace(bad, protection=False), 8.0)
        self.assertTrue(one.orders.stopped)
        # Something else may have ended it.
        one.follow(bad, 5.0 + tries.RETRY_S)
        self.assertEqual({'bad'}, one.orders.exempt)
        self.assertEqual({}, one.refused)

    def test_directives_of_ever_new_names_that_end_the_agent(self) -> None:
        followed = 0
        for start in range(4 * tries.MOST_OF_ALL):
            one = self.follow(DIRECTIVES) if not start else (
                directives.Directives(self.directory))
            one.load(5.0, 1000.0)
            if one.orders.exempt == {'bad'}:    # it ends the agent again
                continue
            self.go_on(one)
            one.follow(codec.replace(DIRECTIVES, digest=str(start),
                                     exempt=['bad']), 6.0)
            followed += one.orders.exempt == {'bad'}
        self.assertEqual(tries.MOST_OF_ALL / tries.MOST, followed)

    def test_kept_directives_that_end_the_agent(self) -> None:
        """As of a release that understood them."""
        self.follow(DIRECTIVES)
        for _ in range(tries.MOST):
            one = directives.Directives(self.directory)
            one.load(5.0, 1000.0)
            self.assertEqual({'p'}, one.orders.exempt)
        one.load(5.0, 1000.0)
        self.assertIn(directives.ENDED, one.orders.stopped)
        self.assertEqual(frozenset(), one.orders.exempt)
        one.follow(codec.replace(DIRECTIVES, digest='two'), 6.0)
        self.assertEqual(('', {'p'}), (one.orders.stopped, one.orders.exempt))

    def test_counts_of_tries_that_are_damaged(self) -> None:
        self.follow(DIRECTIVES)
        for data in (b'', b'[]', b'{"one": "x"}', b'\xff', b'[' * 5000):
            (self.directory / tries.FILE).write_bytes(data)
            one = directives.Directives(self.directory)
            one.load(5.0, 1000.0)
            self.assertEqual('', one.orders.stopped)

    def test_full_disk(self) -> None:
        one = self.follow(DIRECTIVES)
        (self.directory / (directives.FILE + '.new')).mkdir()
        one.follow(codec.replace(DIRECTIVES, protection=False, digest='two'),
                   6.0)
        self.assertTrue(one.orders.stopped)
        self.assertIn('not written', self.log.output)

    def test_of_another_version(self) -> None:
        one = self.follow(DIRECTIVES)
        self.assertRaises(errors.WireError, one.follow, codec.replace(
            DIRECTIVES, schema=report.SCHEMA + 1, protection=False), 6.0)
        self.assertEqual('', one.orders.stopped)

    def answers(self, found: Mapping[str, Any] = {},
                allow_background: bool = False) -> None:
        """The conductor says this of its directives, whatever its type."""
        text = json.dumps({'acknowledged': 0, 'directives': {
            **codec.plain(DIRECTIVES), **found}}).encode()
        self.sync = self.make(lambda report: text,
                              allow_background=allow_background)
        self.sync.turn()

    def test_what_a_later_release_knows(self) -> None:
        """What is not known here is left out, and in the status."""
        later = {'id': 'p', 'workload': 'w', 'knob': 'io_weight', 'value': 1,
                 'reason': '', 'expires_s': 2000}
        self.answers({
            'overrides': [later, {**later, 'id': 'o', 'knob': 'cpu_cores'}],
            'modes': {'scavenger': 'enforce', 'perfiso': 'advise'},
            'tags': [{'instance': 'a', 'priority': 'background',
                      'floor': {'io_weight': 1, 'cpu_cores': 0.5}}]},
            allow_background=True)
        followed = self.sync.orders
        self.assertEqual({'scavenger': Mode.ENFORCE, 'perfiso': Mode.OBSERVE},
                         followed.modes)
        self.assertEqual(['o'], [one.id for one in followed.overrides])
        self.assertEqual({'a': {Knob.CPU_CORES: 0.5}}, followed.background)
        self.assertEqual({'mode perfiso', 'override p', 'floor a'},
                         self.sync.directives.refused.keys())
        self.assertEqual('', self.sync.facts()['fault'])

    def test_the_kill_switch_holds_whatever_else_is_said(self) -> None:
        odd: dict[str, Any]
        for odd in ({'schema': report.SCHEMA + 1}, {'overrides': 'all'},
                    {'specs': [{'later': 1}]},
                    {'protection_reason': 'an incident' + ' of many' * 999},
                    {'protection_reason': {'later': 1}},
                    {'protection_reason': 'an incident \ud800'},
                    {'notice': 'a\0b'}, {'issued_s': float('nan')},
                    {'later': '\ud800'},
                    {'overrides': 'all', 'later': 10 ** 4000}):
            self.follow(DIRECTIVES)
            self.answers({'protection_reason': 'an incident', **odd})
            self.assertEqual('', self.sync.orders.stopped)
            self.answers({'protection': False, 'protection_reason':
                          'an incident', **odd})
            self.assertIn('the control plane: ', self.sync.orders.stopped)
            self.assertNotEqual('', self.sync.facts()['fault'])
            # Also after a restart, until something is understood.
            self.assertTrue(self.make().orders.stopped)
            self.answers(odd)
            self.assertIn('not understood', self.sync.orders.stopped)
            self.answers()
            self.assertEqual('', self.sync.orders.stopped)
            self.sync.directives.end()

    def test_the_kill_switch_that_another_release_has_kept(self) -> None:
        self.follow(DIRECTIVES)
        path = self.directory / directives.FILE
        kept = json.loads(path.read_text())
        for odd, stopped in (({'schema': report.SCHEMA + 1}, False),
                             ({'overrides': 'all'}, True)):
            path.write_text(json.dumps({
                **kept, 'protection': False, 'protection_reason': 'why',
                **odd}))
            self.assertRegex(self.make().orders.stopped,
                             'the control plane: .*why')
            path.write_text(json.dumps({**kept, **odd}))
            self.assertEqual(stopped, bool(self.make().orders.stopped))

    def test_each_message_says_its_schema(self) -> None:
        """A default is not sent: the other end would take its own for it."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{report.__name__}.SCHEMA', 2))
        self.sync.turn()
        self.assertEqual(2, self.conductor.reports[0].schema)

    def test_they_come_with_an_answer(self) -> None:
        self.conductor.answer = {'directives': codec.replace(
            DIRECTIVES, overrides=[codec.replace(
                DIRECTIVES.overrides[0], value='odd')])}
        self.turn()
        self.assertEqual('one', self.sync.directives.digest)
        self.turn()
        self.assertEqual(['', 'one'], [
            told.directives_digest for told in self.conductor.reports])
        self.assertEqual({'override o'},
                         self.conductor.reports[-1].facts.refused.keys())
        self.go_on(self.sync.directives)
        before, after = (
            one.orders._replace(overrides=orders.Overrides(), budget=None)
            for one in (self.sync, self.make()))
        self.assertEqual(before, after)

    def test_overrides_that_say_nothing(self) -> None:
        knob: Any
        for knob, value in (('cpu_cores', 'x'), ('cpu_cores', -1.0),
                            ('cpu_cores', 1e308),
                            ('cpu_set', 1.0), ('cpu_set', '9-'),
                            ('cpu_set', ''), ('cpu_idle', 2.0),
                            ('paused', 1.0), ('llc_ways', 1.0)):
            one = self.follow(codec.replace(DIRECTIVES, overrides=[
                report.Override(id='o', workload='w', knob=knob, value=value,
                                reason='', expires_s=2000.0)]))
            self.assertEqual((), one.orders.overrides)
            self.assertIn('override o', one.refused)

    @settings(max_examples=150, deadline=None)
    @given(messages.answers)
    def test_whatever_is_answered(self, answer: report.Answer) -> None:
        """It is followed or refused; the agent lives, and tells."""
        self.conductor.answer = {
            'directives': answer.directives,
            'acknowledged': answer.acknowledged}
        self.sync.turn()
        for one in self.sync.orders.overrides:
            self.assertIn(one.knob, knobs.OVERRIDABLE)
        self.conductor.answer = {}
        self.sync.turn()
        self.assertEqual('', self.sync.facts()['fault'])
