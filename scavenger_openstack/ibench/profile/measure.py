# SPDX-License-Identifier: Apache-2.0

"""Turns of a workload alone and beside an SoI, and what follows from them.

A turn beside an SoI has a turn alone before and after it, so that what else
changes on the host is not taken for harm.  A turn at full intensity comes
first: where it harms nothing, no other is needed.  Where it does, the
intensity rises in steps until two in a row break the QoS (iBench, section
III: "progressively puts more pressure").
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import statistics
from typing import NamedTuple

from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack import amounts
from scavenger_openstack.ibench.profile import curve
from scavenger_openstack.ibench.profile.qos import Qos
from scavenger_openstack.ibench.profile.workload import Unfit

FULL = 100.0
"""Percent.  The rate of the SoI at this intensity is that of the probe, too:
what it loses is what the workload causes."""
LEVELS = (5.0, 10.0, 20.0, 40.0, 60.0, 80.0)
"""Closer where intensity is low: a workload that shares its CPUs breaks
there."""
BROKEN_IN_A_ROW = 2
WARM_UP_TURNS = 1
FIRST_TURNS = 6
NOISE = 0.2
"""Of a turn, as a standard deviation of harm, that leaves repeated profiles
within 0.1 of each other; turns are made longer for it, up to so many times:
"""
MOST_LONGER = 4.0


class Reading(NamedTuple):
    """One turn: the signal of the workload, and operations per second of the
    SoI; None alone, or without a report."""

    value: float
    rate: float | None = None


Take = Callable[[float | None], Reading]
"""Takes a turn beside this intensity in percent, or alone."""


class Beside(NamedTuple):
    """The signal beside an intensity, and what it was alone around that."""

    percent: float
    value: float
    alone: float


@dataclasses.dataclass
class Measured:
    """The result of the turns of one SoI.

    :ivar alone: the signal alone, in the order of time
    :ivar repeats: the turns beside it
    :ivar rates: of the SoI at :data:`FULL`, one of each repeat
    """

    alone: list[float] = dataclasses.field(default_factory=list)
    repeats: list[list[Beside]] = dataclasses.field(default_factory=list)
    rates: list[float] = dataclasses.field(default_factory=list)


class Scale(NamedTuple):
    """The scale that harm is measured by.

    :ivar alone: median of the signal alone
    :ivar bound: where the QoS breaks
    :ivar noise: of one value, as a standard deviation of harm
    """

    alone: float
    bound: float
    noise: float = 0.0

    @property
    def limit(self) -> float:
        """Return the harm that breaks the QoS, and is not noise."""
        return max(curve.BOUND, 2 * self.noise)

    def harm(self, turn: Beside) -> float:
        """Return 0 for a signal as alone, 1 for one at its bound."""
        return (turn.value - turn.alone) / (self.bound - self.alone)


def find_scale(qos: Qos, runs: Sequence[Sequence[float]]) -> Scale:
    """Return the scale of signals alone.

    :param runs: of turns that followed each other
    :raises Unfit: the QoS is broken without any interference.
    """
    alone = statistics.median(value for run in runs for value in run)
    bound = qos.bound_of(alone)
    if not qos.is_kept(alone, bound):
        words = (f'{qos.signal} is {amounts.of_number(alone)}, its bound is '
                 f'{amounts.of_number(bound)}')
        raise Unfit(
            f'the QoS is broken without any interference: {words}; choose a '
            'bound that the workload keeps alone' if qos.bound is not None
            else f'{words}: a share of nothing is no bound, give --qos '
            f'{qos.signal}{"<" if qos.below else ">"}BOUND')
    unit = bound - alone
    weights = [(curve.noise(run, unit), len(run)) for run in runs
               if len(run) > 1]
    count = sum(weight for _, weight in weights)
    return Scale(alone, bound, sum(
        noise * weight for noise, weight in weights) / count if count else 0)


def begin(take: Take, qos: Qos) -> list[float]:
    """Return the signal alone in some turns, after one to warm up.

    :raises Unfit: the QoS is broken without any interference.
    """
    for _ in range(WARM_UP_TURNS):
        take(None)
    alone = [take(None).value for _ in range(FIRST_TURNS)]
    find_scale(qos, [alone])
    return alone


def longer(noise: float) -> float:
    """Return how many times longer turns must be for :data:`NOISE`.

    The noise of a mean falls with the root of the time.
    """
    return min(MOST_LONGER, max(1.0, (noise / NOISE) ** 2))


def measure_soi(take: Take, qos: Qos, *, repeats: int, ramp: bool,
                alone: Sequence[float]) -> Measured:
    """Take the turns of one SoI.

    :param ramp: raise the intensity where the full one breaks the QoS; else
        the curve is taken to be a straight line
    :param alone: the signal in some turns before
    """
    measured = Measured()

    def beside(percent: float) -> tuple[Reading, bool]:
        """Take a turn, and return whether it broke the QoS."""
        reading = take(percent)
        before = measured.alone[-1]
        measured.alone.append(take(None).value)
        turn = Beside(percent, reading.value,
                      (before + measured.alone[-1]) / 2)
        measured.repeats[-1].append(turn)
        scale = find_scale(qos, [[*alone, *measured.alone]])
        return reading, scale.harm(turn) > scale.limit

    measured.alone.append(take(None).value)
    for _ in range(repeats):
        measured.repeats.append([])
        reading, broken = beside(FULL)
        if reading.rate is not None:
            measured.rates.append(reading.rate)
        in_a_row = 0
        for percent in LEVELS if broken and ramp else ():
            _, broken = beside(percent)
            in_a_row = in_a_row + 1 if broken else 0
            if in_a_row == BROKEN_IN_A_ROW:
                break
    return measured


def most_turns(repeats: int, *, ramp: bool) -> tuple[int, int]:
    """Return the turns of an SoI that breaks no QoS, and the most of one
    that does."""
    return (1 + 2 * repeats, 1 + 2 * repeats * (
        1 + (len(LEVELS) if ramp else 0)))


def tolerated(measured: Measured, scale: Scale) -> Estimate:
    """Return the intensity at which the QoS breaks."""
    return curve.tolerated(
        [[curve.Point(turn.percent, scale.harm(turn)) for turn in turns]
         for turns in measured.repeats], limit=scale.limit,
        noise=scale.noise)
