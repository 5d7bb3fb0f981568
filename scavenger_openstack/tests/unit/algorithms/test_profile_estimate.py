# SPDX-License-Identifier: Apache-2.0

"""Profiles that are estimated from incidents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import testtools

from scavenger_openstack.algorithms import profile_estimate
from scavenger_openstack.algorithms.profile_estimate import Target
from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.grounds import THE_HOST
from scavenger_openstack.wire.profile import SOI_NAMES

SHOP = Target('application', 'shop', 'p1')
BATCH = Target('application', 'batch', 'p2')
SMALL = Target('flavor', 'small', '')


def direct(workload: str, share: float, **more: Any) -> Ground:
    return Ground(workload, GroundKind.DIRECT, share,
                  **{'waited_s': 1.0, 'window_s': 2.0, **more})


def incident(*grounds: Ground, value: float = 0.4, cores: Sequence[
             float | None] = (1.0, 2.0), levels: Sequence[float | None] = (
                 0.4, 0.4), **more: Any) -> profile_estimate.Incident:
    """One of ``web`` of the shop, on 4 CPUs, that waits for CPUs."""
    fields: dict[str, Any] = {
        'cause': 'core', 'victim': 'web', 'signal': 'run_delay',
        'value': value, 'threshold': 0.2,
        'grounds': grounds or (direct('hog', 0.5),),
        'evidence': [
            profile_estimate.Series('web', 'run_delay', levels),
            profile_estimate.Series('hog', 'cpu_cores', cores)],
        'capacity': {'cpu': 4.0, 'network': 1e8},
        'targets': {'web': [SHOP, SMALL], 'hog': [BATCH],
                    'other': [BATCH]}, **more}
    return profile_estimate.Incident(**fields)


class TestEstimate(testtools.TestCase):

    def one(self, *incidents: profile_estimate.Incident, target: Target
            ) -> profile_estimate.Estimated:
        return profile_estimate.estimate(incidents)[target]

    def test_what_antagonists_caused(self) -> None:
        """The victims' losses, and how much of these it held."""
        found = self.one(*(incident(value=value) for value in (
            0.2, 0.4, 0.8)), target=BATCH)
        self.assertEqual(
            {'integer': Estimate(0.2, 0.1, 0.4)}, found.profile.caused)
        self.assertEqual({}, found.profile.tolerated)
        self.assertEqual(3, found.incidents)

    def test_what_victims_tolerated(self) -> None:
        """The least use of others beside which they suffered."""
        found = self.one(*(incident(cores=cores) for cores in (
            (1.0, 1.0), (2.0, 3.0), (4.0, 4.0))), target=SHOP)
        self.assertEqual(
            {'integer': Estimate(0.25, 0.25, 0.625)},
            found.profile.tolerated)
        self.assertEqual({}, found.profile.caused)

    def test_no_host_decides_for_the_others(self) -> None:
        many = profile_estimate.MOST_OF_HOST
        found = self.one(
            *[incident(value=0.8, host=1)] * 100,
            *[incident(value=0.4, host=2)] * many,
            *[incident(value=0.4, host=3)] * many, target=BATCH)
        self.assertEqual({'integer': Estimate(0.2, 0.2, 0.4)},
                         found.profile.caused)
        self.assertEqual(3 * many, found.incidents)
        # Of each cause so many.
        found = self.one(*[incident()] * 100, *[incident(cause='cache')] * 3,
                         target=BATCH)
        self.assertIn('llc_capacity', found.profile.caused)

    def test_use_while_nothing_suffered_does_not_count(self) -> None:
        found = self.one(*[incident(cores=(0.4, 2.0, 3.0, None), levels=(
            0.1, 0.3, None, 0.9))] * 3, target=SHOP)
        self.assertEqual(0.5, found.profile.tolerated['integer'].low)

    def test_each_flavor_and_application(self) -> None:
        found = profile_estimate.estimate([incident()] * 3)
        self.assertEqual({SHOP, SMALL, BATCH}, set(found))
        self.assertEqual(found[SHOP], found[SMALL])

    def test_two_of_one_application_add_up(self) -> None:
        found = self.one(*[incident(
            direct('hog', 0.5), direct('other', 0.25))] * 3, target=BATCH)
        self.assertAlmostEqual(0.3, found.profile.caused['integer'].value)

    def test_few_incidents_are_no_estimate(self) -> None:
        self.assertEqual({}, profile_estimate.estimate(
            [incident()] * (profile_estimate.ENOUGH - 1)))

    def test_what_is_missing_has_a_reason(self) -> None:
        found = self.one(
            *[incident()] * 3, incident(cause='disk', signal='io_wait'),
            target=BATCH)
        self.assertEqual(
            set(SOI_NAMES) - {'integer'},
            set(found.missing))
        self.assertIn('1', found.missing['storage_bandwidth'])
        self.assertNotEqual(found.missing['l1i'],
                            found.missing['storage_bandwidth'])

    def test_nothing_without_evidence(self) -> None:
        """A correlation is no amount; the host has no profile; other causes
        are no other workload."""
        for none in (
                incident(Ground('hog', GroundKind.TIMING, 0.9)),
                incident(direct(THE_HOST, 0.9), evidence=[]),
                incident(cause='own_limit'), incident(cause='unknown')):
            self.assertEqual({}, profile_estimate.estimate([none] * 3))

    def test_capacity_that_is_not_known(self) -> None:
        found = profile_estimate.estimate([incident(capacity={})] * 3)
        self.assertEqual({BATCH}, set(found))

    def test_the_newest_count(self) -> None:
        found = self.one(
            *[incident(value=0.4)] * profile_estimate.MOST,
            *[incident(value=0.9)] * 50, target=BATCH)
        self.assertEqual(0.2, found.profile.caused['integer'].high)

    def test_every_cause_has_sources(self) -> None:
        names = set(SOI_NAMES)
        for sois in profile_estimate.SOIS_OF.values():
            self.assertTrue(names.issuperset(sois))


