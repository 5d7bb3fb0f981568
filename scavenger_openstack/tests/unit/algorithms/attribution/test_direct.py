# SPDX-License-Identifier: Apache-2.0

"""What direct evidence names: no time without the disturbance is needed."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import json
import math

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution import incidents
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Decision
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

FOREGROUND = [Workload(name, Priority.FOREGROUND) for name in (
    'web', 'db', 'mail')]
BACKGROUND = [Workload(name, Priority.BACKGROUND,
                       floor={Knob.CPU_CORES: 0.1})
              for name in ('hog', *(f'batch{n}' for n in range(9)))]
WEB: Ask = ('web', Resource.CPU)


class DirectCase(testtools.TestCase):
    """A host on which nothing ever changes, and a detector that is new.

    ``waits`` are cores that each workload waits for, ``held`` what held the
    CPU then, as shares, by the one that waits; ``ways`` of an answer.
    """

    def setUp(self) -> None:
        super().setUp()
        self.params = attribution.Params()
        self.waits: dict[str, float] = {'web': 0.4}
        self.cores: dict[str, float] = {'web': 0.6, 'hog': 3.0}
        self.held: Mapping[str, float] = {'hog': 0.8, 'web': 0.1}
        self.threads: Mapping[str, float] = {}
        self.shared, self.idle = False, 0.0
        self.scans = False
        self.by_share: tuple[str, ...] = ()
        self.now = 1000.0
        self.decision = Decision()
        self.asked: list[tuple[Ask, ...]] = []
        self.workloads = [*FOREGROUND, *BACKGROUND]
        self.start()

    def start(self) -> None:
        self.controller = attribution.Controller(
            self.params, host='h', boot_id='b')

    def rates(self) -> Rates:
        capped = {cap.workload for cap in self.decision.caps}
        waits = {name: waited * (0.2 if capped else 1.0)
                 for name, waited in self.waits.items()}
        workloads = []
        for one in self.workloads:
            cores = self.cores.get(one.id, 0.1)
            for cap in self.decision.caps:
                if cap.workload == one.id:
                    cores = min(cores, float(cap.value))
            workloads.append(WorkloadRates(
                one, 1.0, cpu_cores=cores, run_delay=waits.get(
                    one.id, 0.0) / cores, throttled_share=0.0))
        answers: list[DirectEvidence] = []
        if not self.decision.asks and self.asked and self.asked[-1]:
            answers = [self.answer(*ask, 2 * waits.get(ask[0], 0.0))
                       for ask in self.asked[-1]]
        self.asked.append(self.decision.asks)
        return Rates(self.now, 1.0, tuple(workloads), direct=tuple(answers))

    def answer(self, name: str, resource: Resource, waited_s: float
               ) -> DirectEvidence:
        return DirectEvidence(
            name, resource, 2.0, waited_s,
            {holder: share * waited_s for holder, share in self.held.items()},
            self.threads, self.idle * waited_s, self.shared, self.by_share)

    def turn(self, seconds: int) -> list[Decision]:
        decisions = []
        for _ in range(seconds):
            self.now += 1
            self.decision = self.controller.step(self.now, self.rates())
            decisions.append(self.decision)
        return decisions

    def incident(self) -> Incident:
        incident, = self.decision.incidents
        return incident


class NamingTest(DirectCase):

    def test_what_was_there_first_is_named(self) -> None:
        """In 15 s of a fresh start, with ten suspects, and limited."""
        self.turn(15)
        incident = self.incident()
        self.assertEqual(('web', 'run_delay', 'core', ('hog',)), (
            incident.victim, incident.signal, incident.cause,
            incident.antagonists))
        ground, = incident.grounds
        self.assertEqual(
            ('hog', GroundKind.DIRECT, 0.8, 0.8, 2.0),
            (ground.workload, ground.kind, round(ground.share or 0, 6),
             round(ground.waited_s or 0, 6), ground.window_s))
        cap, = self.decision.caps
        self.assertEqual(('hog', Knob.CPU_CORES), cap[:2])
        self.assertIn('80%', cap.reason)
        self.turn(25)
        self.assertEqual('confirmed', self.incident().outcome)
        self.assertEqual('limit hog', self.incident().action)

    def test_those_that_hold_as_much_are_named_together(self) -> None:
        self.held = {'hog': 0.3, 'batch1': 0.25, 'batch2': 0.05}
        self.turn(15)
        self.assertEqual({'hog', 'batch1'}, set(self.incident().antagonists))

    def test_by_shares_of_use(self) -> None:
        """The weaker form is named so."""
        self.shared = True
        self.turn(15)
        ground, = self.incident().grounds
        self.assertIs(GroundKind.SHARE, ground.kind)
        self.assertIn('share of the use', self.decision.caps[0].reason)

    def test_by_its_share_alone(self) -> None:
        """Others of the same answer are named directly."""
        self.by_share = ('hog',)
        self.turn(15)
        ground, = self.incident().grounds
        self.assertIs(GroundKind.SHARE, ground.kind)
        self.by_share = ('another',)
        self.start()
        self.turn(15)
        ground, = self.incident().grounds
        self.assertIs(GroundKind.DIRECT, ground.kind)

    def test_little_work_that_waits(self) -> None:
        """A victim that uses a twentieth of a core."""
        self.cores['web'], self.waits['web'] = 0.05, 0.02
        self.turn(15)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_a_disk(self) -> None:
        """Its wait follows the limit, and the trial confirms it."""
        rates = self.rates

        def disk() -> Rates:
            host = rates()
            share = min([float(cap.value) / 1e8 for cap
                         in self.decision.caps] or [1.0])
            return dataclasses.replace(host, workloads=tuple(
                one._replace(run_delay=0.0, io_ops_per_s=100.0,
                             io_bytes_per_s=1e6,
                             io_wait_s_per_op=1e-3 + 9e-3 * share)
                if one.workload.id == 'web' else
                one._replace(run_delay=0.0, io_bytes_per_s=1e8 * share,
                             io_ops_per_s=1000.0 * share)
                if one.workload.id == 'hog' else one
                for one in host.workloads))

        self.rates = disk  # type: ignore[method-assign]
        self.waits = {'web': 1.0}
        self.held = {'hog': 0.9, 'web': 0.1}
        self.turn(15)
        self.assertEqual(('io_wait', 'disk', ('hog',)), (
            self.incident().signal, self.incident().cause,
            self.incident().antagonists))
        self.turn(60)
        cap, = self.decision.caps
        self.assertEqual(('hog', Knob.IO_BYTES_PER_S), cap[:2])
        self.assertEqual('confirmed', self.incident().outcome)

    def on_a_disk(self, wait_s: float, ops_per_s: float) -> None:
        """A victim on a disk that no other uses, as far as is counted: it
        is the host's own threads that write what the hog made dirty."""
        self.waits = {'web': 0.5}
        self.held, self.by_share = {'hog': 0.9, 'web': 0.1}, ('hog',)
        rates = type(self).rates

        def disk() -> Rates:
            host = rates(self)
            return dataclasses.replace(host, workloads=tuple(
                one._replace(run_delay=0.0, io_ops_per_s=ops_per_s,
                             io_bytes_per_s=1e4, io_wait_s_per_op=wait_s)
                if one.workload.id == 'web' else
                one._replace(run_delay=0.0, io_ops_per_s=0.0,
                             io_bytes_per_s=0.0)
                for one in host.workloads))

        self.rates = disk  # type: ignore[method-assign]

    def test_what_the_host_writes_for_another(self) -> None:
        """It waits for much of its time, and nothing tells what is usual."""
        self.on_a_disk(0.01, 50.0)
        self.turn(30)
        self.assertEqual(('hog',), self.incident().antagonists)
        self.start()
        self.on_a_disk(0.001, 50.0)
        self.asked.clear()
        self.turn(60)
        self.assertEqual({()}, set(self.asked))

    def test_what_is_not_felt_beside_all_that_it_does(self) -> None:
        """A hundredth of its time at the disk."""
        for cores, names in ((0.6, ['hog']), (3.0, [])):
            self.start()
            self.decision = Decision()
            self.on_a_disk(0.01, 50.0)
            self.waits, self.cores['web'] = {'web': 0.04}, cores
            self.turn(60)
            self.assertTrue(any(self.asked))
            self.assertEqual(names, [
                name for incident in self.decision.incidents
                for name in incident.antagonists])

    def test_longer_than_at_its_best_of_the_day(self) -> None:
        """Of a restart there is no window, and it waits for little of its
        time."""
        self.on_a_disk(0.001, 20.0)
        self.turn(80)
        self.assertEqual({()}, set(self.asked))
        state = json.loads(json.dumps(self.controller.state()))
        for best, names in (({}, []), (state['best_waits'], ['hog'])):
            self.start()
            self.decision = Decision()
            self.controller.load({**state, 'best_waits': best}, self.now)
            self.on_a_disk(0.004, 20.0)
            self.turn(30)
            self.assertEqual(names, [
                name for incident in self.decision.incidents
                for name in incident.antagonists])

    def test_foreground_is_named_and_never_limited(self) -> None:
        self.held, self.cores['db'] = {'db': 0.9}, 3.0
        for decision in self.turn(200):
            self.assertEqual((), decision.caps)
        incident = self.incident()
        self.assertEqual(('db',), incident.antagonists)
        self.assertIn('foreground', incident.action)

    def test_beside_background_the_foreground_stays_free(self) -> None:
        self.held, self.cores['db'] = {'db': 0.4, 'hog': 0.4}, 3.0
        self.turn(15)
        self.assertEqual({'db', 'hog'}, set(self.incident().antagonists))
        self.assertEqual({'hog'}, {cap.workload for cap
                                   in self.decision.caps})

    def test_the_host_itself(self) -> None:
        """Its threads are told by name; it is no antagonist."""
        self.held = {THE_HOST: 0.9}
        self.threads = {'ksmd': 0.5, 'kswapd0': 0.1}
        self.turn(15)
        incident = self.incident()
        self.assertEqual(((), ()), (incident.antagonists,
                                    self.decision.caps))
        ground, = incident.grounds
        self.assertEqual((THE_HOST, ('ksmd', 'kswapd0')),
                         (ground.workload, ground.threads))
        self.assertIn('host', incident.action)

    def test_what_waits_for_itself_has_no_antagonist(self) -> None:
        self.held = {'web': 0.95, 'hog': 0.05}
        for decision in self.turn(300):
            self.assertEqual(((), ()), (decision.incidents, decision.caps))
        why = self.decision.facts['suffering']['web']
        for share in ('95%', '5%'):
            self.assertIn(f' {share}', why)

    def test_one_application_does_not_disturb_itself(self) -> None:
        self.workloads = [dataclasses.replace(
            one, application='shop') if one in FOREGROUND else one
            for one in self.workloads]
        self.held = {'db': 0.9}
        for decision in self.turn(100):
            self.assertEqual((), decision.incidents)

    def test_idle_cpus_that_wake_up_are_nobody(self) -> None:
        self.held, self.idle = {}, 1.0
        for decision in self.turn(100):
            self.assertEqual((), decision.incidents)

    def test_what_nobody_knows_clears_nothing(self) -> None:
        """Threads that ended, a full table: an experiment tells."""
        self.held = {}
        self.turn(100)
        self.assertEqual(('hog',), self.incident().antagonists)
        ground, = self.incident().grounds
        self.assertIsNot(GroundKind.DIRECT, ground.kind)

    def test_numbers_that_cannot_be(self) -> None:
        """Such an answer is none."""
        self.params = dataclasses.replace(self.params, max_caps_per_min=0)
        for held in ({'hog': math.nan}, {'hog': math.inf}, {'hog': -1.0},
                     {'hog': 5.0, 'web': 9.0}):
            self.held = held
            self.start()
            for decision in self.turn(50):
                self.assertEqual((), tuple(
                    name for incident in decision.incidents
                    for name in incident.antagonists))

    def test_own_quota(self) -> None:
        """While it is throttled nothing is known of its waits."""
        rates = self.rates

        def throttled() -> Rates:
            host = rates()
            return dataclasses.replace(host, workloads=tuple(
                one._replace(run_delay=None, throttled_share=0.5)
                if one.workload.id == 'web' else one
                for one in host.workloads))

        self.rates = throttled  # type: ignore[method-assign]
        for decision in self.turn(100):
            self.assertEqual(((), ()), (decision.caps, decision.asks))


