# SPDX-License-Identifier: Apache-2.0

"""Foreground that waits for CPUs and has no incident, and why it has none.

Waiting as a share of runnable time is harm whatever was before; naming what
causes it takes a time in which it was less.  None of the constants is in a
paper.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.signals import MIN_CORES
from scavenger_openstack.types import Priority

MOST = 20
"""Those that wait most are told."""

LEAST_CORES = 0.01
"""CPU time used and waited for, in cores: what hardly runs is left out."""


def unexplained(history: History, sample_s: float, least: float,
                explained: Collection[str]) -> dict[str, str]:
    """A sentence about each workload that suffers without an incident.

    :param least: share of its runnable time that it waits, to count
    :param explained: the victims of open incidents
    """
    samples = list(history.samples)[-RECENT:]
    waiting = []
    for name, point in (samples[-1] if samples else {}).items():
        if (point.workload.priority is not Priority.FOREGROUND
                or name in explained):
            continue
        cores, waited = _means(name, samples)
        if cores is None or waited is None or cores + waited < LEAST_CORES:
            continue
        share = waited / (cores + waited)
        if share >= least:
            waiting.append((share, name, cores))
    return {name: f'it waits for a CPU for {share:.0%} of its runnable time; '
            + _why(name, cores, history, sample_s, least)
            for share, name, cores in sorted(waiting, reverse=True)[:MOST]}


def _means(name: str, samples: Sequence[Points]
           ) -> tuple[float | None, float | None]:
    """Cores used and waited for."""
    means: list[float | None] = []
    for field in ('cores', 'waited'):
        values = [value for one in samples if name in one
                  and (value := getattr(one[name], field)) is not None]
        means.append(sum(values) / len(values) if values else None)
    return means[0], means[1]


def _why(name: str, cores: float, history: History, sample_s: float,
         least: float) -> str:
    """Why nothing is named for it."""
    if cores < MIN_CORES:
        return (f'it uses {cores:.2g} cores; workloads below {MIN_CORES} '
                'cores are not compared')
    if not any(one.workload.priority is Priority.BACKGROUND
               for one in history.samples[-1].values()):
        return 'there is no background work on this host'
    values = [level for level in history.levels(name, 'run_delay')
              if level is not None]
    known_s = sample_s * len(values)
    if len(values) < explanation.MIN_SAMPLES:
        return (f'too new to compare: {known_s:.0f} s measured, '
                f'{sample_s * explanation.MIN_SAMPLES:.0f} s needed')
    if values[-1] - evidence.low_and_high(values)[0] < least:
        return (f'its wait was the same for all {known_s:.0f} s measured: '
                'pause a suspect for 30 s')
    return 'the evidence names no background workload yet'
