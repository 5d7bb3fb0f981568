# SPDX-License-Identifier: Apache-2.0


"""What the controller never does to memory and links, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import math
from typing import Any

from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.scavenger.params import RESERVE_PAPER
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PEAK
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.tests.unit.algorithms.strategies import caps
from scavenger_openstack.tests.unit.algorithms.strategies import EGRESS
from scavenger_openstack.tests.unit.algorithms.strategies import LINK
from scavenger_openstack.tests.unit.algorithms.strategies import Look
from scavenger_openstack.tests.unit.algorithms.strategies import MEMORY
from scavenger_openstack.tests.unit.algorithms.strategies import SMALL
from scavenger_openstack.tests.unit.algorithms.strategies import TOTAL
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

KNOBS = (MEMORY, EGRESS)
CAPACITY = {MEMORY: TOTAL, EGRESS: LINK}


def run(params: Params, curve: Iterable[Look], **rest: Any,
        ) -> tuple[Controller, list[Decision]]:
    """One step per second, from 1 on."""
    controller = Controller(params)
    return controller, [
        controller.step(1.0 + tick, look.rates(**rest))
        for tick, look in enumerate(curve)]


def facts(decision: Decision, knob: Knob) -> dict[str, Any]:
    found: dict[str, Any] = (
        decision.facts['memory'] if knob is MEMORY
        else decision.facts['network']['eth0'])
    return found


def limited(look: Look, knob: Knob) -> dict[str, WorkloadRates]:
    """The background workloads that have this limit, by id."""
    return {one.workload.id: one for one in look.uses
            if one.workload.priority is Priority.BACKGROUND
            and (knob is MEMORY or one.workload.interfaces)}


def floor(workload: Workload, knob: Knob) -> float:
    return workload.floor.get(knob, DEFAULT_FLOORS[knob])


def floors(look: Look, knob: Knob) -> float:
    return math.fsum(floor(one.workload, knob)
                     for one in limited(look, knob).values())


def sent_by_foreground(look: Look) -> float | None:
    """What left by the link and is not the background's, or is known to be
    the foreground's, whichever is more."""
    sent = look.rates().link_tx_bytes_per_s['eth0']
    if sent is None:
        return None
    return max(look.foreground_sent or 0.0, min(sent, sum(
        one.net_tx_bytes_per_s or 0.0 for one in look.uses
        if one.workload.priority is Priority.FOREGROUND
        and one.workload.interfaces)))


def used(one: WorkloadRates, knob: Knob) -> float:
    return (one.memory_bytes if knob is MEMORY
            else one.net_tx_bytes_per_s) or 0.0


STEADY = Workload('/steady', Priority.BACKGROUND, interfaces=('v0',))


def steady(memory: int, sent: float, guest: int = 0) -> Look:
    """One background workload beside a foreground, and maybe a guest."""
    found = [WorkloadRates(STEADY, 1.0, memory_bytes=100 * strategies.MIB,
                           net_tx_bytes_per_s=1000.0)]
    if guest:
        found.append(WorkloadRates(
            Workload('vm', Priority.FOREGROUND), 1.0, memory_bytes=guest))
    return Look(memory + guest, sent, tuple(found))


FOREGROUND = st.tuples(st.integers(0, 8500 * strategies.MIB),
                       strategies.amounts(0.8 * LINK))