class JustEnoughTest(DirectCase):
    """A victim that waits for its own threads as well: a tenth of a second
    per second, and for the hog by how much that uses."""

    def rates(self) -> Rates:
        used = min([float(cap.value) for cap in self.decision.caps
                    if cap.workload == 'hog'] or [3.0])
        by_hog = 0.4 * used / 3.0
        self.waits = {'web': 0.1 + by_hog}
        self.held = {'hog': by_hog / self.waits['web'],
                     'web': 0.1 / self.waits['web']}
        host = super().rates()
        share = self.waits['web'] / (self.waits['web'] + 0.6)
        return dataclasses.replace(host, workloads=tuple(
            one._replace(run_delay=share / (1 - share))
            if one.workload.id == 'web' else one
            for one in host.workloads), direct=tuple(
                self.answer(one.workload, one.resource,
                            2 * self.waits['web']) for one in host.direct))

    def used(self, seconds: int) -> float:
        """Cores of the hog, on the mean."""
        return sum([min([float(cap.value) for cap in decision.caps] or [3.0])
                    for decision in self.turn(seconds)]) / seconds

    def test_the_limit_ends_where_the_victim_is_well(self) -> None:
        """Not at the floor of 0.1 cores, however long it waits for itself."""
        self.turn(400)
        self.assertEqual('confirmed', self.incident().outcome)
        used = self.used(300)
        self.assertGreater(used, 0.13)
        by_hog = 0.4 * used / 3.0
        self.assertLess(by_hog / (0.7 + by_hog), 0.04)

    def test_the_first_limit_is_in_proportion(self) -> None:
        """What it takes of the victim, and what may be taken, are known."""
        self.turn(12)
        cap, = self.decision.caps
        # 0.5 of 1.1 s are waited, 0.8 of that for the hog, 0.04 tolerated.
        self.assertAlmostEqual(0.7 * 3.0 * 0.04 / (0.8 * 0.5 / 1.1),
                               float(cap.value), 2)


