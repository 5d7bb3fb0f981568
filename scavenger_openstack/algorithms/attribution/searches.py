# SPDX-License-Identifier: Apache-2.0

"""When victims are searched for, and when not: one search at a time.

Those are that suffer and that neither direct evidence nor timing explains.  A
victim may feign, so all searches of a host that find nothing take a bounded
share of its time, and the next for the same victims comes later each time.
None of the constants is in a paper.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.algorithms.attribution.analysis import Thresholds
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution import experiment
from scavenger_openstack.algorithms.attribution.experiment import Suspect
from scavenger_openstack.algorithms.attribution.harm import Harm
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.search import Finding
from scavenger_openstack.algorithms.attribution.search import level_of
from scavenger_openstack.algorithms.attribution.search import MOST_EXPERIMENTS
from scavenger_openstack.algorithms.attribution.search import Search
from scavenger_openstack.algorithms.attribution.use import KNOB_TO_LIMIT
from scavenger_openstack.algorithms.attribution.use import use_of
from scavenger_openstack.algorithms import back_off
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

LASTING_S = 5.0
"""For so long a victim has to suffer, pauses of up to :data:`PAUSE_S` between
left out: direct evidence comes first."""

PAUSE_S = 120.0

CHANGED_SAMPLES = 6
"""For so many samples, if it was better before: timing may explain it."""

LEAST_RUN = 1e-3
"""Part of its runnable time that a victim runs at least."""

IN_VAIN = 0.1
"""Share of the time of a host that searches may take which find nothing."""


class Searches:
    """The search that goes on, and when each group may be searched for again.

    :param owner: the controller's name
    :param seed: orders of turns follow from it
    :ivar rest_s: how long a group rests after its first search in vain
    """

    def __init__(self, owner: str, seed: str) -> None:
        self._owner, self._seed = owner, seed
        self.rest_s = 0.0
        self._search: Search | None = None
        self._harm: Harm | None = None
        self._took_s = 0.0
        self._least = 0.0
        self._limits: Mapping[str, float] = {}
        self._suffered_s: dict[Pair, tuple[float, float]] = {}
        self._rests: dict[Pair, tuple[float, float, int]] = {}
        self._left: dict[Pair, list[list[str]]] = {}
        self._host_rests_s = -math.inf
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

    @property
    def pair(self) -> Pair | None:
        """The victims of the search that goes on."""
        return None if self._harm is None else self._harm.pair

    def due(self, now: float, suffered: Sequence[Harm], sample_s: float
            ) -> list[Harm]:
        """Return harm that may be searched for, the worst first."""
        for harm in suffered:
            before_s, _ = self._suffered_s.get(harm.pair, (-sample_s, now))
            self._suffered_s[harm.pair] = before_s + sample_s, now
        self._suffered_s = {
            pair: times for pair, times in self._suffered_s.items()
            if now - times[1] < PAUSE_S}
        self._rests = {pair: rest for pair, rest in self._rests.items()
                       if now < rest[0] + rest[1]}
        self._left = {pair: left for pair, left in self._left.items()
                      if pair in self._rests}
        if self._search is not None or now < self._host_rests_s:
            return []
        return sorted(
            [harm for harm in suffered
             if self._suffered_s[harm.pair][0] >= max(
                 LASTING_S, CHANGED_SAMPLES * sample_s * harm.changed)
             and now >= self._rests.get(harm.pair, (now, 0.0, 0))[0]],
            key=lambda harm: -harm.effect)

    def begin(self, now: float, harm: Harm, rates: Rates, sample: Points,
              topology: Mapping[int, Cpu], limits: Thresholds,
              limited: Collection[KnobKey], pay: Callable[[], bool]
              ) -> bool:
        """Begin to search, if there is anything to search among.

        :param limited: what has a limit already
        :param pay: whether one more workload may be limited
        """
        signal, pair = harm.pair[1], harm.pair
        suspects = _suspects(signal, harm.levels, sample, topology, limits,
                             limited)
        means = {rate.workload.id: level for rate in rates.workloads
                 if rate.workload.id in harm.levels
                 and (level := level_of(signal, rate)) is not None
                 and level > 0}
        searched = self._rests.get(pair, (0.0, 0.0, 0))[2]
        # Half of the chance for each search: there is one for all of them.
        max_chance = limits.max_chance / 2 ** (1 + searched)
        if (not suspects or not means or max_chance
                < MOST_EXPERIMENTS / 2 ** experiment.PAIRS):
            self._rest(now, pair)
            return False
        left = [kept for group in self._left.get(pair, ()) if (
            kept := [name for name in group if name in suspects])]
        search = Search(
            signal, means, suspects, left or experiment.halves(
                {name: suspect.weight for name, suspect
                 in suspects.items()},
                suspects), max_chance, max(
                    experiment.TURN_S,
                    experiment.TURN_TICKS * rates.interval_s),
            pay, f'{self._seed} {now}')
        if search.over:
            return False    # nothing may be limited now
        self._search, self._harm, self._took_s = search, harm, 0.0
        self._least = direct.EACH * limits.min_effect[signal]
        return True

    def step(self, now: float, rates: Rates) -> tuple[Harm, Finding] | None:
        """Take a tick.

        :returns: whose search has found something, and what
        """
        search, harm = self._search, self._harm
        if search is None or harm is None:
            return None
        present = {rate.workload.id for rate in rates.workloads
                   if rate.workload.priority is Priority.BACKGROUND}
        self.forget([name for name in search.names if name not in present])
        self._limits = search.step(now, rates)
        self._took_s += 0.0 if search.waits else rates.interval_s
        if search.free is not None and effect(
                search.signal, harm.base, search.free * harm.raised
                ) < self._least:
            self.end(now)       # they suffer no more
            return None
        if not search.over:
            return None
        if search.finding is None:
            self.end(now)
            return None
        self._search, self._harm, self._limits = None, None, {}
        self._left.pop(harm.pair, None)
        return harm, search.finding

    def forget(self, names: Collection[str]) -> None:
        """Forget workloads that are gone, or are others now."""
        if self._search is not None and names:
            self._search.forget(names)
            self._limits = {name: value for name, value
                            in self._limits.items() if name not in names}

    def end(self, now: float) -> None:
        """End the search; it has found nothing."""
        search, pair = self._search, self.pair
        self._search, self._harm, self._limits = None, None, {}
        if search is None or pair is None:
            return
        self._rest(now, pair, int(search.judged))
        self._left[pair] = search.left
        self._host_rests_s = now + self._took_s * (1 / IN_VAIN - 1)
        self.would = sorted(search.unheld)

    def _rest(self, now: float, pair: Pair, searched: int = 0) -> None:
        _, before_s, count = self._rests.get(pair, (0.0, 0.0, 0))
        rest_s = back_off.longer(before_s, first=self.rest_s,
                                 most=back_off.LONGEST_S)
        self._rests[pair] = now + rest_s, rest_s, count + searched

    def state(self) -> dict[str, Any]:
        """What has to outlive the process, as JSON."""
        return {'host_rests_s': max(0.0, self._host_rests_s), 'rests': [
            [list(group), signal, *rest]
            for (group, signal), rest in self._rests.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from that."""
        self._host_rests_s = float(state.get('host_rests_s', 0.0))
        self._rests = {
            (tuple(map(str, group)), str(signal)): (
                float(until_s), float(rest_s), int(count))
            for group, signal, until_s, rest_s, count
            in state.get('rests', ())}


