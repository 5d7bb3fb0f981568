# SPDX-License-Identifier: Apache-2.0

"""What PerfCloud learns from an application that is alone on a host.

Lama et al., PerfCloud, section III-C: a threshold is the peak of the deviation
that is observed when there is no contention.
"""

from __future__ import annotations

from collections.abc import Iterable

from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.algorithms.signals import CPI
from scavenger_openstack.algorithms.signals import IO_WAIT
from scavenger_openstack.types import Rates

PARAMETERS = {CPI.name: 'cpi_threshold', IO_WAIT.name: 'io_wait_threshold_s'}
"""The parameter of PerfCloud that is the threshold of each signal."""


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