class NowTest(DirectCase):

    def setUp(self) -> None:
        super().setUp()
        self.params = dataclasses.replace(self.params, max_caps_per_min=0)
        self.start()        # nothing is limited

    def observe(self) -> None:
        self.params = dataclasses.replace(self.params, max_caps_per_min=0)
        self.start()

    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        incident = self.incident()
        return incident.antagonists, incident.named_earlier

    def test_names_are_those_of_the_latest_answer(self) -> None:
        self.turn(15)
        self.held, self.cores['batch0'] = {'batch0': 0.9}, 3.0
        self.turn(60)
        self.assertEqual(('batch0',), self.incident().antagonists)

    def test_what_rests_disturbs_no_more(self) -> None:
        """The victim suffers on, of what nobody knows."""
        self.turn(15)
        self.held, self.cores['hog'] = {}, 0.1
        self.turn(30)
        self.assertEqual((('hog',), ()), self.names())
        self.turn(100)
        self.assertEqual(((), ('hog',)), self.names())
        ground, = self.incident().grounds
        self.assertEqual('hog', ground.workload)
        self.turn(300)
        self.assertEqual(((), ()), self.names())
        self.assertEqual((), self.incident().grounds)

    def test_nothing_disturbs_what_is_well(self) -> None:
        """Its incident waits to end, and is the same when it is disturbed
        again."""
        self.observe()
        self.turn(15)
        before = self.incident()
        self.waits['web'], self.held = 0.0, {}
        self.turn(90)
        self.assertEqual((((), ('hog',)), before.id, incidents.QUIET), (
            self.names(), self.incident().id, self.incident().action))
        self.waits['web'], self.held = 0.4, {'hog': 0.8, 'web': 0.1}
        self.turn(60)
        self.assertEqual(((('hog',), ()), before.id), (
            self.names(), self.incident().id))
        self.assertNotEqual(incidents.QUIET, self.incident().action)

    def test_newer_answers_clear(self) -> None:
        """It works on, and the victim suffers on, of itself."""
        self.observe()
        self.turn(15)
        self.held = {'web': 0.95, 'hog': 0.05}
        self.turn(60)
        self.assertEqual(((), ('hog',)), self.names())
        self.held = {'hog': 0.8, 'web': 0.1}
        self.turn(60)
        self.assertEqual((('hog',), ()), self.names())

    def test_those_that_take_turns(self) -> None:
        """Beside the second, that does less, the victim waits for less than
        what was not the first's."""
        self.observe()
        self.turn(15)
        self.assertEqual((('hog',), ()), self.names())
        self.waits['web'], self.held = 0.11, {'batch0': 0.95}
        self.cores |= {'hog': 0.1, 'batch0': 3.0}
        self.turn(60)
        self.assertEqual(('batch0',), self.incident().antagonists)
        self.held = {}      # nothing is known of later
        self.turn(120)
        incident = self.incident()
        self.assertEqual(('batch0',), incident.antagonists)
        self.assertGreater(incident.value or 0, incident.threshold or 0)

    def test_what_works_on_disturbs_on(self) -> None:
        """Without an answer that says something else."""
        self.turn(15)
        self.held = {}
        self.turn(700)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_no_answer_is_about_what_is_made_again(self) -> None:
        """Another workload of its name did not hold anything yet."""
        while not self.decision.asks:
            self.turn(1)
        self.turn(3)        # the answer is there, no sample is yet
        self.workloads = [dataclasses.replace(one, created_s=5.0)
                          if one.id == 'hog' else one
                          for one in self.workloads]
        for decision in self.turn(20):
            self.assertEqual((), decision.incidents)

    def test_an_answer_about_what_is_gone(self) -> None:
        self.held = {'ghost': 0.9}
        for decision in self.turn(100):
            self.assertEqual((), decision.incidents)


