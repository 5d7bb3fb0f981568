# SPDX-License-Identifier: Apache-2.0


"""What holds for the CPU quota of the background and for its CPU set."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.scavenger.pins import allowed_cpus
from scavenger_openstack.algorithms.scavenger.quota import deviation
from scavenger_openstack.algorithms.scavenger.quota import judge
from scavenger_openstack.algorithms.scavenger.quota import next_quota
from scavenger_openstack.algorithms.scavenger.quota import QUIET_TICKS
from scavenger_openstack.algorithms.scavenger.quota import Quota
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.tests.unit.algorithms.strategies import caps
from scavenger_openstack.tests.unit.algorithms.strategies import CORES
from scavenger_openstack.tests.unit.algorithms.strategies import Look
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

SIZE = 4
LEARNT = SIZE + QUIET_TICKS
BLIND = 3
MU = 2.0
SPREAD = 0.1
"""Of a steady workload: the least deviation, as a share of mu."""
VMS = [Workload(f'/vm/{place}', Priority.FOREGROUND) for place in range(3)]
INCREASES = st.floats(0.01, 2.0)
DECREASES = st.floats(1.01, 8.0)
CORE_COUNTS = st.floats(0.0, 64.0, allow_subnormal=False)
IPCS = st.one_of(st.just(MU), st.floats(0.1, 8.0))


def quota(increase: float = 0.1, decrease: float = 2.0, *, c: float = 1.0,
          smoothing: int = 1) -> Quota:
    return Quota(Params(
        ipc_c=c, ipc_min_cores=0.25, ipc_min_deviation=SPREAD,
        ipc_quota_increase_cores=increase,
        ipc_quota_decrease_factor=decrease, ipc_smoothing=smoothing,
        blind_ticks=BLIND), SIZE)


def rate(workload: Workload, ipc: float | None,
         cores: Any = 1.0) -> WorkloadRates:
    return WorkloadRates(workload, 1.0, cpu_cores=cores,
                         cpi=None if ipc is None else 1 / ipc)


class EquationProperties(testtools.TestCase):

    @given(st.floats(0.0, 10.0), st.floats(0.01, 10.0),
           strategies.amounts(5.0), strategies.amounts(5.0))
    def test_more_spread_is_never_tighter(
            self, ipc: float, mu: float, one: float, two: float) -> None:
        self.assertLessEqual(*(judge(ipc, mu, spread)
                               for spread in sorted((one, two))))

    @given(st.floats(0.01, 10.0), strategies.amounts(5.0),
           st.floats(0.0, 10.0), st.floats(0.0, 10.0))
    def test_less_ipc_is_never_looser_below_the_mean(
            self, mu: float, spread: float, one: float, two: float) -> None:
        less, more = (min(ipc, mu) for ipc in sorted((one, two)))
        self.assertLessEqual(judge(less, mu, spread),
                             judge(more, mu, spread))

    @given(st.floats(0.01, 10.0), strategies.amounts(5.0),
           strategies.amounts(6.0), strategies.amounts(6.0),
           strategies.amounts(1.0))
    def test_more_c_is_never_less_deviation(
            self, mu: float, sigma: float, one: float, two: float,
            least: float) -> None:
        less, more = (deviation(mu, sigma, c=c, min_deviation=least)
                      for c in sorted((one, two)))
        self.assertTrue(least * mu <= less <= more)

    @given(CORE_COUNTS, CORE_COUNTS, CORE_COUNTS, CORE_COUNTS, INCREASES,
           DECREASES)
    def test_the_next_quota(
            self, one: float, two: float, minimum: float, more: float,
            increase: float, decrease: float) -> None:
        """Within bounds, and in the order of quota and verdict."""
        maximum = minimum + more
        table = []
        for cores in sorted((one, two)):
            cores = min(max(cores, minimum), maximum)
            row = [next_quota(cores, verdict, minimum=minimum,
                              maximum=maximum, increase=increase,
                              decrease=decrease) for verdict in Verdict]
            self.assertEqual(sorted(row), row)
            self.assertEqual((minimum, cores), (row[0], row[2]))
            self.assertTrue(minimum <= row[0] and row[-1] <= maximum)
            self.assertEqual(max(minimum, cores / decrease), row[1])
            self.assertEqual(min(maximum, cores + increase), row[3])
            table.append(row)
        for less, most in zip(*table, strict=True):
            self.assertLessEqual(less, most)


class QuotaProperties(testtools.TestCase):

    @given(INCREASES, DECREASES, st.integers(1, 5), CORE_COUNTS, st.lists(
        st.lists(st.tuples(strategies.weird(IPCS), strategies.weird(
            CORE_COUNTS)), max_size=3), max_size=20))
    def test_within_bounds_whatever_comes(
            self, increase: float, decrease: float, smoothing: int,
            minimum: float, curve: Any) -> None:
        found = quota(increase, decrease, smoothing=smoothing)
        maximum = minimum + 4.0
        for tick in curve:
            found.observe(
                [WorkloadRates(one, 1.0, cpu_cores=cores, cpi=cpi)
                 for one, (cpi, cores) in zip(VMS, tick, strict=False)],
                minimum=minimum, maximum=maximum, ways=11)
            if found.cores is not None:
                self.assertTrue(minimum <= found.cores <= maximum)
            self.assertEqual(found.cores is None, found.ways is None)
            self.assertTrue(found.ways is None or 1 <= found.ways <= 11)
            json.dumps([found.facts(), found.state()], allow_nan=False)

    @given(INCREASES, DECREASES, st.floats(0.1, 8.0), st.floats(0.0, 1.0),
           st.integers(1, 5))
    def test_a_steady_ipc_grows_to_the_maximum_and_stays(
            self, increase: float, decrease: float, ipc: float,
            minimum: float, smoothing: int) -> None:
        """No oscillation: never less than before, then always the same."""
        found = quota(increase, decrease, smoothing=smoothing)
        before, maximum = minimum, minimum + 4.0
        ticks = LEARNT + math.ceil(4.0 / increase) + 1
        for tick in range(ticks + 5):
            found.observe([rate(VMS[0], ipc)], minimum=minimum,
                          maximum=maximum)
            assert found.cores is not None
            self.assertGreaterEqual(found.cores, before)
            self.assertEqual(tick < LEARNT, found.cores == minimum)
            before = found.cores
            if tick >= ticks:
                self.assertEqual(maximum, found.cores)

    @given(INCREASES, DECREASES, st.floats(0.0, 1.0), st.floats(0.0, 9.0),
           st.integers(1, 5))
    def test_sawtooth(self, increase: float, decrease: float, minimum: float,
                      knee: float, smoothing: int) -> None:
        """A foreground that suffers above ``knee`` cores and only there.

        The rule of the paper (the last sample is judged) stays between
        knee / decrease and knee + increase once it has been above.  When
        the mean of n samples is judged, a drop of 1.5 spreads shows after
        2 n / 3 of them; then it shrinks once, and again n ticks later.
        """
        maximum = minimum + 8.0
        found = quota(increase, decrease, smoothing=smoothing)
        seen_after = 2 * smoothing // 3 + 1
        top = max(minimum, min(maximum, knee + seen_after * increase))
        bottom = max(minimum, min(maximum, knee) / decrease)
        cores, overshot = minimum, False
        for tick in range(LEARNT + min(400, math.ceil(24.0 / increase))):
            suffers = cores > knee and tick >= LEARNT
            overshot |= suffers
            found.observe([rate(VMS[0], MU * (1 - 1.5 * SPREAD) if suffers
                                else MU)], minimum=minimum, maximum=maximum)
            assert found.cores is not None
            if smoothing == 1 and suffers:
                self.assertEqual(max(minimum, cores / decrease), found.cores)
            cores = found.cores
            self.assertLessEqual(cores, top + 1e-9)
            if overshot:
                self.assertGreaterEqual(cores, bottom - 1e-9)
        self.assertEqual(0, found.phases)

    @given(st.lists(st.lists(IPCS, min_size=3, max_size=3), min_size=1,
                    max_size=16), st.permutations(range(3)),
           st.integers(1, 5))
    def test_the_order_of_the_workloads_does_not_matter(
            self, curve: Any, order: Any, smoothing: int) -> None:
        one, two = quota(smoothing=smoothing), quota(smoothing=smoothing)
        for ipcs in curve:
            seen = [rate(*pair) for pair in zip(VMS, ipcs, strict=True)]
            one.observe(seen, minimum=0.2, maximum=4.0)
            two.observe([seen[place] for place in order], minimum=0.2,
                        maximum=4.0)
            self.assertEqual((one.cores, one.verdict),
                             (two.cores, two.verdict))

    @given(st.lists(st.tuples(st.floats(0.7 * MU, 1.3 * MU), IPCS),
                    max_size=16))
    def test_one_more_workload_never_leaves_more(self, curve: Any) -> None:
        """Beside one whose spread is the least deviation, until its next
        phase: the spread itself may grow with the number of workloads."""
        alone, both = quota(), quota()
        for ipcs in [(MU, MU)] * LEARNT + curve:
            seen = [rate(*pair) for pair in zip(VMS, ipcs, strict=False)]
            alone.observe(seen[:1], minimum=0.2, maximum=4.0)
            both.observe(seen, minimum=0.2, maximum=4.0)
            if alone.phases:
                break
            assert alone.cores is not None and both.cores is not None
            self.assertLessEqual(both.cores, alone.cores)

    @given(st.integers(0, 12), st.integers(1, 9), st.sampled_from(
        (None, math.nan, math.inf, -1.0)))
    def test_holds_then_is_at_the_minimum_when_blind(
            self, ticks: int, missing: int, nothing: Any) -> None:
        found = quota()
        for _ in range(LEARNT + ticks):
            found.observe([rate(VMS[0], MU)], minimum=0.2, maximum=4.0)
        before = found.cores
        for tick in range(1, missing + 1):
            found.observe([rate(VMS[0], MU)._replace(cpi=nothing)],
                          minimum=0.2, maximum=4.0)
            self.assertEqual(before if tick <= BLIND else 0.2, found.cores)

    @given(st.lists(IPCS, min_size=1, max_size=12),
           st.lists(st.one_of(st.none(), IPCS), max_size=12),
           st.integers(1, 5))
    def test_goes_on_from_its_state(self, past: Any, curve: Any,
                                    smoothing: int) -> None:
        one, two = quota(smoothing=smoothing), quota(smoothing=smoothing)
        for ipc in past:
            one.observe([rate(VMS[0], ipc)], minimum=0.2, maximum=4.0)
        for ipc in curve:
            two = quota(smoothing=smoothing)
            two.load(json.loads(json.dumps(one.state(), allow_nan=False)))
            for each in (one, two):
                each.observe([rate(VMS[0], ipc)], minimum=0.2, maximum=4.0)
            self.assertEqual(one.facts(), two.facts())
            self.assertEqual(one.state(), two.state())


class CpuCapProperties(testtools.TestCase):

    @given(strategies.params, strategies.curves())
    def test_floors_and_quota(self, params: Params,
                              curve: list[Look]) -> None:
        controller = Controller(params)
        for tick, look in enumerate(curve, start=1):
            decision = controller.step(float(tick), look.rates())
            found = caps(decision, CORES)
            background = {one.workload.id: one.workload for one in look.uses
                          if one.workload.priority is Priority.BACKGROUND}
            floors = {name: one.floor.get(CORES, DEFAULT_FLOORS[CORES])
                      for name, one in background.items()}
            facts = decision.facts['ipc']
            cores = facts.get('quota_cores')
            if cores is None:
                self.assertEqual({}, found)
                continue
            self.assertGreaterEqual(cores, math.fsum(floors.values()))
            if found:
                self.assertEqual(floors.keys(), found.keys())
                for name, value in found.items():
                    self.assertGreaterEqual(value, floors[name])
                self.assertAlmostEqual(cores, math.fsum(found.values()))
            elif background:
                self.assertGreaterEqual(cores, len(strategies.FLAT))

    @given(st.lists(st.one_of(st.none(), strategies.subsets(
        strategies.FLAT)), max_size=4))
    def test_the_cpu_set(self, pinned: Any) -> None:
        """Never empty, never one that a workload has to itself, unless
        nothing else is left: then the quota floor as well."""
        uses = [WorkloadRates(Workload('/b', Priority.BACKGROUND), 1.0)]
        uses += [WorkloadRates(Workload(
            f'/vm/{place}', Priority.FOREGROUND, allowed_cpus=cpus), 1.0)
            for place, cpus in enumerate(pinned)]
        decision = Controller().step(1.0, Look(0, 0.0, tuple(uses)).rates())
        found = parse_cpus(decision.facts['cpu_set']['allowed'])
        sets = [cap.value for cap in decision.caps
                if cap.knob is Knob.CPU_SET]
        allowed = allowed_cpus(strategies.FLAT,
                               [cpus for cpus in pinned if cpus is not None])
        self.assertTrue(found and found <= strategies.FLAT.keys())
        if allowed:
            self.assertEqual(allowed, found)
            self.assertEqual({}, caps(decision, CORES))
            self.assertEqual(len(found) < len(strategies.FLAT), bool(sets))
        else:
            self.assertEqual(1, len(found))
            self.assertEqual({'/b': DEFAULT_FLOORS[CORES]},
                             caps(decision, CORES))
            self.assertEqual(1, len(sets))

    @given(st.lists(strategies.subsets(dict.fromkeys(range(6))),
                    max_size=4))
    def test_only_what_is_exclusive_is_taken(self, pinned: Any) -> None:
        every = frozenset(range(6))
        found = allowed_cpus(every, pinned)
        taken = every - found
        self.assertTrue(found <= every)
        for order in itertools.islice(itertools.permutations(pinned), 6):
            self.assertEqual(found, allowed_cpus(every, order))
        # One that may run everywhere changes nothing.
        self.assertEqual(found, allowed_cpus(every, [*pinned, every]))
        for cpu in taken:
            self.assertEqual(1, sum(cpu in one for one in pinned
                                    if one != every))
        for cpu in found:
            self.assertNotEqual(1, sum(cpu in one for one in pinned
                                       if one != every))

    @given(strategies.curves())
    def test_cpu_idle_once_per_group(self, curve: list[Look]) -> None:
        controller = Controller(dataclasses.replace(strategies.SMALL))
        for tick, look in enumerate(curve):
            decision = controller.step(float(tick), look.rates())
            self.assertEqual(
                {one.workload.group or one.workload.id: 1.0
                 for one in look.uses
                 if one.workload.priority is Priority.BACKGROUND},
                caps(decision, Knob.CPU_IDLE))
