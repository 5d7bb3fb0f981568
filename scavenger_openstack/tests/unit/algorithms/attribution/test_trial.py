# SPDX-License-Identifier: Apache-2.0


"""What a cap has proved."""

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms.attribution.trial import Tally
from scavenger_openstack.algorithms.attribution.trial import Trial
from scavenger_openstack.algorithms.attribution.trial import TrialOutcome
from scavenger_openstack.algorithms.attribution.trial import verdict


class TrialTest(testtools.TestCase):

    def test_more_than_a_stddev_counts(self) -> None:
        for after, expected in ((1.0, TrialOutcome.CONFIRMED),
                                (1.79, TrialOutcome.CONFIRMED),
                                (1.81, TrialOutcome.UNCLEAR),
                                (2.0, TrialOutcome.UNCLEAR),
                                (2.19, TrialOutcome.UNCLEAR),
                                (2.21, TrialOutcome.REFUTED)):
            self.assertEqual((after, expected),
                             (after, verdict(2.0, [after] * 3, 0.2)))

    def test_the_mean_of_the_samples_counts(self) -> None:
        trial = Trial(2.0, 0.2, 3)
        self.assertIsNone(trial.add(2.4))
        self.assertIsNone(trial.add(1.4))
        self.assertIs(TrialOutcome.CONFIRMED, trial.add(1.4))

    def test_precision(self) -> None:
        tally = Tally()
        self.assertIsNone(tally.precision)
        tally.add(TrialOutcome.UNCLEAR)
        self.assertIsNone(tally.precision)
        for outcome in (TrialOutcome.CONFIRMED,) * 3 + (TrialOutcome.REFUTED,):
            tally.add(outcome)
        self.assertEqual(0.75, tally.precision)
        self.assertEqual((3, 1, 1), (tally.confirmed, tally.refuted,
                                     tally.unclear))
