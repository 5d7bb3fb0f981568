# SPDX-License-Identifier: Apache-2.0

"""What direct evidence names for links, caches and memory, and what held a
resource for too short a time to be named."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.cpi2 import specs
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

CAPACITY = 1e8
MODEL = 'model'


def workload(name: str, priority: Priority) -> Workload:
    return Workload(name, priority, application=name,
                    floor={Knob.CPU_CORES: 0.1,
                           Knob.EGRESS_BYTES_PER_S: 1e5},
                    interfaces=(f'tap-{name}',))


class Case(testtools.TestCase):
    """A host whose detector is new; ``held`` is what an answer says, of 2 s
    for which the victim waited ``waited_s``."""

    asked = (Resource.CPU,)

    def setUp(self) -> None:
        super().setUp()
        self.foreground = ['web', 'db']
        self.background = ['hog', *(f'batch{n}' for n in range(9))]
        self.held: Mapping[str, float] = {'hog': 0.7, 'web': 0.1}
        self.waited_s, self.shared = 2.0, False
        self.now = 1000.0
        self.decision = Decision()
        self.asks: tuple[Ask, ...] = ()
        self.start()

    def start(self) -> None:
        self.controller = attribution.Controller(
            attribution.Params(), host='h', boot_id='b')

    def rate(self, one: Workload) -> WorkloadRates:
        raise NotImplementedError

    def rates(self) -> Rates:
        asks, self.asks = self.asks, self.decision.asks
        return Rates(
            self.now, 1.0, tuple(
                self.rate(workload(name, priority))
                for names, priority in (
                    (self.foreground, Priority.FOREGROUND),
                    (self.background, Priority.BACKGROUND))
                for name in names), cpu_model=MODEL, direct=tuple(
                    DirectEvidence(
                        *ask, 2.0, self.waited_s,
                        {name: share * self.waited_s
                         for name, share in self.held.items()},
                        shared=self.shared)
                    for ask in asks if not self.decision.asks
                    and ask[1] in self.asked and ask[0] == 'web'))

    def turn(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.decision = self.controller.step(self.now, self.rates())

    def limit(self, name: str, knob: Knob) -> float:
        return min([float(cap.value) for cap in self.decision.caps
                    if cap[:2] == (name, knob)] or [float('inf')])

    def incident(self) -> Incident:
        incident, = [one for one in self.decision.incidents
                     if one.victim == 'web']
        return incident

    def nothing_named(self, seconds: int = 120) -> None:
        for _ in range(seconds):
            self.turn(1)
            self.assertEqual((), tuple(
                name for incident in self.decision.incidents
                for name in incident.antagonists))
            self.assertEqual((), self.decision.caps)


class LinkTest(Case):

    asked = (Resource.NETWORK,)

    def setUp(self) -> None:
        super().setUp()
        self.sent = {'web': 1e7, 'hog': 7e7, 'batch1': 1e7}
        self.counted = True

    def rate(self, one: Workload) -> WorkloadRates:
        return WorkloadRates(one, 1.0, cpu_cores=0.1,
                             net_tx_bytes_per_s=self.sends(one.id))

    def sends(self, name: str) -> float:
        return min(self.sent.get(name, 0.0),
                   self.limit(name, Knob.EGRESS_BYTES_PER_S))

    def rates(self) -> Rates:
        host = super().rates()
        total = sum(map(self.sends, self.sent))
        return dataclasses.replace(
            host, links={'eth0': CAPACITY},
            link_tx_bytes_per_s={'eth0': total} if self.counted else {},
            link_of={f'tap-{name}': 'eth0' for name
                     in (*self.foreground, *self.background)})

    def test_what_was_there_first_is_named_and_limited(self) -> None:
        """In 15 s of a fresh start, beside nine suspects."""
        self.turn(15)
        incident = self.incident()
        self.assertEqual(
            ('link_use', 'link', ('hog',)),
            (incident.signal, incident.cause, incident.antagonists))
        ground, = incident.grounds
        self.assertEqual((GroundKind.DIRECT, 0.7),
                         (ground.kind, round(ground.share or 0, 6)))
        cap, = self.decision.caps
        self.assertEqual(('hog', Knob.EGRESS_BYTES_PER_S), cap[:2])
        self.turn(60)
        self.assertEqual('confirmed', self.incident().outcome)
        self.turn(300)
        self.assertTrue(0.2 < self.sends('hog') / 7e7 < 1, self.sends('hog'))

    def test_where_the_link_does_not_count(self) -> None:
        self.counted, self.shared = False, True
        self.turn(15)
        ground, = self.incident().grounds
        self.assertEqual(('hog', GroundKind.SHARE),
                         (ground.workload, ground.kind))

    def test_a_link_with_room(self) -> None:
        self.sent['hog'] = 5e7
        self.nothing_named()

    def test_what_sends_nothing_does_not_suffer(self) -> None:
        self.sent['web'], self.sent['hog'] = 0.0, 9e7
        self.nothing_named()

    def test_what_fills_the_link_itself(self) -> None:
        self.sent = {'web': 8.5e7, 'hog': 1e7}
        self.held = {'web': 0.89, 'hog': 0.11}
        self.nothing_named()

    def test_many_that_send_a_little_each(self) -> None:
        """The busiest of them are not in the way of one that sends more."""
        self.sent = {'web': 2e7, **{f'batch{n}': 8e6 for n in range(9)}}
        self.held = {'web': 0.22, **{f'batch{n}': 0.087 for n in range(9)}}
        self.nothing_named()

    def test_what_sends_a_little_of_what_is_not_known(self) -> None:
        """Without it the link would be as full."""
        self.sent['hog'] = 8e7
        self.held = {'hog': 0.15, 'web': 0.05}
        self.nothing_named()

    def test_the_host_itself(self) -> None:
        self.held = {THE_HOST: 0.8, 'web': 0.1}
        self.turn(15)
        incident = self.incident()
        self.assertEqual(((), [THE_HOST]), (
            incident.antagonists,
            [ground.workload for ground in incident.grounds]))
        self.assertIn('host', incident.action)

    def test_foreground_is_named_and_not_limited(self) -> None:
        self.sent = {'web': 1e7, 'db': 8e7}
        self.held = {'db': 0.88, 'web': 0.1}
        self.turn(100)
        self.assertEqual(('db',), self.incident().antagonists)
        self.assertEqual((), self.decision.caps)

    def test_those_that_fill_it_together(self) -> None:
        self.sent = {'web': 1e7, 'hog': 5e7, 'batch1': 4.5e7}
        self.held = {'hog': 0.475, 'batch1': 0.43, 'web': 0.095}
        self.turn(15)
        self.assertEqual({'hog', 'batch1'}, set(self.incident().antagonists))


class CacheTest(Case):

    asked = (Resource.CACHE,)

    def setUp(self) -> None:
        super().setUp()
        self.shared, self.cpi = True, 2.0
        self.misses: dict[str, float] = {'web': 1e6, 'db': 7e6, 'hog': 1e6}
        self.held = {'db': 0.7, 'web': 0.1, 'hog': 0.1}

    def specify(self, mean: float = 1.0) -> None:
        self.controller.compare({
            specs.key(None, 'web', MODEL, 'cpi'): specs.Spec(
                mean, 0.05, 100, 5, 'directive')})

    def rate(self, one: Workload) -> WorkloadRates:
        return WorkloadRates(
            one, 1.0, cpu_cores=1.0, run_delay=0.0, throttled_share=0.0,
            cpi=self.cpi if one.id == 'web' else 1.0,
            llc_misses_per_s=self.misses.get(one.id, 1e4))

    def test_foreground_is_named_by_the_spec(self) -> None:
        """It was there first, and nothing is tried on it."""
        self.specify()
        self.turn(15)
        incident = self.incident()
        self.assertEqual(
            ('cpi', 'cache', ('db',)),
            (incident.signal, incident.cause, incident.antagonists))
        ground, = incident.grounds
        self.assertEqual((GroundKind.SHARE, 0.7),
                         (ground.kind, round(ground.share or 0, 6)))
        for _ in range(100):
            self.turn(1)
            self.assertEqual((), self.decision.caps)

    def test_none_suffers_that_is_as_its_application_elsewhere(self) -> None:
        self.specify(mean=2.0)
        self.nothing_named()
        self.assertEqual((), self.decision.asks)

    def test_nothing_is_plain(self) -> None:
        """Many that miss alike, the victim itself, few misses at all."""
        self.background = []
        for held, misses in (
                ({'db': 0.3, 'web': 0.1}, 7e6),
                ({'db': 0.4, 'web': 0.6}, 7e6),
                ({'db': 0.7, 'web': 0.1}, 9e5)):
            self.start()
            self.specify()
            self.held, self.misses['db'] = held, misses
            self.nothing_named(60)

    def test_what_the_victims_miss_themselves_does_not_count(self) -> None:
        self.specify()
        self.held = {'db': 0.45, 'web': 0.4, 'hog': 0.1}
        self.turn(15)
        self.assertEqual(('db',), self.incident().antagonists)

    def test_what_suffers_no_more(self) -> None:
        """As one that had to fill its cache."""
        self.background = []
        self.specify()
        self.turn(5)
        self.cpi = 1.0
        self.nothing_named(60)

    def test_unknown_misses_are_not_0(self) -> None:
        """Nor can one be named of which they are not known."""
        self.background = []
        self.specify()
        self.misses = {'web': 1e6, 'db': float('nan')}
        self.nothing_named(60)

    def test_by_its_own_past_if_the_misses_follow(self) -> None:
        self.background = []
        for working in (0, 1) * 4:
            self.cpi = 1.0 + 0.5 * working
            self.misses['db'] = 1e5 + 1e7 * working
            self.turn(60)
        self.assertEqual(('db',), self.incident().antagonists)

    def test_not_by_its_own_past_if_they_do_not(self) -> None:
        """A phase of the victim's own, beside one that misses always."""
        self.background = []
        for phase in (0, 1) * 4:
            self.cpi = 1.0 + 0.5 * phase
            self.nothing_named(60)

    def test_a_search_is_not_spared_by_it(self) -> None:
        """How much each misses does not tell what that does."""
        self.specify()
        self.held = {'hog': 0.3, 'batch1': 0.1, 'web': 0.1}
        self.turn(30)
        self.assertIn('hog', self.decision.facts['examined'])


