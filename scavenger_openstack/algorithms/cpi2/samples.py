# SPDX-License-Identifier: Apache-2.0

"""Samples of a signal as CPI2 takes them."""

from __future__ import annotations

from scavenger_openstack.algorithms.sampling import Sample
from scavenger_openstack.algorithms.sampling import Sampler
from scavenger_openstack.algorithms.signals import MIN_CORES
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.signals import Signal
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates


class CpiSampler:
    """The gate of 0.25 CPU-s/s is for a sample as a whole, not for its ticks.

    That on disk operations, which is not in the paper, is for each tick.
    Source: CPI2, section 4.1, table 2.
    """

    def __init__(self, signal: Signal, *, duration_s: float,
                 interval_s: float) -> None:
        self._gated = signal.knob is Knob.CPU_CORES
        if self._gated:
            field = signal.field
            signal = signal._replace(
                value=lambda rates: number(getattr(rates, field)))
        self._sampler = Sampler(signal, duration_s=duration_s,
                                interval_s=interval_s)

    def add(self, now: float, rates: Rates) -> Sample | None:
        """Take one tick; the sample, when this tick completes one."""
        sample = self._sampler.add(now, rates)
        if sample is None or not self._gated:
            return sample
        return sample._replace(values={
            name: value for name, value in sample.values.items()
            if sample.uses.get(name, 0.0) >= MIN_CORES})
