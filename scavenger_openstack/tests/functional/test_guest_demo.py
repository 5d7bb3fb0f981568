# SPDX-License-Identifier: Apache-2.0

"""The demo where cgroup v2 is all there is: a guest."""

from __future__ import annotations

import dataclasses
import sys

from scavenger_openstack.demo import service
from scavenger_openstack.ibench import build
from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_v2
from scavenger_openstack.tests import tiers

TESTS = ('demo',)

GUEST = guest.Guest(
    tests=tuple(f'{guest_v2.__name__}.{name}' for name in TESTS),
    memory_bytes=2 * 2**30, deadline_s=2400,
    programs={f'opt/programs/{sources.name}': sources
              for sources in (service.SOURCES, build.SOURCES)})


@tiers.only_in_all('the short demo runs on this machine')
@guest.reports(GUEST)
class TestGuestDemo(guest.GuestCase):
    """Each method is a test in ``guest_v2/``, where its docstring is."""


if __name__ == '__main__':
    sys.exit(guest.show(dataclasses.replace(GUEST, tests=tuple(
        f'{guest_v2.__name__}.{name}' for name in sys.argv[1:] or TESTS))))
