# SPDX-License-Identifier: Apache-2.0

"""The limits of a detector: set, tried, adapted, remembered and removed.

What moves an antagonist, and what its limit does then, is in
:mod:`~scavenger_openstack.algorithms.attribution.antagonist`.  None of the
constants is in a paper unless it says so.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from scavenger_openstack.algorithms import allowance
from scavenger_openstack.algorithms.attribution.antagonist import Antagonist
from scavenger_openstack.algorithms.attribution.antagonist import Event
from scavenger_openstack.algorithms.attribution.antagonist import Limit
from scavenger_openstack.algorithms.attribution.antagonist import State
from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import Effects
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution.disturbance import SETTLED
from scavenger_openstack.algorithms.attribution.good_limits import GoodLimits
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.params import Params
from scavenger_openstack.algorithms.attribution.trial import Tally
from scavenger_openstack.algorithms.attribution.trial import Trial
from scavenger_openstack.algorithms.attribution.trial import TrialOutcome
from scavenger_openstack.algorithms.attribution import use as usage
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

IGNORED_SAMPLES = 12
"""A limit that holds nothing for so long, as far as is known, is removed; an
antagonist that is named again gets a new one."""


class CapControl:
    """All limits of one detector on one host.

    :param sample_s: how long a sample is
    """

    def __init__(self, owner: str, params: Params, sample_s: float) -> None:
        self._owner, self._sample_s = owner, sample_s
        self.antagonists: dict[KnobKey, Antagonist] = {}
        self._good = GoodLimits()
        self._uses: Mapping[KnobKey, float] = {}
        self._set_s: collections.deque[float] = collections.deque()
        self.tally, self.allowance = Tally(), allowance.Allowance()
        self.tune(params)

    def tune(self, params: Params) -> None:
        """Go on with these; trials and limits that are there keep theirs."""
        self._params = params
        self._plateau = params.plateau_s / self._sample_s
        self._good.remember_s = params.remember_s

    def caps(self) -> tuple[Cap, ...]:
        return tuple([
            Cap(*key, limit.cap.value, self._owner, antagonist.reason)
            for key, antagonist, limit in self._limited()])

    def limited(self, disturbance: Disturbance) -> list[str]:
        """The antagonists that are limited for it."""
        return sorted({key[0] for key, antagonist, _ in self._limited()
                       if disturbance in antagonist.trials})

    def remembers(self, disturbance: Disturbance) -> bool:
        """Whether an antagonist would be limited for it, or is."""
        return any(disturbance in antagonist.trials
                   for antagonist in self.antagonists.values())

    def remembered(self, now: float) -> dict[str, float]:
        """Seconds since each limit was removed that is only remembered, by
        workload, the newest of several."""
        return self._good.ages(now, {key for key, _, _ in self._limited()})

    def keep(self, present: Collection[str]) -> None:
        """Forget all about those that are gone, or made again."""
        self.antagonists = {
            key: antagonist for key, antagonist in self.antagonists.items()
            if key[0] in present}
        self._good.keep(present)

    def leave(self, now: float, names: Collection[str]) -> None:
        """Keep the limits of workloads that are away, as while they reboot."""
        for key, antagonist, limit in self._limited():
            if key[0] in names:
                self._good.remember(now, key, antagonist.pairs,
                                    limit.cap.value, limit.cap)
                antagonist.move(Event.AWAY)

    def attribute(self, disturbances: Collection[Disturbance]) -> None:
        """Remove the limits that are for none of these."""
        for antagonist in self.antagonists.values():
            antagonist.attribute({
                each: trial for each, trial in antagonist.trials.items()
                if each in disturbances}, Event.OVER)

    def answer(self, now: float, disturbance: Disturbance,
               samples: Sequence[Points], again: Collection[str] = ()
               ) -> Effects:
        """Limit the antagonists of a disturbance that are not limited yet.

        :param samples: of the window, the newest last
        :param again: those that the evidence names right now, whatever was
            harmless before
        """
        effects = Effects()
        knob = usage.KNOB_TO_LIMIT.get(disturbance.signal)
        if (knob is None or not disturbance.protected
                or not disturbance.suffers_now
                or disturbance.newest is None):
            return effects
        trial = Trial(disturbance.newest, disturbance.stddev,
                      self._params.trial_samples)
        for name in disturbance.named:
            point = samples[-1].get(name)
            if (point is None or point.workload.priority
                    is not Priority.BACKGROUND):
                continue
            key = name, knob
            antagonist = self.antagonists.setdefault(key, Antagonist())
            if now < antagonist.alone.get(disturbance.pair, (now, 0.0))[0]:
                continue
            if antagonist.limit is not None:
                if disturbance not in antagonist.trials:
                    antagonist.trials[disturbance] = None
                    effects.limited.add(disturbance)
                continue
            use = usage.working(samples, name, knob)
            if use is None or not self._harmful(
                    now, key, disturbance.pair, use, name in again):
                continue
            if not self.one_more(now):
                break
            antagonist.reason = disturbance.reason(name)
            self._set(key, Event.NAMED, self._first(
                now, key, disturbance, use, point.workload))
            antagonist.trials = {**antagonist.trials, disturbance: trial}
            effects.limited.add(disturbance)
        return effects

    def ease(self, disturbance: Disturbance) -> None:
        """Let the limits for a disturbance grow until it suffers of them: by
        direct evidence they take more than they have to."""
        for _, antagonist, _ in self._limited():
            if (disturbance in antagonist.trials
                    and antagonist.state is not State.ON_TRIAL):
                antagonist.move(Event.HOLDS_LITTLE)

    def examine(self, keys: Collection[KnobKey]) -> None:
        """Take these, and no others, as in an experiment."""
        for key, antagonist in self.antagonists.items():
            if antagonist.state is State.EXAMINED and key not in keys:
                antagonist.move(Event.CLEARED)
        for key in keys:
            antagonist = self.antagonists.setdefault(key, Antagonist())
            if antagonist.state is State.SUSPECTED:
                antagonist.move(Event.EXAMINED)

    def step(self, now: float, sample: Points,
             disturbances: Collection[Disturbance]) -> Effects:
        """Judge and adapt what is limited, by the newest sample.

        :param disturbances: those there are; no limit outlives all of its own
        """
        effects = Effects()
        self.attribute(disturbances)
        obeyed: dict[KnobKey, float] = {}
        for key, antagonist, limit in self._limited():
            point = sample.get(key[0])
            use = None if point is None else usage.use_of(key[1], point)
            if point is not None and use is not None:
                if limit.fresh:     # set at the end of this sample
                    limit.fresh = False
                    continue
                if use <= (usage.OBEYED * limit.cap.value
                           * usage.limits_of(key[1], point.workload)):
                    obeyed[key] = use
                    limit.ignored = 0
                    continue
            limit.ignored += 1
            if limit.ignored >= IGNORED_SAMPLES:
                antagonist.move(Event.NOT_HELD_AGAIN
                                if limit.again and key in self._good
                                else Event.NOT_HELD)
        self._uses = obeyed
        self._judge(now, obeyed, effects)
        for key, _, limit in self._limited():
            if key in obeyed:
                self._adapt(now, key, limit, obeyed[key], effects)
        self._meet(now, sample, effects)
        return effects

    def may_limit(self, now: float) -> bool:
        """Whether the number of new limits is not 0 now."""
        return (self._params.max_caps_per_min > 0
                and not self.allowance.closed(now))

    def _limited(self) -> Iterator[tuple[KnobKey, Antagonist, Limit]]:
        for key, antagonist in self.antagonists.items():
            if antagonist.limit is not None:
                yield key, antagonist, antagonist.limit

    def _set(self, key: KnobKey, event: Event, cap: Cubic) -> None:
        """Set a limit; it is looked at after those that were set before."""
        antagonist = self.antagonists[key] = self.antagonists.pop(key)
        antagonist.move(event, cap)

    def _first(self, now: float, key: KnobKey, disturbance: Disturbance,
               use: float, workload: Workload) -> Cubic:
        """The limit of an antagonist that is named: all that it can use under
        it together is what is left to it."""
        harm, floor = disturbance.harm, workload.floor.get(key[1], 0.0)
        safe = use * min(1.0, disturbance.tolerated / harm
                         ) if harm > 0 else use
        # What holds the resource is known: a part of it is, too.
        cut = (self._params.cut if disturbance.named[key[0]].kind
               is GroundKind.DIRECT else self._params.first_cut)
        good = self._good.find(now, key, disturbance.pair)
        if good is not None and good.value < use:
            return good.cap(use, floor, cut=self._params.cut,
                            plateau=self._plateau)
        limits = usage.limits_of(key[1], workload)
        return Cubic(use / limits, safe / limits, floor=floor, cut=cut,
                     plateau=self._plateau)

    def _harmful(self, now: float, key: KnobKey, pair: Pair, use: float,
                 again: bool) -> bool:
        """Whether so much use may be limited, by what is remembered."""
        good = self._good.find(now, key, pair)
        if good is None or not good.proved or use > good.value:
            return True
        if again:       # what it does now is not what was harmless
            self._good.forget(key, pair)
            self._forgotten(key)
        return again

    def _forgotten(self, key: KnobKey) -> None:
        """Move an antagonist of which no good limit is remembered any more."""
        antagonist = self.antagonists.get(key)
        if (antagonist is not None and antagonist.state is State.REMEMBERED
                and self._good.of(key, antagonist.pairs) is None):
            antagonist.move(Event.FORGOTTEN)

    def one_more(self, now: float) -> bool:
        """Whether a new limit may be set; if so it is counted."""
        while self._set_s and now - self._set_s[0] >= 60:
            self._set_s.popleft()
        allowed = (len(self._set_s) < self._params.max_caps_per_min
                   and self.allowance.take(now))
        if allowed:
            self._set_s.append(now)
        return allowed

    def _judge(self, now: float, obeyed: Mapping[KnobKey, float],
               effects: Effects) -> None:
        """Go on with the trials; limits that did not help are removed."""
        trials: dict[Trial, tuple[Disturbance, list[KnobKey]]] = {}
        for key, antagonist in self.antagonists.items():
            for disturbance, trial in antagonist.trials.items():
                if trial is not None:
                    trials.setdefault(trial, (disturbance, []))[1].append(key)
        for trial, (disturbance, keys) in trials.items():
            limits = {key: limit for key in keys
                      if (limit := self.antagonists[key].limit) is not None}
            # The rest of an antagonist would prove any limit right.
            if not limits or disturbance.newest is None or any(
                    obeyed.get(key, 0.0) < usage.WORKING * limit.cap.value
                    for key, limit in limits.items()):
                continue
            outcome = trial.add(disturbance.newest)
            if outcome is None:
                continue
            self.tally.add(outcome)
            effects.verdicts[disturbance] = outcome
            for key in keys:
                self._conclude(now, self.antagonists[key], disturbance,
                               outcome)
        for antagonist in self.antagonists.values():
            antagonist.alone = {
                pair: (until_s, wait_s) for pair, (until_s, wait_s)
                in antagonist.alone.items() if now < until_s + wait_s}

    def _conclude(self, now: float, antagonist: Antagonist,
                  disturbance: Disturbance, outcome: TrialOutcome) -> None:
        trials = {**antagonist.trials, disturbance: None}
        if outcome is TrialOutcome.CONFIRMED:
            antagonist.alone.pop(disturbance.pair, None)
        else:
            del trials[disturbance]
            # Of one that rests nothing was learnt.
            if antagonist.limit is not None:
                antagonist.leave_alone(now, disturbance.pair,
                                       self._params.back_off_s)
        antagonist.attribute(trials, Event.DID_NOT_HELP)

    def _adapt(self, now: float, key: KnobKey, limit: Limit, use: float,
               effects: Effects) -> None:
        antagonist = self.antagonists[key]
        suffering = [each for each in antagonist.trials
                     if each.suffers and each not in effects.limited]
        limit.floored = limit.floored + 1 if (
            limit.cap.at_floor and antagonist.state is not State.ON_TRIAL
            ) else 0
        if limit.floored >= SETTLED and all(
                each.usual is not None and each.usual < each.tolerated
                for each in antagonist.trials) and not self._probes(
                    antagonist):
            # What they suffer beside so little of it is not its doing.
            limit.floored = 0
            antagonist.move(Event.IN_VAIN)
            effects.undisturbed.update(antagonist.trials)
            effects.limited.update(antagonist.trials)
            return
        if antagonist.state is not State.ON_TRIAL:
            if suffering and use >= usage.WORKING * limit.cap.value:
                if limit.count_futile(suffering):
                    antagonist.move(Event.IN_VAIN)
                    effects.undisturbed.update(suffering)
                else:
                    self._resize(antagonist, limit, effects, Event.SUFFERS,
                                 use)
                effects.limited.update(suffering)
                return
            if all(each.at_ease and each not in effects.limited
                   for each in antagonist.trials):
                self._resize(
                    antagonist, limit, effects, Event.AT_EASE, use, min([
                        each.room for each in antagonist.trials], default=1.0))
        if limit.count_loose(use, antagonist.returns):
            self._good.remember(now, key, antagonist.pairs, limit.cap.good,
                                limit.cap)
            antagonist.move(Event.RESTS)

    def _resize(self, antagonist: Antagonist, limit: Limit, effects: Effects,
                event: Event, use: float, room: float = 1.0) -> None:
        """Let a limit grow or cut it.  What its victims are expected to suffer
        is scaled by how much all that is limited for them may use."""
        before = limit.cap.value
        antagonist.move(event, use=use, cut=self._params.cut, room=room)
        more = limit.cap.value - before
        for disturbance in antagonist.trials:
            used = math.fsum(
                self._uses.get(key, 0.0) for key, other, _
                in self._limited() if disturbance in other.trials)
            if used > 0:
                effects.scaled[disturbance] = max(0.0, effects.scaled.get(
                    disturbance, 1.0) + more / used)

    def _probes(self, antagonist: Antagonist) -> bool:
        """Whether another limit for the same victims grows at a guess: of
        two it is not known which hurts."""
        return any(
            other is not antagonist and limit.cap.probing
            and not limit.cap.at_floor
            and not other.trials.keys().isdisjoint(antagonist.trials)
            for _, other, limit in self._limited())

    def _meet(self, now: float, sample: Points, effects: Effects) -> None:
        """Limit those that come back at their last good limit.

        That they disturb was confirmed before, or is being tried; their
        victims need not wait for it to be seen again.  They were counted
        as new limits when they were named.
        """
        for key in self._good.forget_old(now):
            self._forgotten(key)
        for key in self._good:
            point = sample.get(key[0])
            use = None if point is None else usage.use_of(key[1], point)
            antagonist = self.antagonists.get(key)
            if (point is None or use is None or antagonist is None
                    or antagonist.state is not State.REMEMBERED):
                continue
            # The same for all of its victims: it was remembered at once.
            good = self._good.of(key, antagonist.pairs)
            if good is None or use <= good.value:
                continue
            self._set(key, Event.RETURNS_ON_TRIAL
                      if any(antagonist.trials.values()) else Event.RETURNS,
                      good.cap(use, point.workload.floor.get(key[1], 0.0),
                               cut=self._params.cut, plateau=self._plateau))
            effects.limited.update(antagonist.trials)
            for disturbance in antagonist.trials:
                effects.scaled.pop(disturbance, None)

    def state(self) -> dict[str, Any]:
        """What was learnt about antagonists; plain JSON values."""
        return {'good': self._good.state(),
                'backs_off': [[list(group), signal, key[0], *times]
                              for key, antagonist in self.antagonists.items()
                              for (group, signal), times
                              in antagonist.alone.items()],
                'tally': dataclasses.asdict(self.tally)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, of this boot.

        What is remembered has to be named again.

        :raises ValueError, TypeError: it is damaged.
        """
        self._good.load(state.get('good', ()))
        self.antagonists = {}
        for group, signal, name, until_s, wait_s in state.get('backs_off',
                                                              ()):
            if signal not in usage.KNOB_TO_LIMIT:
                raise ValueError(f'{signal!r} leads to no limit')
            self.antagonists.setdefault(
                (str(name), usage.KNOB_TO_LIMIT[signal]), Antagonist()).alone[
                    tuple(map(str, group)), signal] = (quantity(until_s),
                                                       quantity(wait_s))
        self.tally = Tally(**{str(name): int(number) for name, number
                              in state.get('tally', {}).items()})
