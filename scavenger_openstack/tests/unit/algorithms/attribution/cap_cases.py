# SPDX-License-Identifier: Apache-2.0

"""A controller with one antagonist, and its cap."""

from __future__ import annotations

from collections.abc import Sequence
import math

import testtools

from scavenger_openstack.algorithms.attribution.cap_control import CapControl
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.params import Params
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

STEP_S = 5.0
FLOOR = {Knob.CPU_CORES: 0.1, Knob.IO_BYTES_PER_S: 1e6}


def disturbance(group: str = 'web', signal: str = 'cpi',
         named: Sequence[str] = ('hog',)) -> Disturbance:
    """Undisturbed it is 1; 1.1 is suffering; a sigma is 0.02."""
    return Disturbance(
        (group,), signal, 0.0, {group: 1.0}, 1.0, 0.1, 0.02, 'cache',
        {group: 1.1}, named={
            name: Ground(name, GroundKind.TIMING, share=0.9, chance=0.01)
            for name in named}, raised=1.4)


def uses(**cores: float | None) -> Points:
    """``io_hog=1e6`` is bytes per second of ``hog``."""
    found = {}
    for name, use in cores.items():
        short = name.removeprefix('io_')
        own = Workload(short, Priority.BACKGROUND, floor=FLOOR)
        found[short] = (
            Point(own, (None,) * 4, 0.0, None, use, use, 0.0, 0.0)
            if name.startswith('io_')
            else Point(own, (None,) * 4, use, None, 0.0, 0.0, 0.0, 0.0))
    return found


class CapControlTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.begin()

    def begin(self) -> None:
        self.held = CapControl('test', Params(
            cut=0.3, first_cut=0.6, plateau_s=24 * STEP_S, trial_samples=3,
            back_off_s=300.0, remember_s=3600.0, max_caps_per_min=6), STEP_S)
        self.now = 1000.0
        self.disturbances: list[Disturbance] = []
        self.samples: list[Points] = []

    def cap(self, name: str = 'hog', knob: Knob = Knob.CPU_CORES) -> float:
        return min([float(one.value) for one in self.held.caps()
                    if (one.workload, one.knob) == (name, knob)]
                   or [math.inf])

    def turn(self, sample: Points, *levels: float | None) -> None:
        """One sample, with a level for each of the disturbances."""
        self.now += STEP_S
        self.samples = [*self.samples[-20:], sample]
        for one, level in zip(self.disturbances, levels, strict=True):
            one.newest = level
            one.latest = (None if level is None
                          else level / (1 + one.shift) - 1)
            one.excess = one.latest
        effects = self.held.step(self.now, sample, set(self.disturbances))
        for one in self.disturbances:
            one.take(effects)

    def answer(self, one: Disturbance, again: Sequence[str] = ()) -> None:
        one.take(self.held.answer(self.now, one, self.samples, again))

    def capped(self, *found: Disturbance) -> None:
        """Suffering under a hog of 4 cores, and answered."""
        self.disturbances = list(found)
        for _ in range(3):
            self.turn(uses(hog=4.0), *[1.4] * len(found))
        for one in found:
            self.answer(one)
