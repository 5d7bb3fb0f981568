# SPDX-License-Identifier: Apache-2.0


"""How likely it is that two series move together by chance.

Nothing here knows of hosts or workloads: series are lists of numbers of one
length, one number per sample, and columns are lists of series.  Series of
hosts are not independent from sample to sample, so the number of samples
alone says little; see :func:`effective_samples` and :func:`by_shifts`.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from operator import mul

Series = Sequence[float]

NEGLIGIBLE = 1e-9
"""Share of a series' square sum below which what is left of it is
rounding."""

MOST_LAGS = 40
"""Lags up to which a series is compared with itself."""

MIN_FREEDOM = 3
"""Independent samples below which a correlation says nothing: two slow
series are alike by chance."""

MEDIAN_STEP = 0.954
"""Median of the step between two samples of normal noise, in standard
deviations of the noise: 0.6745 sqrt(2)."""


def dot(a: Series, b: Series) -> float:
    total: float = sum(map(mul, a, b))
    return total


def changes(series: Series) -> list[float]:
    """Return the change from each sample to the next: one value less."""
    return [b - a for a, b in zip(series, series[1:], strict=False)]


def noise(series: Series) -> float:
    """The standard deviation of the noise of a series, by the median step
    from one sample to the next, so that neither slow change nor a few jumps
    count."""
    steps = sorted(map(abs, changes(series)))
    return steps[len(steps) // 2] / MEDIAN_STEP if steps else 0.0


def span(columns: Iterable[Series]) -> list[list[float]]:
    """Orthonormal series that span the same space (Gram-Schmidt).

    What adds nothing to those before it is left out.
    """
    basis: list[list[float]] = []
    for column in columns:
        whole = dot(column, column)
        left = without(column, basis)
        norm = dot(left, left)
        if norm > NEGLIGIBLE * whole and norm > 0:
            scale = 1 / math.sqrt(norm)
            basis.append([value * scale for value in left])
    return basis


def without(series: Series, spanned: Iterable[Series]) -> list[float]:
    """Return what is left of a series when its part in a span is taken out."""
    left = list(series)
    for column in spanned:
        factor = dot(column, left)
        left = [a - factor * b for a, b in zip(left, column, strict=True)]
    return left


def fit(series: Series, columns: Sequence[Series]) -> list[float]:
    """Least squares: how much of each column makes up a series.

    A column that adds nothing to those before it gets 0.
    """
    spanned: list[list[float]] = []
    parts: list[list[float]] = []   # each spanned one in terms of columns
    for index, column in enumerate(columns):
        left, part = list(column), [0.0] * len(columns)
        part[index] = 1.0
        for base, made in zip(spanned, parts, strict=True):
            factor = dot(base, left)
            left = [a - factor * b for a, b in zip(left, base, strict=True)]
            part = [a - factor * b for a, b in zip(part, made, strict=True)]
        norm = dot(left, left)
        if norm > NEGLIGIBLE * dot(column, column) and norm > 0:
            scale = 1 / math.sqrt(norm)
            spanned.append([value * scale for value in left])
            parts.append([value * scale for value in part])
    fitted = [0.0] * len(columns)
    for base, made in zip(spanned, parts, strict=True):
        factor = dot(base, series)
        fitted = [a + factor * b for a, b in zip(fitted, made, strict=True)]
    return fitted


def correlation(a: Series, b: Series) -> float:
    """Of two series whose mean was taken out; 0 when one is constant."""
    norm = math.sqrt(dot(a, a) * dot(b, b))
    return dot(a, b) / norm if norm > 0 else 0.0


class Residuals:
    """What is left of a target and of other series, as one of them after
    the other is taken out of all.

    Each has its mean taken out before.  Products are brought up to date
    without making the series again: with a unit vector e the product of what
    is left of x and y is x y - (x e)(y e).
    """

    def __init__(self, target: Series, others: Mapping[str, Series]) -> None:
        self.target = target
        self._others = dict(others)
        self._spanned: list[Series] = []
        self._square = dot(target, target)
        self._squares = {name: dot(series, series)
                         for name, series in self._others.items()}
        self._products = {name: dot(series, target)
                          for name, series in self._others.items()}

    @property
    def names(self) -> Collection[str]:
        return self._others.keys()

    def of(self, name: str) -> list[float]:
        """Return what is left of one of the other series."""
        return without(self._others[name], self._spanned)

    def square(self, name: str) -> float:
        return self._squares[name]

    def correlation(self, name: str) -> float:
        """Return the correlation with the target; 0 when nothing is left of
        one."""
        norm = self._squares[name] * self._square
        return self._products[name] / math.sqrt(norm) if norm > 0 else 0.0

    def take_out(self, name: str) -> None:
        """Take one of the others out of all."""
        units = span([self.of(name)])
        del self._others[name], self._squares[name], self._products[name]
        if not units:
            return
        unit, = units
        self._spanned.append(unit)
        part = dot(self.target, unit)
        self.target = without(self.target, [unit])
        self._square = dot(self.target, self.target)
        for other, series in self._others.items():
            own = dot(series, unit)
            self._products[other] -= own * part
            self._squares[other] = max(0.0, self._squares[other] - own * own)


def memory(series: Series) -> list[float]:
    """How a series (without its mean) goes with itself, 1, 2, ... samples
    later, up to a third of its length or :data:`MOST_LAGS`."""
    norm = dot(series, series)
    lags = range(1, min(MOST_LAGS, len(series) // 3) + 1)
    if not norm > 0:
        return [0.0 for _ in lags]
    return [dot(series[lag:], series[:-lag]) / norm for lag in lags]


def effective_samples(count: int, a: Series, b: Series) -> float:
    """How many independent samples ``count`` samples of two series are
    worth, by the :func:`memory` of each.

    Two series that both change slowly correlate easily by chance.
    Source: Bartlett, *Some aspects of the time-correlation problem*, 1935.
    """
    worth = 1 + 2 * sum([(1 - lag / count) * x * y for lag, (x, y)
                         in enumerate(zip(a, b, strict=True), 1)])
    return count / max(1.0, worth)


def by_chance(correlation: float, samples: float,
              removed: int) -> float | None:
    """Chance that independent series correlate as much or more.

    :param samples: independent ones; see :func:`effective_samples`
    :param known: series that were taken out of both before, the mean
        included

    ``None`` for fewer than :data:`MIN_FREEDOM` left.  Source: Fisher's z.
    """
    freedom = samples - removed - 2
    if freedom < MIN_FREEDOM:
        return None
    if correlation <= 0:
        return 1.0
    if correlation >= 1:
        return 0.0
    return 0.5 * math.erfc(math.atanh(correlation)
                           * math.sqrt(freedom / 2))


def by_shifts(score: float, target: Series,
              others: Iterable[Series]) -> float:
    """Share of all shifts in time of the others whose correlation with the
    target is as high as ``score``.

    A shifted series has the same values and the same rhythm and cannot
    have caused anything, so this is the chance of a coincidence however
    few and large the changes are.  Series end where they began.
    """
    norm = dot(target, target)
    count = high = 0
    for other in others:
        least = score * math.sqrt(norm * dot(other, other))
        if not least > 0:
            continue
        around, length = [*other, *other], len(other)
        # By 1, a change that a sample has split would still fit.
        high += sum([sum(map(mul, around[shift:shift + length], target))
                     >= least for shift in range(2, length - 1)])
        count += length - 3
    return (1 + high) / (1 + count)


def both(a: float, b: float) -> float:
    """Chance that two independent tests come out so well together.

    Source: Fisher's method for two.
    """
    product = a * b
    return product * (1 - math.log(product)) if product > 0 else 0.0


def any_of(chance: float, number: int) -> float:
    """Chance that any of ``number`` does what one does with ``chance``."""
    return -math.expm1(number * math.log1p(-min(chance, 1 - 1e-12)))


def low_and_high(series: Series) -> tuple[float, float]:
    """Return the means of the three smallest and of the three largest values.

    Quantiles would not see what has only just begun.
    """
    ordered = sorted(series)
    low, high = ordered[:3], ordered[-3:]
    return sum(low) / len(low), sum(high) / len(high)
