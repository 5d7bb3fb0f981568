# SPDX-License-Identifier: Apache-2.0

"""Times that hosts report: some have clocks that are wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.wire.report import AnyEntry

SLACK_S = 60.0
"""So far apart two clocks may be."""

OLDEST_S = 90 * DAY_S
"""No agent keeps what happened for longer: then it was another clock."""


def agreed_s(now: float, last_seen_s: float, sent_s: float) -> float:
    """The time of a report: that of this conductor, but for one whose clock
    is behind, as another conductor and the host both say.  What it stores
    otherwise is deleted as old by the others.

    :param last_seen_s: when a conductor stored the report before
    :param sent_s: by the clock of the host
    """
    return max(now, min(last_seen_s, sent_s))


def moved_s(time_s: float, now: float, sent_s: float) -> float:
    """Return by how much a time of a host has to be moved to be possible: 0,
    what makes it ``now``, or what the host's clock is far behind.  Durations
    stay what they are.

    :param sent_s: when the report was sent by the clock of the host
    """
    if not now - OLDEST_S <= time_s <= now + SLACK_S:
        return now - time_s
    return now - sent_s if time_s <= sent_s < now - FAR_S else 0.0


FAR_S = 7 * DAY_S
"""No report is on its way for so long: then the clock of its host is behind,
and what is not later than the report has its time from that clock."""


class Timed(NamedTuple):
    """An entry, when it happened, and by how much its other times have to be
    moved."""

    entry: AnyEntry
    time_s: float
    moved_s: float


def timed(entries: Iterable[AnyEntry], last_s: float, now: float,
          sent_s: float) -> list[Timed]:
    """Return the entries of one run with times that follow their order: a
    clock that was set back between two of them says that the later one was
    earlier.

    :param entries: in the order of their sequence
    :param last_s: when what came before them happened
    :param sent_s: see :func:`moved_s`
    """
    in_order = []
    for entry in entries:
        moved = moved_s(entry.time_s, now, sent_s)
        # What was recorded by a clock that was ahead keeps nothing back.
        last_s = max(entry.time_s + moved, min(last_s, now))
        in_order.append(Timed(entry, last_s, moved))
    return in_order


def is_newer(time_s: float, than_s: float, now: float) -> bool:
    """Return whether an entry is not older than the row that it may change:
    the row may be of a clock that was ahead."""
    return time_s >= min(than_s, now)


def offset_s(sent_s: float, now: float) -> float:
    """Return how far a host's clock is ahead, 0 when it is about right."""
    offset = sent_s - now
    return offset if abs(offset) > SLACK_S else 0.0