class LimitProperties(testtools.TestCase):

    @given(strategies.params, strategies.curves(gaps=True))
    def test_the_shortage(self, params: Params, curve: list[Look]) -> None:
        """What all use that is known, above what is left for them."""
        _, decisions = run(params, curve)
        for look, decision in zip(curve, decisions, strict=True):
            found = decision.facts.get('memory', {})
            workloads = limited(look, MEMORY).values()
            self.assertEqual(
                sum(one.memory_bytes for one in workloads
                    if one.memory_bytes is not None
                    and 0 <= one.memory_bytes < math.inf) - found['budget']
                if workloads and found.get('rule') == 'holding' else 0.0,
                decision.shortage_bytes)

    @given(strategies.params, strategies.curves(gaps=True))
    def test_never_below_the_floor(self, params: Params,
                                   curve: list[Look]) -> None:
        _, decisions = run(params, curve)
        for look, decision in zip(curve, decisions, strict=True):
            for knob in KNOBS:
                found = caps(decision, knob)
                workloads = limited(look, knob)
                self.assertEqual(
                    set() if facts(decision, knob)['rule'] == 'off'
                    else workloads.keys(), found.keys())
                for name, value in found.items():
                    self.assertGreaterEqual(
                        value, floor(workloads[name].workload, knob))

    @given(strategies.params, strategies.curves(gaps=True))
    def test_never_above_capacity_minus_reserve(
            self, params: Params, curve: list[Look]) -> None:
        """... but for floors, and for memory in use while blind."""
        _, decisions = run(params, curve)
        for look, decision in zip(curve, decisions, strict=True):
            for knob in KNOBS:
                found = caps(decision, knob)
                seen = facts(decision, knob)
                if not found:
                    continue
                total, least = sum(found.values()), floors(look, knob)
                if seen['rule'] == 'blind':
                    if knob is EGRESS:
                        self.assertEqual(least, total)
                    continue
                if knob is EGRESS and seen['rule'] == 'learning':
                    self.assertEqual(least, total)
                budget = left = CAPACITY[knob] - seen['upper']
                if knob is EGRESS and params.network_wait_s:
                    # On a slow link 1 ms of it is a burst.
                    busy = params.network_wait_s / (
                        params.network_wait_s + 0.001)
                    budget = max(left - (1 - busy) * CAPACITY[knob],
                                 0.1 * max(0.0, left))
                self.assertLessEqual(total, max(budget, least) + 1e-6)
                if seen['rule'] == 'holding':
                    self.assertGreater(total, max(budget, least)
                                       - len(found) - 1e-6)
                self.assertAlmostEqual(max(0.0, budget), seen['budget'],
                                       places=3)

    @given(strategies.params, strategies.curves(gaps=True),
           st.integers(0, 3000 * strategies.MIB))
    def test_no_memory_limit_above_the_own_one(
            self, params: Params, curve: list[Look], own: int) -> None:
        """A workload's own limit changes no other limit, and takes away
        that of a workload which uses no more than it."""
        _, free = run(params, curve)
        _, bound = run(params, [look._replace(uses=tuple(
            one._replace(workload=dataclasses.replace(
                one.workload, memory_allotment_bytes=float(own)))
            if one.workload.priority is Priority.BACKGROUND else one
            for one in look.uses)) for look in curve])
        for look, before, after in zip(curve, free, bound, strict=True):
            self.assertEqual(caps(before, EGRESS), caps(after, EGRESS))
            found = caps(after, MEMORY)
            workloads = limited(look, MEMORY)
            for name, value in caps(before, MEMORY).items():
                one = workloads[name]
                if value < own:
                    self.assertEqual(value, found[name])
                elif (one.memory_bytes is not None
                      and one.memory_bytes <= own
                      or floor(one.workload, MEMORY) >= own):
                    self.assertNotIn(name, found)

    @given(strategies.params, strategies.curves())
    def test_the_reserve_holds_what_it_says(
            self, params: Params, curve: list[Look]) -> None:
        """A level, headroom, newcomers; and all of what the foreground uses
        at this moment."""
        _, decisions = run(params, curve)
        for look, decision in zip(curve, decisions, strict=True):
            for knob, x in ((MEMORY, look.foreground_bytes),
                            (EGRESS, sent_by_foreground(look))):
                seen = facts(decision, knob)
                assert x is not None
                self.assertAlmostEqual(x, seen['x'], places=3)
                least = params.min_headroom * CAPACITY[knob]
                self.assertGreaterEqual(seen['headroom'], least)
                if params.reserve_rule == RESERVE_PEAK:
                    self.assertEqual(least, seen['headroom'])
                self.assertTrue(seen['level'] is None or seen['level'] >= 0)
                self.assertGreaterEqual(seen['allotments'], 0)
                if seen['level'] is not None:
                    self.assertTrue(math.isclose(
                        seen['level'] + seen['headroom']
                        + seen['allotments'], seen['upper']))
                self.assertGreaterEqual(seen['upper'] + 1e-3, x)

    @given(strategies.params, strategies.curves(gaps=True))
    def test_no_growth_without_a_model(self, params: Params,
                                       curve: list[Look]) -> None:
        """Memory while learning or blind: nothing gets more than the most
        that it has had since then; while learning, all together get half of
        what was available, too."""
        _, decisions = run(params, curve)
        most: dict[str, float] = {}
        half: float | None = None
        for look, decision in zip(curve, decisions, strict=True):
            rule = facts(decision, MEMORY)['rule']
            if rule not in ('learning', 'blind'):
                most.clear()
                half = None
                continue
            limits = caps(decision, MEMORY)
            there = limited(look, MEMORY)
            if not there:
                half = None
            for name, one in there.items():
                most[name] = max(most.get(name, 0.0), used(one, MEMORY),
                                 floor(one.workload, MEMORY))
            if rule == 'learning' and half is None and there:
                total = sum(used(one, MEMORY) for one in there.values())
                budget = facts(decision, MEMORY)['budget']
                half = total + max(0.0, budget - total) / 2
            least = sum(most[name] for name in there)
            if rule == 'learning':
                self.assertLessEqual(sum(limits.values()),
                                     max(least, half or 0.0) + 1)
            else:
                for name, value in limits.items():
                    self.assertLessEqual(value, most[name])

    @given(strategies.params, strategies.curves(gaps=True))
    def test_overcommitted_when_the_floors_do_not_fit(
            self, params: Params, curve: list[Look]) -> None:
        _, decisions = run(params, curve)
        # Of fewer ticks than it takes to end one.
        expected: set[Knob] = set()
        for look, decision in zip(curve, decisions, strict=True):
            expected |= {
                knob for knob in KNOBS
                if limited(look, knob)
                and facts(decision, knob)['rule'] in ('learning', 'holding')
                and floors(look, knob) > max(
                    0.0, CAPACITY[knob] - facts(decision, knob)['upper'])}
            self.assertEqual(
                expected, {Knob(incident.signal.partition(' ')[0])
                           for incident in decision.incidents})


