# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: the distance, and several residents."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms import profiles
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.wire.profile import SOI_NAMES

CLOSE = 1e-9

Sides = tuple[dict[str, float], dict[str, float]]


class Names(testtools.TestCase):

    def test_they_are_those_of_the_catalogue(self) -> None:
        self.assertEqual([soi.name for soi in catalogue.SOIS],
                         list(SOI_NAMES))


class Distance(testtools.TestCase):

    def test_the_norm(self) -> None:
        """Of the SoIs that both have."""
        tolerated = {'tlb': 0.75, 'l1i': 0.25, 'l1d': 1.0}
        caused = {'tlb': 0.5, 'l1i': 0.5, 'vector': 1.0}
        self.assertEqual(0.5, profiles.distance(tolerated, caused))
        self.assertEqual(0.0, profiles.distance({}, caused))

    def test_harm_has_two_directions(self) -> None:
        gentle = profiles.levels({'tlb': 1.0}, {'tlb': 1.0, 'l1i': 1.0})
        meek = profiles.levels({'tlb': 0.25}, {})
        both = profiles.levels({'tlb': 0.25}, {'tlb': 1.0})
        self.assertEqual(0.75, profiles.harm(gentle, meek))
        self.assertEqual(0.75, profiles.harm(meek, gentle))
        self.assertEqual(1.5, profiles.harm(both, both))
        self.assertEqual(0.0, profiles.harm(gentle, gentle))
        self.assertEqual(0.0, profiles.harm(
            both, profiles.levels({}, {})))


class Keys(testtools.TestCase):

    def test_the_best_first(self) -> None:
        self.assertEqual(
            [('application', 'web', 'p'), ('application', 'web', ''),
             ('flavor', 'm1', 'p'), ('flavor', 'm1', ''),
             ('flavor', '42', 'p'), ('flavor', '42', ''),
             ('image', 'i', 'p'), ('image', 'i', '')],
            list(profiles.keys(project='p', application='web',
                               flavors=['m1', '42'], image='i')))

    def test_what_an_instance_does_not_have(self) -> None:
        self.assertEqual([('image', 'i', '')],
                         list(profiles.keys(project='', flavors=['', ''],
                                            image='i')))
        self.assertEqual([], list(profiles.keys(project='p')))


class Together(testtools.TestCase):

    def test_nothing(self) -> None:
        self.assertEqual(({}, {}), profiles.together([]))
        self.assertEqual(({}, {}), profiles.together([({}, {})]))

    def test_a_workload_does_not_disturb_itself(self) -> None:
        alone = {'tlb': 0.25}, {'tlb': 1.0}
        self.assertEqual(alone, profiles.together([alone]))

    def test_several(self) -> None:
        """What they cause adds up; each has room left beside the others."""
        self.assertEqual(
            ({'tlb': 0.25, 'l1i': 0.5}, {'tlb': 0.75, 'l1d': 0.125}),
            profiles.together([
                ({'tlb': 0.75}, {'tlb': 0.25}),
                ({'tlb': 1.0, 'l1i': 0.5}, {'tlb': 0.5}),
                ({}, {'l1d': 0.125})]))

    def test_never_above_1_or_below_0(self) -> None:
        loud = {'tlb': 0.5}, {'tlb': 0.875}
        self.assertEqual(({'tlb': 0.0}, {'tlb': 1.0}),
                         profiles.together([loud, loud]))


SIDES = st.dictionaries(st.sampled_from(SOI_NAMES[:4]), st.floats(0.0, 1.0))
PROFILES = st.tuples(SIDES, SIDES)
SEVERAL = st.lists(PROFILES, max_size=5)


class Properties(testtools.TestCase):

    @given(SEVERAL)
    def test_it_is_a_profile_again(self, several: list[Sides]) -> None:
        for side, values in enumerate(profiles.together(several)):
            self.assertEqual({name for each in several for name in each[side]},
                             {*values})
            self.assertTrue(all(0 <= value <= 1 for value in values.values()))

    @given(SEVERAL, PROFILES)
    def test_more_residents_cause_more_and_tolerate_less(
            self, several: list[Sides], more: Sides) -> None:
        before, after = (profiles.together(each) for each in (
            several, [*several, more]))
        for name, value in before[1].items():
            self.assertLessEqual(value, after[1][name] + CLOSE)
        for name, value in before[0].items():
            self.assertLessEqual(after[0][name], value + CLOSE)

    @given(SEVERAL, st.data())
    def test_the_order_does_not_matter(
            self, several: list[Sides], data: st.DataObject) -> None:
        other: Sequence[Sides] = data.draw(st.permutations(several))
        for one_side, other_side in zip(profiles.together(several),
                                        profiles.together(other),
                                        strict=True):
            for name, value in one_side.items():
                self.assertAlmostEqual(value, other_side[name], delta=CLOSE)

    @given(SEVERAL)
    def test_what_is_left_is_left_to_each(self, several: list[Sides]
                                          ) -> None:
        """Computed again from each pair."""
        for name, left in profiles.together(several)[0].items():
            least = min(
                resident[0][name] - sum(
                    other[1][name] for place, other in enumerate(several)
                    if place != number and name in other[1])
                for number, resident in enumerate(several)
                if name in resident[0])
            self.assertAlmostEqual(max(0.0, least), left, delta=CLOSE)

    @given(PROFILES, PROFILES)
    def test_harm_is_the_part_of_the_distance_that_hurts(
            self, newcomer: Sides, residents: Sides) -> None:
        """Without the slack, which is what is tolerated and not caused."""
        harm = profiles.harm(profiles.levels(*newcomer),
                             profiles.levels(*residents))
        self.assertLessEqual(0.0, harm)
        slack = distance = 0.0
        for (tolerated, _), (_, caused) in ((newcomer, residents),
                                            (residents, newcomer)):
            distance += profiles.distance(tolerated, caused)
            slack += sum(max(0.0, tolerated[name] - caused[name])
                         for name in tolerated.keys() & caused.keys())
        self.assertAlmostEqual(distance - slack, harm, delta=CLOSE)
