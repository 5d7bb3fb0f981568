# SPDX-License-Identifier: Apache-2.0

"""Profiles that are estimated from incidents of simulated hosts, of which the
truth is known."""

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms import profile_estimate
from scavenger_openstack.algorithms.profile_estimate import Target
from scavenger_openstack.laboratory import catalogue
from scavenger_openstack.laboratory import detection

SEEDS = (1, 2, 3)


class Simulated(testtools.TestCase):

    def test_the_antagonist_causes_most(self) -> None:
        """And what else runs there is not blamed for it."""
        [scenario] = catalogue.find(['cpu-antagonist'])
        found: dict[str, profile_estimate.Incident] = {}
        for seed in SEEDS:
            drawn = scenario.draw(seed)
            roles = {tenant.id: tenant.role if
                     tenant.role == detection.ANTAGONIST
                     else str(tenant.priority) for tenant in drawn.tenants}
            detector = attribution.Controller(
                interval_s=drawn.interval_s, host=f'host-{seed}')
            run = detection.play(drawn, drawn.tenants, detector)
            for decision in run.decisions:
                for incident in decision.incidents:
                    found[incident.id] = profile_estimate.Incident(
                        incident.cause, incident.victim, incident.signal,
                        incident.value, incident.threshold, incident.grounds,
                        (), {}, {name: [Target('application', role, '')]
                                 for name, role in roles.items()}, seed)
        self.assertGreaterEqual(len(found), profile_estimate.ENOUGH)
        caused = {target.target: estimated.profile.caused['integer']
                  for target, estimated in profile_estimate.estimate(
                      found.values()).items()
                  if 'integer' in estimated.profile.caused}
        antagonist = caused.pop(detection.ANTAGONIST)
        self.assertGreater(antagonist.value, 0.1)
        for estimate in caused.values():
            self.assertGreater(antagonist.value, estimate.value)
