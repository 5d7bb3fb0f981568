# SPDX-License-Identifier: Apache-2.0

"""Times: UNIX seconds inside, ISO 8601 in UTC outside."""

from __future__ import annotations

import datetime

from scavenger_openstack.text import iso as iso


def seconds(text: str) -> float:
    """The UNIX time of an ISO 8601 text, which is in UTC if it names no
    zone.

    :raises ValueError: it is none.
    """
    at = datetime.datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    try:
        return at.timestamp()
    except OverflowError as exc:
        raise ValueError(str(exc)) from exc