class MemoryTest(Case):

    asked = (Resource.MEMORY,)

    def setUp(self) -> None:
        super().setUp()
        self.shared, self.waited_s = True, 1.0
        self.available: int | None = 2 ** 30
        self.held = {'hog': 0.9, 'web': 0.1}

    def rate(self, one: Workload) -> WorkloadRates:
        return WorkloadRates(one, 1.0, cpu_cores=0.1, memory_bytes=2 ** 30)

    def rates(self) -> Rates:
        return dataclasses.replace(
            super().rates(), memory_total_bytes=2 ** 36,
            memory_available_bytes=self.available)

    def test_what_takes_memory_while_it_is_short(self) -> None:
        self.turn(10)
        incident = self.incident()
        self.assertEqual(
            ('memory_wait', 'memory', ('hog',), 0.5),
            (incident.signal, incident.cause, incident.antagonists,
             incident.value))
        ground, = incident.grounds
        self.assertEqual((GroundKind.SHARE, 0.9),
                         (ground.kind, round(ground.share or 0, 6)))
        self.assertEqual((), self.decision.caps)

    def test_nothing_is_asked_while_there_is_enough_or_none_is_known(
            self) -> None:
        for self.available in (2 ** 35, None):
            self.turn(30)
            self.assertEqual(((), ()), (self.decision.incidents,
                                        self.decision.asks))

    def test_what_waits_for_itself(self) -> None:
        """As one that meets its own limit."""
        self.held = {'web': 1.0}
        self.nothing_named()

    def test_what_hardly_waits(self) -> None:
        self.waited_s = 0.1
        self.nothing_named()


