# SPDX-License-Identifier: Apache-2.0

"""Where a listing goes on: the last row of a page, as an opaque text."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from scavenger_openstack.api import faults


MOST = 2 ** 63 - 1
"""No number in a marker, and no id, is larger."""


def write(noun: str, key: list[Any]) -> str:
    text = json.dumps([noun, *key], separators=(',', ':'))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip('=')


def read(text: str, noun: str, kinds: list[type]) -> list[Any]:
    """Return what :func:`write` was given for that noun.

    :param kinds: the types in it
    :raises Fault: 400, it is of another listing, or no marker at all.
    """
    try:
        data = base64.b64decode(text + '=' * (-len(text) % 4),
                                altchars=b'-_', validate=True)
        marker_noun, *key = json.loads(data)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise _wrong() from None
    if marker_noun != noun or [type(part) for part in key] != kinds or not all(
            0 <= part <= MOST if isinstance(part, int)
            else part.isprintable() for part in key):
        raise _wrong()
    return key


def _wrong() -> faults.Fault:
    return faults.bad('marker is not of this listing.', 'marker',
                      'what "next" of the page before was')
