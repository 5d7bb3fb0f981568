# SPDX-License-Identifier: Apache-2.0


"""What to reserve for the foreground of one resource.

Scavenger, sections 4.1 to 4.3, which memory and network share: the
foreground keeps mu + c * sigma, the background may have the rest.

Letters: x is what the foreground uses now, mu and sigma its mean and sample
deviation over the last w samples, c the std-factor.  Everything is in the
unit of the resource: bytes for memory, bytes per second for a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.algorithms.window import Window

RunKey = tuple[str, float]
"""A workload and when it was made: its id alone may be used again."""

Use = tuple[RunKey, float | None, float | None]
"""A run, what it uses now, what it may come to use; ``None`` if unknown."""


def headroom(sigma: float, capacity: float, *, c: float,
             min_headroom: float) -> float:
    """What stays reserved above mu: c * sigma, but never nothing.

    A VM's memory is often constant; sigma = 0 must not mean no headroom,
    so a share of the capacity is the least.  Source: Scavenger, section
    4.1; the minimum is ours (DESIGN 7.2).
    """
    return max(c * sigma, min_headroom * capacity)


def is_low(x: float, mu: float, sigma: float, *, c: float) -> bool:
    """Below mu - c * sigma: perhaps a new phase.

    Source: Scavenger, section 4.2.
    """
    return x < mu - c * sigma


class Reserve:
    """mu and sigma of the foreground, and when they change.

    *Learning*: the first ``size`` samples make mu and sigma.  *Holding*:
    both stay, except that

    * x > mu + headroom is a violation: mu becomes x, sigma stays;
    * ``size`` samples in a row below mu - c * sigma are a new phase: both
      are computed again from the last ``size`` samples.

    Source: Scavenger, section 4.2.  "The sigma computation (the sample
    standard deviation over the last w seconds) remains unchanged" is read as:
    sigma stays; it may also mean that of the last samples.
    """

    __slots__ = ('window', 'c', 'min_headroom', 'mu', 'sigma', 'violations',
                 'low_samples')

    def __init__(self, *, c: float, size: int, min_headroom: float) -> None:
        self.window = Window(size)
        self.c = c
        self.min_headroom = min_headroom
        self.mu: float | None = None
        self.sigma: float | None = None
        self.violations = 0
        self.low_samples = 0

    @property
    def learning(self) -> bool:
        """There are no mu and sigma yet."""
        return self.mu is None

    def headroom(self, capacity: float) -> float:
        """What is kept above mu; while learning, the minimum."""
        return headroom(self.sigma or 0.0, capacity, c=self.c,
                        min_headroom=self.min_headroom)

    def observe(self, x: float, capacity: float) -> bool:
        """Take the sample of this tick; ``True`` if it is a violation."""
        if not self.window.add(x):
            return False
        mu = self.mu
        if mu is None or self.sigma is None:
            if not self.window.full:
                return False
            mu = self._model()
        elif is_low(x, mu, self.sigma, c=self.c):
            self.low_samples += 1
            if self.low_samples >= self.window.size:
                mu = self._model()
        else:
            self.low_samples = 0
        # Also of a new model: the last of its samples may stand out.
        if x > mu + self.headroom(capacity):
            self.mu = x
            self.violations += 1
            self.low_samples = 0
            return True
        return False

    def _model(self) -> float:
        # What left may have measured more than the sum ever showed of it.
        self.mu = mu = max(0.0, self.window.mean or 0.0)
        self.sigma = self.window.stddev
        self.low_samples = 0
        return mu

    def shift(self, delta: float) -> None:
        """A workload that uses ``delta`` joined the sum (left it, if < 0)."""
        self.window.shift(delta)
        if self.mu is not None:
            self.mu = max(0.0, self.mu + delta)

    def state(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`load` takes them back."""
        return {'window': self.window.state(), 'mu': self.mu,
                'sigma': self.sigma, 'violations': self.violations}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        window = Window(self.window.size)
        window.load(state['window'])
        mu, sigma = state['mu'], state['sigma']
        if mu is not None or sigma is not None:
            mu, sigma = quantity(mu), quantity(sigma)
        self.violations = int(quantity(state['violations']))
        self.window, self.mu, self.sigma = window, mu, sigma
        self.low_samples = 0


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


