# SPDX-License-Identifier: Apache-2.0


"""What holds whatever wishes what for a knob, and in which order."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.decision.arbitrate import arbitrate
from scavenger_openstack.decision.arbitrate import SLACK
from scavenger_openstack.decision.arbitrate import tightest
from scavenger_openstack.decision.arbitrate import worth_writing
from scavenger_openstack.knobs import SWITCHES
from scavenger_openstack.tests.unit.algorithms import strategies
from scavenger_openstack.types import Cap
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

NAMES = st.sampled_from(('/a', '/b'))
KNOBS = st.sampled_from((Knob.CPU_SET, Knob.CPU_SET, Knob.CPU_IDLE,
                         Knob.PAUSED, Knob.CPU_CORES, Knob.MEMORY_BYTES,
                         Knob.LLC_WAYS))
SETS = strategies.subsets(dict.fromkeys(range(5))).map(format_cpus)
NUMBERS = st.integers(0, 9)
NONSENSE = st.sampled_from((math.nan, math.inf, -math.inf, -1.0, 'x', '3-1',
                            '', '-'))


OWNERS = st.sampled_from(('scavenger', 'perfiso', 'cpi2'))


@functools.cache
def values(knob: Knob, nonsense: bool = True, none: bool = False,
           ) -> st.SearchStrategy[Any]:
    usual: st.SearchStrategy[Value] = (
        SETS if knob is Knob.CPU_SET else
        st.sampled_from((0, 1)) if knob in SWITCHES else NUMBERS)
    found: st.SearchStrategy[Any] = (
        st.one_of(usual, usual, usual, NONSENSE) if nonsense else usual)
    return st.one_of(st.none(), found) if none else found


@st.composite
def caps(draw: st.DrawFn) -> Cap:
    knob = draw(KNOBS)
    return Cap(draw(NAMES), knob, draw(values(knob)), draw(OWNERS),
               'because')


SOME_KNOBS = st.lists(KNOBS, max_size=5)


@st.composite
def limits(draw: st.DrawFn) -> dict[KnobKey, Value | None]:
    """What some of the knobs hold without us."""
    found: dict[KnobKey, Value | None] = {}
    for name in ('/a', '/b'):
        for knob in draw(SOME_KNOBS):
            found[name, knob] = draw(values(
                knob, nonsense=knob is Knob.CPU_SET, none=True))
    return found


FLOORS = st.fixed_dictionaries({}, optional={
    name: st.dictionaries(st.sampled_from((
        Knob.CPU_CORES, Knob.MEMORY_BYTES, Knob.LLC_WAYS)),
        NUMBERS.map(float)) for name in ('/a', '/b')})
OVERRIDES = st.lists(caps(), max_size=2).map(
    lambda found: {(cap.workload, cap.knob): cap for cap in found})
WISHES = st.lists(caps(), max_size=7)
EXEMPT = st.frozensets(NAMES, max_size=1)


def says_something(knob: Knob, value: Any) -> bool:
    if knob is Knob.CPU_SET:
        try:
            return bool(parse_cpus(str(value)))
        except ValueError:
            return False
    return not isinstance(value, str) and 0 <= value < math.inf


def plain(wanted: dict[KnobKey, Cap]) -> dict[KnobKey, Any]:
    """Key -> value, CPUs as a set."""
    return {key: parse_cpus(str(cap.value)) if key[1] is Knob.CPU_SET
            else cap.value for key, cap in wanted.items()}


def expected(wishes: list[Cap], originals: dict[KnobKey, Value | None],
             floors: dict[str, dict[Knob, float]],
             overrides: dict[KnobKey, Cap], exempt: frozenset[str],
             ) -> dict[KnobKey, Any]:
    """DESIGN 7.5, one knob after the other."""
    claims: dict[KnobKey, list[Value]] = {}
    for cap in wishes:
        if cap.workload not in exempt and says_something(*cap[1:3]):
            claims.setdefault((cap.workload, cap.knob), []).append(cap.value)
    for key, cap in overrides.items():
        if says_something(*cap[1:3]):
            claims[key] = [cap.value]
    found: dict[KnobKey, Any] = {}
    for key, all_of_them in claims.items():
        knob = key[1]
        value: Any = tightest(knob, all_of_them)
        original: Any = originals.get(key)
        if knob is Knob.CPU_SET:
            value = parse_cpus(str(value))
            if says_something(knob, original):
                own = parse_cpus(str(original))
                value &= own
                if not value or value == own:
                    continue
        elif knob in SWITCHES:
            if not value or original:
                continue
        else:
            value = max(value, floors.get(key[0], {}).get(knob, 0))
            if original is not None and value >= original:
                continue
        found[key] = value
    return found


class ArbitrateProperties(testtools.TestCase):

    @given(WISHES, limits(), FLOORS, OVERRIDES, EXEMPT)
    def test_precedence_then_floor_then_original(
            self, wishes: Any, originals: Any, floors: Any, overrides: Any,
            exempt: Any) -> None:
        self.assertEqual(
            expected(wishes, originals, floors, overrides, exempt),
            plain(arbitrate(wishes, originals, floors, overrides=overrides,
                            exempt=exempt)))

    @given(WISHES, limits(), FLOORS, OVERRIDES, st.data())
    def test_the_order_of_the_wishes_does_not_matter(
            self, wishes: list[Cap], originals: Any, floors: Any,
            overrides: Any, data: st.DataObject) -> None:
        other = data.draw(st.permutations(wishes))
        self.assertEqual(
            plain(arbitrate(wishes, originals, floors, overrides=overrides)),
            plain(arbitrate(other, originals, floors, overrides=overrides)))

    @given(st.lists(st.frozensets(st.integers(0, 3), min_size=1, max_size=2)
                    .map(format_cpus), min_size=3, max_size=3))
    def test_cpu_sets_meet_in_any_order(self, sets: list[str]) -> None:
        found = {parse_cpus(str(cap.value))
                 for order in itertools.permutations(sets)
                 for cap in arbitrate([
                     Cap('/a', Knob.CPU_SET, text, 'x', 'y')
                     for text in order], {}, {}).values()}
        self.assertEqual(1, len(found))

    @given(WISHES, limits(), FLOORS, OVERRIDES)
    def test_stopped_is_stopped(self, wishes: Any, originals: Any,
                                floors: Any, overrides: Any) -> None:
        self.assertEqual({}, arbitrate(wishes, originals, floors,
                                       overrides=overrides, stopped=True))

    @given(WISHES, limits(), FLOORS, caps(), EXEMPT)
    def test_an_override_leaves_nothing_to_wish(
            self, wishes: Any, originals: Any, floors: Any, cap: Cap,
            exempt: Any) -> None:
        key = (cap.workload, cap.knob)
        if not says_something(cap.knob, cap.value):
            return
        with_wishes = arbitrate(wishes, originals, floors,
                                overrides={key: cap}, exempt=exempt)
        alone = arbitrate([], originals, floors, overrides={key: cap})
        self.assertEqual(alone.get(key), with_wishes.get(key))

    @given(WISHES, limits(), FLOORS)
    def test_what_is_wanted_is_a_fixed_point(
            self, wishes: Any, originals: Any, floors: Any) -> None:
        once = arbitrate(wishes, originals, floors)
        self.assertEqual(once, arbitrate(once.values(), originals, floors))
        # ... also when it is in force already, then nothing is tighter.
        in_force = {**originals,
                    **{key: cap.value for key, cap in once.items()}}
        self.assertEqual({}, arbitrate(once.values(), in_force, floors))

    @given(WISHES, limits(), FLOORS, caps())
    def test_one_more_wish_never_loosens_a_number(
            self, wishes: list[Cap], originals: Any, floors: Any,
            cap: Cap) -> None:
        before = plain(arbitrate(wishes, originals, floors))
        after = plain(arbitrate([*wishes, cap], originals, floors))
        self.assertTrue(before.keys() <= after.keys()
                        or cap.knob is Knob.CPU_SET)
        for key, value in before.items():
            if key[1] in SWITCHES:
                self.assertGreaterEqual(after[key], value)
            elif key[1] is not Knob.CPU_SET:
                self.assertLessEqual(after[key], value)

    @given(WISHES)
    def test_says_who_wants_it(self, wishes: list[Cap]) -> None:
        for key, cap in arbitrate(wishes, {}, {}).items():
            owners = {wish.owner for wish in wishes
                      if (wish.workload, wish.knob) == key}
            self.assertTrue(set(cap.owner.split('+')) <= owners)
            self.assertEqual(key, (cap.workload, cap.knob))


class TightestProperties(testtools.TestCase):

    @given(KNOBS, st.data())
    def test_satisfies_every_claim(self, knob: Knob,
                                   data: st.DataObject) -> None:
        claims = data.draw(st.lists(values(knob, nonsense=False),
                                    min_size=1, max_size=4))
        found: Any = tightest(knob, claims)
        other = data.draw(st.permutations(claims))
        self.assertEqual(found, tightest(knob, other))
        if knob is Knob.CPU_SET:
            sets = [parse_cpus(str(claim)) for claim in claims]
            common = frozenset.intersection(*sets)
            self.assertIn(parse_cpus(found), [common] if common else sets)
        elif knob in SWITCHES:
            self.assertEqual(any(claims), found)
        else:
            self.assertIn(found, claims)
            self.assertTrue(all(found <= claim for claim in claims))


class WorthWritingProperties(testtools.TestCase):

    @given(st.lists(strategies.amounts(1000.0), min_size=1, max_size=20))
    def test_in_force_stays_close_to_what_is_wanted(
            self, wanted: list[float]) -> None:
        current = None
        for value in wanted:
            if worth_writing(Knob.MEMORY_BYTES, current, value):
                current = value
            assert current is not None
            self.assertTrue(value / (1 + SLACK) * (1 - 1e-12)
                            <= current <= value)

    @given(strategies.amounts(1000.0), st.lists(
        st.floats(1.0, 1.0 + SLACK / 2), max_size=20))
    def test_what_trembles_is_not_written(
            self, value: float, noise: list[float]) -> None:
        writes = 0
        current = value
        for factor in noise:
            if worth_writing(Knob.CPU_CORES, current, value * factor):
                current, writes = value * factor, writes + 1
        self.assertEqual(0, writes)

    @given(KNOBS, st.data())
    def test_what_is_in_force_is_not_written_again(
            self, knob: Knob, data: st.DataObject) -> None:
        value = data.draw(values(knob, nonsense=False))
        self.assertTrue(worth_writing(knob, None, value))
        self.assertFalse(worth_writing(knob, value, value))