class AskingTest(DirectCase):

    def share(self, seconds: int = 3600) -> float:
        """Of the time that evidence is gathered."""
        return sum([bool(decision.asks) for decision
                    in self.turn(seconds)]) / seconds

    def test_nothing_is_asked_while_nothing_waits(self) -> None:
        self.waits = {}
        self.assertEqual(0.0, self.share(600))

    def test_background_is_no_victim(self) -> None:
        self.waits = {'batch0': 1.0}
        self.assertEqual(0.0, self.share(600))

    def test_never(self) -> None:
        self.params = dataclasses.replace(self.params, direct_share=0.0)
        self.start()
        self.assertEqual(0.0, self.share(600))

    def test_the_budget_is_kept(self) -> None:
        """By all that suffer together, and each has its turn."""
        self.held = {'hog': 1.0}
        self.params = dataclasses.replace(self.params, max_caps_per_min=0)
        self.start()
        self.workloads = [*(Workload(f'vm{n}', Priority.FOREGROUND)
                            for n in range(20)), *BACKGROUND]
        self.waits = {f'vm{n}': 0.4 for n in range(20)}
        self.assertLessEqual(self.share(600), 0.07)
        self.assertEqual({f'vm{n}' for n in range(20)}, {
            name for asks in self.asked for name, _ in asks})

    def test_those_that_wait_for_their_turn_are_not_searched_for(self
                                                                 ) -> None:
        self.held = {}
        self.idle = 1.0
        self.workloads = [*(Workload(f'vm{n}', Priority.FOREGROUND)
                            for n in range(20)), *BACKGROUND]
        self.waits = {f'vm{n}': 0.4 for n in range(20)}
        self.cores |= {f'vm{n}': 0.6 for n in range(20)}
        for decision in self.turn(90):
            self.assertEqual([], decision.facts['examined'])

    def test_feigning_costs_less_and_less(self) -> None:
        """What nothing is named for is asked about less often."""
        self.held = {'web': 1.0}
        first = self.share(600)
        self.assertTrue(0.0 < self.share(3600) < first / 2)

    def test_a_window_lasts_two_seconds(self) -> None:
        self.turn(100)
        text = ''.join('x' if asks else ' ' for asks in self.asked)
        self.assertLessEqual({len(part) for part in text.split()}, {2})


