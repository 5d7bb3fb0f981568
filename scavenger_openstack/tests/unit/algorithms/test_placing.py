# SPDX-License-Identifier: Apache-2.0

"""Which hosts take an instance, and which are better."""

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms import placing
from scavenger_openstack.algorithms.placing import Host

MIB = 2.0 ** 20
FREE = Host(silent=False, free_cores=4.0, free_bytes=2048 * MIB, cores=8.0)
WANTED = placing.Wanted(background=True, vcpus=4, memory_mib=2048)


class Fits(testtools.TestCase):

    def test_just(self) -> None:
        self.assertEqual('', placing.fits(FREE, WANTED))

    def test_why_not(self) -> None:
        for host, why in (
                (None, 'no agent has reported'),
                (FREE._replace(silent=True), 'silent'),
                (FREE._replace(enforcing=False), 'no limits'),
                (FREE._replace(free_cores=None), 'not known'),
                (FREE._replace(free_bytes=None), 'not known'),
                (FREE._replace(free_cores=3.9), '3.9 cores is less than 4'),
                (FREE._replace(free_bytes=2047 * MIB),
                 '2047 MiB is less than 2048 MiB')):
            self.assertIn(why, placing.fits(host, WANTED))


class Weight(testtools.TestCase):

    def test_better_and_worse(self) -> None:
        """Each list from the best host to the worst."""
        for background, hosts in (
                (False, (FREE, FREE._replace(background_vcpus=2.0),
                         FREE._replace(background_vcpus=80.0, incidents=0),
                         FREE._replace(background_vcpus=80.0, incidents=1))),
                (True, (FREE._replace(free_cores=8.0), FREE,
                        FREE._replace(free_cores=0.0),
                        FREE._replace(incidents=3),
                        FREE._replace(free_cores=0.0, incidents=1)))):
            weights = [placing.weight(host, background) for host in hosts]
            self.assertEqual(sorted(weights, reverse=True), weights)
            self.assertLess(weights[-1], weights[0])
            self.assertTrue(all(-2 <= one <= 1 for one in weights), weights)

    def test_nothing_known(self) -> None:
        for host in (None, FREE._replace(silent=True, incidents=5), Host()):
            for background in (True, False):
                self.assertEqual(0.0, placing.weight(host, background))
