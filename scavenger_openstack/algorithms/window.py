# SPDX-License-Identifier: Apache-2.0


"""The last samples of one quantity, their mean and their deviation."""

from __future__ import annotations

from collections.abc import Mapping
from collections import deque
import math
from typing import Any


def quantity(value: Any) -> float:
    """A number from 0 up, as it comes out of a state file.

    :raises TypeError, ValueError: it is not one.
    """
    number = float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f'not a quantity: {value!r:.40}')
    return number


def samples(window_s: float, interval_s: float) -> int:
    """Return how many samples a window holds at one per ``interval_s``."""
    return max(2, round(window_s / interval_s))


class Window:
    """The last ``size`` samples.

    ``None``, NaN and infinities are not samples: :meth:`add` leaves the
    window as it is and says ``False``.  Mean and deviation are computed
    from the samples themselves when they are asked for, never from running
    sums, so no rounding error can grow over days; a sample costs 0.1 us,
    both numbers of 60 samples about 5 us, and only after a change.

    :raises ValueError: fewer than two samples have no deviation.
    """

    __slots__ = ('_values', '_mean', '_stddev')

    def __init__(self, size: int) -> None:
        if size < 2:
            raise ValueError(f'a window needs at least 2 samples, not {size}')
        self._values: deque[float] = deque(maxlen=size)
        self._mean: float | None = None
        self._stddev: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size(self) -> int:
        """The number of samples that the window can hold."""
        return self._values.maxlen or 0

    @property
    def full(self) -> bool:
        """There are as many samples as the window can hold."""
        return len(self._values) == self._values.maxlen

    @property
    def mean(self) -> float | None:
        """mu, the sample mean; ``None`` without samples.

        Source: Scavenger, section 4.1.
        """
        if self._mean is None and self._values:
            # Relative to one of them: exact when all are the same.
            first = self._values[0]
            self._mean = first + math.fsum(
                value - first for value in self._values) / len(self._values)
        return self._mean

    @property
    def stddev(self) -> float | None:
        """sigma, the sample deviation (n - 1); ``None`` below two samples.

        Source: Scavenger, section 4.1.
        """
        count = len(self._values)
        if self._stddev is None and count > 1 and self.mean is not None:
            self._stddev = (math.dist(self._values, (self.mean,) * count)
                            / math.sqrt(count - 1))
        return self._stddev

    def add(self, value: float | None) -> bool:
        """Take a sample, drop the oldest; ``False`` if it is not one."""
        if value is None or not math.isfinite(value):
            return False
        self._values.append(value)
        self._mean = self._stddev = None
        return True

    def shift(self, delta: float) -> None:
        """Add ``delta`` to every sample: a workload counted in them is gone.

        A ``delta`` that is not finite changes nothing.
        """
        if math.isfinite(delta):
            for index in range(len(self._values)):
                self._values[index] += delta
            self._mean = self._stddev = None

    def clear(self) -> None:
        """Forget all samples."""
        self._values.clear()
        self._mean = self._stddev = None

    def state(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`load` takes them back."""
        return {'values': list(self._values)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take the samples of ``state``, the newest if there are too many.

        :raises ValueError: they are not all finite numbers.
        """
        values = state.get('values')
        if not isinstance(values, list) or not all(
                type(value) in (int, float) and math.isfinite(value)
                for value in values):
            raise ValueError(f'not the samples of a window: {values!r:.80}')
        self.clear()
        self._values.extend(values)
