# SPDX-License-Identifier: Apache-2.0

"""Times as people type and read them.

A time in the API is ISO 8601 text in UTC; here it is UNIX time in seconds.
"""

from __future__ import annotations

import argparse
import datetime
import time

HOW = ('a duration (90s, 30m, 2h, 3d, 1w, 1h30m) or an ISO 8601 time, in UTC '
       'unless it has an offset (2026-11-23, 2026-11-23T10:00, '
       '2026-11-23T10:00+02:00)')
"""For the help of options."""


def since(text: str) -> str:
    """An argument: that long ago, or a time; as the API takes it.

    :raises argparse.ArgumentTypeError: it is neither.
    """
    return _argument(text, time.time(), -1)


def until(text: str) -> str:
    """An argument: in that time from now, or a time; as the API takes it.

    :raises argparse.ArgumentTypeError: it is neither.
    """
    return _argument(text, time.time(), +1)


def _argument(text: str, now: float, sign: int) -> str:
    try:
        return iso(point(text, now=now, sign=sign))
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f'{text!r} is neither a duration such as 30m, 2h or 3d nor an '
            'ISO 8601 time such as 2026-11-23T10:00') from None


def point(text: str, *, now: float, sign: int) -> float:
    """The time that a text means.

    :param sign: -1 when a duration means that long ago, +1 from now
    :raises ValueError: it is neither a duration nor a time.
    """
    from scavenger_openstack.command_line import duration_s
    seconds = duration_s(text)
    return parse(text) if seconds is None else now + sign * seconds


def parse(text: str) -> float:
    """Return the UNIX time of ISO 8601 text; see :func:`.text.time_s`."""
    from scavenger_openstack.text import time_s
    return time_s(text)


def iso(time_s: float) -> str:
    """Return a time as the API takes it: ``2026-11-23T10:00:00Z``.

    :raises ValueError: it is out of the calendar.
    """
    return _utc(time_s).strftime('%Y-%m-%dT%H:%M:%SZ')


def clock(time_s: float) -> str:
    """``10:00:00``, in UTC."""
    return _utc(time_s).strftime('%H:%M:%S')


def date(time_s: float) -> str:
    """``2026-11-23``, in UTC."""
    return _utc(time_s).strftime('%Y-%m-%d')


def _utc(time_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC)


def human(text: object) -> str:
    """A time of the API in a table: ``2026-11-23 10:00:00``, in UTC."""
    try:
        time_s = parse(str(text))
    except ValueError:
        return str(text)
    return f'{date(time_s)} {clock(time_s)}'
