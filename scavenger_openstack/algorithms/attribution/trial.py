# SPDX-License-Identifier: Apache-2.0


"""Whether a cap helped: every cap of a detector is on trial first.

Source: DESIGN 6 (measured precision); CPI2, section 7.2, which calls an
antagonist a true one when capping it lowers the victim's CPI by more than
a standard deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import enum


class TrialOutcome(enum.StrEnum):
    """The outcome of a cap; the words that an incident's outcome uses."""

    CONFIRMED = 'confirmed'
    REFUTED = 'refuted'
    UNCLEAR = 'unclear'


def verdict(before: float, after: Sequence[float],
            stddev: float) -> TrialOutcome:
    """Judge a cap by the victim's signal, in any unit.

    :param before: the signal when the cap was set
    :param after: the samples since then
    :param stddev: of the undisturbed signal
    """
    better = before - sum(after) / len(after)
    if better > stddev:
        return TrialOutcome.CONFIRMED
    return TrialOutcome.REFUTED if -better > stddev else TrialOutcome.UNCLEAR


@dataclasses.dataclass(slots=True)
class Tally:
    """The counts of caps by outcome."""

    confirmed: int = 0
    refuted: int = 0
    unclear: int = 0

    def add(self, outcome: TrialOutcome) -> None:
        setattr(self, outcome, getattr(self, outcome) + 1)

    @property
    def precision(self) -> float | None:
        """Confirmed over confirmed and refuted; ``None`` without any."""
        judged = self.confirmed + self.refuted
        return self.confirmed / judged if judged else None


class Trial:
    """One cap that is being tried.

    :param samples: the signal is watched for so many
    """

    def __init__(self, before: float, stddev: float, samples: int) -> None:
        self._before = before
        self._stddev = stddev
        self._wanted = samples
        self._after: list[float] = []

    def add(self, value: float) -> TrialOutcome | None:
        """Take the next sample; the verdict once there are enough."""
        self._after.append(value)
        if len(self._after) < self._wanted:
            return None
        return verdict(self._before, self._after, self._stddev)
