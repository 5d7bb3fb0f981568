# SPDX-License-Identifier: Apache-2.0

"""Pins that no host can have."""

from __future__ import annotations

import resource

import testtools

from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import domain


class Bounds(testtools.TestCase):

    def refused(self, text: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        exc = self.assertRaises(errors.DriverError, xml.parse, text)
        self.assertIn('at most', str(exc))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        self.assertLess(grown, 64 * 1024)       # KiB

    def test_more_vcpus_than_there_can_be(self) -> None:
        for vcpus in ('4294967295', '30000000', '999999999999999999'):
            for vcpu in (f'<vcpu>{vcpus}</vcpu>',
                         f"<vcpu current='{vcpus}'>2</vcpu>"):
                for pin in ('', "<vcpupin vcpu='0' cpuset='0'/>"):
                    self.refused(domain(
                        vcpu=vcpu, tune=f'<cputune>{pin}</cputune>'))

    def test_more_pins_than_a_host_has(self) -> None:
        """Each of many pins is another large set."""
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{vcpu}-65535'/>"
                         for vcpu in range(400))
        self.refused(domain(vcpu='<vcpu>400</vcpu>',
                            tune=f'<cputune>{pinned}</cputune>'))

    def test_as_many_as_there_may_be(self) -> None:
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{vcpu}-511'/>"
                         for vcpu in range(512))
        one = xml.parse(domain(vcpu='<vcpu>512</vcpu>',
                               tune=f'<cputune>{pinned}</cputune>'))
        self.assertEqual(512, len(one.allowed_cpus or ()))
        # As many as they are, they are one set.
        pinned = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='0-65535'/>"
                         for vcpu in range(4000))
        one = xml.parse(domain(vcpu='<vcpu>4000</vcpu>',
                               tune=f'<cputune>{pinned}</cputune>'))
        self.assertEqual(65536, len(one.allowed_cpus or ()))
