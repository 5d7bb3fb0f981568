# SPDX-License-Identifier: Apache-2.0

"""Hardware counters for real: guests of another architecture, with a PMU.

QEMU emulates the PMU of an arm64 machine when its clock is made of
instructions (``-icount``): what is counted is then exactly known.
"""

from __future__ import annotations

import dataclasses
import sys

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_pmu
from scavenger_openstack.tests import tiers

TESTS = ('fresh', 'cpi', 'shared')


def with_shift(shift: int, cpus: str, *names: str,
               options: tuple[str, ...] = ()) -> guest.Guest:
    """A guest in which an instruction takes 2**shift cycles."""
    return guest.Guest(
        architecture='aarch64', cpus=cpus,
        tests=tuple(f'{guest_pmu.__name__}.{name}' for name in names),
        options=('-icount', f'shift={shift}', *options),
        append=f'pmu_shift={shift}')


GUEST = with_shift(2, '2', *TESTS)

HOST = with_shift(2, '2', 'machines', options=(
    '-machine', 'virtualization=on,gic-version=3'))
"""With KVM: it runs guests of its own, for real."""


@tiers.only_in_all('emulates a whole machine for its counters')
@guest.reports(with_shift(0, '1', 'cpi'))
class TestGuestPmu1(guest.GuestCase):
    """One cycle per instruction."""


@tiers.only_in_all('emulates a whole machine for its counters')
@guest.reports(GUEST)
class TestGuestPmu4(guest.GuestCase):
    """Four; each method is a test in ``guest_pmu/``."""


@tiers.only_in_all('emulates a whole machine for its counters')
@guest.reports(HOST)
class TestGuestPmuOfGuests(guest.GuestCase):
    """Virtual machines in the guest."""


if __name__ == '__main__':
    sys.exit(guest.show(dataclasses.replace(GUEST, tests=tuple(
        f'{guest_pmu.__name__}.{name}' for name in sys.argv[1:] or TESTS))))
