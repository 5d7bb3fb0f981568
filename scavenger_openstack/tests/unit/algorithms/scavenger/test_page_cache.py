# SPDX-License-Identifier: Apache-2.0


"""The rule for page cache, tick by tick."""

from __future__ import annotations

import math

import testtools

from scavenger_openstack.algorithms.scavenger import page_cache
from scavenger_openstack.algorithms.scavenger.page_cache import PageCache
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

MIB = 2 ** 20
TOTAL = 100_000 * MIB
FLOOR = 64.0 * MIB
A = Workload('/batch/a', Priority.BACKGROUND,
             floor={Knob.MEMORY_BYTES: FLOOR})
B = Workload('/batch/b', Priority.BACKGROUND, vcpus=3.0,
             floor={Knob.MEMORY_BYTES: FLOOR})
SHOP = Workload('/services/shop', Priority.FOREGROUND)
LEAST_MIB = page_cache.LEAST_CACHE / MIB
STEP_MIB = 1000.0


def needed(used: float, room: float = 0.0) -> float:
    """The limit that is to leave room, in MiB."""
    return round((used + max(
        room, used * page_cache.GROWTH + LEAST_MIB)) * 1.02, 3)


def use(workload: Workload = A, used: float = 1000, cache: float = 4000,
        again: float | None = 0.0) -> WorkloadRates:
    """A workload that uses so many MiB, and reads again so many per
    second."""
    return WorkloadRates(
        workload, 1.0, memory_bytes=int(used * MIB),
        page_cache_bytes=int(cache * MIB),
        refault_bytes_per_s=None if again is None else again * MIB)


class Host:
    """A rule, and the clock of its host; in MiB."""

    def __init__(self, *, ends: bool = False) -> None:
        self.ends = ends
        self.rule = PageCache(scavenger.Params(
            page_cache_refault_bytes_per_s=1.0 * MIB))
        self.now = 0.0

    def step(self, *uses: WorkloadRates, again: float | None = 0.0,
             free: float | None = 0.0, ticks: int = 1) -> list[float] | None:
        """So many ticks, in which the foreground reads so much again."""
        for _ in range(ticks):
            self.now += 1.0
            limits = self.rule.step(self.now, Rates(
                self.now, 1.0, uses, memory_total_bytes=TOTAL,
                memory_limit_ends=self.ends,
                memory_free_bytes=None if free is None else int(free * MIB),
                refault_bytes_per_s=None if again is None else MIB * (
                    again + sum((one.refault_bytes_per_s or 0.0) / MIB
                                for one in uses))), uses, [FLOOR] * len(uses))
        return None if limits is None else [
            round(limit / MIB, 3) for limit in limits]

    @property
    def state(self) -> str:
        return str(self.rule.facts()['rule'])


class RefaultsTest(testtools.TestCase):

    def test_what_the_background_does_not_read_again(self) -> None:
        def of(whole: float | None, *again: float | None) -> float | None:
            return page_cache.foreground_refaults(
                Rates(1.0, 1.0, (), refault_bytes_per_s=whole),
                [WorkloadRates(A, 1.0, refault_bytes_per_s=rate)
                 for rate in again])

        self.assertEqual(70.0, of(100.0, 10.0, 20.0))
        self.assertEqual(100.0, of(100.0))
        # The files of cgroups and of the host are read one after the other.
        self.assertEqual(0.0, of(10.0, 20.0))
        for unknown in (None, math.nan, math.inf, -1.0):
            self.assertEqual(90.0, of(100.0, 10.0, unknown))
            self.assertIsNone(of(unknown, 10.0))


class PageCacheTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.host = Host()

    def test_what_is_not_measurable_is_no_rule(self) -> None:
        for again, free in (None, 0.0), (0.0, None):
            host = Host()
            self.assertIsNone(host.step(use(), again=again, free=free))
            self.assertEqual('off', host.state)

    def test_all_that_is_free_but_the_headroom(self) -> None:
        self.assertEqual([5000 + 30_000 - 2000],
                         self.host.step(use(), free=30_000))
        self.assertEqual('growing', self.host.state)

    def test_by_steps_into_idle_page_cache(self) -> None:
        """One percent of all memory in five ticks, and only when used."""
        self.assertEqual([6000.0], self.host.step(use(), ticks=5))
        self.assertEqual([6900.0], self.host.step(use(cache=4900)))
        self.assertEqual([6900.0], self.host.step(use(cache=5800), ticks=4))
        self.assertEqual([7800.0], self.host.step(use(cache=5800)))
        # It does not want more.
        self.assertEqual([7800.0], self.host.step(use(cache=5800), ticks=60))

    def test_one_that_grows_is_not_held_by_one_that_rests(self) -> None:
        rests = use(B, 100, 100)
        for _ in range(5):
            limits = self.host.step(use(A, 1000, 4000), rests)
        assert limits is not None
        self.assertGreater(limits[0], 5000)
        self.assertEqual(6200, round(sum(limits)))
        # And loses nothing to what that may come to need.
        for _ in range(3):
            limits = self.host.step(use(A, 1000, 9000), rests)
            assert limits is not None
            self.assertGreaterEqual(limits[0], 10_000)

    def test_a_newcomer_has_room_beside_one_that_takes_all(self) -> None:
        takes = use(A, 1000, 60_000)
        self.host.step(takes, ticks=7)
        limits = self.host.step(takes, use(B, 1, 1))
        assert limits is not None
        self.assertGreaterEqual(limits[0], 61_000)
        self.assertGreater(limits[1], 0.5 * STEP_MIB)
        # It has that in the next tick, too, and then what it needs.
        limits = self.host.step(takes, use(B, 900, 50))
        assert limits is not None
        self.assertGreaterEqual(limits[1], 950)
        later = [self.host.step(takes, use(B, 950, 50)) or []
                 for _ in range(page_cache.STEP_TICKS)]
        self.assertGreater(max(later)[1], 1000 + 0.4 * STEP_MIB)

    def test_own_cache_goes_while_the_foreground_reads_again(self) -> None:
        self.host.step(use(), ticks=3)
        self.assertEqual([6000.0], self.host.step(use(), again=2, ticks=1))
        limits = self.host.step(use(), again=2)     # the mean counts
        self.assertEqual('cutting', self.host.state)
        self.assertEqual([5000 - 400.0], limits)
        self.assertEqual([4600 - 360.0], self.host.step(
            use(cache=3600), again=2))
        # What it uses stays, with the text of its programs.
        self.assertEqual([needed(1000)], self.host.step(
            use(cache=100), again=2, ticks=50))
        # A floor that is higher holds.
        host = Host()
        host.step(use(used=1, cache=200), again=5, ticks=90)
        self.assertEqual([64.0], host.step(use(used=1, cache=63), again=5))

    def test_nobody_grows_for_a_while_after(self) -> None:
        self.host.step(use(), again=2, ticks=3)
        began = self.host.now
        # However much is free: the foreground fills its cache again.
        limit = self.host.step(use(cache=3600), free=1500, ticks=55)
        self.assertEqual(('holding', [4240.0]), (self.host.state, limit))
        while self.host.state == 'holding':
            self.host.step(use(cache=3600))
        self.assertAlmostEqual(60, self.host.now - began, delta=4)
        # Once more, and it takes twice as long.
        self.host.step(use(cache=3600), again=2, ticks=3)
        began = self.host.now
        self.host.step(use(cache=3600))
        while self.host.state != 'growing':
            self.host.step(use(cache=3600))
        self.assertAlmostEqual(120, self.host.now - began, delta=4)

    def test_one_that_could_not_be_limited_keeps_what_it_uses(self) -> None:
        self.host.step(use(), again=2, ticks=4)
        self.assertEqual([needed(9000)],
                         self.host.step(use(used=9000), again=2))

    def test_a_newcomer_has_what_it_has_or_its_floor(self) -> None:
        self.host.step(use(), again=2, ticks=3)
        limits = self.host.step(use(), use(B, 300, 10), again=2)
        assert limits is not None
        self.assertEqual(needed(300), limits[1])

    def test_growth_of_use_that_a_limit_would_end(self) -> None:
        """By no more than the room in a tick, it meets no limit."""
        for again, rests in (0.0, 0), (9.0, 0), (9.0, 5):
            host, used, cache = Host(ends=True), 50.0, 4000.0
            in_force: float | None = None
            for tick in range(60):
                limits = host.step(use(used=used, cache=cache), again=(
                    again if not rests or tick < rests else 0.0))
                assert limits is not None
                if arbitrate.worth_writing(Knob.MEMORY_BYTES, in_force,
                                           limits[0]):
                    in_force = limits[0]
                assert in_force is not None
                used += max(used * page_cache.GROWTH + LEAST_MIB, STEP_MIB)
                cache = max(0.0, min(cache, in_force - used))
                self.assertLessEqual(used, in_force + 0.01)

    def test_page_cache_beside_a_limit_that_would_end(self) -> None:
        """A step is left of it, whatever it fills again."""
        host, cache = Host(ends=True), 40_000.0
        for _ in range(100):
            limits = host.step(use(used=100, cache=cache), again=9)
            assert limits is not None
            cache = limits[0] - 100
        self.assertEqual([needed(100, STEP_MIB)], limits)

    def test_with_memory_free_it_is_not_for_want_of_memory(self) -> None:
        """Such as a service that meets a limit of its own."""
        limits = self.host.step(use(), again=500, free=20_000, ticks=20)
        self.assertEqual(('growing', [23_000.0]), (self.host.state, limits))

    def test_a_tick_that_is_unknown_lets_nobody_grow(self) -> None:
        full = use(cache=5000)
        self.host.step(use(), ticks=4)
        for _ in range(20):
            self.assertEqual([6000.0], self.host.step(full, again=None))
        self.assertEqual('blind', self.host.state)
        self.assertEqual([7000.0], self.host.step(full))

    def test_of_what_is_unknown_nothing_is_learnt(self) -> None:
        least = use(cache=30)
        self.host.step(least, again=20, ticks=3)
        self.assertEqual('cutting', self.host.state)
        self.host.step(least, again=None, ticks=3 * page_cache.SETTLED)
        self.assertEqual(('blind', 1.0), (
            self.host.state, self.host.rule.tolerated / MIB))

    def test_services_that_never_rest(self) -> None:
        """They read again all the time, whatever the background has."""
        least = use(cache=30)
        self.host.step(use(), again=20, ticks=3)
        self.assertEqual('cutting', self.host.state)
        while self.host.state == 'cutting' and self.host.now < 300:
            self.host.step(least, again=20)
        self.assertAlmostEqual(page_cache.SETTLED, self.host.now, delta=15)
        self.assertEqual(21.0, self.host.rule.tolerated / MIB)
        self.host.step(least, again=20, ticks=70)
        self.assertEqual('growing', self.host.state)
        # What comes of its growth is not tolerated.
        grown = use(used=2500)
        self.host.step(grown, again=25, ticks=600)
        self.assertEqual(('cutting', 21.0), (
            self.host.state, self.host.rule.tolerated / MIB))
        # At last: the services may be others by now.
        self.host.step(grown, again=25, ticks=page_cache.PATIENCE)
        self.assertEqual(26.0, self.host.rule.tolerated / MIB)

    def test_what_came_of_its_growth_is_not_usual(self) -> None:
        """Memory that cannot be reclaimed, however little it is."""
        self.host.step(use(used=60_000, cache=0), ticks=20)
        self.host.step(use(used=61_000, cache=0), again=5, ticks=300)
        self.assertEqual(('cutting', 1.0), (
            self.host.state, self.host.rule.tolerated / MIB))
        # It was well with as much: now the foreground is another.
        self.host.step(use(used=60_000, cache=0), again=5, ticks=40)
        self.assertEqual(6.0, self.host.rule.tolerated / MIB)

    def test_what_was_usual(self) -> None:
        least = use(cache=30)
        self.host.step(least, again=20, ticks=100)
        self.assertEqual(21.0, self.host.rule.tolerated / MIB)
        self.host.step(least, again=12, ticks=100)
        self.assertEqual(21.0, self.host.rule.tolerated / MIB)
        self.host.step(least, again=0.5, ticks=40)
        self.assertLess(self.host.rule.tolerated / MIB, 3)

    def test_nothing_is_said_of_a_use_that_is_unknown(self) -> None:
        unknown = WorkloadRates(B, 1.0, page_cache_bytes=5 * MIB)
        for again in 0.0, 9.0:
            limits = self.host.step(use(), unknown, again=again, ticks=5)
            assert limits is not None
            self.assertTrue(limits[0] < math.inf == limits[1], limits)

    def test_what_varies_is_tolerated_with_its_deviation(self) -> None:
        least = use(cache=30)
        for tick in range(80):
            self.host.step(least, again=10 if tick % 2 else 30)
        self.assertAlmostEqual(1 + 20 + 2 * 10 / math.sqrt(3),
                               self.host.rule.tolerated / MIB, delta=0.01)


