# SPDX-License-Identifier: Apache-2.0

"""Means of an application's signals, from which the conductor makes specs.

The mean of one workload since the last report is one sample; in CPI2, section
3.1, it is one of 10 s in each minute.  The sums can be merged over hosts and
hours.
"""

from __future__ import annotations

from collections.abc import Iterable

from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms import signals
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

HOUR_S = 3600.0

SumKey = tuple[specs.SpecKey, float]
"""The key of the spec, and the begin of the hour."""


class Sums:
    """The sums since the last :meth:`drain`."""

    def __init__(self) -> None:
        self._sums: dict[SumKey, tuple[specs.Statistics, float, float]] = {}

    def add(self, workloads: Iterable[WorkloadRates], cpu_model: str,
            wall_s: float) -> None:
        """Add one sample of each workload that is part of an application.

        :param wall_s: UNIX time of the sample
        """
        hour_s = wall_s // HOUR_S * HOUR_S
        for rated in workloads:
            workload = rated.workload
            if not workload.application:
                continue
            for name, signal in signals.SIGNALS.items():
                value = fit.number(signal.value(rated))
                if value is None:
                    continue
                key = specs.key(workload.project, workload.application,
                                cpu_model, name), hour_s
                samples, least, most = self._sums.get(key, (
                    specs.Statistics(), value, value))
                self._sums[key] = (
                    samples.add(value, fit.number(signals.number(
                        rated.cpu_cores))),
                    min(least, value), max(most, value))

    def drain(self, wall_s: float) -> list[report.Statistics]:
        """Return all sums as entries of one time, and begin again."""
        entries = [report.Statistics(
            sequence=1, time_s=fit.time_s(wall_s), project=project,
            application=application, signal=signal, cpu_model=cpu_model,
            hour_s=fit.time_s(hour_s), n=int(samples.n), mean=samples.mean,
            m2=max(0.0, samples.m2), least=least, most=most,
            cpu_cores=samples.cpu_cores)
            for ((project, application, cpu_model, signal), hour_s),
            (samples, least, most) in self._sums.items()]
        self._sums = {}
        return entries
