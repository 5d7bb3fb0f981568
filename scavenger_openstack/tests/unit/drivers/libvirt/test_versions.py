# SPDX-License-Identifier: Apache-2.0


from __future__ import annotations

import testtools

from scavenger_openstack.drivers.libvirt import versions


class Versions(testtools.TestCase):

    def test_as_people_write_them(self) -> None:
        for version, text in ((9_000_000, '9.0.0'), (7_002_022, '7.2.22'),
                              (11_010_003, '11.10.3'), (None, 'unknown')):
            self.assertEqual(text, versions.text(version))
        self.assertEqual(
            'libvirtd 9.0.0, libvirt library 10.1.0, QEMU unknown',
            str(versions.Versions(10_001_000, 9_000_000, None)))


class NoQuota(testtools.TestCase):

    def test_by_version(self) -> None:
        """libvirt 8.x writes -1 into cpu.max as it is."""
        free = 17592186044415
        for daemon, cgroup_version, wanted in (
                (8_000_000, 2, free), (8_003_000, 2, free),
                (8_010_000, 2, free), (None, 2, free),
                (9_000_000, 2, -1), (10_000_000, 2, -1),
                (8_000_000, 1, -1), (9_000_000, 1, -1), (None, 1, -1),
                (8_000_000, None, -1)):
            self.assertEqual(
                wanted, versions.no_quota_us(daemon, cgroup_version),
                f'{daemon} on cgroup v{cgroup_version}')