class LittleTest(Case):
    """Victims that hardly run: a large share of next to nothing."""

    def setUp(self) -> None:
        super().setUp()
        self.waits, self.works = 0.015, 3.0
        self.held = {'hog': 0.5, 'batch1': 0.25, 'batch2': 0.25}

    def rate(self, one: Workload) -> WorkloadRates:
        cores = self.works if one.id == 'hog' else 0.02
        return WorkloadRates(
            one, 1.0, cpu_cores=cores, throttled_share=0.0,
            run_delay=self.waits / cores if one.id == 'web' else 0.0)

    def test_only_what_is_felt_is_named(self) -> None:
        """10 ms of each second."""
        self.waits, self.waited_s = 0.03, 0.06
        self.turn(15)
        self.assertEqual(('hog',), self.incident().antagonists)

    def test_or_none(self) -> None:
        self.waited_s = 0.03
        self.nothing_named()

    def test_it_clears_what_timing_names(self) -> None:
        """Whatever share of its wait that is."""
        self.background = ['hog']
        self.held = {'hog': 0.5, 'web': 0.5}
        for working in (0, 1) * 3:
            self.works = 0.1 + 3.0 * working
            self.waits = 0.001 + 0.014 * working
            self.waited_s = 2 * self.waits
            self.nothing_named(30)
