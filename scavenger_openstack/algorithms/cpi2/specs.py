# SPDX-License-Identifier: Apache-2.0


"""CPI specs: what a signal normally is, per application and CPU model.

Zhang et al.  *CPI2: CPU performance isolation for shared compute clusters*.
EuroSys 2013, section 3.1.  Statistics are kept as (n, mean, M2), which can
be merged in any order and give the mean and deviation of all samples.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.wire import fit

AGE_WEIGHT = 0.9
"""What a sample of yesterday counts: CPI2, section 3.1 ("about 0.9")."""

MIN_TASKS = 5
MIN_SAMPLES = 100
"""No spec for fewer tasks, or fewer samples of each: CPI2, section 3.1."""


class Statistics(NamedTuple):
    """Sufficient statistics of a set of samples: their number (a weight),
    mean, and sum of the squared deviations from it.

    ``cpu_cores`` is the mean CPU use beside them, ``None`` where it is not
    known: ``cpu_usage_mean`` of CPI2, section 3.1.
    """

    n: float = 0.0
    mean: float = 0.0
    m2: float = 0.0
    cpu_cores: float | None = None

    def add(self, value: float, cpu_cores: float | None = None) -> Statistics:
        """Return the statistics with one sample more (Welford)."""
        n = self.n + 1
        delta = value - self.mean
        mean = self.mean + delta / n
        return Statistics(n, mean, self.m2 + delta * (value - mean),
                          _mean(self.cpu_cores, self.n, cpu_cores, 1.0))

    def merge(self, other: Statistics) -> Statistics:
        """All samples of both (Chan, Golub, LeVeque)."""
        n = self.n + other.n
        if not n:
            return self
        delta = other.mean - self.mean
        return Statistics(
            n, self.mean + delta * other.n / n,
            self.m2 + other.m2 + delta * delta * self.n * other.n / n,
            _mean(self.cpu_cores, self.n, other.cpu_cores, other.n))

    def age(self, days: float) -> Statistics:
        """Return the statistics of the same samples, ``days`` later: they
        weigh less.

        Source: CPI2, section 3.1, read as a weight of the sample: the text
        multiplies the value itself, which would lower the mean each day.
        """
        factor = AGE_WEIGHT ** days
        return self._replace(n=self.n * factor, m2=self.m2 * factor)

    @property
    def stddev(self) -> float | None:
        """Sample standard deviation, ``None`` for fewer than 2."""
        return math.sqrt(self.m2 / (self.n - 1)) if self.n > 1 else None


def _mean(left: float | None, n: float, right: float | None, m: float
          ) -> float | None:
    """The mean of n and m samples; of the others where some are unknown."""
    if left is None or right is None:
        return right if left is None else left
    return left + (right - left) * m / (n + m) if n + m else left


class Spec(NamedTuple):
    """What a signal normally is; ``source`` says whose samples it is of:
    ``directive``, ``application`` or ``own``.  ``cpu_cores``: the mean CPU
    use beside them, which no rule of the paper reads."""

    mean: float
    stddev: float
    samples: float
    tasks: int
    source: str
    cpu_cores: float | None = None


SpecKey = tuple[str, str, str, str]
"""Project ('' for none), application, CPU model and signal, by the names that
the control plane knows."""

Specs = Mapping[SpecKey, Spec]


def key(project: str | None, application: str, cpu_model: str, signal: str
        ) -> SpecKey:
    """The key of the spec of what a host calls so."""
    return (fit.project(project), fit.name(application),
            fit.maybe_name(cpu_model), signal)


def of_application(tasks: Mapping[str, Statistics], *,
                   min_tasks: int = MIN_TASKS,
                   min_samples: int = MIN_SAMPLES) -> Spec | None:
    """The spec of an application from its tasks' samples.

    ``None`` for fewer than ``min_tasks`` tasks with ``min_samples`` each.
    Source: CPI2, section 3.1.
    """
    enough = [task for task in tasks.values() if task.n >= min_samples]
    if len(enough) < min_tasks:
        return None
    total = Statistics()
    for statistics in enough:
        total = total.merge(statistics)
    return Spec(total.mean, total.stddev or 0.0, total.n, len(enough),
                'application', total.cpu_cores)


def of_own(history: Statistics, *, min_samples: int) -> Spec | None:
    """The spec of a workload from its own past, ``None`` for fewer samples.

    With 0 there is never one: the paper manages no application of fewer than
    5 tasks.  Source: not in the paper, DESIGN 7.12.
    """
    if not min_samples or history.n < min_samples:
        return None
    return Spec(history.mean, history.stddev or 0.0, history.n, 1, 'own',
                history.cpu_cores)


def from_json(value: Any) -> Statistics:
    """Read ``[n, mean, m2, cpu_cores or null]``.

    :raises ValueError: it is not that.
    """
    try:
        *numbers, cpu_cores = value
        n, mean, m2 = map(float, numbers)
        cpu_cores = None if cpu_cores is None else float(cpu_cores)
    except TypeError as exc:
        raise ValueError(f'not statistics: {value!r}') from exc
    if not (0 <= n < math.inf and math.isfinite(mean) and 0 <= m2 < math.inf
            and 0 <= (cpu_cores or 0.0) < math.inf):
        raise ValueError(f'not statistics: {value!r}')
    return Statistics(n, mean, m2, cpu_cores)
