# SPDX-License-Identifier: Apache-2.0


"""How long a foreground workload waits for a disk operation undisturbed.

Letters: x is its ``io_wait`` now, mu and sigma the mean and deviation of the
last samples that were taken while the background was quiet.  Nothing of it
is in a paper.
"""

from __future__ import annotations

import collections

from scavenger_openstack.algorithms import signals
from scavenger_openstack.algorithms.window import Window

LOWERED = -0.5
"""What the strain becomes of a level that was learnt too high.  Nearer to 0,
noise lowers levels more often; nearer to -1 the background may disturb by
that much more after each fall of the foreground's own load."""


class Level:
    """The wait of one foreground workload when it is not disturbed.

    ``x`` is its io_wait of the last tick.

    :param best: what is known of it from before, in seconds per operation
    """

    __slots__ = ('window', 'last', 'missing', 'x')

    def __init__(self, size: int, smoothing: int,
                 best: float | None = None) -> None:
        self.window = Window(size)
        for _ in range(0 if best is None else size):
            self.window.add(best)
        self.last: collections.deque[float] = collections.deque(
            maxlen=smoothing)
        self.missing = 0
        self.x: float | None = None

    def is_new(self, x: float | None) -> bool:
        """Return whether this is another measurement than the last tick's.

        libvirt is asked once in some ticks, and one answer is the same
        number in all of them.  No other workload measures the same twice, but
        nothing.
        """
        before, self.x = self.x, x
        return not x or x != before

    @property
    def mu(self) -> float:
        return max(signals.LEAST_WAIT_S, self.window.mean or 0.0)

    @property
    def sigma(self) -> float:
        """The standard deviation as a share of mu."""
        return (self.window.stddev or 0.0) / self.mu

    def lower(self, strain: float, spread: float) -> None:
        """It was learnt too high: the strain becomes :data:`LOWERED`."""
        factor = (1 + strain * spread) / (1 + LOWERED * spread)
        self.window.shift(self.mu * (factor - 1))
        self.last.clear()
