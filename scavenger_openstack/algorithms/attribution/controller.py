# SPDX-License-Identifier: Apache-2.0


"""Names antagonists, limits them just enough, and checks that it helped.

Ours; it stands beside the papers' own detectors.  The evidence is that of
:mod:`~scavenger_openstack.algorithms.attribution.explanation`, the caps follow
:mod:`~scavenger_openstack.algorithms.attribution.cubic`, and each is a
:mod:`~scavenger_openstack.algorithms.attribution.trial`.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.attribution import analysis
from scavenger_openstack.algorithms.attribution.cap_control import CapControl
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import VictimGroup
from scavenger_openstack.algorithms.attribution import explanation
from scavenger_openstack.algorithms.attribution.history import History
from scavenger_openstack.algorithms.attribution.history import ORDER
from scavenger_openstack.algorithms.attribution.history import Points
from scavenger_openstack.algorithms.attribution.history import THROTTLED
from scavenger_openstack.algorithms.attribution import series
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.algorithms import flavor
from scavenger_openstack.algorithms import saved_state
from scavenger_openstack.algorithms.series import Series
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload

NAME = 'attribution'

AGAIN = 0.1
"""Part of ``max_chance`` once an antagonist was named: looking again and again
finds a coincidence in the end."""

KnownRun = tuple[float | None, Priority]
"""What a name stands for: when its workload was made, ``None`` for an
instance, which may be started again."""

MOST_SAMPLES = 600
"""Of a window: about 100 ms of CPU for one analysis of 20 suspects."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned.  None of it is in a paper unless it says so."""

    sample_s: float = dataclasses.field(default=5.0, metadata={
        'help': 'Seconds of one sample. More smooths more and answers '
                'later.',
        'min': 0.1, 'max': 3600.0, 'source': 'PerfCloud, section III-D'})
    window_s: float = dataclasses.field(default=600.0, metadata={
        'help': 'Seconds of samples that victim and suspects are compared '
                'over; 12 to 600 samples. More finds weaker and rarer '
                'antagonists; the cost grows with the square.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 4.2'})
    max_analyses_per_min: int = dataclasses.field(default=60, metadata={
        'help': 'How often in a minute a victim is compared with its '
                'suspects (about 10 ms of CPU each for 120 samples). When '
                'more suffer, they take turns, and antagonists are named '
                'later.',
        'min': 1, 'max': 6000, 'source': 'CPI2, section 4.2: one a second'})
    max_chance: float = dataclasses.field(default=0.05, metadata={
        'help': 'Chance that any innocent among all suspects scores as '
                'high, up to which an antagonist is named. Less names fewer '
                'innocents and takes longer.',
        'min': 1e-9, 'max': 1.0, 'source': 'not in a paper; DESIGN 7.13'})
    min_share: float = dataclasses.field(default=0.05, metadata={
        'help': 'Share of all use of the contended resource by which the '
                'use of a suspect has to vary.',
        'min': 0.0, 'max': 1.0, 'source': 'not in a paper'})
    min_misses_per_s: float = dataclasses.field(default=1e6, metadata={
        'help': 'Misses of the last-level cache per second by which a '
                "suspect's own have to vary before cpi can be attributed to "
                'it. A million are 64 MB/s.',
        'min': 0.0, 'max': 1e12, 'source': 'not in a paper'})
    min_effect: float = dataclasses.field(default=0.1, metadata={
        'help': 'Least part by which cpi has to rise, and least part of its '
                'runnable time that a victim has to wait more. More leaves '
                'small disturbances alone.',
        'min': 0.01, 'max': 10.0, 'source': 'not in a paper'})
    min_io_effect: float = dataclasses.field(default=0.2, metadata={
        'help': 'Least part by which the wait per disk operation has to '
                'rise.',
        'min': 0.01, 'max': 10.0, 'source': 'not in a paper'})
    own_limit_share: float = dataclasses.field(default=0.1, metadata={
        'help': 'Share of time held back by its own quota from which a '
                'workload is said to suffer from that.',
        'min': 0.001, 'max': 1.0, 'source': 'not in a paper'})
    quiet_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds without a disturbance after which an incident '
                'ends.',
        'min': 1.0, 'max': 86400.0, 'source': 'DESIGN 7.13'})
    first_cut: float = dataclasses.field(default=0.6, metadata={
        'help': 'Part of what an antagonist could use without harm that is '
                'taken away at first, to see whether it helps.',
        'min': 0.01, 'max': 0.99, 'source': 'not in a paper'})
    cut: float = dataclasses.field(default=0.3, metadata={
        'help': 'Part of its use that is taken away when the victim suffers '
                'again.',
        'min': 0.01, 'max': 0.99, 'source': 'not in a paper'})
    plateau_s: float = dataclasses.field(default=120.0, metadata={
        'help': 'Seconds after which a limit has grown to where it was cut. '
                'More disturbs less often and delays more background work.',
        'min': 1.0, 'max': 86400.0, 'source': 'not in a paper'})
    trial_samples: int = dataclasses.field(default=3, metadata={
        'help': 'Samples after which a limit is judged.',
        'min': 1, 'max': 100, 'source': 'DESIGN 6'})
    back_off_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds for which an antagonist is not limited again after '
                'a limit that did not help; twice as long each time, up to a '
                'day.',
        'min': 1.0, 'max': 86400.0, 'source': 'not in a paper'})
    remember_s: float = dataclasses.field(default=3600.0, metadata={
        'help': 'Seconds for which the last good limit of an antagonist is '
                'remembered, for when it comes back, and all that is known '
                'of a VM that is started again.',
        'min': 0.0, 'max': 604800.0, 'source': 'not in a paper'})
    max_caps_per_min: int = dataclasses.field(default=6, metadata={
        'help': 'New limits of a host in a minute; beyond, there are only '
                'incidents.',
        'min': 0, 'max': 1000, 'source': 'DESIGN 6; the number is not in '
                                         'a paper'})

    def __post_init__(self) -> None:
        samples = self.window_s / self.sample_s
        if not explanation.MIN_SAMPLES <= samples <= MOST_SAMPLES:
            raise ValueError(
                f'window_s = {self.window_s:g} holds {samples:g} samples of '
                f'sample_s = {self.sample_s:g}; a window holds '
                f'{explanation.MIN_SAMPLES} to {MOST_SAMPLES}')


