# SPDX-License-Identifier: Apache-2.0


"""How much a tenant is asked to do, over time.

A load is 1 when a tenant works as its description says.  It follows phases,
one after the other, and wanders around them with a noise of its own.
"""

from __future__ import annotations

import dataclasses
import math
import random

SHAPES = ('constant', 'ramp', 'wave', 'bursts')

MEMORY_OF_NOISE_S = 10.0
"""How long the noise of a load stays what it is.  A choice of ours: longer
than the ticks of any loop, shorter than their windows."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of time with one shape of load.

    ``constant`` is ``level``; ``ramp`` goes from where the last phase ended
    to ``level``; ``wave`` swings by ``depth`` of ``level`` around it, once
    per ``period_s``; ``bursts`` is at ``level`` for ``share`` of each
    ``period_s`` and at ``low`` for the rest.
    """

    shape: str = 'constant'
    for_s: float = math.inf
    level: float = 1.0
    low: float = 0.0
    period_s: float = 60.0
    depth: float = 0.5
    share: float = 0.5
    offset_s: float = 0.0

    def at(self, passed_s: float, before: float) -> float:
        """The load ``passed_s`` after the phase began at ``before``."""
        if self.shape == 'constant':
            return self.level
        if self.shape == 'ramp':
            return before + (self.level - before) * min(
                1.0, passed_s / self.for_s)
        turn = (passed_s + self.offset_s) / self.period_s
        if self.shape == 'wave':
            return self.level * (1 + self.depth * math.sin(
                2 * math.pi * turn))
        return self.level if turn % 1 < self.share else self.low


CONSTANT = (Phase(),)


class Noise:
    """A factor of mean 1 that wanders, and comes back.

    Its logarithm is a first-order autoregressive process.

    :param spread: standard deviation of the logarithm
    :param memory_s: time in which it forgets all but 1/e of a deviation
    """

    __slots__ = ('_spread', '_memory_s', '_random', '_deviation', '_dt_s',
                 '_kept', '_new', '_mean')

    def __init__(self, spread: float, memory_s: float,
                 random_: random.Random) -> None:
        self._spread = spread
        self._memory_s = memory_s
        self._random = random_
        self._deviation = random_.gauss(0.0, spread)
        self._dt_s = self._kept = self._new = 0.0
        self._mean = spread * spread / 2

    def at(self, dt_s: float) -> float:
        """The factor ``dt_s`` later."""
        if dt_s != self._dt_s:
            self._dt_s = dt_s
            self._kept = math.exp(-dt_s / self._memory_s)
            self._new = self._spread * math.sqrt(1 - self._kept ** 2)
        self._deviation = (self._kept * self._deviation
                           + self._random.gauss(0.0, self._new))
        return math.exp(self._deviation - self._mean)


class Load:
    """Walks through the phases of one tenant.

    :param noise: standard deviation of the logarithm of the load
    :param repeat: begin again after the last phase
    """

    def __init__(self, phases: tuple[Phase, ...], *, noise: float,
                 repeat: bool, random_: random.Random) -> None:
        self._phases = phases
        self._noise = (Noise(noise, MEMORY_OF_NOISE_S, random_) if noise
                       else None)
        self._repeat = repeat
        self._steady = (phases[0].level if len(phases) == 1
                        and phases[0].shape == 'constant' else None)
        self._index = 0
        self._began_s = 0.0
        self._before = 0.0

    def at(self, time_s: float, dt_s: float) -> float:
        """The load at ``time_s``; times must not go back."""
        level = self._steady
        if level is None:
            level = self._walk(time_s)
        return (level if self._noise is None
                else level * self._noise.at(dt_s))

    def _walk(self, time_s: float) -> float:
        phase = self._phases[self._index]
        while time_s - self._began_s >= phase.for_s:
            last = self._index == len(self._phases) - 1
            if last and not self._repeat:
                break
            self._before = phase.at(phase.for_s, self._before)
            self._began_s += phase.for_s
            self._index = 0 if last else self._index + 1
            phase = self._phases[self._index]
        return max(0.0, phase.at(time_s - self._began_s, self._before))
