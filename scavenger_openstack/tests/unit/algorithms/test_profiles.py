# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: the checks, the distance, and several residents."""

from __future__ import annotations

from collections.abc import Sequence
import math

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms import profiles
from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack.algorithms.profiles import Profile
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.wire.profile import SOI_NAMES

CLOSE = 1e-9


def exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def profile(tolerated: dict[str, float], caused: dict[str, float]) -> Profile:
    return Profile({name: exact(value) for name, value in tolerated.items()},
                   {name: exact(value) for name, value in caused.items()})


class Names(testtools.TestCase):

    def test_they_are_those_of_the_catalogue(self) -> None:
        self.assertEqual([soi.name for soi in catalogue.SOIS],
                         list(SOI_NAMES))


class Check(testtools.TestCase):

    def test_what_is_right(self) -> None:
        profiles.check(profiles.NOTHING)
        profiles.check(Profile({'tlb': Estimate(0.5, 0.0, 1.0)},
                               {'vector': exact(0.0), 'l1i': exact(1.0)}))

    def test_what_is_wrong(self) -> None:
        for wrong in (math.nan, math.inf, -math.inf, -0.01, 1.01, 1e300):
            for place in range(3):
                numbers = [0.5, 0.5, 0.5]
                numbers[place] = wrong
                for side in (Profile({'tlb': Estimate(*numbers)}, {}),
                             Profile({}, {'tlb': Estimate(*numbers)})):
                    self.assertRaises(ValueError, profiles.check, side)
        for order in ((0.5, 0.6, 0.7), (0.5, 0.3, 0.4), (0.5, 0.7, 0.3)):
            self.assertRaises(ValueError, profiles.check,
                              Profile({'tlb': Estimate(*order)}, {}))

    def test_a_name_that_terminals_obey(self) -> None:
        wrong = self.assertRaises(
            ValueError, profiles.check,
            Profile({}, {'\x1b[31m' + 'a' * 1000: exact(0.5)}))
        self.assertNotIn('\x1b', str(wrong))
        self.assertLess(len(str(wrong)), 200)


class Distance(testtools.TestCase):

    def test_the_norm(self) -> None:
        """Of the SoIs that both have."""
        tolerated = {'tlb': 0.75, 'l1i': 0.25, 'l1d': 1.0}
        caused = {'tlb': 0.5, 'l1i': 0.5, 'vector': 1.0}
        self.assertEqual(0.5, profiles.distance(tolerated, caused))
        self.assertEqual(0.25, profiles.excess(tolerated, caused))
        self.assertEqual(0.0, profiles.distance({}, caused))
        self.assertEqual(0.0, profiles.excess(tolerated, {}))

    def test_harm_has_two_directions(self) -> None:
        gentle, loud = {'tlb': 1.0}, {'tlb': 1.0}
        meek, quiet = {'tlb': 0.25}, {'tlb': 0.0}
        self.assertEqual(0.75, profiles.harm(gentle, loud, meek, quiet))
        self.assertEqual(0.75, profiles.harm(meek, quiet, gentle, loud))
        self.assertEqual(1.5, profiles.harm(meek, loud, meek, loud))
        self.assertEqual(0.0, profiles.harm(gentle, loud, gentle, loud))


class Together(testtools.TestCase):

    def test_nothing(self) -> None:
        self.assertEqual(profiles.NOTHING, profiles.together([]))
        self.assertEqual(profiles.NOTHING,
                         profiles.together([profiles.NOTHING]))

    def test_a_workload_does_not_disturb_itself(self) -> None:
        alone = profile({'tlb': 0.25}, {'tlb': 1.0})
        self.assertEqual(alone, profiles.together([alone]))

    def test_several(self) -> None:
        """What they cause adds up; each has room left beside the others."""
        self.assertEqual(
            profile({'tlb': 0.25, 'l1i': 0.5},
                    {'tlb': 0.75, 'l1d': 0.125}),
            profiles.together([
                profile({'tlb': 0.75}, {'tlb': 0.25}),
                profile({'tlb': 1.0, 'l1i': 0.5}, {'tlb': 0.5}),
                profile({}, {'l1d': 0.125})]))

    def test_never_above_1_or_below_0(self) -> None:
        loud = profile({'tlb': 0.5}, {'tlb': 0.875})
        self.assertEqual(profile({'tlb': 0.0}, {'tlb': 1.0}),
                         profiles.together([loud, loud]))

    def test_the_interval(self) -> None:
        """Least is left where the others cause most."""
        victim = Profile({'tlb': Estimate(0.75, 0.5, 1.0)}, {})
        other = Profile({}, {'tlb': Estimate(0.25, 0.125, 0.375)})
        self.assertEqual(
            Profile({'tlb': Estimate(0.5, 0.125, 0.875)}, other.caused),
            profiles.together([victim, other]))


ESTIMATES = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).map(
    lambda numbers: Estimate(sorted(numbers)[1], min(numbers), max(numbers)))
SIDES = st.dictionaries(st.sampled_from(SOI_NAMES[:4]), ESTIMATES)
PROFILES = st.builds(Profile, SIDES, SIDES)
SEVERAL = st.lists(PROFILES, max_size=5)


class Properties(testtools.TestCase):

    @given(SEVERAL)
    def test_it_is_a_profile_again(self, several: list[Profile]) -> None:
        whole = profiles.together(several)
        profiles.check(whole)
        self.assertEqual(
            ({name for each in several for name in each.tolerated},
             {name for each in several for name in each.caused}),
            (set(whole.tolerated), set(whole.caused)))

    @given(SEVERAL, PROFILES)
    def test_more_residents_cause_more_and_tolerate_less(
            self, several: list[Profile], more: Profile) -> None:
        before = profiles.together(several)
        after = profiles.together([*several, more])
        for name, estimate in before.caused.items():
            for less, larger in zip(estimate, after.caused[name],
                                    strict=True):
                self.assertLessEqual(less, larger + CLOSE)
        for name, estimate in before.tolerated.items():
            self.assertLessEqual(after.tolerated[name].value,
                                 estimate.value + CLOSE)

    @given(SEVERAL, st.data())
    def test_the_order_does_not_matter(
            self, several: list[Profile], data: st.DataObject) -> None:
        other: Sequence[Profile] = data.draw(st.permutations(several))
        for one_side, other_side in zip(profiles.together(several),
                                        profiles.together(other),
                                        strict=True):
            for name, estimate in one_side.items():
                for one, two in zip(estimate, other_side[name], strict=True):
                    self.assertAlmostEqual(one, two, delta=CLOSE)

    @given(SEVERAL)
    def test_what_is_left_is_left_to_each(self, several: list[Profile]
                                          ) -> None:
        """Computed again from each pair."""
        for name, left in profiles.together(several).tolerated.items():
            least = min(
                resident.tolerated[name].value - sum(
                    other.caused[name].value for other in several
                    if other is not resident and name in other.caused)
                for resident in several if name in resident.tolerated)
            self.assertAlmostEqual(max(0.0, least), left.value, delta=CLOSE)

    @given(SIDES, SIDES)
    def test_excess_is_a_part_of_the_distance(
            self, one: dict[str, Estimate], two: dict[str, Estimate]
            ) -> None:
        tolerated, caused = profiles.values(one), profiles.values(two)
        above = profiles.excess(tolerated, caused)
        below = profiles.excess(caused, tolerated)
        self.assertLessEqual(0.0, above)
        self.assertAlmostEqual(profiles.distance(tolerated, caused),
                               above + below, delta=CLOSE)