def _suspects(signal: str, victims: Mapping[str, float], sample: Points,
              topology: Mapping[int, Cpu], limits: Thresholds,
              limited: Collection[KnobKey]) -> dict[str, Suspect]:
    """Background that uses much of what the victims lack, and that a limit
    would take something from."""
    knob = KNOB_TO_LIMIT[signal]
    by_misses = signal == 'cpi' and any(
        point.misses_per_s is not None for point in sample.values())
    own = [sample[name].workload for name in victims if name in sample]
    suspects: dict[str, Suspect] = {}
    total = 0.0
    for name, point in sample.items():
        use = use_of(knob, point) or 0.0
        weight = (point.misses_per_s or 0.0) if by_misses else use
        total += weight
        floor = point.workload.floor.get(knob, 0.0)
        if (use > 0 and floor <= experiment.CUT * use
                and (name, knob) not in limited
                and point.workload.priority is Priority.BACKGROUND
                and any(sharing.share(signal, victim, point.workload,
                                      topology) for victim in own)):
            suspects[name] = Suspect(use, weight)
    # Many that use a little each are together as likely as one.
    least = total * min(limits.min_share, 0.5 / max(1, len(suspects)))
    return {name: suspect for name, suspect in suspects.items()
            if suspect.weight >= least > 0}


def attributed(now: float, harm: Harm, finding: Finding, limits: Thresholds
               ) -> Disturbance | None:
    """What the suspect that a search found does to the group; ``None`` where
    that is too little to be an antagonist."""
    signal, raised, result = harm.pair[1], harm.raised, finding.result
    mean = sum(harm.levels.values()) / len(harm.levels)
    # A limit takes a part of its use away, and so of what it does.
    base = raised * (1 - min(
        0.9, (1 - result.limited / result.free) / experiment.CUT))
    by = effect(signal, base, raised)
    if by < direct.EACH * limits.min_effect[signal]:
        return None
    new = harm.disturbance(now, min(limits.min_effect[signal], by), base)
    before, after = mean, mean * result.limited / result.free
    if signal == 'run_delay':   # of seconds run, not of runnable time
        before, after = (share / max(LEAST_RUN, 1 - share)
                         for share in (before, after))
    new.named[finding.name] = Ground(
        finding.name, GroundKind.EXPERIMENT, chance=result.chance,
        before=before, after=after)
    new.scores = [(finding.name, 1 - result.chance)]
    return new