class ControllerTest(testtools.TestCase):

    def decide(self, *uses: WorkloadRates, again: float = 0.0,
               params: scavenger.Params | None = None) -> Decision:
        controller = scavenger.Controller(params or scavenger.Params(
            memory_window_s=4.0))
        for tick in range(10):
            used = sum(one.memory_bytes or 0 for one in uses)
            decision = controller.step(tick, Rates(
                tick, 1.0, uses, memory_total_bytes=TOTAL,
                memory_available_bytes=TOTAL - used,
                memory_free_bytes=0, refault_bytes_per_s=again * MIB))
        return decision

    def limits(self, decision: Decision) -> list[float]:
        return [float(cap.value) / MIB for cap in decision.caps
                if cap.knob is Knob.MEMORY_BYTES]

    def test_beside_the_rule_of_the_paper(self) -> None:
        [ours] = self.limits(self.decide(use(), again=2))
        self.assertLess(ours, 5000)
        [paper] = self.limits(self.decide(use(), again=2, params=(
            scavenger.Params(memory_window_s=4.0, use_page_cache=False))))
        self.assertGreater(paper, 90_000)
        # No shortage: nothing is killed for page cache.
        self.assertGreater(0, self.decide(use(), again=2).shortage_bytes)

    def test_a_vm_is_not_limited_below_its_floor(self) -> None:
        for floor, count in (4096, 0), (512, 1):
            vm = Workload('vm', Priority.BACKGROUND, instance='vm',
                          memory_allotment_bytes=4096.0 * MIB,
                          floor={Knob.MEMORY_BYTES: floor * MIB})
            decision = self.decide(use(vm, 2000, 10), again=2)
            self.assertEqual(count, len(self.limits(decision)))
