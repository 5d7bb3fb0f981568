# SPDX-License-Identifier: Apache-2.0


"""What holds for every detector, whatever it is given."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import cubic
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.tests.unit.algorithms import consistent
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

NUMBER = st.floats(0, 1e6)
SOME = st.floats(0.01, 1e4)
WEIRD = strategies.weird(st.floats())
PAIRS = st.lists(st.tuples(SOME, NUMBER), min_size=3, max_size=40)
WORKLOADS = [
    Workload('a', Priority.FOREGROUND, application='x'),
    Workload('b', Priority.FOREGROUND, application='x'),
    Workload('c', Priority.BACKGROUND, floor={Knob.CPU_CORES: 0.1}),
    Workload('d', Priority.BACKGROUND, floor={Knob.CPU_CORES: 0.1})]


class EquationProperties(testtools.TestCase):

    @given(PAIRS, SOME)
    def test_antagonist_correlation_is_bounded(
            self, pairs: list[tuple[float, float]], limit: float) -> None:
        signal, use = zip(*pairs, strict=True)
        self.assertTrue(-1 <= cpi2.correlation(signal, use, limit) <= 1)

    @given(PAIRS, st.floats(0.01, 100))
    def test_it_does_not_depend_on_the_unit_of_the_use(
            self, pairs: list[tuple[float, float]], factor: float) -> None:
        signal, use = zip(*pairs, strict=True)
        self.assertTrue(math.isclose(
            cpi2.correlation(signal, use, 1.0),
            cpi2.correlation(signal, [factor * one for one in use], 1.0),
            abs_tol=1e-9))

    @given(st.lists(st.tuples(st.one_of(st.none(), NUMBER),
                              st.one_of(st.none(), NUMBER)), max_size=30))
    def test_pearson(self, pairs: list[tuple[float | None, float | None]],
                     ) -> None:
        x, y = [one for one, _ in pairs], [one for _, one in pairs]
        [ahead], [behind] = (perfcloud.pearsons(x, [y]),
                             perfcloud.pearsons(y, [x]))
        self.assertTrue(-1 - 1e-9 <= ahead <= 1 + 1e-9)
        self.assertTrue(math.isclose(ahead, behind, abs_tol=1e-9))

    @given(SOME, st.floats(0.01, 0.99), st.floats(1e-6, 1.0))
    def test_a_cap_grows_until_there_is_contention(
            self, highest: float, beta: float, gamma: float) -> None:
        curve = [perfcloud.next_cap(highest, highest, step, contention=False,
                                    beta=beta, gamma=gamma)
                 for step in range(30)]
        self.assertEqual(sorted(curve), curve)
        self.assertTrue(math.isclose(
            (1 - beta) * highest, curve[0], rel_tol=1e-6))

    @given(SOME, SOME, SOME, st.floats(0.01, 0.99), st.floats(1, 100),
           st.lists(st.one_of(st.none(), NUMBER), max_size=40))
    def test_a_cubic_cap_keeps_the_floor(
            self, use: float, safe: float, floor: float, cut: float,
            plateau: float, turns: list[float | None]) -> None:
        cap = cubic.Cubic(use, safe, floor=floor, cut=cut, plateau=plateau)
        for turn in turns:
            before = cap.value
            if turn is None:
                cap.quiet(cap.value)
                self.assertGreaterEqual(cap.value, before * (1 - 1e-9))
            else:
                cap.contended(turn, cut=cut)
                self.assertLessEqual(cap.value, before)
            self.assertGreaterEqual(cap.value, floor)


class EvidenceProperties(testtools.TestCase):

    @given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=8),
                    max_size=6), st.lists(st.floats(-1e3, 1e3), min_size=8,
                                          max_size=8))
    def test_what_is_left_has_no_part_in_the_span(
            self, columns: list[list[float]], series: list[float]) -> None:
        spanned = evidence.span(columns)
        left = evidence.without(series, spanned)
        for one in spanned:
            self.assertAlmostEqual(0.0, evidence.dot(left, one), 3)
        self.assertLessEqual(evidence.dot(left, left),
                             evidence.dot(series, series) + 1e-3)

    @given(st.floats(0, 1), st.integers(1, 100))
    def test_more_suspects_make_chance_larger(self, chance: float,
                                              number: int) -> None:
        one, more = (evidence.any_of(chance, number),
                     evidence.any_of(chance, number + 1))
        self.assertTrue(chance - 1e-9 <= one <= more <= 1.0)

    @given(st.integers(0, 10 ** 6), st.floats(0.1, 1e3), st.permutations(
        ['u0', 'u1', 'u2', 'u3']))
    def test_neither_unit_nor_order_of_the_suspects_counts(
            self, seed: int, factor: float, order: list[str]) -> None:
        uses = {f'u{n}': [float((seed >> (n + place) % 17) & 7)
                          for place in range(40)] for n in range(4)}
        signal = [1 + use / 5 + ((seed + 3 * place) % 5) / 100
                  for place, use in enumerate(uses['u1'])]

        def named(scale: float, names: list[str]) -> set[str]:
            scaled = {name: [scale * one for one in uses[name]]
                      for name in names}
            total = [sum(at) for at in zip(*scaled.values(), strict=True)]
            return set(explanation.explain(
                signal, [], scaled, total=total, max_chance=0.05,
                min_share=0.05).named)

        self.assertEqual(named(1.0, sorted(uses)), named(factor, order))


class ControllerProperties(testtools.TestCase):

    @given(st.lists(st.tuples(
        st.one_of(st.floats(-10, 20), st.just(math.nan), st.just(math.inf)),
        st.lists(WEIRD, min_size=9, max_size=9)), max_size=60))
    def test_whatever_comes_every_cap_is_above_its_floor(
            self, ticks: list[tuple[float, list[Any]]]) -> None:
        controllers: list[Any] = [
            attribution.Controller(attribution.Params(sample_s=1.0)),
            perfcloud.Controller(perfcloud.Params(interval_s=1.0)),
            *[cpi2.Controller(cpi2.Params(
                signal=signal, sample_s=1.0, period_s=1.0,
                min_own_samples=2, outliers=1)) for signal in (
                    'cpi', 'run_delay', 'io_wait')]]
        now = 0.0
        for step, values in ticks:
            now = now + step if math.isfinite(step) else step
            rates = Rates(now, 1.0, tuple([
                WorkloadRates(one, 1.0, *values) for one in WORKLOADS]))
            for controller in controllers:
                decision = controller.step(now, rates)
                for cap in decision.caps:
                    self.assertIn(cap.workload, ('c', 'd'))
                    self.assertTrue(0 <= float(cap.value) < math.inf, cap)
                    self.assertIn(cap.workload, consistent.limited(
                        decision.incidents))
                for incident in decision.incidents:
                    self.assertIn(incident.victim, ('a', 'b'))
                    self.assertNotIn('a', incident.antagonists)
            now = now if math.isfinite(now) else 0.0