class ForegroundProperties(testtools.TestCase):

    @given(strategies.amounts(6.0), strategies.amounts(6.0),
           strategies.curves())
    def test_more_c_never_leaves_more(
            self, one: float, two: float, curve: list[Look]) -> None:
        """Until the first violation, which teaches the smaller c more."""
        decisions = [run(dataclasses.replace(
            SMALL, memory_c=c, network_c=c, reserve_rule=RESERVE_PAPER),
            curve)[1]
            for c in sorted((one, two))]
        going = list(KNOBS)
        for smaller, larger in zip(*decisions, strict=True):
            for knob in list(going):
                less, more = facts(smaller, knob), facts(larger, knob)
                if less['violations'] or less['level'] != more['level']:
                    going.remove(knob)
                    continue
                self.assertGreaterEqual(less['budget'], more['budget'])
                self.assertGreaterEqual(sum(caps(smaller, knob).values()),
                                        sum(caps(larger, knob).values())
                                        - len(caps(larger, knob)))

    @given(strategies.params, st.lists(FOREGROUND, min_size=5, max_size=12),
           FOREGROUND, FOREGROUND)
    def test_more_foreground_never_leaves_more(
            self, params: Params, past: list[tuple[int, float]],
            one: tuple[int, float], two: tuple[int, float]) -> None:
        """Of two hosts with the same past, the one whose foreground uses
        more now leaves less, or as much; unless a new phase begins.  A
        recent sigma may be larger where less is used."""
        assume(params.reserve_rule in (RESERVE_PEAK, RESERVE_PAPER))
        found = []
        for now in zip(*(sorted(pair) for pair in
                         zip(one, two, strict=True)), strict=True):
            controller, decisions = run(
                params, [steady(*look) for look in past])
            before = decisions[-1]
            found.append(controller.step(len(past) + 1.0, steady(*now)
                                         .rates()))
        for knob in KNOBS:
            if facts(before, knob)['rule'] != 'holding':
                continue
            less, more = (facts(decision, knob) for decision in found)
            if any(seen['level'] < facts(before, knob)['level']
                   for seen in (less, more)):
                continue
            self.assertGreaterEqual(less['budget'], more['budget'])
            self.assertGreaterEqual(caps(found[0], knob)[STEADY.id],
                                    caps(found[1], knob)[STEADY.id])

    @given(strategies.params, FOREGROUND, st.tuples(
        st.integers(0, TOTAL), strategies.amounts(LINK)))
    def test_a_violation_is_answered_in_the_same_step(
            self, params: Params, usual: tuple[int, float],
            now: tuple[int, float]) -> None:
        controller, decisions = run(params, [steady(*usual)] * 6)
        found = controller.step(7.0, steady(*now).rates())
        for knob, x in zip(KNOBS, now, strict=True):
            before, after = facts(decisions[-1], knob), facts(found, knob)
            self.assertEqual('holding', before['rule'])
            if x > before['upper'] + 1:
                self.assertEqual(before['violations'] + 1,
                                 after['violations'])
                self.assertTrue(math.isclose(x, after['level'],
                                             abs_tol=1e-6))
                self.assertLessEqual(
                    caps(found, knob)[STEADY.id],
                    max(floor(STEADY, knob),
                        CAPACITY[knob] - x - after['headroom'] + 1e-3))
            elif x < before['upper'] - 1:
                self.assertEqual(before['violations'], after['violations'])

    @given(FOREGROUND, st.integers(1, 12),
           st.integers(1, 1000 * strategies.MIB), st.floats(0.001, 0.1))
    def test_a_guest_that_came_and_went_leaves_no_trace(
            self, usual: tuple[int, float], stay: int, guest: int,
            min_headroom: float) -> None:
        params = dataclasses.replace(SMALL, min_headroom=min_headroom)
        _, decisions = run(params, [steady(*usual)] * 5
                           + [steady(*usual, guest=guest)] * stay
                           + [steady(*usual)])
        first, last = decisions[4], decisions[-1]
        self.assertTrue(abs(caps(first, MEMORY)[STEADY.id]
                            - caps(last, MEMORY)[STEADY.id]) <= 1)
        self.assertEqual(0, facts(last, MEMORY)['violations'])
        for decision in decisions[5:-1]:
            self.assertLessEqual(
                caps(decision, MEMORY)[STEADY.id], max(
                    floor(STEADY, MEMORY),
                    caps(first, MEMORY)[STEADY.id] - guest + 1))


