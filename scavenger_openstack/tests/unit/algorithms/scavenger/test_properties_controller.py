# SPDX-License-Identifier: Apache-2.0


"""What the controller does with weird numbers, weird times and old states.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms.scavenger.quota import QUIET_TICKS
from scavenger_openstack.algorithms.scavenger.scavenger import Controller
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.tests.unit.algorithms.strategies import Look
from scavenger_openstack.tests.unit.algorithms.strategies import SMALL
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.wire.json_fields import as_json

WINDOWS = ('memory_window_s', 'network_window_s', 'ipc_window_s')
PEAKS = ('memory_peak_s', 'network_peak_s')
NUMBERS = (Knob.MEMORY_BYTES, Knob.EGRESS_BYTES_PER_S, Knob.CPU_CORES)


def run(params: Params, curve: list[Look]) -> Controller:
    controller = Controller(params)
    for tick, look in enumerate(curve, start=1):
        controller.step(float(tick), look.rates())
    return controller


def again(params: Params, controller: Controller, now: float) -> Controller:
    """Another one that goes on from the state of this one."""
    other = Controller(params)
    other.load(json.loads(json.dumps(controller.state(), allow_nan=False)),
               now)
    return other


def in_a_row(curve: list[Look]) -> list[Look]:
    """The same workloads in each tick, and a foreground that only grows:
    no new phase begins, which a restart would put off."""
    memory, sent = 0, 0.0
    found = []
    for look in curve:
        memory = max(memory, look.foreground_bytes or 0)
        sent = max(sent, look.foreground_sent or 0.0)
        found.append(Look(memory, sent, curve[0].uses))
    return found


def rules(decision: Decision) -> list[str]:
    return [decision.facts['memory']['rule'],
            *(link['rule'] for link in decision.facts['network'].values()),
            decision.facts['ipc']['rule']]


class Sound(testtools.TestCase):

    def assertSound(self, controller: Controller,
                    decision: Decision) -> None:
        for cap in decision.caps:
            if cap.knob in NUMBERS:
                value = float(cap.value)
                self.assertTrue(0 <= value < math.inf, str(cap))
            self.assertTrue(cap.reason)
        plain = json.loads(json.dumps(decision.facts, allow_nan=False))
        self.assertEqual(decision.facts, plain)
        json.dumps(as_json(decision), allow_nan=False)
        state = controller.state()
        self.assertEqual(state, json.loads(json.dumps(state,
                                                      allow_nan=False)))


class WeirdProperties(Sound):

    @given(strategies.params, strategies.curves(),
           st.lists(strategies.weird_rates(), min_size=1, max_size=6))
    def test_weird_numbers(self, params: Params, curve: list[Look],
                           weird: list[Rates]) -> None:
        """None of them raises or comes out again, neither in the middle of
        everything nor at the beginning."""
        for before in (curve[:6], []):
            controller = run(params, before)
            for tick, rates in enumerate(weird):
                self.assertSound(controller,
                                 controller.step(100.0 + tick, rates))
            for tick, look in enumerate(curve):
                self.assertSound(controller, controller.step(
                    200.0 + tick, look.rates()))

    @given(strategies.curves(), st.sampled_from(
        (None, math.nan, math.inf, -math.inf)), st.sampled_from(
        ('memory_total_bytes', 'memory_available_bytes',
         'link_tx_bytes_per_s', 'links')))
    def test_what_is_no_number_is_no_signal(
            self, curve: list[Look], number: Any, name: str) -> None:
        """On a host where one number never comes its rule is off."""
        place = 0 if name.startswith('memory') else 1
        value = number if place == 0 else {'eth0': number}
        controller = Controller(SMALL)
        for tick, look in enumerate(curve):
            found = controller.step(float(tick),
                                    look.rates(**{name: value}))
            self.assertEqual('off', rules(found)[place])

    @given(strategies.curves(), st.sampled_from(
        (None, math.nan, math.inf, -math.inf, 0.0, -1.0)))
    def test_who_never_had_an_ipc_has_no_say(self, curve: list[Look],
                                             number: Any) -> None:
        controller = Controller(SMALL)
        for tick, look in enumerate(curve):
            found = controller.step(float(tick), look._replace(uses=tuple(
                one._replace(cpi=number) for one in look.uses)).rates())
            self.assertEqual('off', rules(found)[2])

    @given(strategies.params, strategies.curves(gaps=True))
    def test_plain_json(self, params: Params, curve: list[Look]) -> None:
        controller = Controller(params)
        for tick, look in enumerate(curve, start=1):
            self.assertSound(controller,
                             controller.step(float(tick), look.rates()))


class TimeProperties(testtools.TestCase):

    @given(strategies.params, strategies.curves(), st.data())
    def test_a_time_that_is_not_later_changes_nothing(
            self, params: Params, curve: list[Look],
            data: st.DataObject) -> None:
        steady, shaken = Controller(params), Controller(params)
        for tick, look in enumerate(curve, start=1):
            wanted = steady.step(float(tick), look.rates())
            found = shaken.step(float(tick), look.rates())
            self.assertEqual(wanted, found)
            now = data.draw(st.sampled_from((
                float(tick), tick - 0.5, 0.0, -math.inf, math.inf,
                math.nan)))
            self.assertIs(found, shaken.step(now, curve[0].rates()))
            self.assertEqual(steady.state(), shaken.state())

    @given(strategies.params, strategies.curves(), strategies.curves(),
           st.floats(1.001, 1e6))
    def test_after_a_long_gap_all_is_learnt_again(
            self, params: Params, past: list[Look], curve: list[Look],
            factor: float) -> None:
        old, new = run(params, past), Controller(params)
        gap_s = factor * max(getattr(params, name)
                             for name in (*WINDOWS, *PEAKS))
        for tick, look in enumerate(curve):
            now = len(past) + gap_s + tick
            one, two = (each.step(now, look.rates()) for each in (old, new))
            self.assertEqual((one.caps, one.facts), (two.caps, two.facts))

    @given(strategies.params, strategies.curves(), st.floats(1e-3, 1.0))
    def test_a_gap_within_the_windows_is_none(
            self, params: Params, curve: list[Look], share: float) -> None:
        # Of what counts for so long, nothing becomes too old.
        params = dataclasses.replace(params, memory_peak_s=50.0,
                                     network_peak_s=50.0)
        one, two = run(params, curve), run(params, curve)
        gap_s = share * min(getattr(params, name) for name in WINDOWS)
        look = curve[0].rates()
        self.assertEqual(one.step(len(curve) + 1e-6, look).facts,
                         two.step(len(curve) + gap_s, look).facts)

    @given(st.floats(0.1, 10.0), st.floats(2.0, 30.0), st.floats(0.0, 0.2))
    def test_windows_fill_whatever_the_interval(
            self, interval_s: float, window_s: float, late: float) -> None:
        """Any interval and any window that an operator may set, with ticks
        that are somewhat late."""
        windows: dict[str, Any] = dict.fromkeys(WINDOWS, window_s)
        controller = Controller(dataclasses.replace(SMALL, **windows),
                                interval_s=interval_s)
        look = strategies.example_look()
        for tick in range(1 + QUIET_TICKS
                          + max(2, round(window_s / interval_s))):
            found = controller.step(tick * interval_s * (1 + late), look)
        self.assertEqual(['holding'] * 3, rules(found))


class StateProperties(Sound):

    @given(strategies.params, strategies.curves().map(in_a_row),
           st.integers(1, 10))
    def test_goes_on_where_it_was(self, params: Params, curve: list[Look],
                                  cut: int) -> None:
        """The same caps from the next step on, or tighter ones as long as
        it is still learning: what was used before is not known again."""
        one = run(params, curve[:cut])
        two = again(params, one, cut + 0.5)
        for tick, look in enumerate(curve[cut:], start=cut + 1):
            rates = look.rates()
            wanted = one.step(float(tick), rates)
            found = two.step(float(tick), rates)
            self.assertEqual(wanted.facts, found.facts)
            for mine, theirs in zip(wanted.caps, found.caps, strict=True):
                self.assertEqual(mine[:2], theirs[:2])
                if (mine.knob is Knob.MEMORY_BYTES
                        and wanted.facts['memory']['rule'] != 'holding'):
                    self.assertGreaterEqual(float(mine.value),
                                            float(theirs.value))
                else:
                    self.assertEqual(mine, theirs)

    @given(strategies.params, strategies.curves(), st.integers(1, 8))
    def test_a_restart_does_not_open_its_eyes(
            self, params: Params, curve: list[Look], ticks: int) -> None:
        """What was blind before a restart is as blind after it."""
        blind = [look._replace(foreground_bytes=None, foreground_sent=None,
                               uses=tuple(one._replace(cpi=None)
                                          for one in look.uses))
                 for look in curve[-1:] * ticks]
        one = run(params, curve + blind)
        two = again(params, one, len(curve) + ticks + 0.5)
        rates = blind[0].rates()
        now = len(curve) + ticks + 1.0
        self.assertEqual(one.step(now, rates).facts,
                         two.step(now, rates).facts)

    @given(strategies.params, strategies.curves(), st.floats(1.001, 100.0))
    def test_what_is_too_old_or_from_the_future_is_not_used(
            self, params: Params, curve: list[Look], factor: float) -> None:
        one = run(params, curve)
        gap_s = factor * max(getattr(params, name)
                             for name in (*WINDOWS, *PEAKS))
        for now in (len(curve) + gap_s, len(curve) / 2):
            two, fresh = again(params, one, now), Controller(params)
            rates = curve[0].rates()
            wanted, found = (each.step(now + 0.1, rates)
                             for each in (fresh, two))
            self.assertEqual((wanted.caps, wanted.facts),
                             (found.caps, found.facts))

    @given(strategies.params, strategies.curves(), st.data())
    def test_a_damaged_state(self, params: Params, curve: list[Look],
                             data: st.DataObject) -> None:
        """One value of it is something else: it is used or it is not, but
        nothing breaks, now or later."""
        state = json.loads(json.dumps(run(params, curve).state()))
        place: Any = {'': state}
        key: Any = ''
        while place[key] and isinstance(place[key], dict | list):
            if data.draw(st.integers(0, 7)) == 0:
                break
            place = place[key]
            key = data.draw(st.sampled_from(
                sorted(place) if isinstance(place, dict)
                else range(len(place))))
        place[key] = data.draw(st.sampled_from(
            (*strategies.WEIRD, 10 ** 400, -10 ** 400, 1e308, -1e308, True,
             '', 'x', [], {}, [1], {'x': 1}, [[]])))
        if not isinstance(state, dict):
            return
        controller = Controller(params)
        controller.load(state, len(curve) + 0.5)
        for tick, look in enumerate(curve * 2, start=len(curve) + 1):
            self.assertSound(controller,
                             controller.step(float(tick), look.rates()))
