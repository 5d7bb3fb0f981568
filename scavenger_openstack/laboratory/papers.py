# SPDX-License-Identifier: Apache-2.0

"""The detectors of papers on a simulated host, with what they would know.

CPI2 has specs from other hosts, PerfCloud thresholds that it learned.  Source
of these: Lama et al., PerfCloud, section III-C: a threshold is the peak of the
deviation that is observed when there is no contention.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.algorithms.sampling import CpiSampler
from scavenger_openstack.algorithms.signals import CPI
from scavenger_openstack.algorithms.signals import IO_WAIT
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.types import Rates

PAPERS = {'cpi2': 'cpi', 'cpi2-run_delay': 'run_delay',
          'cpi2-io_wait': 'io_wait', 'perfcloud': '',
          'perfcloud-constants': ''}
"""The detectors of papers, and the signal of each CPI2: the paper's is cpi.
PerfCloud has learnt its thresholds, or has those of the paper's machines."""

PARAMETERS = {CPI.name: 'cpi_threshold', IO_WAIT.name: 'io_wait_threshold_s'}
"""The parameter of PerfCloud that is the threshold of a signal, by it."""


def paper(name: str, drawn: Drawn, alone: Sequence[Rates]) -> Controller:
    """Return the detector of a paper, with what it would know.

    Both learn from the same applications while they are alone.

    :param alone: the same host without any background
    """
    interval_s = drawn.interval_s
    if signal := PAPERS[name]:
        params = cpi2.Params(signal=signal)
        return cpi2.Controller(
            params, interval_s=interval_s,
            specs_of={(('', application), drawn.machine.cpu_model): spec
                      for application, spec in application_specs(
                          alone, params, drawn).items()})
    constants = perfcloud.Params()
    if name == 'perfcloud-constants':
        return perfcloud.Controller(constants, interval_s=interval_s)
    learnt: dict[str, Any] = {
        parameter: level for parameter, level in peaks(
            [rates for rates in alone if rates.time_s >= drawn.warmup_s],
            constants, interval_s).items() if level is not None}
    return perfcloud.Controller(dataclasses.replace(constants, **learnt),
                                interval_s=interval_s)


def application_specs(ticks: Iterable[Rates], params: cpi2.Params,
                      drawn: Drawn) -> dict[str, specs.Spec]:
    """Return the spec of each application from undisturbed samples of 10 s.

    Taken without pause, so that the few minutes of a scenario do; they are
    as long as the paper's.
    """
    every_s = max(params.sample_s, drawn.interval_s)
    sampler = CpiSampler(SIGNALS[params.signal], duration_s=every_s,
                         interval_s=every_s)
    statistics: dict[str, specs.Statistics] = {}
    for rates in ticks:
        if rates.time_s < drawn.warmup_s:
            continue
        sample = sampler.add(rates.time_s, rates)
        if sample is None:
            continue
        for name, value in sample.values.items():
            application = sample.rates[name].workload.application
            if application and math.isfinite(value):
                statistics[application] = statistics.get(
                    application, specs.Statistics()).add(value)
    return {application: specs.Spec(entry.mean, entry.stddev or 0.0, entry.n,
                                    1, 'directive')
            for application, entry in statistics.items() if entry.n > 1}


def peaks(ticks: Iterable[Rates], params: perfcloud.Params,
          interval_s: float = 1.0) -> dict[str, float | None]:
    """Return the largest deviation of each signal, by its parameter.

    As the controller with these parameters computes it, of the application
    that deviates most; ``None`` where no two VMs of one had the signal.

    :param ticks: of one host without contention, oldest first
    :param interval_s: from one tick to the next
    """
    controller = perfcloud.Controller(params, interval_s=interval_s)
    largest: dict[str, float | None] = dict.fromkeys(PARAMETERS.values())
    for rates in ticks:
        facts = controller.step(rates.time_s, rates).facts
        for signal, parameter in PARAMETERS.items():
            level = facts.get(signal, {}).get('deviation')
            if level is not None:
                largest[parameter] = max(largest[parameter] or 0.0, level)
    return largest
