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


"""The caps of a detector: set, tried, adapted, remembered and lifted."""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.case import Case
from scavenger_openstack.algorithms.case import effect
from scavenger_openstack.algorithms.case import TOLERATED
from scavenger_openstack.algorithms.cubic import Cubic
from scavenger_openstack.algorithms import evidence
from scavenger_openstack.algorithms.history import Point
from scavenger_openstack.algorithms.history import Sample
from scavenger_openstack.algorithms.trial import Tally
from scavenger_openstack.algorithms.trial import Trial
from scavenger_openstack.algorithms.trial import Verdict
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob

KNOBS = {'cpi': Knob.CPU_CORES, 'run_delay': Knob.CPU_CORES,
         'io_wait': Knob.IO_BYTES_PER_S}

Key = tuple[str, Knob]

LOOSE = 2.0
"""A cap is lifted when it has been so many times the use for
:data:`LOOSE_SAMPLES`: DESIGN 7.10."""

LOOSE_SAMPLES = 3

OBEYED = 1.3
"""Whoever uses more than so many times his cap is not held by it: the
detector observes, or the write failed.  Such a cap proves nothing."""

WORKING = 0.5
"""Part of what he uses when he works, or of his cap, from which an
antagonist is at work.  What is suffered while he rests is not his doing."""

LONGEST_S = 86400.0


@dataclasses.dataclass(slots=True)
class Restraint:
    """One antagonist's cap on one knob, and the cases that asked for it."""

    cap: Cubic
    cases: list[Case]
    trial: Trial | None
    score: float
    reason: str
    loose: int = 0
    fresh: bool = True


class Remembered(NamedTuple):
    """An antagonist whose cap was lifted because he did not need it.

    ``good`` is his last cap under which nobody suffered.  Without the
    restraint, as after a restart or when its trial was not over, he has to
    be named anew.
    """

    good: float
    until_s: float
    restraint: Restraint | None = None


