# SPDX-License-Identifier: Apache-2.0

"""The foreground workloads whose use is in the sum that a reserve learns."""

from __future__ import annotations

from collections.abc import Iterable
import dataclasses
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.types import RunKey

Use = tuple[RunKey, float | None, float | None]
"""A run, what it uses now, what it may come to use; ``None`` if unknown."""


class Arrivals(NamedTuple):
    """The amounts by which newcomers and departures move the sum of the
    foreground.

    ``new_use``: what newcomers use, not yet part of the model.
    ``promised``: what is reserved for them.  ``shift``: by how much the
    model must move, because some grew up and others left.
    """

    new_use: float = 0.0
    promised: float = 0.0
    shift: float = 0.0


@dataclasses.dataclass(slots=True)
class _Member:
    samples: int = 0
    mean: float | None = None
    peak: float = 0.0


class Members:
    """The workloads in the sum that a :class:`Reserve` has learnt.

    A new workload is reserved its allotment (twice the most that it has
    used, if there is none) until it has ``size`` samples; then the model
    moves up by its mean.  When one leaves, the model moves down by it.  The
    mean is exponentially weighted over ``size`` samples.  Those present at
    the first look are members at once.  Source: DESIGN 7.1.
    """

    __slots__ = ('_size', '_members')

    def __init__(self, size: int) -> None:
        self._size = size
        self._members: dict[RunKey, _Member] | None = None

    def update(self, uses: Iterable[Use]) -> Arrivals:
        """Account for the workloads that are there now."""
        size = self._size
        first = self._members is None
        left = self._members or {}
        present: dict[RunKey, _Member] = {}
        new_use = promised = shift = 0.0
        for key, use, allotment in uses:
            member = left.pop(key, None)
            if member is None:
                member = _Member(size if first else 0)
            present[key] = member
            grew_up = False
            if use is not None and 0 <= use < math.inf:
                member.mean = (use if member.mean is None else member.mean
                               + (use - member.mean) * 2 / (size + 1))
                member.peak = max(member.peak, use)
                if member.samples < size:
                    member.samples += 1
                    grew_up = member.samples == size
            else:
                use = 0.0
            if grew_up:
                shift += member.mean or 0.0
            elif member.samples < size:
                new_use += use
                if allotment is None or not allotment < math.inf:
                    allotment = 2 * member.peak
                promised += max(use, allotment)
        for member in left.values():
            if member.samples >= size:
                shift -= member.mean or 0.0
        self._members = present
        return Arrivals(new_use, promised, shift)

    def state(self) -> list[list[Any]]:
        """Plain JSON values; :meth:`load` takes them back."""
        return [[*key, member.samples, member.mean, member.peak]
                for key, member in (self._members or {}).items()]

    def load(self, state: Iterable[Any]) -> None:
        """Go on from ``state``.

        :raises TypeError, ValueError: it is not a state.
        """
        self._members = {
            (str(name), float(created_s)): _Member(
                int(quantity(samples)),
                None if mean is None else quantity(mean), quantity(peak))
            for name, created_s, samples, mean, peak in state}
