# SPDX-License-Identifier: Apache-2.0


"""What a run of a domain held before us, and what it holds by us."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import contextlib

from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt.metadata import Values
from scavenger_openstack import errors
from scavenger_openstack.restore import grammar
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
            self.original = grammar.after_change(
                self.original, now, self.ours, self.tried)

    def record(self, handle: domain_handle.Handle, knob: Knob) -> None:
        """Have the domain itself say what the knob held before us.

        :raises DriverError: libvirt does not take it.
        """
        handle.set_record(metadata.uri(knob), metadata.KEY,
                          metadata.build(knob, self.original))


def limit(handle: domain_handle.Handle, seen: Snapshot, knob: Knob,
          wanted: Values, groups: Mapping[str, str]
          ) -> dict[str, errors.Unsupported]:
    """Set a limit on all disks that can have one, or on none.

    Returns those that can have none, and why: libvirt does not even take what
    they hold.  When another fails, those before it hold again what they held.

    :param seen: what they hold now
    :raises DriverError: libvirt does not take it.
    """
    held = knobs.RULES[knob].values(seen)
    cannot: dict[str, errors.Unsupported] = {}
    done: list[Values] = []
    try:
        for disk, values in knobs.parts(knob, wanted).items():
            before = {key: held.get(key, '0') for key in values}
            try:
                knobs.apply(handle, knob, values, groups=groups)
                done.append(before)
            except errors.Unsupported as exc:
                if not disk:
                    raise
                try:
                    knobs.apply(handle, knob, before)
                except errors.Unsupported:
                    cannot[disk] = exc
                    continue
                raise
    except errors.DriverError:
        with contextlib.suppress(errors.DriverError):
            for texts in reversed(done):
                knobs.apply(handle, knob, texts)
        raise
    return cannot


def without(knob: Knob, values: Values, left_out: Collection[str]
            ) -> dict[str, str]:
    """The texts of all parts but these."""
    return {key: text for key, text in values.items()
            if knobs.part(knob, key) not in left_out}
