# SPDX-License-Identifier: Apache-2.0

"""The page of operators, whatever its API does."""

from __future__ import annotations

import time

from django import urls

from scavenger_openstack.tests.unit.dashboard import cloud

INDEX = urls.reverse('horizon:admin:interference:index')
TABS = ('overview', 'incidents', 'antagonists', 'limits', 'hosts')


class Page(cloud.TestCase):

    def test_slow(self) -> None:
        self.api.delay_s = 4
        for tab in TABS:
            begun_s = time.monotonic()
            answer = self.client.get(INDEX, {'tab': f'interference__{tab}'})
            self.assertLess(time.monotonic() - begun_s, 3.5)
            self.assertContains(answer, 'did not answer within 2 s')
