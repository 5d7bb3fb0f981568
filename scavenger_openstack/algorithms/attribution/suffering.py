# SPDX-License-Identifier: Apache-2.0

"""Foreground that waits for CPUs and has no incident, and why it has none.

Waiting as a share of runnable time is harm whatever was before; naming what
causes it takes direct evidence, or a time in which it was less.  None of the
constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Collection

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.direct import DirectAnswers
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource

MOST = 20
"""Those that wait most are told."""


def unexplained(history: History, answers: DirectAnswers, sample_s: float,
                least: float, explained: Collection[str]) -> dict[str, str]:
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
        share = direct.mean_level(name, 'run_delay', samples)
        if share is not None and share >= least:
            waiting.append((share, name))
    return {name: f'it waits for a CPU for {share:.0%} of its runnable time; '
            + _why(name, answers, history, sample_s, least)
            for share, name in sorted(waiting, reverse=True)[:MOST]}


def _held(name: str, answer: DirectEvidence) -> str:
    """Return what ran meanwhile, where it is nothing to be named."""
    own_s = answer.holders.get(name, 0.0)
    others_s = sum(answer.holders.values()) - own_s
    return (f'of {answer.waited_s:.2g} s that it waited, its own threads ran '
            f'for {min(1.0, own_s / answer.waited_s):.0%}, others for '
            f'{min(1.0, others_s / answer.waited_s):.0%}')


def _why(name: str, answers: DirectAnswers, history: History,
         sample_s: float, least: float) -> str:
    """Why nothing is named for it."""
    answer = answers.latest(name, Resource.CPU)
    if answer is not None and answer.waited_s > 0:
        return _held(name, answer)
    if not any(point.workload.priority is Priority.BACKGROUND
               for point in history.samples[-1].values()):
        return 'there is no background work on this host'
    values = [level for level in history.levels(name, 'run_delay')
              if level is not None]
    known_s = sample_s * len(values)
    if len(values) < explanation.MIN_SAMPLES:
        return (f'too new to compare: {known_s:.0f} s measured, '
                f'{sample_s * explanation.MIN_SAMPLES:.0f} s needed')
    if values[-1] - evidence.low_and_high(values)[0] < least:
        return (f'its wait was the same for all {known_s:.0f} s measured: '
                'it takes direct evidence, or a pause of a suspect for 30 s')
    return 'the evidence names no background workload yet'
