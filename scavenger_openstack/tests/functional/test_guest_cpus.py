# SPDX-License-Identifier: Apache-2.0

"""CPUs that go offline and come back, for real: in a guest with eight."""

from __future__ import annotations

import sys

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_cpus
from scavenger_openstack.tests import tiers

GUEST = guest.Guest(tests=(f'{guest_cpus.__name__}.changes',),
                    cpus='8,sockets=2,cores=2,threads=2', deadline_s=1500)


@tiers.only_in_all('random changes of CPUs run in unit tests')
@guest.reports(GUEST)
class TestGuestCpus(guest.GuestCase):
    """Each method is a test in ``guest_cpus/``."""


if __name__ == '__main__':
    sys.exit(guest.show(GUEST))
