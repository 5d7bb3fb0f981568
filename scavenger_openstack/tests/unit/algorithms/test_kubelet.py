# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import testtools

from scavenger_openstack.algorithms import kubelet


class KubeletTest(testtools.TestCase):

    def test_by_name(self) -> None:
        for name, expected in (
                ('/kubepods', True), ('/kubepods.slice', True),
                ('/kubepods/burstable', True), ('/kubepods/podab', False),
                ('/kubepods.slice/kubepods-besteffort.slice', True),
                ('/kubepods.slice/kubepods-podab.slice', False),
                ('/kubepods.slice/kubepods-besteffort.slice/'
                 'kubepods-besteffort-podab.slice', False),
                ('/kubelet.slice/kubelet-kubepods.slice', True),
                ('/batch', False), ('/besteffort', False),
                ('/kubepods/besteffort/podab', False)):
            self.assertEqual(expected, kubelet.is_of_kubelet(name), name)
