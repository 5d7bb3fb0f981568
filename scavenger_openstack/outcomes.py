# SPDX-License-Identifier: Apache-2.0

"""What comes of an incident, and what that says of its end."""

from __future__ import annotations

from collections.abc import Mapping
import enum


class Outcome(enum.StrEnum):
    """What came of an incident.

    ``open``: nothing yet.  ``confirmed``, ``refuted`` and ``unclear``: of the
    last limit that was tried, whether the incident goes on or not.
    ``ended``: it ended before a limit was judged.
    """

    OPEN = 'open'
    CONFIRMED = 'confirmed'
    REFUTED = 'refuted'
    UNCLEAR = 'unclear'
    ENDED = 'ended'
    RECOMMENDED = 'recommended'


OUTCOME_OF: Mapping[bool, Mapping[str, str]] = {
    False: {Outcome.ENDED: Outcome.OPEN},
    True: {Outcome.OPEN: Outcome.ENDED}}
"""Whether an incident has ended -> the outcomes that cannot be, and what they
are then: no incident that has ended is open, and none that goes on ended."""


def outcome_of(outcome: str, *, ended: bool) -> str:
    """Return the outcome of an incident that goes on, or has ended."""
    return OUTCOME_OF[ended].get(outcome, outcome)
