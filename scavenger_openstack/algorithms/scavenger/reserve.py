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
import math
from typing import Any

from scavenger_openstack.algorithms.scavenger.members import Arrivals
from scavenger_openstack.algorithms.scavenger.members import Members
from scavenger_openstack.algorithms.scavenger.members import Use
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PAPER
from scavenger_openstack.algorithms.scavenger.params import RESERVE_PEAK
from scavenger_openstack.algorithms.scavenger.peaks import Peaks
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.algorithms.window import Window

SIGMAS_PER_WINDOW = 60
"""How often the recent sigma is computed while a window passes: a tick costs
no more, on average, with a window of an hour than with one of a minute."""


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


def kept_s(rule: str, window_s: float, peak_s: float) -> float:
    """Return for how many seconds a pause leaves what was learnt of use."""
    return max(window_s, peak_s) if rule == RESERVE_PEAK else window_s


class Reserve:
    """What the foreground keeps of one resource, by one of three rules.

    *Learning*, by each: the first ``size`` samples.  Then

    * ``peak`` (ours): the highest use of the last ``peak_size`` samples and
      the least headroom.  Each use counts for ``peak_size`` samples and no
      longer, whatever comes after it.  c and sigma do not matter.
    * ``paper``: mu + headroom, mu and sigma being those of the first
      ``size`` samples, until

      * x > mu + headroom, a violation: mu becomes x, sigma stays;
      * ``size`` samples in a row are below mu - c * sigma, a new phase: both
        are computed again from the last ``size`` samples.

      Where sigma / mu > 1 / c nothing is below mu - c * sigma, so the
      reserve does not shrink any more.
    * ``paper_recent_sigma``: the same, but sigma is that of the last
      ``size`` samples at each tick.

    Source of the last two: Scavenger, section 4.2, of which "the sigma
    computation (the sample standard deviation over the last w seconds)
    remains unchanged" can be read both ways.
    """

    __slots__ = ('window', 'peaks', 'rule', 'c', 'min_headroom', 'mu',
                 'sigma', 'violations', 'low_samples', '_due')

    def __init__(self, *, c: float, size: int, min_headroom: float,
                 rule: str = RESERVE_PAPER, peak_size: int = 1) -> None:
        self.window = Window(size)
        self.peaks = Peaks(peak_size)
        self.rule = rule
        self.c = c
        self.min_headroom = min_headroom
        self.mu: float | None = None
        self.sigma: float | None = None
        self.violations = 0
        self.low_samples = 0
        self._due = 0

    @property
    def learning(self) -> bool:
        """There are no mu and sigma yet."""
        return self.mu is None

    @property
    def level(self) -> float | None:
        """What the headroom is added to: mu, or the highest use; ``None``
        while learning."""
        if self.mu is not None and self.rule == RESERVE_PEAK:
            return self.peaks.largest
        return self.mu

    def headroom(self, capacity: float) -> float:
        """What is kept above :attr:`level`; while learning, the minimum."""
        sigma = 0.0 if self.rule == RESERVE_PEAK else self.sigma or 0.0
        return headroom(sigma, capacity, c=self.c,
                        min_headroom=self.min_headroom)

    def upper(self, capacity: float) -> float | None:
        """The most that may be used without a violation; ``None`` while
        learning."""
        level = self.level
        return None if level is None else level + self.headroom(capacity)

    def observe(self, x: float, capacity: float) -> bool:
        """Take the sample of this tick; ``True`` if it is a violation."""
        if not self.window.add(x):
            return False
        upper = self.upper(capacity)
        self.peaks.add(x)
        mu, sigma = self.mu, self.sigma
        if mu is None or sigma is None:
            if not self.window.full:
                return False
            self._model()
            upper = None
        elif self.rule != RESERVE_PEAK:
            if self.rule != RESERVE_PAPER:
                sigma = self._recent_sigma()
            if is_low(x, mu, sigma, c=self.c):
                self.low_samples += 1
                if self.low_samples >= self.window.size:
                    self._model()
                    upper = None
            else:
                self.low_samples = 0
        # Also of a new model: the last of its samples may stand out.
        if upper is None:
            upper = self.upper(capacity)
        if upper is None or x <= upper:
            # A smaller sigma may leave less than is used: no less is kept.
            if x > (self.upper(capacity) or 0.0):
                self.mu = x
            return False
        self.mu = x
        self.violations += 1
        self.low_samples = 0
        return True

    def change_rule(self, rule: str) -> None:
        """Go on by another rule with what was learnt."""
        if rule != self.rule:
            self.rule = rule
            if not self.learning:
                self._model()

    def skip(self, ticks: float) -> None:
        """Let ``ticks`` pass without a sample."""
        self.peaks.skip(ticks)

    def _recent_sigma(self) -> float:
        self._due -= 1
        if self._due <= 0:
            self._due = math.ceil(self.window.size / SIGMAS_PER_WINDOW)
            self.sigma = self.window.stddev
        return self.sigma or 0.0

    def _model(self) -> None:
        # What left may have measured more than the sum ever showed of it.
        self.mu = max(0.0, self.window.mean or 0.0)
        self.sigma = self.window.stddev or 0.0
        self.low_samples = 0

    def shift(self, delta: float) -> None:
        """A workload that uses ``delta`` joined the sum (left it, if < 0)."""
        self.window.shift(delta)
        self.peaks.shift(delta)
        if self.mu is not None:
            self.mu = max(0.0, self.mu + delta)

    def state(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`load` takes them back."""
        return {'window': self.window.state(), 'peaks': self.peaks.state(),
                'rule': self.rule, 'mu': self.mu, 'sigma': self.sigma,
                'violations': self.violations}

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
        self.peaks.load(state['peaks'])
        self.window, self.mu, self.sigma = window, mu, sigma
        self.low_samples = 0
        if mu is not None and state['rule'] != self.rule:
            self._model()


class Resource:
    """One resource that foreground and background share: a reserve, what is
    in it, and what to do when the numbers do not come.

    ``rule`` says how things stand: ``off`` (never measurable here, so no
    rule), ``learning``, ``holding``, ``blind`` (it was measurable and has
    been missing for more than ``blind_ticks``: the floor).  For the first
    ``blind_ticks`` ticks the last reserve is held.  Source: DESIGN 7.4.
    """

    def __init__(self, *, c: float, size: int, min_headroom: float,
                 blind_ticks: int, rule: str = RESERVE_PAPER,
                 peak_size: int = 1) -> None:
        self.reserve = Reserve(c=c, size=size, min_headroom=min_headroom,
                               rule=rule, peak_size=peak_size)
        self.members = Members(size)
        self.capacity: float | None = None
        self.x: float | None = None
        self.arrivals = Arrivals()
        self.missing = 0
        self._blind_ticks = blind_ticks
        self._doubts = 0

    def tune(self, *, c: float, min_headroom: float, blind_ticks: int,
             rule: str) -> None:
        """Go on with other constants; what was learnt stays."""
        self.reserve.c, self.reserve.min_headroom = c, min_headroom
        self.reserve.change_rule(rule)
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
        self.skip(self.missing)
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
            upper = self.reserve.upper(capacity)
            if upper is None or settled > upper:
                self._doubts += 1
                return False
        return self.reserve.observe(settled, capacity)

    def skip(self, ticks: float) -> None:
        """Let ``ticks`` pass without a sample: what was used before them is
        that much older."""
        if ticks:
            self.reserve.skip(ticks)

    def reserved(self) -> float:
        """The reserve of the foreground: level + headroom + newcomers'
        allotments.

        While learning, what it uses now stands in for the level.
        """
        if self.capacity is None or self.x is None:
            return 0.0
        level = self.reserve.level
        if level is None:
            level = max(0.0, self.x - self.arrivals.new_use)
        return (level + self.reserve.headroom(self.capacity)
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
        return {'rule': self.rule, 'reserve_rule': reserve.rule,
                'x': self.x, 'level': reserve.level,
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
    level = 'highest' if facts['reserve_rule'] == RESERVE_PEAK else 'mean'
    return (f'{what}: foreground uses {x:.2f} {unit}, keeps '
            f'{facts["upper"] / scale:.2f} '
            f'({level} {facts["level"] / scale:.2f} + '
            f'headroom {facts["headroom"] / scale:.2f} + new '
            f'{facts["allotments"] / scale:.2f}), leaves '
            f'{facts["budget"] / scale:.2f} for '
            + _counted(count, 'workload'))


def _counted(count: int, noun: str) -> str:
    return f'{count} {noun}{"s" * (count != 1)}'
