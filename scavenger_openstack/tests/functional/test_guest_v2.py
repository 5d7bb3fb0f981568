# SPDX-License-Identifier: Apache-2.0

"""cgroup v2 for real: a guest whose kernel has nothing else."""

from __future__ import annotations

import dataclasses
import sys

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_v2

TESTS = ('cpu', 'memory', 'disk', 'watched', 'egress', 'refusals', 'agent',
         'protection')


GUEST = guest.Guest(
    tests=tuple(f'{guest_v2.__name__}.{name}' for name in TESTS),
    modules=('veth', 'sch_tbf'),
    # One CPU could still be added: then "all CPUs" is not "all there are".
    cpus='3,maxcpus=4')


@guest.reports(GUEST)
class TestGuestV2(guest.GuestCase):
    """Each method is a test in ``guest_v2/``, where its docstring is."""


if __name__ == '__main__':
    sys.exit(guest.show(dataclasses.replace(GUEST, tests=tuple(
        f'{guest_v2.__name__}.{name}' for name in sys.argv[1:] or TESTS))))