class SecondHogTest(DirectCase):
    """A disk that ``batch0`` takes, beside a CPU that ``hog`` has taken."""

    def rates(self) -> Rates:
        host = super().rates()
        share = min([1.0, *(float(cap.value) / 1e8
                            for cap in self.decision.caps
                            if cap.knob is Knob.IO_BYTES_PER_S)])
        disk = {'web': (100.0, 1e6, 1e-3 + 9e-3 * share * self.scans),
                'batch0': (1000.0 * share * self.scans,
                           1e8 * share * self.scans, None)}
        return dataclasses.replace(host, workloads=tuple(
            one._replace(io_ops_per_s=disk[one.workload.id][0],
                         io_bytes_per_s=disk[one.workload.id][1],
                         io_wait_s_per_op=disk[one.workload.id][2])
            if one.workload.id in disk else one for one in host.workloads))

    def answer(self, name: str, resource: Resource, waited_s: float
               ) -> DirectEvidence:
        if resource is Resource.DISK:
            waited_s = 1.8 if self.scans else 0.2
            return DirectEvidence(
                name, resource, 2.0, waited_s,
                {'web': 0.1, 'batch0': 1.6 * self.scans})
        return super().answer(name, resource, waited_s)

    def test_it_is_named_before_the_window_of_the_first_is_paid_for(
            self) -> None:
        self.turn(12)
        self.assertEqual(('hog',), self.incident().antagonists)
        self.scans = True
        self.turn(15)
        self.assertEqual(
            {('run_delay', ('hog',)), ('io_wait', ('batch0',))},
            {(incident.signal, incident.antagonists)
             for incident in self.decision.incidents})