class TestParts(testtools.TestCase):

    def test_an_experiment_shows_by_how_much(self) -> None:
        parts = profile_estimate.held_parts([Ground(
            'hog', GroundKind.EXPERIMENT, before=0.8, after=0.2)])
        self.assertEqual({'hog': 0.75}, {
            name: round(part, 9) for name, part in parts.items()})

    def test_the_strongest_counts(self) -> None:
        grounds = [direct('hog', 0.3), Ground(
            'hog', GroundKind.EXPERIMENT, before=0.8, after=0.2)]
        for some in (grounds, grounds[::-1]):
            self.assertEqual({'hog': 0.3}, profile_estimate.held_parts(some))

    def test_odd_numbers(self) -> None:
        parts = profile_estimate.held_parts([
            direct('a', 1.5), direct('b', float('nan')),
            direct('c', -0.5), Ground('d', GroundKind.DIRECT),
            Ground('e', GroundKind.EXPERIMENT, before=0.0, after=1.0)])
        self.assertEqual({'a': 1.0, 'c': 0.0}, parts)


class TestLoss(testtools.TestCase):

    def test_shares_are_losses(self) -> None:
        self.assertEqual(0.4, profile_estimate.loss('run_delay', 0.4, 0.1))
        self.assertEqual(1.0, profile_estimate.loss('run_delay', 3.0, 0.1))

    def test_times_are_compared_with_the_threshold(self) -> None:
        self.assertEqual(0.75, profile_estimate.loss('io_wait', 0.04, 0.01))
        self.assertEqual(0.0, profile_estimate.loss('io_wait', 0.005, 0.01))

    def test_not_known(self) -> None:
        for value, threshold in ((None, 0.1), (float('nan'), 0.1),
                                 (0.1, None), (0.1, 0.0),
                                 (float('inf'), 0.1)):
            self.assertIsNone(profile_estimate.loss(
                'cpi', value, threshold))


class TestUse(testtools.TestCase):

    def test_a_disk_by_the_time_that_it_was_held(self) -> None:
        for waited_s, use in ((1.0, 0.25), (8.0, 0.5)):
            self.assertEqual((use, use), profile_estimate.use_of_others(
                incident(direct('hog', 0.5, waited_s=waited_s),
                         direct('web', 0.5), cause='disk',
                         signal='io_wait')))

    def test_a_cache_by_the_misses(self) -> None:
        self.assertEqual((0.75, 0.75), profile_estimate.use_of_others(
            incident(direct('hog', 0.5), direct('other', 0.25),
                     cause='cache', signal='cpi')))

    def test_nothing_says_it_of_memory(self) -> None:
        self.assertIsNone(profile_estimate.use_of_others(
            incident(cause='memory', signal='memory_wait')))