class Restraints:
    """All caps of one detector on one host.

    Times in seconds, ``plateau`` in samples; for the rest see the options
    of the same names.
    """

    def __init__(self, owner: str, *, cut: float, first_cut: float,
                 plateau: float, trial_samples: int, back_off_s: float,
                 remember_s: float, max_caps_per_min: int) -> None:
        self._owner = owner
        self._cut = cut
        self._first_cut = first_cut
        self._plateau = plateau
        self._trial_samples = trial_samples
        self._back_off_s = back_off_s
        self._remember_s = remember_s
        self._max_caps_per_min = max_caps_per_min
        self._held: dict[Key, Restraint] = {}
        self._good: dict[Key, Remembered] = {}
        self._backs_off: dict[Key, tuple[float, float]] = {}
        self._set_s: collections.deque[float] = collections.deque()
        self.tally = Tally()

    def caps(self) -> tuple[Cap, ...]:
        return tuple([Cap(name, knob, one.cap.value, self._owner, one.reason)
                      for (name, knob), one in self._held.items()])

    def action(self, case: Case) -> str:
        """What is to be done about a case; observing, it is only said."""
        if not case.named:
            return 'nothing: nobody else has a part in it'
        capped = sorted({name for (name, _), one in self._held.items()
                         if case in one.cases})
        return f'cap {", ".join(capped)}' if capped else 'nothing now'

    def holds(self, case: Case) -> bool:
        """Whether somebody is limited for it."""
        return any(case in one.cases for one in self._held.values())

    def remembers(self, case: Case) -> bool:
        """Whether somebody would be limited for it if he came back."""
        return any(known.restraint is not None
                   and case in known.restraint.cases
                   for known in self._good.values())

    def keep(self, present: Iterable[str]) -> None:
        """Forget the caps of those who are gone."""
        there = set(present)
        self._held = {key: one for key, one in self._held.items()
                      if key[0] in there}

    def answer(self, now: float, case: Case,
               samples: Sequence[Sample]) -> None:
        """Limit the antagonists of a case, each who is not limited yet.

        :param samples: of the window, the newest last
        """
        knob = KNOBS.get(case.signal)
        if knob is None:
            return
        sample = samples[-1]
        for name, chance in case.named.items():
            key, point = (name, knob), sample.get(name)
            held = self._held.get(key)
            if held is not None:
                if case not in held.cases:
                    held.cases.append(case)
                    case.start_over()
                continue
            use = 0.0 if point is None else _use(knob, point)
            known = self._good.get(key)
            _, most = evidence.low_and_high([
                _use(knob, one[name]) for one in samples if name in one])
            if (point is None or use <= 0 or not case.suffers_now
                    or use < WORKING * most
                    or now < self._backs_off.get(key, (-math.inf, 0.0))[0]
                    or known is not None and now < known.until_s
                    and use <= known.good):
                continue
            if not self._one_more(now):
                return
            self._held[key] = self._set(
                now, key, case, use, chance,
                point.workload.floor.get(knob, 0.0))
            case.start_over()

    def _one_more(self, now: float) -> bool:
        """Whether a new cap may be set; if so it is counted."""
        while self._set_s and now - self._set_s[0] >= 60:
            self._set_s.popleft()
        if len(self._set_s) >= self._max_caps_per_min:
            return False
        self._set_s.append(now)
        return True

    def _set(self, now: float, key: Key, case: Case, use: float,
             chance: float, floor: float) -> Restraint:
        assert case.newest is not None
        harm = effect(case.signal, case.base, case.raised)
        safe = (use * min(1.0, TOLERATED * case.least / harm)
                if harm > 0 else use)
        cut = self._first_cut
        known = self._good.get(key)
        if known is not None and now < known.until_s and known.good < use:
            safe, cut = known.good / (1 - self._cut), self._cut
        return Restraint(
            Cubic(use, safe, floor=floor, cut=cut, plateau=self._plateau),
            [case],
            Trial(case.newest, case.stddev, self._trial_samples), chance,
            f'{case.signal} of {", ".join(list(case.members)[:3])} rises '
            f'from {case.base:.3g} to {case.raised:.3g} with its use; an '
            f'innocent seems so guilty with a chance of {chance:.1g}')

    def step(self, now: float, sample: Sample,
             cases: Collection[Case]) -> None:
        """Judge and adapt what is held, by the newest sample.

        :param cases: those there are; no cap outlives all of its cases
        """
        for key, one in list(self._held.items()):
            one.cases = [case for case in one.cases if case in cases]
            if not one.cases:
                del self._held[key]
                continue
            point = sample.get(key[0])
            if point is None:
                continue
            if one.fresh:       # set at the end of this sample
                one.fresh = False
                continue
            use = _use(key[1], point)
            if use > OBEYED * one.cap.value:
                continue        # not in force
            self._try(now, key, one)
            if key in self._held:
                self._adapt(now, key, one, use)
        self._meet(now, sample, cases)

    def _meet(self, now: float, sample: Sample,
              cases: Collection[Case]) -> None:
        """Limit those who come back at their last good cap.

        That they disturb was confirmed before; their victims need not wait
        for it to be seen again.
        """
        for key, known in list(self._good.items()):
            if now >= known.until_s:
                del self._good[key]
                continue
            before, point = known.restraint, sample.get(key[0])
            if before is None or point is None or key in self._held:
                continue
            alive = [case for case in before.cases if case in cases]
            use = _use(key[1], point)
            if not alive or use <= known.good or not self._one_more(now):
                continue
            self._held[key] = Restraint(
                Cubic(use, known.good / (1 - self._cut), cut=self._cut,
                      floor=point.workload.floor.get(key[1], 0.0),
                      plateau=self._plateau),
                alive, None, before.score, before.reason)
            for case in alive:
                case.start_over()

    def _try(self, now: float, key: Key, one: Restraint) -> None:
        level = one.cases[0].newest
        if one.trial is None or level is None:
            return
        found = one.trial.add(level)
        if found is None:
            return
        one.trial = None
        self.tally.add(found)
        for case in one.cases:
            case.outcome = found
        if found is not Verdict.CONFIRMED:
            del self._held[key]
            _, before_s = self._backs_off.get(key, (0.0, 0.0))
            wait_s = min(LONGEST_S, max(self._back_off_s, 2 * before_s))
            self._backs_off[key] = now + wait_s, wait_s
        else:
            self._backs_off.pop(key, None)

    def _adapt(self, now: float, key: Key, one: Restraint,
               use: float) -> None:
        suffers = any(case.suffers for case in one.cases)
        if (suffers and one.trial is None
                and use >= WORKING * one.cap.value):
            one.cap.contended(use, cut=self._cut)
            one.loose = 0
            one.fresh = True
            for case in one.cases:
                case.start_over()
            return
        if one.trial is None and all(case.at_ease for case in one.cases):
            one.cap.quiet(use)
        one.loose = one.loose + 1 if one.cap.value >= LOOSE * use else 0
        if one.loose >= LOOSE_SAMPLES:
            del self._held[key]
            self._good[key] = Remembered(
                one.cap.good, now + self._remember_s,
                one if one.trial is None else None)

    def state(self) -> dict[str, Any]:
        """What was learnt about antagonists; plain JSON values."""
        return {'good': [[*key, one.good, one.until_s]
                         for key, one in self._good.items()],
                'backs_off': [[*key, *one] for key, one
                              in self._backs_off.items()],
                'tally': dataclasses.asdict(self.tally)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`, of this boot.

        :raises ValueError: it is damaged.
        """
        self._good = {
            (str(name), Knob(knob)): Remembered(float(value),
                                                float(until_s))
            for name, knob, value, until_s in state.get('good', ())}
        self._backs_off = {
            (str(name), Knob(knob)): (float(until_s), float(wait_s))
            for name, knob, until_s, wait_s in state.get('backs_off', ())}
        self.tally = Tally(**{str(name): int(number) for name, number
                              in state.get('tally', {}).items()})


def _use(knob: Knob, point: Point) -> float:
    return (point.io_bytes_per_s if knob is Knob.IO_BYTES_PER_S
            else point.cores)
