# SPDX-License-Identifier: Apache-2.0

"""The document of a profile, and notes for the operator."""

from __future__ import annotations

import platform
import time

from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack.ibench.profile import curve
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile import work as work_
from scavenger_openstack.ibench import report

SHOWN_BY_WAITS = ('integer', 'floating_point', 'vector')
"""SoIs whose harm is all in waits for CPUs, where no other thread shares the
core; that of the others takes instructions or a --qos to be seen."""


def of_work(work: work_.Work, scale: measure.Scale, signal: signals.Signal
            ) -> report.Document:
    """Return the document of what was measured, and add notes to it.

    It has no kind, target and project: what stores it names them.
    """
    tolerated: dict[str, report.Document] = {}
    caused: dict[str, report.Document] = {}
    is_blind = work.wish.qos is None and isinstance(
        signal, signals.CountedSignal) and not signal.counts_instructions
    unseen = []
    for soi, measured in work.measured.items():
        estimate = measure.tolerated(measured, scale)
        if is_blind and estimate.value == 1 \
                and soi.name not in SHOWN_BY_WAITS:
            unseen.append(soi.name)
        else:
            tolerated[soi.name] = _of_estimate(estimate)
        alone = work.probes[soi].alone
        if alone and measured.rates:
            caused[soi.name] = _of_estimate(curve.caused(
                alone, measured.rates))
        elif soi.name in unseen:
            work.missing[soi.name] = 'no counter shows its harm here'
    if unseen:
        work.notes.append(
            f'{work.qos.signal} is made of waits for CPUs and disks here, as '
            'no instructions are counted. So it cannot show that these harm '
            f'nothing, and what is tolerated of them is left out: '
            f'{", ".join(unseen)}; name a --qos of a --meter')
    if 2 * scale.noise > curve.BOUND:
        work.notes.append(
            f'alone, {work.qos.signal} varies by more than its bound is away '
            f'({scale.noise:.1f} times that, as a standard deviation): only '
            'harm above twice the noise counts; give more --seconds')
    if not (work.wish.command or work.wish.meter):
        work.notes.append(
            'the workload was not stopped: the rate of a probe alone is that '
            'while it left the CPU to the probe, so "caused" has the '
            'contention for CPUs whole, and that for caches and memory only '
            'as far as the workload pauses')
    return {'source': 'measured',
            'form': 'short' if work.wish.short else 'long',
            'measured_s': round(time.time(), 3), 'host': platform.node(),
            'qos': {'signal': work.qos.signal, 'alone': scale.alone,
                    'bound': scale.bound},
            'tolerated': tolerated, 'caused': caused,
            'missing': work.missing}


def _of_estimate(estimate: Estimate) -> report.Document:
    return {name: round(number, 4)
            for name, number in estimate._asdict().items()}
