# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms import classify


class KubeletTest(testtools.TestCase):

    def test_by_name(self) -> None:
        for name, expected in (
                ('/kubepods', True), ('/kubepods.slice', True),
                ('/kubepods/burstable', True), ('/kubepods/podab', False),
                ('/kubepods.slice/kubepods-besteffort.slice', True),
                ('/kubepods.slice/kubepods-podab.slice', False),
                ('/kubepods.slice/kubepods-besteffort.slice/'
                 'kubepods-besteffort-podab.slice', False),
                ('/classify.slice/kubelet-kubepods.slice', True),
                ('/batch', False), ('/besteffort', False),
                ('/kubepods/besteffort/podab', False)):
            self.assertEqual(expected, classify.is_of_kubelet(name), name)