class Resource:
    """One resource that foreground and background share: a reserve, what is
    in it, and what to do when the numbers do not come.

    ``rule`` says how things stand: ``off`` (never measurable here, so no
    rule), ``learning``, ``holding``, ``blind`` (it was measurable and has
    been missing for more than ``blind_ticks``: the floor).  For the first
    ``blind_ticks`` ticks the last reserve is held.  Source: DESIGN 7.4.
    """

    def __init__(self, *, c: float, size: int, min_headroom: float,
                 blind_ticks: int) -> None:
        self.reserve = Reserve(c=c, size=size, min_headroom=min_headroom)
        self.members = Members(size)
        self.capacity: float | None = None
        self.x: float | None = None
        self.arrivals = Arrivals()
        self.missing = 0
        self._blind_ticks = blind_ticks
        self._doubts = 0

    def tune(self, *, c: float, min_headroom: float, blind_ticks: int
             ) -> None:
        """Go on with other constants; what was learnt stays."""
        self.reserve.c, self.reserve.min_headroom = c, min_headroom
        self._blind_ticks = blind_ticks

    @property
    def rule(self) -> str:
        """The rule in force: off, learning, holding or blind."""
        if self.x is None:
            return 'off'
        if self.missing > self._blind_ticks:
            return 'blind'
        return 'learning' if self.reserve.learning else 'holding'

    def observe(self, x: float | None, capacity: float | None,
                uses: Iterable[Use], *, certain: bool = True) -> bool:
        """Take this tick's numbers; ``True`` if there was a violation.

        ``x`` is what the whole foreground uses.  An ``x`` that is unknown
        or not finite, or a capacity that is not above 0, is a tick without
        a signal.  ``certain=False``: the use of some background workload
        is not known and so counts in ``x``; for up to ``blind_ticks`` ticks
        in a row such an x neither teaches anything nor is a violation.
        """
        if (x is None or capacity is None or not math.isfinite(x)
                or not 0 < capacity < math.inf):
            self.missing += 1
            return False
        self.missing = 0
        self.capacity = capacity
        self.x = max(0.0, x)
        self.arrivals = self.members.update(uses)
        if self.arrivals.shift:
            self.reserve.shift(self.arrivals.shift)
        settled = max(0.0, x - self.arrivals.new_use)
        if certain:
            self._doubts = 0
        elif self._doubts < self._blind_ticks:
            mu = self.reserve.mu
            if mu is None or settled > mu + self.reserve.headroom(capacity):
                self._doubts += 1
                return False
        return self.reserve.observe(settled, capacity)

    def reserved(self) -> float:
        """The reserve of the foreground: mu + headroom + newcomers'
        allotments.

        While learning, what it uses now stands in for mu.
        """
        if self.capacity is None or self.x is None:
            return 0.0
        mu = self.reserve.mu
        if mu is None:
            mu = max(0.0, self.x - self.arrivals.new_use)
        return (mu + self.reserve.headroom(self.capacity)
                + self.arrivals.promised)

    def budget(self) -> float:
        """The most that the background may have in all: capacity - reserve.

        Source: Scavenger, section 4.1, step 3.
        """
        return max(0.0, (self.capacity or 0.0) - self.reserved())

    def facts(self) -> dict[str, Any]:
        """The numbers behind :meth:`budget`; plain JSON values."""
        if self.x is None or self.capacity is None:
            return {'rule': 'off', 'why': 'not measurable here'}
        reserve = self.reserve
        return {'rule': self.rule, 'x': self.x, 'mu': reserve.mu,
                'sigma': reserve.sigma,
                'headroom': reserve.headroom(self.capacity),
                'allotments': self.arrivals.promised,
                'upper': self.reserved(), 'capacity': self.capacity,
                'budget': self.budget(), 'violations': reserve.violations,
                'learning': reserve.learning, 'samples': len(reserve.window),
                'missing_ticks': self.missing}

    def state(self) -> dict[str, Any] | None:
        """Plain JSON values; ``None`` if there is nothing to keep."""
        if self.x is None:
            return None
        return {'reserve': self.reserve.state(), 'x': self.x,
                'capacity': self.capacity, 'missing': self.missing,
                'newcomers': [*self.arrivals[:2]],
                'members': self.members.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        x, capacity = quantity(state['x']), quantity(state['capacity'])
        missing = int(quantity(state['missing']))
        new_use, promised = map(quantity, state['newcomers'])
        self.members.load(state['members'])
        self.reserve.load(state['reserve'])
        self.x, self.capacity, self.missing = x, capacity, missing
        self.arrivals = Arrivals(new_use, promised)


def reason(facts: Mapping[str, Any], what: str, unit: str, scale: float,
           count: int) -> str:
    """The sentence that explains a cap out of :meth:`Resource.facts`.

    ``what`` the foreground uses, in ``unit`` s of ``scale``, and among how
    many background workloads the rest is shared.
    """
    if facts['rule'] == 'blind':
        return (f'{what}: not measurable for {facts["missing_ticks"]} ticks, '
                f'so no more than the floor or what is used')
    x = facts['x'] / scale
    if facts['rule'] == 'learning':
        return (f"{what}: learning the foreground's use (now {x:.2f} {unit}, "
                f'{_counted(facts["samples"], "sample")}), until then '
                'no more than '
                + ('half of what was available besides what was used'
                   if what == 'memory' else 'the floor'))
    return (f'{what}: foreground uses {x:.2f} {unit}, keeps '
            f'{facts["upper"] / scale:.2f} (mean {facts["mu"] / scale:.2f} + '
            f'headroom {facts["headroom"] / scale:.2f} + new '
            f'{facts["allotments"] / scale:.2f}), leaves '
            f'{facts["budget"] / scale:.2f} for '
            + _counted(count, 'workload'))


def _counted(count: int, noun: str) -> str:
    return f'{count} {noun}{"s" * (count != 1)}'
