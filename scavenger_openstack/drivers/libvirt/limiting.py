# SPDX-License-Identifier: Apache-2.0


"""Setting a limit of a domain: its record first, then all of it or nothing."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import contextlib

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import handle as domain_handle
from scavenger_openstack.drivers.libvirt import knobs
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt.metadata import Values
from scavenger_openstack import errors
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Knob


def original(seen: Snapshot, knob: Knob, state: base.KnobState
             ) -> dict[str, str]:
    """What a knob held before us, by its lease: of the disks that libvirt can
    limit, and without a quota as all versions of libvirt know it."""
    return {key: '-1' if text == str(grammar.FREE_QUOTA_US) else text
            for key, text in state.original.actions[0]['values'].items()
            if knobs.part(knob, key) not in seen.unlimited}


def is_recorded(seen: Snapshot, knob: Knob, state: base.KnobState) -> bool:
    """Whether the record in the domain says what the lease does."""
    values = seen.records.get(knob)
    # Most are the very same, and this is asked in each tick.
    return (values == state.original.actions[0]['values']
            or values == original(seen, knob, state))


def record(handle: domain_handle.Handle, knob: Knob, values: Values) -> None:
    """Have the domain itself say what a knob held before us.

    :raises DriverError: libvirt does not take it.
    """
    handle.set_record(metadata.uri(knob), metadata.KEY,
                      metadata.build(knob, values))


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
