# SPDX-License-Identifier: Apache-2.0

"""Reports as they arrive, also of agents of a later release."""

from __future__ import annotations

from typing import get_args

import msgspec

from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire
from scavenger_openstack.wire.texts import Word

TYPES = frozenset(kind.__struct_config__.tag
                  for kind in get_args(wire.AnyEntry))


class _Head(wire.Wire, frozen=True):
    """What entries of all types have."""

    type: Word
    sequence: wire.Sequence
    time_s: wire.Time


def report(data: bytes) -> wire.Report:
    """Return a report; an entry of a type that is not known here becomes a
    :class:`.report.OtherEntry`, so that it is acknowledged.

    :raises WireError: it is longer than :data:`.report.MAX_REPORT_BYTES`, or
        not of its type; the message names the field.
    """
    try:
        return codec.decode(data, wire.Report, wire.MAX_REPORT_BYTES)
    except errors.WireError:
        known = _without_others(data)
        if known is None:
            raise
    return codec.decode(known, wire.Report, wire.MAX_REPORT_BYTES)


def _without_others(data: bytes) -> bytes | None:
    """Return the report with :class:`.report.OtherEntry`, ``None`` if it has
    no entry of a type that is not known here."""
    try:
        fields = codec.decode(data, dict[str, msgspec.Raw],
                              wire.MAX_REPORT_BYTES)
        entries = codec.decode(bytes(fields.get('entries', b'')),
                               list[msgspec.Raw], wire.MAX_REPORT_BYTES)
    except errors.WireError:
        return None
    known = [_known(bytes(entry)) for entry in entries]
    if known == entries:
        return None
    return codec.encode({**fields, 'entries': known})


def _known(data: bytes) -> msgspec.Raw:
    try:
        head = codec.decode(data, _Head, wire.MAX_REPORT_BYTES)
    except errors.WireError:
        return msgspec.Raw(data)
    if head.type in TYPES:
        return msgspec.Raw(data)
    return codec.encoded_part(wire.OtherEntry(
        sequence=head.sequence, time_s=head.time_s, entry_type=head.type))
