# SPDX-License-Identifier: Apache-2.0


"""What a run of a domain held before us, and what it holds by us."""

from __future__ import annotations

from scavenger_openstack.drivers.libvirt.metadata import Values
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

NOT_OURS = 'without a lease: it is being removed'


def foreign(name: str, knob: Knob) -> errors.DriverError:
    """What to raise of a knob with a record of ours that we did not make."""
    return errors.DriverError(
        f'domain {name} came with a limit on {knob} {NOT_OURS}')


class OwnedKnob:
    """A knob of ours: what libvirt held before us, and what we set."""

    __slots__ = ('identity', 'original', 'ours', 'tried')

    def __init__(self, identity: tuple[object, ...], original: Values
                 ) -> None:
        self.identity = identity
        self.original = original
        self.ours: Values | None = None
        self.tried: Values = {}     # it may have come into force

    def look(self, now: Values) -> None:
        """What another program set is the original from now on."""
        if self.ours is None:
            self.original = now
        elif now != self.ours:
            self.original = {
                key: self.original.get(key, text)
                if text in (self.ours.get(key), self.tried.get(key))
                else text for key, text in now.items()}
