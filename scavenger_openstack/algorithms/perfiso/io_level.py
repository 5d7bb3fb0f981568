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


FIRST_TICKS = 10
"""A first measurement is of no more ticks than that: libvirt is asked once in
five by default, and answers later."""

REST_TICKS = 2
"""The background has to be quiet for so many ticks more than a measurement is
of: operations wait in the queue that it left, and an answer of libvirt is of
the ticks before it."""


class Level:
    """The wait of one foreground workload when it is not disturbed.

    ``x`` is its io_wait of the last tick, measured over ``ticks``.

    :param best: what is known of it from before, in seconds per operation
    """

    __slots__ = ('window', 'last', 'missing', 'x', 'ticks', '_since',
                 '_skipped')

    def __init__(self, size: int, smoothing: int,
                 best: float | None = None) -> None:
        self.window = Window(size)
        for _ in range(0 if best is None else size):
            self.window.add(best)
        self.last: collections.deque[float] = collections.deque(
            maxlen=smoothing)
        self.missing = self._skipped = 0
        self.x: float | None = None
        self.ticks, self._since = FIRST_TICKS, 0

    def measure(self, x: float | None) -> bool:
        """Take the io_wait of a tick; return whether it is another
        measurement than the last tick's.

        libvirt is asked once in some ticks, and one answer is the same
        number in all of them.  No other workload measures the same twice, but
        nothing.
        """
        before, self.x = self.x, x
        self._since += 1
        if x is None or (x and x == before):
            return False
        if before is not None:      # else of as many ticks as the last one
            self.ticks = self._since
        self._since = 0
        return True

    def learn(self, quiet_ticks: int) -> bool:
        """Take x for undisturbed, unless it is of a time that was not quiet;
        return whether it was taken.

        Beside what begins again and again, a new level is learnt all the same
        after as many as make one, and one in as many corrects an old one.

        :param quiet_ticks: for how long the background has been quiet
        """
        if quiet_ticks < self.ticks + REST_TICKS:
            self._skipped += 1
            if self._skipped <= self.window.size:
                return False
        if self.window.full:
            self._skipped = 0
        return self.window.add(self.x)

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