class RestProperties(testtools.TestCase):

    @given(strategies.params, strategies.curves(gaps=True))
    def test_a_constant_host_comes_to_rest(self, params: Params,
                                           curve: list[Look]) -> None:
        """No oscillation at all, at the latest after ``rest`` ticks: until
        newcomers are learnt, a new phase is, high use is too long ago, and
        blindness is certain."""
        size = round(max(params.memory_window_s, params.network_window_s,
                         params.memory_peak_s, params.network_peak_s))
        rest = 2 * size + params.blind_ticks + 1
        _, decisions = run(params, curve + [curve[-1]] * (rest + 2 * size))
        found = [[caps(decision, knob) for knob in KNOBS]
                 for decision in decisions[-2 * size - 1:]]
        for one in found:
            self.assertEqual(found[0], one)

    @given(strategies.params, strategies.curves(), st.integers(1, 9))
    def test_blind_holds_and_then_goes_to_the_floor(
            self, params: Params, curve: list[Look], ticks: int) -> None:
        last = curve[-1]
        blind = last._replace(foreground_bytes=None, foreground_sent=None)
        assume(limited(last, EGRESS))
        _, decisions = run(params, curve + [last] * 6 + [blind] * ticks)
        before = decisions[-ticks - 1]
        for tick, decision in enumerate(decisions[-ticks:], start=1):
            for knob in KNOBS:
                seen = facts(decision, knob)
                self.assertEqual(tick, seen['missing_ticks'])
                if tick <= params.blind_ticks:
                    self.assertEqual('holding', seen['rule'])
                    self.assertEqual(caps(before, knob),
                                     caps(decision, knob))
                    continue
                self.assertEqual('blind', seen['rule'])
                self.assertEqual({
                    name: max(floor(one.workload, knob),
                              used(one, knob) if knob is MEMORY else 0.0)
                    for name, one in limited(last, knob).items()},
                    caps(decision, knob))

    @given(strategies.params, strategies.curves())
    def test_off_where_there_never_was_a_signal(
            self, params: Params, curve: list[Look]) -> None:
        _, decisions = run(params, [look._replace(
            foreground_bytes=None, foreground_sent=None) for look in curve])
        for decision in decisions:
            for knob in KNOBS:
                self.assertEqual('off', facts(decision, knob)['rule'])
                self.assertEqual({}, caps(decision, knob))
