# SPDX-License-Identifier: Apache-2.0

"""The buffer of idle CPUs beside VMs, for real: in a guest with eight CPUs,
cgroup v2 and this machine's libvirt."""

from __future__ import annotations

import sys

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_libvirt
from scavenger_openstack.tests.functional import guest_vms
from scavenger_openstack.tests import tiers

GUEST = guest.Guest(
    tests=(f'{guest_vms.__name__}.buffer',), cpus='8',
    memory_bytes=2560 * 2**20, deadline_s=1800,
    programs={'usr/bin/idle_observer':
              guest.HERE / 'guest_vms/idle_observer.c'},
    more=guest_libvirt.files)


@tiers.only_in_all('libvirt starts in there, which takes minutes')
@guest.reports(GUEST)
class TestGuestVms(guest.GuestCase):
    """Each method is a test in ``guest_vms/``."""


if __name__ == '__main__':
    sys.exit(guest.show(GUEST))
