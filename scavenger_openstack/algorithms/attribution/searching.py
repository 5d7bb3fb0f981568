# SPDX-License-Identifier: Apache-2.0

"""When to search among suspects, and what follows: one search at a time.

A victim is searched for that suffers, by what it was before or what its
application is elsewhere, and that neither direct evidence nor timing explains.
Without harm there is no search.  None of the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.analysis import RECENT
from scavenger_openstack.algorithms.attribution.analysis import Thresholds
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.disturbance import above
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.search import Result
from scavenger_openstack.algorithms.attribution.search import Search
from scavenger_openstack.algorithms.attribution.search import Suspect
from scavenger_openstack.algorithms.attribution import use as use_
from scavenger_openstack.algorithms import back_off
from scavenger_openstack.algorithms.cpi2 import specs as specs_
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

DEVIATIONS = 2.0
"""Above the mean of its application from which a victim suffers: CPI2,
section 4.1."""

LEAST_EFFECT = 0.01
"""What an experiment shows to be more than chance counts, however small."""

LASTING_SAMPLES, CHANGED_SAMPLES = 2, 6
"""Samples for which it has to; for more if it was better before: timing may
explain it then."""

Pair = tuple[VictimGroup, str]


class Harm(NamedTuple):
    """What a group suffers of a signal: by how much more than undisturbed,
    and the level of each member; ``changed``: it was better before."""

    pair: Pair
    effect: float
    levels: Mapping[str, float]
    changed: bool

    def disturbance(self, now: float, least: float, raised: float,
                    base: float) -> Disturbance:
        """Of nothing that is named yet.

        :param least: the effect from which it suffers
        :param raised: the signal now, and ``base`` without what disturbs
        """
        group, signal = self.pair
        return Disturbance(
            group, signal, now, self.levels, base, least,
            direct.NOISE * raised, cause=direct.CAUSES.get(signal, 'unknown'),
            members={name: above(signal, base / raised * level, least)
                     for name, level in self.levels.items()}, raised=raised)

    @property
    def raised(self) -> float:
        """The pooled signal now."""
        return direct.pooled(self.pair[1], self.levels, self.levels)


def harms(groups: Mapping[VictimGroup, Sequence[str]], history: History,
          limits: Thresholds, specs: specs_.Specs, cpu_model: str
          ) -> list[Harm]:
    """What each group suffers by what was before, or is usual elsewhere."""
    samples = list(history.samples)[-RECENT:]
    found = []
    for group, members in groups.items():
        for signal in SIGNALS:
            levels = {name: level for name in members if (
                level := direct.mean_level(name, signal, samples)) is not None}
            least = limits.min_effect[signal]
            by: list[float] = []
            changed = False
            for name, level in levels.items():
                low = _low(name, signal, history)
                usual = _usual(signal, samples[-1][name], specs, cpu_model)
                base = low if usual is None else usual
                if base is not None:
                    by.append(effect(signal, base, level))
                changed |= (low is not None
                            and effect(signal, low, level) >= least)
            if by and sum(by) / len(by) >= least:
                found.append(Harm((group, signal), sum(by) / len(by), levels,
                                  changed))
    return found


def _usual(signal: str, point: Point, specs: specs_.Specs, cpu_model: str
           ) -> float | None:
    """The signal undisturbed, whatever was before here; ``None`` where that
    is not known."""
    workload = point.workload
    if signal == 'run_delay':
        return 0.0
    if not workload.application:
        return None
    spec = specs.get(specs_.key(
        workload.project, workload.application, cpu_model, signal))
    return None if spec is None else spec.mean + DEVIATIONS * spec.stddev


def _low(name: str, signal: str, history: History) -> float | None:
    """What the signal was at its best; ``None`` where little is known."""
    levels = [level for level in history.levels(name, signal)
              if level is not None]
    return (None if len(levels) < explanation.MIN_SAMPLES
            else evidence.low_and_high(levels)[0])


class Searching:
    """The search that goes on, and when each group may be searched again.

    :param owner: the controller's name
    :param seed: orders of turns follow from it
    """

    def __init__(self, owner: str, seed: str) -> None:
        self._owner, self._seed = owner, seed
        self._search: Search | None = None
        self._harm: Harm | None = None
        self._limits: Mapping[str, float] = {}
        self._since_s: dict[Pair, float] = {}
        self._rests: dict[Pair, tuple[float, float]] = {}
        self.would: Sequence[str] = ()

    def caps(self) -> tuple[Cap, ...]:
        """The limits of this turn."""
        search = self._search
        if search is None:
            return ()
        return tuple(Cap(
            name, search.knob, value, self._owner,
            f'for some seconds, to see whether {search.signal} of '
            f'{", ".join(list(search.means)[:3])} falls')
            for name, value in self._limits.items())

    @property
    def examined(self) -> list[KnobKey]:
        """The suspects of the experiment that goes on."""
        search = self._search
        return [(name, search.knob) for name in search.names
                ] if search is not None else []

    def due(self, now: float, harmed: Sequence[Harm], sample_s: float
            ) -> list[Harm]:
        """Of what is suffered, what may be searched for, the worst first."""
        pairs = {harm.pair for harm in harmed}
        self._since_s = {pair: self._since_s.get(pair, now) for pair in pairs}
        self._rests = {pair: rest for pair, rest in self._rests.items()
                       if now < rest[0] + rest[1]}
        if self._search is not None:
            return []
        return sorted(
            [harm for harm in harmed
             if now - self._since_s[harm.pair] >= sample_s * (
                 CHANGED_SAMPLES if harm.changed else LASTING_SAMPLES)
             and now >= self._rests.get(harm.pair, (now, 0.0))[0]],
            key=lambda harm: -harm.effect)

    def begin(self, now: float, harm: Harm, rates: Rates, sample: Points,
              topology: Mapping[int, Cpu], limits: Thresholds) -> bool:
        """Begin to search, if there is anything to search among."""
        signal = harm.pair[1]
        suspects = _suspects(signal, harm.levels, sample, topology, limits)
        means = {one.workload.id: value for one in rates.workloads
                 if one.workload.id in harm.levels
                 and (value := SIGNALS[signal].value(one)) is not None
                 and value > 0}
        if not suspects or not means:
            return False
        self._search = Search(
            signal, use_.KNOB_TO_LIMIT[signal], means, suspects,
            limits.max_chance, max(experiment.TURN_S, rates.interval_s),
            f'{self._seed} {now}')
        self._harm = harm
        return True

    @property
    def pair(self) -> Pair | None:
        """For which victims the search is that goes on."""
        return None if self._harm is None else self._harm.pair

    def step(self, now: float, rates: Rates, first_s: float
             ) -> tuple[Harm, Result] | None:
        """Take a tick.

        :param first_s: how long the group rests after its first search
        :returns: whose search has found something, and what
        """
        search = self._search
        if search is None or self._harm is None:
            return None
        present = {one.workload.id for one in rates.workloads
                   if one.workload.priority is Priority.BACKGROUND}
        if not present.issuperset(search.suspects):
            self.end()      # one is gone, or is foreground now
            return None
        self._limits = search.step(now, rates)
        if not search.over:
            return None
        self._search, self._limits = None, {}
        if search.result is None:
            pair = self._harm.pair
            rest_s = back_off.longer(self._rests.get(pair, (0.0, 0.0))[1],
                                     first=first_s, most=back_off.LONGEST_S)
            self._rests[pair] = now + rest_s, rest_s
        self.would = list(search.suspects) if search.broken else ()
        harm, self._harm = self._harm, None
        return ((harm, search.result)
                if harm is not None and search.result is not None else None)

    def end(self) -> None:
        """Drop the search: nothing is learnt of it."""
        self._search, self._harm, self._limits = None, None, {}


def _suspects(signal: str, victims: Mapping[str, float], sample: Points,
              topology: Mapping[int, Cpu], limits: Thresholds
              ) -> dict[str, Suspect]:
    knob = use_.KNOB_TO_LIMIT[signal]
    known = signal == 'cpi' and any(
        point.misses_per_s is not None for point in sample.values())
    uses = {name: (use_.use_of(knob, point) or 0.0,
                   (point.misses_per_s or 0.0) if known
                   else use_.use_of(knob, point) or 0.0)
            for name, point in sample.items()}
    least = limits.min_share * sum([weight for _, weight in uses.values()])
    own = [sample[name].workload for name in victims if name in sample]
    return {
        name: Suspect(sample[name].workload, use, weight)
        for name, (use, weight) in uses.items()
        if use > 0 and weight >= least and math.isfinite(use)
        and sample[name].workload.priority is Priority.BACKGROUND
        and any(sharing.share(signal, victim, sample[name].workload, topology)
                for victim in own)}


def attributed(now: float, harm: Harm, result: Result, limits: Thresholds
               ) -> Disturbance:
    """What the suspect that a search found does to the group."""
    signal, raised = harm.pair[1], harm.raised
    mean = sum(harm.levels.values()) / len(harm.levels)
    # A limit takes a part of its use away, and so of what it does.
    gone = min(0.9, (1 - result.limited / result.free) / experiment.CUT)
    base = raised * (1 - gone)
    new = harm.disturbance(now, min(limits.min_effect[signal], max(
        effect(signal, base, raised), LEAST_EFFECT)), raised, base)
    new.named[result.name] = Ground(
        result.name, GroundKind.TRIAL, chance=result.chance, before=mean,
        after=mean * result.limited / result.free)
    new.scores = [(result.name, 1 - result.chance)]
    return new
