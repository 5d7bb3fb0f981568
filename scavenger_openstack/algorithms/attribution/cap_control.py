# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The caps of a detector: set, tried, adapted, remembered and lifted.

None of the constants is in a paper unless it says so.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms import allowance
from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import effect
from scavenger_openstack.algorithms.attribution import evidence
from scavenger_openstack.algorithms.attribution.history import Point
from scavenger_openstack.algorithms.attribution.history import Sample
from scavenger_openstack.algorithms.attribution.trial import Tally
from scavenger_openstack.algorithms.attribution.trial import Trial
from scavenger_openstack.algorithms.attribution.trial import Verdict
from scavenger_openstack.algorithms.back_off import BackOffs
from scavenger_openstack.algorithms.back_off import Pair
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob

KNOBS = {'cpi': Knob.CPU_CORES, 'run_delay': Knob.CPU_CORES,
         'io_wait': Knob.IO_BYTES_PER_S}

Key = tuple[str, Knob]

LOOSE = 2.0
"""A cap is lifted when it has been so many times the use for
:data:`LOOSE_SAMPLES`.  Source: DESIGN 7.10."""

LOOSE_SAMPLES = 3

OBEYED = 1.3
"""Whoever uses more than so many times his cap is not held by it: the
detector observes, or the write failed.  Such a cap proves nothing."""

DIRECTIONS = 2
"""A disk's limit counts each direction and each device; its use does not."""

IGNORED_SAMPLES = 12
"""A cap that holds nobody for so long is taken back; whoever is named again
gets a new one."""

FUTILE_SAMPLES = 6
"""Of suffering more than half as much as before, with an antagonist at his
floor; then the victim is like that without him, and his cap may grow until
it gets worse."""

WORKING = 0.5
"""Part of what he uses when he works, or of his cap, from which an
antagonist is at work.  What is suffered while he rests is not his doing."""


