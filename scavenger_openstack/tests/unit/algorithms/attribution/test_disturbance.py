# SPDX-License-Identifier: Apache-2.0

"""What a disturbance keeps of antagonists that come and go."""

from __future__ import annotations

import testtools

from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.algorithms.attribution.cap_cases import (
    disturbance)


class NamedTest(testtools.TestCase):

    def test_nothing_is_kept_of_those_that_are_named_no_more(self) -> None:
        """Batch jobs have new names each time; a service suffers for days."""
        one = disturbance(named=())
        for number in range(100):
            newer = disturbance(named=())
            newer.named = {f'job-{number}': Ground(
                f'job-{number}', GroundKind.DIRECT, share=0.9)}
            one.learn(newer, ())
            one.clear([f'job-{number}'])
            if number % 2:
                one.forget(f'job-{number}')
        self.assertEqual(({}, {}, set()),
                         (one.named, one.active_s, one.cleared))

    def test_but_of_one_that_may_come_back(self) -> None:
        one = disturbance(named=('hog',))
        one.learn(disturbance(named=('hog',)), ())
        one.forget('hog', away=True)
        self.assertEqual(['hog'], [*one.named.keys() & one.active_s.keys()])
