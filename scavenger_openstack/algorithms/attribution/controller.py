# SPDX-License-Identifier: Apache-2.0
"""Names antagonists, limits them just enough, and checks that it helped.

Ours; it stands beside the papers' own detectors.  The evidence is that of
:mod:`~scavenger_openstack.algorithms.attribution.explanation`, the caps follow
:mod:`~scavenger_openstack.algorithms.attribution.cubic`, and each is a
:mod:`~scavenger_openstack.algorithms.attribution.trial`.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.attribution import analysis
from scavenger_openstack.algorithms.attribution.antagonist import State
from scavenger_openstack.algorithms.attribution.cap_control import CapControl
from scavenger_openstack.algorithms.attribution import direct
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution.disturbance import felt_s
from scavenger_openstack.algorithms.attribution.disturbance import groups_of
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution.harm import Harm
from scavenger_openstack.algorithms.attribution.harm import harms
from scavenger_openstack.algorithms.attribution.harm import learn_best_waits
from scavenger_openstack.algorithms.attribution.harm import least_share
from scavenger_openstack.algorithms.attribution.harm import of_cache
from scavenger_openstack.algorithms.attribution.harm import wanted
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import ORDER
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.history import THROTTLED
from scavenger_openstack.algorithms.attribution.incidents import evidence_of
from scavenger_openstack.algorithms.attribution.incidents import incidents
from scavenger_openstack.algorithms.attribution.looks import Looks
from scavenger_openstack.algorithms.attribution.params import Params as Params
from scavenger_openstack.algorithms.attribution.presence import Presence
from scavenger_openstack.algorithms.attribution.searches import attributed
from scavenger_openstack.algorithms.attribution.searches import Searches
from scavenger_openstack.algorithms.attribution import suffering
from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.algorithms import saved_state
from scavenger_openstack.algorithms.series import Series
from scavenger_openstack.algorithms.signals import LINK_USE
from scavenger_openstack.algorithms.signals import MEMORY_WAIT
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Rates

NAME = 'attribution'

A_TURN = 'a turn of an experiment without limits'


class Controller:
    """Attribution on one host."""

    name = NAME
    kind = 'detector'
    params_type = Params
    at_start = frozenset({'sample_s', 'window_s'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '') -> None:
        self.params = params = params or Params()
        self._host = host
        self._boot_id = boot_id
        sample_s = self._sample_s = max(params.sample_s, interval_s)
        self._history = History(sample_s=sample_s, samples=max(
            2, round(params.window_s / sample_s)))
        self._disturbances: dict[Pair, Disturbance] = {}
        self._caps = CapControl(NAME, params, sample_s)
        self._looks = Looks(sample_s, params.window_s)
        self._lasted_s: dict[tuple[str, str], float] = {}
        self._suffering: dict[str, str] = {}
        self._direct = direct.DirectAnswers()
        self._wanted: dict[Ask, float] = {}
        self._searches = Searches(NAME, f'{host} {boot_id}')
        self._suffered: set[Pair] = set()
        self._harms: dict[Pair, Harm] = {}
        self._best_waits = BestWaits()
        self._specs: Specs = {}
        self._time_s = -math.inf
        self._cpu_model: str | None = None
        self._presence = Presence()
        self.analyses = 0
        self.tune(params)

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params
        self._limits = analysis.Thresholds(
            min_effect={'cpi': params.min_effect,
                        'run_delay': params.min_effect,
                        'io_wait': params.min_io_effect,
                        LINK_USE: params.min_effect,
                        MEMORY_WAIT: params.min_effect},
            max_chance=params.max_chance, min_share=params.min_share,
            min_misses_per_s=params.min_misses_per_s,
            own_limit_share=params.own_limit_share)
        self._most_looks = max(1, round(
            params.max_analyses_per_min * self._sample_s / 60))
        self._caps.tune(params)
        self._searches.rest_s = params.back_off_s

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that should be in force, and the open incidents."""
        if self._time_s < now < math.inf:
            if now - self._time_s > self.params.window_s:
                self._history.clear()
            if rates.cpu_model not in (None, self._cpu_model):
                # No base holds on another CPU.
                self._history.clear()
                self._disturbances.clear()
                self._cpu_model = rates.cpu_model
            self._time_s = now
            self._direct.take(now, rates.direct)
            self._forget_the_gone(now, rates)
            self._take_search(now, rates)
            if self._history.add(now, rates,
                                 free=len(self._searches.examined) < 2):
                self._judge(now, rates)
            if self._searches.pair not in (None, *(
                    pair for pair, disturbance in self._disturbances.items()
                    if disturbance.begun_s)):
                # Its victims are gone.
                self._searches.end(now)
            for disturbance in self._disturbances.values():
                if not self._open(now, disturbance):
                    disturbance.end()
        else:       # nothing says how long its limits are there by now
            self._searches.end(self._time_s)
        open_incidents = tuple([
            incident for disturbance in self._disturbances.values()
            for incident in incidents(
                self._time_s, disturbance, self._caps, self.params.quiet_s,
                self._presence.background, self._examined(disturbance),
                self._host, self._boot_id)])
        for incident in open_incidents:
            self._lasted_s[incident.victim, incident.signal] = self._time_s
        return Decision(
            (*self._caps.caps(), *self._searches.caps()), open_incidents,
            {'samples': len(self._history.samples),
             'analyses': self.analyses,
             'disturbances': len(self._disturbances),
             'suffering': self._suffering,
             'remembered': self._caps.remembered(self._time_s),
             'examined': [name for name, _ in self._searches.examined],
             'would_examine': list(self._searches.would),
             'tried': dataclasses.asdict(self._caps.tally)},
            removal_reasons={
                key: str(antagonist.removed) for key, antagonist
                in self._caps.antagonists.items()
                if antagonist.limit is None and antagonist.removed is not None
                } | dict.fromkeys(self._searches.examined, A_TURN),
            asks=self._direct.asks(self._time_s, self._wanted,
                                   self.params.direct_share))

    def _forget_the_gone(self, now: float, rates: Rates) -> None:
        """Forget workloads that are gone, also where another one has the id
        now."""
        presence = self._presence
        changes = presence.follow(
            now, [rated.workload for rated in rates.workloads],
            self.params.remember_s)
        if changes is None:
            return
        for workload in changes.made:
            self._history.forget_before(workload.id, workload.created_s)
            self._direct.forget(workload.id)
        self._searches.forget(changes.gone)
        for name in changes.gone:
            for disturbance in self._disturbances.values():
                disturbance.forget(name, away=name in presence.away)
        self._caps.leave(now, presence.away)
        self._caps.keep(presence.kept)
        self._disturbances = {
            key: disturbance for key, disturbance
            in self._disturbances.items() if disturbance.members}
        self._caps.attribute(set(self._disturbances.values()))

    def _examined(self, disturbance: Disturbance) -> list[str]:
        """The suspects of the experiment for these victims."""
        if self._searches.pair != disturbance.pair:
            return []
        return [name for name, _ in self._searches.examined]

    def _open(self, now: float, disturbance: Disturbance) -> bool:
        """Whether it goes on; one that is over may still be remembered."""
        return (bool(self._caps.limited(disturbance)
                     or self._examined(disturbance))
                or not disturbance.over(now, self.params.quiet_s))

    def _judge(self, now: float, rates: Rates) -> None:
        """Judge a new sample."""
        samples = list(self._history.samples)
        groups = groups_of(samples[-1])
        self._disturbances = {
            key: disturbance for key, disturbance in self._disturbances.items()
            if key[0] in groups
            and (disturbance.named or disturbance.signal == THROTTLED
                 or key in self._suffered or key == self._searches.pair)
            and not disturbance.lost(now, self.params.quiet_s)
            and (self._caps.remembers(disturbance)
                 or self._open(now, disturbance))}
        for disturbance in self._disturbances.values():
            disturbance.see(now, samples[-1])
        effects = self._caps.step(now, samples[-1],
                                  set(self._disturbances.values()))
        for disturbance in self._disturbances.values():
            disturbance.take(effects)
            disturbance.look_at_named(
                now, samples, self._caps.limited(disturbance))
        learn_best_waits(now, self._history, self._best_waits)
        self._harms = {harm.pair: harm for harm in harms(
            groups, self._history, self._limits, self._specs,
            self._cpu_model or '', self._best_waits)}
        self._looks.forget(now, self.params.remember_s)
        # What was not looked at for longest comes first: no group can keep
        # the others from it by suffering, or feigning to, all the time.
        looks = 0
        for group, signal in sorted(
                [(group, signal) for group in groups
                 for signal in ORDER],
                key=self._looks.latest_s):
            if looks == self._most_looks:
                break
            looks += self._look(now, group, groups[group], signal, samples,
                                rates)
        # The sample may be of workloads that have left meanwhile.
        self._caps.leave(now, self._presence.away)
        self._lasted_s = {key: time_s for key, time_s
                          in self._lasted_s.items()
                          if now - time_s < self.params.window_s}
        self._wanted = wanted(self._history, rates, self._limits, {
            (name, signal) for (_, signal), harm in self._harms.items()
            for name in harm.levels})
        for disturbance in self._disturbances.values():
            if self._open(now, disturbance):
                disturbance.begin(now, self._history, self._lasted_s,
                                  quiet_s=self.params.quiet_s)
        self._begin_search(now, rates)
        self._suffering = suffering.unexplained(
            self._history, self._direct, self._sample_s,
            self.params.min_effect,
            {name for disturbance in self._disturbances.values()
             for name in disturbance.begun_s})

    def _begin_search(self, now: float, rates: Rates) -> None:
        """Search for what disturbs those that nothing explains."""
        sample = self._history.samples[-1]
        suffered = [
            harm for harm in self._harms.values()
            if not self._explained(now, harm)
            and sample[next(iter(harm.levels))].workload.protected]
        self._suffered = {harm.pair for harm in suffered}
        limits = {
            key: antagonist.state
            for key, antagonist in self._caps.antagonists.items()
            if antagonist.limit is not None
            or antagonist.state is State.REMEMBERED}
        self._searches.forget([name for name, knob in self._searches.examined
                               if (name, knob) in limits])
        if State.ON_TRIAL in limits.values():
            return      # one thing at a time
        for harm in self._searches.due(now, suffered, self._sample_s):
            if self._searches.begin(
                    now, harm, rates, sample, rates.topology, self._limits,
                    limits, lambda: self._caps.one_more(now)):
                if harm.pair not in self._disturbances:
                    self._add(now, harm.disturbance(
                        now, self._limits.min_effect[harm.pair[1]],
                        harm.base))
                break

    def _explained(self, now: float, harm: Harm) -> bool:
        """Whether it is known what disturbs these victims now."""
        disturbance = self._disturbances.get(harm.pair)
        if disturbance is not None and disturbance.named and (
                not disturbance.suffers_now
                or now in disturbance.active_s.values()):
            return True
        if self._direct.will_tell(now, harm.pair[1], harm.levels):
            return True
        holders = self._direct.of(harm.pair[1], list(harm.levels), new=False)
        return holders is not None and holders.known

    def _take_search(self, now: float, rates: Rates) -> None:
        """Go on with a search, and take what it has named."""
        if not self._caps.may_limit(now):
            self._searches.end(now)
        ended = self._searches.step(now, rates)
        if ended is not None and self._history.samples:
            harm, finding = ended
            new = attributed(now, harm, finding, self._limits)
            disturbance = self._disturbances.get(harm.pair)
            if new is not None and disturbance is not None and (
                    disturbance.named):
                disturbance.learn(new, self._caps.limited(disturbance))
            elif new is not None:
                self._add(now, new)
                disturbance = new
            if new is not None and disturbance is not None:
                # The newest sample is of turns with limits, too.
                disturbance.newest = disturbance.raised
                disturbance.latest = effect(
                    disturbance.signal, disturbance.base, disturbance.raised)
                disturbance.take(self._caps.answer(
                    now, disturbance, list(self._history.samples), new.named))
        self._caps.examine(self._searches.examined)

    def _add(self, now: float, new: Disturbance) -> None:
        """Open the incidents of a disturbance that no timing has shown."""
        before = self._disturbances.get(new.pair)
        if before is not None:
            new.begun_s = before.begun_s
        self._disturbances[new.pair] = new
        new.see(now, self._history.samples[-1])
        new.begin(now, self._history, self._lasted_s,
                  quiet_s=self.params.quiet_s)

    def _look(self, now: float, group: VictimGroup, members: list[str],
              signal: str, samples: list[Points], rates: Rates) -> bool:
        """Whether that took an analysis."""
        disturbance = self._disturbances.get((group, signal))
        holders = self._direct.of(signal, members, new=True)
        if (disturbance is not None and holders is not None
                and holders.kind is GroundKind.DIRECT and holders.known
                and self._caps.limited(disturbance)
                and disturbance.split(holders.shares)):
            self._caps.ease(disturbance)
        fine = disturbance is not None and not (
            disturbance.suffers or disturbance.suffers_now)
        if disturbance is not None and fine and (
                holders is None or disturbance.shift > 0
                or self._caps.limited(disturbance)):
            return False    # it is answered as it should be
        new = None if holders is None else self._direct_look(
            now, group, signal, holders)
        looks = False
        if disturbance is not None and holders is not None:
            disturbance.clear(self._cleared(
                signal, members, samples, holders, disturbance.named.keys()
                - self._caps.limited(disturbance)))
            if (new is not None and holders.kind is GroundKind.DIRECT
                    and not self._caps.limited(disturbance)):
                disturbance.lower(now, new)
        if fine and new is None:
            return False
        if new is None:
            new, looks = self._timing_look(now, group, members, signal,
                                           samples, rates)
        if disturbance is None:
            if new is None:
                return looks
            new.protected = samples[-1][members[0]].workload.protected
            disturbance = self._disturbances[group, signal] = new
            disturbance.see(now, samples[-1])
        elif new is not None:
            disturbance.learn(new, self._caps.limited(disturbance))
        disturbance.take(self._caps.answer(
            now, disturbance, samples, new.named if new is not None else ()))
        return looks

    def _direct_look(self, now: float, group: VictimGroup, signal: str,
                     holders: direct.Holders) -> Disturbance | None:
        """Return what a new answer of direct evidence names."""
        if signal == 'cpi':
            harm = self._harms.get((group, signal))
            new = None if harm is None else of_cache(
                now, harm, holders, self._history, self._limits)
        else:
            new = direct.disturbance(now, group, signal, holders,
                                     self._history, self._limits)
        if new is not None:
            self._direct.ask_soon(holders.victims)
        return new

    def _cleared(self, signal: str, members: Sequence[str],
                 samples: Sequence[Points], holders: direct.Holders,
                 names: Collection[str]) -> list[str]:
        """Return the workloads that direct evidence gives less than is needed
        to name them."""
        if holders.kind is not GroundKind.DIRECT:
            return []
        least = least_share(
            signal, members, samples, self._limits.min_effect[signal])
        least_s = felt_s(signal, holders.victims, samples[-analysis.RECENT:])
        return [name for name in names
                if holders.clears(name, least, least_s)]

    def _timing_look(self, now: float, group: VictimGroup,
                     members: list[str], signal: str, samples: list[Points],
                     rates: Rates) -> tuple[Disturbance | None, bool]:
        """Return what the window names, and whether that took an analysis.

        Not what direct evidence clears: it held too little.  Where its answer
        is too old to tell, it is asked again before.
        """
        if signal in direct.ONLY:
            return None, False
        pool = analysis.pool_if_worse(signal, members, self._history,
                                      self._limits)
        if pool is None:
            return None, False
        if self._direct.is_old(now, signal, members):
            self._direct.ask_soon(members)
            return None, False
        part = self._looks.part(now, (group, signal))
        if part <= 0:
            return None, False
        self.analyses += 1
        new = analysis.analyse(
            now, group, members, signal, pool, samples, rates.topology,
            self._limits._replace(max_chance=part * self._limits.max_chance))
        holders = self._direct.of(signal, members, new=False)
        if new is None or holders is None:
            return new, True
        for name in self._cleared(signal, members, samples, holders,
                                  list(new.named)):
            del new.named[name]
        return (new if new.named else None), True

    def evidence(self, incident: Incident) -> list[Series]:
        """What an open incident was found in."""
        return evidence_of(incident, self._history.samples,
                           self._history.times)

    def compare(self, specs: Specs) -> None:
        """What a victim of these applications is like undisturbed; else it
        is compared with its own past."""
        self._specs = specs

    def allow(self, budget: Budget | None) -> None:
        """The new limits that the fleet governor lets this host set."""
        self._caps.allowance.give(budget)

    def state(self) -> dict[str, Any]:
        """What was learnt about antagonists; plain JSON values."""
        if not math.isfinite(self._time_s):
            return {}
        until_s = self._time_s + self.params.remember_s
        return {'saved_s': self._time_s, **self._caps.state(),
                'searches': self._searches.state(),
                'best_waits': self._best_waits.state(),
                'instances': self._presence.state(until_s)}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from that.

        Of a state from a later time (another boot) only the tally counts:
        what has an end by that clock would have none by this one.
        """
        saved_s = saved_state.saved_s(state, now)
        if saved_s is None:
            self._caps.load({'tally': state.get('tally', {})})
            return
        self._presence.load(state.get('instances', ()))
        self._searches.load(state.get('searches', {}))
        self._best_waits.load(state.get('best_waits', {}), now)
        self._caps.load(state)
        self._time_s = saved_s