class LentWindowTest(testtools.TestCase):
    """One window is lent to a resource that was not asked about of late."""

    SHARE = 0.1     # 18 s from one window to the next
    DISK: Ask = ('web', Resource.DISK)

    def setUp(self) -> None:
        super().setUp()
        self.answers = direct.DirectAnswers()

    def asked(self, wanted: Mapping[Ask, float], first: int, end: int
              ) -> list[int]:
        """The seconds of which evidence is gathered; none names anything."""
        return [now for now in range(first, end)
                if self.answers.asks(float(now), wanted, self.SHARE)]

    def test_another_resource_need_not_wait(self) -> None:
        self.assertEqual([0, 1], self.asked({WEB: 0.5}, 0, 10))
        both = {WEB: 0.9, self.DISK: 0.5}
        self.assertEqual([10, 11], self.asked(both, 10, 20))

    def test_the_same_resource_waits(self) -> None:
        self.asked({WEB: 0.5}, 0, 10)
        other = ('db', Resource.CPU)
        self.assertEqual([20, 21], self.asked({WEB: 0.9, other: 0.5}, 10, 30))

    def test_what_is_lent_is_paid_back(self) -> None:
        self.asked({WEB: 0.5}, 0, 10)
        self.asked({self.DISK: 0.5}, 10, 20)
        every = {('web', resource): 0.5 for resource in Resource}
        self.assertEqual([20, 21, 40, 41], self.asked(every, 20, 50))

    def test_a_larger_share_holds_at_once(self) -> None:
        self.answers.asks(0.0, {WEB: 0.5}, 1e-6)
        self.assertEqual([20, 21, 40, 41], self.asked({WEB: 0.5}, 2, 50))

    def test_the_share_is_kept(self) -> None:
        seconds = sum([len(self.asked(
            {('web', list(Resource)[turn % len(Resource)]): 0.5 + turn},
            turn * 7, turn * 7 + 7)) for turn in range(200)])
        self.assertLessEqual(seconds, self.SHARE * 1400 + 2 * direct.WINDOW_S)
        self.assertGreater(seconds, 0.8 * self.SHARE * 1400)


class ClearedTest(DirectCase):

    def alternate(self, low: float, high: float) -> None:
        """The hog works in every other minute, while the victim waits."""
        rates = self.rates

        def turned() -> Rates:
            works = (self.now // 60) % 2 == 1
            self.waits['web'] = high if works else low
            self.cores['hog'] = 4.0 if works else 0.1
            return rates()

        self.rates = turned  # type: ignore[method-assign]

    def test_timing_does_not_name_what_held_nothing(self) -> None:
        """It works whenever the victim waits, elsewhere."""
        self.held, self.idle = {'web': 0.9}, 0.1
        self.alternate(0.05, 0.5)
        self.never_named()

    def test_nor_what_held_too_little(self) -> None:
        """Less than direct evidence needs."""
        self.held = {'web': 0.93, 'hog': 0.07}
        self.alternate(0.05, 0.5)
        self.never_named()

    def test_old_answers_are_asked_for_again(self) -> None:
        """Before timing names: those that wait for themselves rest long."""
        self.params = dataclasses.replace(self.params, max_caps_per_min=0)
        self.start()
        self.held = {'web': 0.96, 'hog': 0.01}
        self.turn(1000)
        self.alternate(0.4, 0.65)
        self.never_named()

    def never_named(self) -> None:
        for decision in self.turn(900):
            self.assertEqual((), decision.incidents)
        self.params = dataclasses.replace(self.params, direct_share=0.0)
        self.start()        # without the evidence it is named
        self.turn(600)
        self.assertEqual(('hog',), self.incident().antagonists)
