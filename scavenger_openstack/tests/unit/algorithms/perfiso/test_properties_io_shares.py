# SPDX-License-Identifier: Apache-2.0


"""What holds for the shares of disks, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import json
import math
from typing import NamedTuple

import fixtures
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.perfiso.deficit import deficit
from scavenger_openstack.algorithms.perfiso.deficit import fair_part
from scavenger_openstack.algorithms.perfiso.deficit import parts_of
from scavenger_openstack.algorithms.perfiso.deficit import priority
from scavenger_openstack.algorithms.perfiso.io_budget import judge
from scavenger_openstack.algorithms.perfiso.io_budget import strain
from scavenger_openstack.algorithms.perfiso.io_budget import tolerated
from scavenger_openstack.algorithms.perfiso.io_level import REST_TICKS
from scavenger_openstack.algorithms.perfiso.io_params import MOST_OPS_PER_S
from scavenger_openstack.algorithms.perfiso.io_shares import Controller
from scavenger_openstack.algorithms.perfiso.io_shares import Params
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.tests.unit.algorithms.strategies import caps
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

OPS = Knob.IO_OPS_PER_S
OPS_COUNTS = strategies.amounts(10_000.0).map(lambda ops: ops + 1)
"""What does none has no limit."""
WAITS_S = st.one_of(st.just(0.001), st.sampled_from((0.00101, 0.00108)),
                    st.floats(0.0, 0.1))
SIZE = 4
STEADY = Workload('/steady', Priority.BACKGROUND)
VM = Workload('vm', Priority.FOREGROUND)

params = st.builds(
    Params, wait_tolerance=st.floats(0.01, 1.0),
    wait_window_s=st.sampled_from((2.0, float(SIZE))),
    wait_smoothing=st.integers(1, 5), increase_share=st.floats(0.05, 1.0),
    decrease_factor=st.floats(1.01, 8.0),
    deficit_window_s=st.sampled_from((1.0, 3.0, 10.0)),
    max_ops_per_s=st.sampled_from((0.0, 0.0, 15.0, 500.0)),
    blind_ticks=st.integers(0, 4))
"""Everything that can be tuned, but with windows of a few samples."""


AT_ONCE = fixtures.MonkeyPatch(
    'scavenger_openstack.algorithms.perfiso.disk_shares.LOOSEN_SHARE', 1.0)
"""Limits rise at once while it is entered."""


class Use(NamedTuple):
    """What one workload does in a tick; it is known or it is not."""

    workload: Workload
    ops: float | None
    wait_s: float | None

    def rates(self, tick: int) -> WorkloadRates:
        """Measured in this tick: what it waits is never the very same."""
        return WorkloadRates(
            self.workload, 1.0, io_ops_per_s=self.ops,
            io_wait_s_per_op=self.wait_s and (
                self.wait_s * (1 + tick % 2 * 1e-13)))


Look = tuple[Use, ...]


COUNTS = st.integers(0, 3)
FLOORS: st.SearchStrategy[dict[Knob, float]] = st.sampled_from(
    ({}, {}, {OPS: 0.0}, {OPS: 300.0}))
VCPUS = st.sampled_from((0.5, 1.0, 1.0, 3.0, 0.0))
DISKS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from(
    ((), ('vda',), ('vda', '')))
"""One disk: what holds for several is in ``test_io_shares``."""
KNOWN, MISSING = st.just(True), st.integers(0, 7).map(bool)


def workloads(draw: st.DrawFn, priority: Priority) -> list[Workload]:
    return [Workload(
        f'/{priority}/{place}', priority, floor=draw(FLOORS),
        vcpus=draw(VCPUS), disks=draw(DISKS))
        for place in range(draw(COUNTS))]


@st.composite
def looks(draw: st.DrawFn, there: list[Workload],
          known: st.SearchStrategy[bool]) -> Look:
    """One tick."""
    return tuple(Use(one, draw(OPS_COUNTS), draw(WAITS_S)) if draw(known)
                 else Use(one, None, None) for one in there)


@st.composite
def curves(draw: st.DrawFn, gaps: bool = False) -> list[Look]:
    """What happens on one host, tick by tick; with ``gaps`` some numbers
    are missing."""
    there = [*workloads(draw, Priority.BACKGROUND),
             *workloads(draw, Priority.FOREGROUND)]
    return draw(st.lists(looks(there, MISSING if gaps else KNOWN),
                         min_size=5, max_size=14))


def run(params: Params, curve: Iterable[Look],
        ) -> tuple[Controller, list[Decision]]:
    """One step per second, from 1 on."""
    controller = Controller(params)
    return controller, [
        controller.step(1.0 + tick, Rates(
            0.0, 1.0, tuple(one.rates(tick) for one in look)))
        for tick, look in enumerate(curve)]


def background(look: Look) -> dict[str, Workload]:
    return {one.workload.id: one.workload for one in look
            if one.workload.priority is Priority.BACKGROUND}


def floor(workload: Workload) -> float:
    return max(1.0, workload.floor.get(OPS, DEFAULT_FLOORS[OPS]))


def steady(wait_s: float, ops: float, *, vm_ops: float = 1000.0) -> Look:
    return Use(STEADY, ops, None), Use(VM, vm_ops, wait_s)


class EquationProperties(testtools.TestCase):

    @given(st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.floats(0.0, 1e4),
           st.floats(0.0, 1e4))
    def test_more_done_is_never_more_priority(
            self, one: float, two: float, lim: float, due: float) -> None:
        less, more = (deficit(done, lim, due) for done in sorted((one, two)))
        self.assertGreaterEqual(priority(less), priority(more))
        self.assertTrue(0.5 <= priority(less) <= 2)
        if less is not None:
            self.assertGreaterEqual(less, -1)
            # A smaller guarantee is sooner exceeded.
            smaller = deficit(min(one, two), lim / 2, due)
            self.assertTrue(smaller is None or smaller >= less)

    @given(st.lists(st.sampled_from((0.0, 0.5, 1.0, 7.0, -1.0, math.nan)),
                    min_size=1, max_size=8),
           st.lists(OPS_COUNTS, min_size=1, max_size=5))
    def test_what_is_due_is_what_was_done(
            self, weights: list[float], done: list[float]) -> None:
        parts = parts_of(weights)
        self.assertTrue(all(part >= 0 for part in parts))
        due = [fair_part([part] * len(done), done) for part in parts]
        self.assertTrue(math.isclose(sum(due), sum(done) / len(done),
                                     abs_tol=1e-9))

    @given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=5),
           st.floats(0.01, 2.0), st.floats(0.01, 2.0), st.floats(0.0, 5.0))
    def test_slower_is_never_looser(self, ratios: list[float], one: float,
                                    two: float, more: float) -> None:
        low, high = sorted((one, two))
        self.assertLessEqual(judge(strain([*ratios, more + 1], low)),
                             judge(strain([*ratios, more], low)))
        if sum(ratios) >= len(ratios):
            self.assertLessEqual(judge(strain(ratios, low)),
                                 judge(strain(ratios, high)))

    @given(strategies.amounts(3.0), strategies.amounts(3.0),
           strategies.amounts(3.0), st.integers(1, 9), st.integers(1, 9))
    def test_more_noise_and_fewer_samples_are_tolerated(
            self, one: float, two: float, c: float, less: int,
            more: int) -> None:
        low, high = sorted((one, two))
        few, many = sorted((less, more))
        found = [tolerated(sigma, samples, c=c, tolerance=0.1, smoothing=5)
                 for sigma, samples in ((low, many), (high, many),
                                        (high, few))]
        self.assertEqual(sorted(found), found)
        self.assertGreaterEqual(found[0], 0.1)


class ShareProperties(testtools.TestCase):

    @given(params, curves(gaps=True))
    def test_never_below_the_floor_nor_above_the_budget(
            self, params: Params, curve: list[Look]) -> None:
        _, decisions = run(params, curve)
        short = False
        for look, decision in zip(curve, decisions, strict=True):
            found, there = caps(decision, OPS), background(look)
            budget = decision.facts.get('budget_ops_per_s', math.inf)
            self.assertEqual(
                there.keys() if budget < math.inf else set(), found.keys())
            for name, value in found.items():
                self.assertGreaterEqual(value, floor(there[name]))
            least = sum(floor(one) for one in there.values())
            # The curve is too short for one to end.
            short = short or bool(found) and least > budget
            self.assertEqual(short, bool(decision.incidents))
            if found:
                self.assertLessEqual(sum(found.values()),
                                     max(least, budget) + 1e-6)
                if params.max_ops_per_s:
                    self.assertLessEqual(budget, params.max_ops_per_s)

    @given(params, curves(gaps=True))
    def test_what_nothing_wants_is_not_lost(
            self, params: Params, curve: list[Look]) -> None:
        """All of the budget is in a cap, but for what has to rise
        slowly and for parts of an operation."""
        with AT_ONCE:
            _, decisions = run(params, curve)
        for look, decision in zip(curve, decisions, strict=True):
            found, there = caps(decision, OPS), background(look)
            if found and any(one.vcpus > 0 for one in there.values()):
                self.assertGreaterEqual(
                    sum(found.values()),
                    decision.facts['budget_ops_per_s'] - len(found))

    @given(st.lists(st.tuples(OPS_COUNTS, OPS_COUNTS), max_size=9),
           OPS_COUNTS)
    def test_of_two_alike_who_did_more_gets_no_more(
            self, past: list[tuple[float, float]], now: float) -> None:
        one, two = (dataclasses.replace(STEADY, id=name)
                    for name in ('/one', '/two'))
        with AT_ONCE:
            _, decisions = run(Params(max_ops_per_s=800.0), [
                (Use(one, max(pair), None), Use(two, min(pair), None))
                for pair in [*past, (now, now)]])
        found = caps(decisions[-1], OPS)
        self.assertLessEqual(found['/one'], found['/two'])

    @given(params, st.lists(st.tuples(WAITS_S, OPS_COUNTS), min_size=5,
                            max_size=12), OPS_COUNTS, WAITS_S, WAITS_S)
    def test_of_two_pasts_alike_who_waits_longer_leaves_no_more(
            self, params: Params, past: list[tuple[float, float]],
            ops: float, one: float, two: float) -> None:
        found = [run(params, [*(steady(*look) for look in past),
                              steady(wait_s, ops)])[1][-1]
                 for wait_s in sorted((one, two))]
        less, more = (decision.facts['budget_ops_per_s']
                      for decision in found)
        self.assertGreaterEqual(less, more)
        less, more = (caps(decision, OPS)[STEADY.id] for decision in found)
        self.assertGreaterEqual(less, more)

    @given(params, curves(gaps=True))
    def test_a_constant_host_comes_to_rest(
            self, params: Params, curve: list[Look]) -> None:
        """... once the budget has grown to what is used; a growing one
        takes a few hundred ticks for that."""
        _, decisions = run(params, curve + [curve[-1]] * 400)
        found = [caps(decision, OPS) for decision in decisions[-20:]]
        for one in found:
            self.assertEqual(found[0], one)


class SignalProperties(testtools.TestCase):

    @given(params, curves())
    def test_off_where_there_never_was_a_signal(
            self, params: Params, curve: list[Look]) -> None:
        params = dataclasses.replace(params, max_ops_per_s=0.0)
        _, decisions = run(params, [tuple(
            one._replace(wait_s=None) for one in look) for look in curve])
        for decision in decisions:
            self.assertEqual('off', decision.facts['rule'])
            self.assertEqual({}, caps(decision, OPS))

    @given(params, st.lists(st.tuples(WAITS_S, OPS_COUNTS), max_size=7),
           st.integers(1, 9))
    def test_blind_holds_and_then_goes_to_the_floor(
            self, params: Params, past: list[tuple[float, float]],
            ticks: int) -> None:
        last = steady(0.001, 1000.0)
        blind = last[0], last[1]._replace(wait_s=None)
        _, decisions = run(params, [
            *[steady(0.001, 10.0)] * (REST_TICKS + SIZE),
            *(steady(*look) for look in past), *[last] * 4,
            *[blind] * ticks])
        before = decisions[-ticks - 1]
        assume(before.facts['rule'] == 'holding')
        for tick, decision in enumerate(decisions[-ticks:], start=1):
            if tick <= params.blind_ticks:
                self.assertEqual(before.facts['budget_ops_per_s'],
                                 decision.facts['budget_ops_per_s'])
            else:
                self.assertEqual('blind', decision.facts['rule'])
                self.assertEqual({STEADY.id: 10.0}, caps(decision, OPS))

    @given(params, st.lists(strategies.weird_rates(), max_size=8),
           st.lists(strategies.weird(st.floats(0.0, 20.0)), max_size=8))
    def test_weird_numbers_do_no_harm(
            self, params: Params, looks: list[Rates],
            times: list[float | None]) -> None:
        controller = Controller(params)
        names = set()
        for tick, look in enumerate(looks):
            now = times[tick] if tick < len(times) else None
            decision = controller.step(
                1.0 + tick if now is None else now, look)
            names |= {one[0].id for one in look.workloads
                      if one[0].priority is Priority.BACKGROUND}
            for cap in decision.caps:
                self.assertTrue(1 <= float(cap.value) <= MOST_OPS_PER_S)
                self.assertIn(cap.workload, names)
            json.dumps([decision.facts, controller.state()],
                       allow_nan=False)
            again = Controller(params)
            again.load(json.loads(json.dumps(controller.state())), 1e6)
