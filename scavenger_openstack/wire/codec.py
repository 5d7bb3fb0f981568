# SPDX-License-Identifier: Apache-2.0

"""Values to JSON and back, by the types of :mod:`.report`."""

from __future__ import annotations

import json
import re
from typing import Any
from typing import TypeVar

import msgspec

from scavenger_openstack import errors
from scavenger_openstack.types import printable
from scavenger_openstack.wire import patterns

T = TypeVar('T')
S = TypeVar('S', bound=msgspec.Struct)

MESSAGE = 300
"""So much of a message: it may quote what was sent."""

MOST_DIGITS = 100
"""A longer integer is read as a float, which takes any number of digits."""

_NUL = re.compile(rb'(?<!\\)(?:\\\\)*\\u0000')
"""A character that no database takes; JSON has it in this form only."""

_CONTROL = repr(patterns.CONTROL)[1:-1]

_FAULTS = (msgspec.MsgspecError, ValueError, TypeError, OverflowError,
           RecursionError)


def encode(value: Any) -> bytes:
    """The JSON of a value; what is not of its type is not noticed.

    :raises WireError: it has no JSON, such as that of text which is not valid
        Unicode.
    """
    try:
        return msgspec.json.encode(value)
    except _FAULTS as exc:
        raise _wrong(exc) from exc


def encoded_part(value: Any) -> msgspec.Raw:
    """A part of a value that is encoded once, and then as it is.

    :raises WireError: as :func:`encode`.
    """
    return msgspec.Raw(encode(value))


def decode(data: bytes, kind: type[T], most_bytes: int) -> T:
    """The value that ``data`` holds, checked against its type.

    :raises WireError: it is longer than ``most_bytes``, or not of that type;
        the message names the field.
    """
    if len(data) > most_bytes:
        raise _too_long(data, most_bytes)
    if b'\\u0000' in data and _NUL.search(data):
        raise errors.WireError('a text has the character NUL')
    try:
        return msgspec.json.decode(data, type=kind)
    except _FAULTS as exc:
        raise _wrong(exc) from exc


def decode_part(data: bytes, kind: type[T], most_bytes: int) -> T:
    """The fields of ``kind`` in what may be no message besides: other fields
    are ignored, also where no text or number can be what they hold.

    :raises WireError: it is longer than ``most_bytes``, no JSON object, or
        these fields are not of their types.
    """
    if len(data) > most_bytes:
        raise _too_long(data, most_bytes)
    try:
        return msgspec.convert(json.loads(
            data.decode('utf-8-sig', 'replace'), strict=False,
            parse_int=_integer, object_pairs_hook=_with_sound_keys), kind)
    except _FAULTS as exc:
        raise _wrong(exc) from exc


def _with_sound_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without half surrogate pairs, which are no names of fields."""
    return {key.encode(errors='replace').decode(): value
            for key, value in pairs}


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def checked(value: msgspec.Struct, kind: Any, most_bytes: int) -> bytes:
    """The JSON of a value that the other end will take.

    :param kind: what it is there
    :raises WireError: it is not of its type or too long; a number that is not
        finite counts as none.
    """
    data = encode(value)
    decode(data, kind, most_bytes)
    return data


def replace(value: S, /, **changes: Any) -> S:
    """The value with other fields."""
    return msgspec.structs.replace(value, **changes)


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return a value as its JSON object is read: without what is at its
    default."""
    document: dict[str, Any] = msgspec.to_builtins(value)
    return document


def _too_long(data: bytes, most_bytes: int) -> errors.WireError:
    return errors.WireError(
        f'{len(data)} bytes; at most {most_bytes} are taken')


def _wrong(exc: Exception) -> errors.WireError:
    text = printable(str(exc)).replace(
        _CONTROL, 'not printable') or type(exc).__name__
    return errors.WireError(text if len(text) <= MESSAGE else
                            f'{text[:MESSAGE // 2]}...'
                            f'{text[-MESSAGE // 2:]}')