@dataclasses.dataclass(slots=True)
class Restraint:
    """One antagonist's cap on one knob, and the cases that asked for it.

    ``levels``: the effects on those that suffered when it was cut first,
    since it last grew; ``futile``: how often since then there was nothing to
    cut.
    """

    cap: Cubic
    cases: list[Disturbance]
    reason: str
    loose: int = 0
    ignored: int = 0
    fresh: bool = True
    futile: int = 0
    levels: dict[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class Attempt:
    """The caps that were set for a case at one instant: one experiment.

    It waits while an antagonist rests, and goes on when he is back.
    """

    case: Disturbance
    trial: Trial
    keys: list[Key]


class Remembered(NamedTuple):
    """An antagonist whose cap was lifted: it did not need it, or is away.

    ``good`` is its last cap; ``proved`` when nobody suffered while it used
    that up.  Without ``cases``, as after a restart, it has to be named again.
    """

    good: float
    proved: bool
    until_s: float
    cases: tuple[Disturbance, ...] = ()
    reason: str = ''


class CapControl:
    """All caps of one detector on one host.

    Times in seconds, ``plateau`` in samples; else as the options say.
    """

    def __init__(self, owner: str, *, cut: float, first_cut: float,
                 plateau: float, trial_samples: int, back_off_s: float,
                 remember_s: float, max_caps_per_min: int) -> None:
        self._owner = owner
        self._cut = cut
        self._first_cut = first_cut
        self._plateau = plateau
        self._trial_samples = trial_samples
        self._remember_s = remember_s
        self._max_caps_per_min = max_caps_per_min
        self._held: dict[Key, Restraint] = {}
        self._attempts: list[Attempt] = []
        self._good: dict[Key, Remembered] = {}
        self._back_offs = BackOffs(back_off_s)
        self._set_s: collections.deque[float] = collections.deque()
        self.tally, self.allowance = Tally(), allowance.Allowance()

    def caps(self) -> tuple[Cap, ...]:
        return tuple([Cap(name, knob, one.cap.value, self._owner, one.reason)
                      for (name, knob), one in self._held.items()])

    def action(self, case: Disturbance) -> str:
        """What is to be done about a case; observing, it is only said."""
        if not case.named:
            return 'nothing: nobody else has a part in it'
        capped = sorted({name for (name, _), one in self._held.items()
                         if case in one.cases})
        return f'cap {", ".join(capped)}' if capped else 'nothing now'

    def holds(self, case: Disturbance) -> bool:
        """Whether somebody is limited for it."""
        return any(case in one.cases for one in self._held.values())

    def remembers(self, case: Disturbance) -> bool:
        """Whether somebody would be limited for it if he came back."""
        return any(case in known.cases for known in self._good.values())

    def keep(self, present: Collection[str]) -> None:
        """Forget all about those who are gone, or made anew."""
        self._held = {key: one for key, one in self._held.items()
                      if key[0] in present}
        self._good = {key: one for key, one in self._good.items()
                      if key[0] in present}
        self._back_offs.keep(present)

    def leave(self, now: float, names: Collection[str]) -> None:
        """These are away, as while they reboot: their caps await them."""
        for key in [key for key in self._held if key[0] in names]:
            self._remember(now, key, self._held[key].cap.value)

    def _remember(self, now: float, key: Key, good: float) -> None:
        one = self._held.pop(key)
        self._good[key] = Remembered(
            good, one.cap.proved, now + self._remember_s, tuple(one.cases),
            one.reason)

    def answer(self, now: float, case: Disturbance, samples: Sequence[Sample],
               again: Collection[str] = ()) -> None:
        """Limit the antagonists of a case, each who is not limited yet.

        :param samples: of the window, the newest last
        :param again: whom the evidence names right now, whatever was
            harmless before
        """
        knob = KNOBS.get(case.signal)
        if knob is None or not case.suffers_now or case.newest is None:
            return
        keys = []
        for name, chance in case.named.items():
            key = (name, knob)
            if self._back_offs.hold(now, _pair(case, name)):
                continue
            held = self._held.get(key)
            if held is not None:
                if case not in held.cases:
                    held.cases.append(case)
                    case.start_over()
                continue
            use = _working(samples, name, knob)
            if (use is None
                    or not self._harmful(now, key, use, name in again)):
                continue
            if not self._one_more(now):
                break
            self._held[key] = self._set(
                now, key, case, use, chance,
                samples[-1][name].workload.floor.get(knob, 0.0))
            keys.append(key)
        if keys:
            for attempt in self._attempts:
                if attempt.case is case:    # named anew while they rested
                    attempt.keys = [key for key in attempt.keys
                                    if key not in keys]
            self._attempts.append(Attempt(case, Trial(
                case.newest, case.stddev, self._trial_samples), keys))
            case.start_over()

    def _harmful(self, now: float, key: Key, use: float,
                 again: bool) -> bool:
        """Whether so much use may be limited, by what is remembered."""
        known = self._good.get(key)
        if (known is None or now >= known.until_s or not known.proved
                or use > known.good):
            return True
        if again:       # what he does now is not what was harmless
            del self._good[key]
        return again

    def _one_more(self, now: float) -> bool:
        """Whether a new cap may be set; if so it is counted."""
        while self._set_s and now - self._set_s[0] >= 60:
            self._set_s.popleft()
        found = (len(self._set_s) < self._max_caps_per_min
                 and self.allowance.take(now))
        if found:
            self._set_s.append(now)
        return found

    def _set(self, now: float, key: Key, case: Disturbance, use: float,
             chance: float, floor: float) -> Restraint:
        harm = effect(case.signal, case.base, case.raised)
        safe = use * min(1.0, case.tolerated / harm) if harm > 0 else use
        cut = self._first_cut
        known = self._good.get(key)
        if known is not None and now < known.until_s and known.good < use:
            safe, cut = known.good / (1 - self._cut), self._cut
        return Restraint(
            Cubic(use, safe, floor=floor, cut=cut, plateau=self._plateau),
            [case],
            f'{case.signal} of {", ".join(list(case.members)[:3])} rises '
            f'from {case.base:.3g} to {case.raised:.3g} with its use; an '
            f'innocent seems so guilty with a chance of {chance:.1g}')

    def step(self, now: float, sample: Sample,
             cases: Collection[Disturbance]) -> None:
        """Judge and adapt what is held, by the newest sample.

        :param cases: those there are; no cap outlives all of its cases
        """
        obeyed: dict[Key, float] = {}
        for key, one in list(self._held.items()):
            one.cases = [case for case in one.cases if case in cases]
            if not one.cases:
                del self._held[key]
                continue
            point = sample.get(key[0])
            use = None if point is None else _use(key[1], point)
            if point is None or use is None:
                continue
            if one.fresh:       # set at the end of this sample
                one.fresh = False
                continue
            if use <= OBEYED * _held_to(key[1], one.cap.value, point):
                obeyed[key] = use
                one.ignored = 0
                continue
            one.ignored += 1
            if one.ignored >= IGNORED_SAMPLES:
                del self._held[key]
        self._judge(now, obeyed, cases)
        tried = {key for attempt in self._attempts for key in attempt.keys}
        for key, use in obeyed.items():
            if key in self._held:
                self._adapt(now, key, use, key in tried)
        self._meet(now, sample, cases)

    def _meet(self, now: float, sample: Sample,
              cases: Collection[Disturbance]) -> None:
        """Limit those who come back at their last good cap.

        That they disturb was confirmed before, or is being tried; their
        victims need not wait for it to be seen again.  They were counted
        as new caps when they were named.
        """
        for key, known in list(self._good.items()):
            if now >= known.until_s:
                del self._good[key]
                continue
            point = sample.get(key[0])
            use = None if point is None else _use(key[1], point)
            alive = [case for case in known.cases if case in cases]
            if (point is None or use is None or use <= known.good
                    or key in self._held or not alive):
                continue
            self._held[key] = Restraint(
                Cubic(use, known.good / (1 - self._cut), cut=self._cut,
                      floor=point.workload.floor.get(key[1], 0.0),
                      plateau=self._plateau),
                alive, known.reason)
            for case in alive:
                case.start_over()

    def _judge(self, now: float, obeyed: Mapping[Key, float],
               cases: Collection[Disturbance]) -> None:
        """Go on with the trials; caps that did not help are lifted."""
        left = []
        for attempt in self._attempts:
            case = attempt.case
            attempt.keys = [key for key in attempt.keys
                            if self._concerns(key, case)]
            if case not in cases or not attempt.keys:
                continue
            held = [key for key in attempt.keys if key in self._held]
            found = None
            # The rest of an antagonist would prove any cap right.
            if held and case.newest is not None and all(
                    obeyed.get(key, 0.0) >= WORKING
                    * self._held[key].cap.value for key in held):
                found = attempt.trial.add(case.newest)
            if found is None:
                left.append(attempt)
                continue
            self.tally.add(found)
            case.outcome = found
            for key in attempt.keys:
                self._conclude(now, key, case, found)
        self._attempts = left
        self._back_offs.expire(now)

    def _concerns(self, key: Key, case: Disturbance) -> bool:
        """Whether somebody is limited for a case, or rests meanwhile."""
        one = self._held.get(key) or self._good.get(key)
        return one is not None and case in one.cases

    def _conclude(self, now: float, key: Key, case: Disturbance,
                  found: Verdict) -> None:
        pair = _pair(case, key[0])
        if found is Verdict.CONFIRMED:
            self._back_offs.end(pair)
            return
        one = self._held.get(key)
        if one is None:     # he rests: nothing was learnt about him
            known = self._good[key]
            self._good[key] = known._replace(
                cases=tuple([other for other in known.cases
                             if other is not case]))
            return
        one.cases.remove(case)
        if not one.cases:
            del self._held[key]
        self._back_offs.begin(now, pair)

    def _adapt(self, now: float, key: Key, use: float, tried: bool) -> None:
        one = self._held[key]
        suffering = [case for case in one.cases if case.suffers]
        if not tried and suffering and use >= WORKING * one.cap.value:
            self._cut_more(one, use, suffering)
            return
        if not tried and all(case.at_ease for case in one.cases):
            one.cap.quiet(use)
            one.futile = 0
            one.levels.clear()
        one.loose = one.loose + 1 if one.cap.value >= LOOSE * use else 0
        if one.loose >= LOOSE_SAMPLES:
            self._remember(now, key, one.cap.good)

    def _cut_more(self, one: Restraint, use: float,
                  suffering: Sequence[Disturbance]) -> None:
        """Less for an antagonist, unless less has not helped before."""
        one.loose = 0
        one.fresh = True
        one.futile += one.cap.at_floor
        effects = [(one.levels.setdefault(id(case), case.latest), case.latest)
                   for case in suffering if case.latest is not None]
        if (one.futile >= FUTILE_SAMPLES
                and all(now > before / 2 for before, now in effects)):
            for case in suffering:
                case.rebase()
            one.futile = 0
            one.levels.clear()
            one.cap.probe()
        else:
            one.cap.contended(use, cut=self._cut)
        for case in suffering:
            case.start_over()

    def state(self) -> dict[str, Any]:
        """What was learnt about antagonists; plain JSON values."""
        return {'good': [[*key, one.good, one.proved, one.until_s]
                         for key, one in self._good.items()],
                'backs_off': self._back_offs.state(),
                'tally': dataclasses.asdict(self.tally)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, of this boot.

        :raises ValueError, TypeError: it is damaged.
        """
        self._good = {
            (str(name), Knob(knob)): Remembered(float(value), bool(proved),
                                                float(until_s))
            for name, knob, value, proved, until_s in state.get('good', ())}
        self._back_offs.load(state.get('backs_off', ()))
        self.tally = Tally(**{str(name): int(number) for name, number
                              in state.get('tally', {}).items()})


def _pair(case: Disturbance, name: str) -> Pair:
    return case.group, case.signal, name


def _use(knob: Knob, point: Point) -> float | None:
    return (point.io_bytes_per_s if knob is Knob.IO_BYTES_PER_S
            else point.cores)


def _held_to(knob: Knob, cap: float, point: Point) -> float:
    """What somebody can use at most under a cap."""
    if knob is Knob.IO_BYTES_PER_S:
        return cap * DIRECTIONS * max(1, len(point.workload.disks))
    return cap


def _working(samples: Sequence[Sample], name: str, knob: Knob
             ) -> float | None:
    """What an antagonist uses now, ``None`` while he does not work."""
    uses = [found for one in samples if name in one
            and (found := _use(knob, one[name])) is not None]
    point = samples[-1].get(name)
    use = None if point is None else _use(knob, point)
    if (use is None or use <= 0
            or use < WORKING * evidence.low_and_high(uses)[1]):
        return None
    return use