class Controller:
    """Attribution on one host."""

    name = NAME
    kind = 'detector'
    only_observes = False
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
        self._disturbances: dict[tuple[VictimGroup, str], Disturbance] = {}
        self._caps = CapControl(NAME, **_cap_options(params, sample_s))
        self._looked_s: dict[tuple[VictimGroup, str], float] = {}
        self._time_s = -math.inf
        self._cpu_model: str | None = None
        self._there: dict[str, KnownRun] = {}
        self._away: dict[str, tuple[float, KnownRun]] = {}
        self._workloads: list[Workload] = []
        self.analyses = 0
        self.tune(params)

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params
        self._limits = analysis.Thresholds(
            min_effect={'cpi': params.min_effect,
                        'run_delay': params.min_effect,
                        'io_wait': params.min_io_effect},
            max_chance=params.max_chance, min_share=params.min_share,
            min_misses_per_s=params.min_misses_per_s,
            own_limit_share=params.own_limit_share)
        self._most_looks = max(1, round(
            params.max_analyses_per_min * self._sample_s / 60))
        self._caps.tune(**_cap_options(params, self._sample_s))

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
            self._forget_the_gone(now, rates)
            if self._history.add(now, rates):
                self._judge(now, rates)
        return Decision(
            self._caps.caps(),
            tuple([incident for one in self._disturbances.values()
                   if self._open(now, one)
                   for incident in one.incidents(
                       self._host, self._boot_id, self._caps.limited(one))]),
            {'samples': len(self._history.samples),
             'analyses': self.analyses,
             'disturbances': len(self._disturbances),
             'tried': dataclasses.asdict(self._caps.tally)})

    def _forget_the_gone(self, now: float, rates: Rates) -> None:
        """Also those whose id another workload has now.

        Neither caps nor guilt pass on to what is made again, nor to what an
        operator made foreground.  But an instance is the same when it is
        started again: what is known of it waits for ``remember_s``.
        """
        workloads = [one.workload for one in rates.workloads]
        if workloads == self._workloads and all(
                now < until_s for until_s, _ in self._away.values()):
            return
        self._workloads = workloads
        there: dict[str, KnownRun] = {
            one.id: (None if one.instance else one.created_s, one.priority)
            for one in workloads}
        before = {**self._there, **{
            name: known for name, (_, known) in self._away.items()}}
        until_s = now + self.params.remember_s
        away = {name: (until_s, known) for name, known
                in self._there.items() if known[0] is None}
        away.update((name, one) for name, one in self._away.items()
                    if now < one[0])
        self._away = {name: one for name, one in away.items()
                      if name not in there}
        for one in workloads:
            if before.get(one.id) != there[one.id]:
                self._history.forget_before(one.id, one.created_s)
        for name, known in before.items():
            if there.get(name) != known:
                for disturbance in self._disturbances.values():
                    disturbance.forget(name, away=name in self._away)
        self._caps.leave(now, self._away)
        self._caps.keep(self._away.keys() | {
            name for name, known in there.items()
            if known[1] is Priority.BACKGROUND
            and before.get(name) in (None, known)})
        self._there = there

    def _open(self, now: float, disturbance: Disturbance) -> bool:
        """Whether it goes on; one that is over may still be remembered."""
        return (bool(self._caps.limited(disturbance))
                or not disturbance.over(now, self.params.quiet_s))

    def _judge(self, now: float, rates: Rates) -> None:
        """What a new sample says."""
        samples = list(self._history.samples)
        groups = _groups(samples[-1])
        self._disturbances = {
            key: one for key, one in self._disturbances.items()
            if key[0] in groups
            and (one.named or one.signal == THROTTLED)
            and not one.lost(now, self.params.quiet_s)
            and (self._caps.remembers(one) or self._open(now, one))}
        for disturbance in self._disturbances.values():
            disturbance.see(now, samples[-1])
        effects = self._caps.step(now, samples[-1],
                                  set(self._disturbances.values()))
        for disturbance in self._disturbances.values():
            disturbance.take(effects)
        self._looked_s = {key: looked_s for key, looked_s
                          in self._looked_s.items() if key[0] in groups}
        # What was not looked at for longest comes first: no group can keep
        # the others from it by suffering, or feigning to, all the time.
        looks = 0
        for group, signal in sorted(
                [(group, signal) for group in groups
                 for signal in ORDER],
                key=lambda key: self._looked_s.get(key, -math.inf)):
            if looks == self._most_looks:
                break
            looks += self._look(now, group, groups[group], signal, samples,
                                rates)

    def _look(self, now: float, group: VictimGroup, members: list[str],
              signal: str, samples: list[Points], rates: Rates) -> bool:
        """Whether that took an analysis."""
        disturbance = self._disturbances.get((group, signal))
        if disturbance is not None and not (
                disturbance.suffers or disturbance.suffers_now):
            return False    # it is answered as it should be
        found = analysis.pool_if_worse(signal, members, self._history,
                                       self._limits)
        looks = found is not None
        new = None
        if found is not None:
            self.analyses += 1
            self._looked_s[group, signal] = now
            new = analysis.analyse(
                now, group, members, signal, found, samples, rates.topology,
                self._limits if disturbance is None else self._limits._replace(
                    max_chance=AGAIN * self._limits.max_chance))
        if disturbance is None:
            if new is None:
                return looks
            new.protected = samples[-1][members[0]].workload.protected
            disturbance = self._disturbances[group, signal] = new
            disturbance.see(now, samples[-1])
        elif new is not None:
            disturbance.learn(new)
        disturbance.take(self._caps.answer(
            now, disturbance, samples, new.named if new is not None else ()))
        return looks

    def evidence(self, incident: Incident) -> list[Series]:
        """What an open incident was found in."""
        return series.of(incident, self._history.samples, self._sample_s)

    def compare(self, found: Specs) -> None:
        """It compares a workload with its own past."""

    def allow(self, budget: Budget | None) -> None:
        """The new limits that the fleet governor lets this host set."""
        self._caps.allowance.give(budget)

    def state(self) -> dict[str, Any]:
        """What was learnt about antagonists; plain JSON values."""
        if not math.isfinite(self._time_s):
            return {}
        until_s = self._time_s + self.params.remember_s
        return {'saved_s': self._time_s, **self._caps.state(),
                'instances': [
                    *([name, until_s] for name, known in self._there.items()
                      if known == (None, Priority.BACKGROUND)),
                    *([name, until_s] for name, (until_s, known)
                      in self._away.items()
                      if known[1] is Priority.BACKGROUND)]}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from that.

        Of a state from a later time (another boot) only the tally counts:
        what has an end by that clock would have none by this one.
        """
        saved_s = saved_state.saved_s(state, now)
        if saved_s is None:
            self._caps.load({'tally': state.get('tally', {})})
            return
        self._away = {
            str(name): (float(until_s), (None, Priority.BACKGROUND))
            for name, until_s in state.get('instances', ())}
        self._caps.load(state)
        self._time_s = saved_s


def _cap_options(params: Params, sample_s: float) -> dict[str, Any]:
    """Those of :meth:`.cap_control.CapControl.tune`."""
    return {'cut': params.cut, 'first_cut': params.first_cut,
            'plateau': params.plateau_s / sample_s,
            'trial_samples': params.trial_samples,
            'back_off_s': params.back_off_s, 'remember_s': params.remember_s,
            'max_caps_per_min': params.max_caps_per_min}


def _groups(sample: Points) -> dict[VictimGroup, list[str]]:
    """The foreground by application.  A workload without a name for it is
    alone; those with ``scavenger:protect=false`` are apart."""
    found: dict[VictimGroup, list[str]] = {}
    for name, point in sample.items():
        workload = point.workload
        if workload.priority is Priority.FOREGROUND:
            key = ((workload.project or '', workload.application)
                   if workload.application and not flavor.is_made_of_image(
                       workload.application) else ('', '', name))
            if not workload.protected:
                key = *key, 'unprotected'
            found.setdefault(key, []).append(name)
    return found
