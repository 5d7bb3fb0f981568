# SPDX-License-Identifier: Apache-2.0


"""How much CPU and cache the background may use, judged by the foreground's
IPC.

Scavenger, section 4.4: instructions per cycle stand in for the pressure on
the shared cache, and the background's quota follows them by additive
increase and multiplicative decrease.  IPC is 1 / CPI; mu and sigma are its
mean and sample deviation over w samples, c the std-factor.

Where the CPU can divide the cache, section 7 has the same rule move the ways
of the cache "instead".  Ours moves both: a small drop takes ways first, and
CPU time only when the least is left, since a memory bus that is full lowers
the IPC, too; in a new phase both are at the minimum.

Two things are ours, since we have many foreground workloads: what is judged
is the mean of the last few samples, and c grows with the number of workloads,
so that all together raise no more false alarms than one.  Without them noise
alone keeps the background at its minimum
(``benchmarks/parameters/ipc_noise.py``).  The paper tried two foreground VMs
on a host (figure 10), and does not say how it judges both.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import enum
import functools
import math
from statistics import NormalDist
from typing import Any

from scavenger_openstack.algorithms.scavenger.params import Params
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.algorithms.window import Window
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import THE_BACKGROUND
from scavenger_openstack.types import WorkloadRates

PHASE_FACTOR = 2.0
"""Beyond mu +/- 2 * c * sigma the foreground is in a new phase: Scavenger,
section 4.4."""

LEAST_WAYS = 1.0
"""What the background keeps of a cache; a CPU may divide no fewer than some
more."""

BINDING = 0.8
"""Only a quota of which so much is used is proved harmless."""

QUIET_TICKS = 2
"""A quota's interval is quiet when it was at its minimum for so many in a row:
in the first of them the limit is still being set, and the foreground reads
again what was displaced from its cache."""

NORMAL = NormalDist()


class Verdict(enum.IntEnum):
    """The answer that the IPC of one foreground workload asks for; the least
    wins."""

    MINIMUM = 0
    SHRINK = 1
    HOLD = 2
    GROW = 3


def deviation(mu: float, sigma: float, *, c: float,
              min_deviation: float) -> float:
    """c * sigma, but at least a share of mu.

    Source: Scavenger, section 4.4; the minimum is ours: with sigma = 0 the
    last digit of a counter would be a new phase.
    """
    return max(c * sigma, min_deviation * mu)


@functools.lru_cache
def family_factor(c: float, workloads: int, smoothing: int) -> float:
    """The std-factor for each of many workloads.

    One workload whose mean of ``smoothing`` samples is judged with ``c``
    gives a false alarm with some chance; with this factor all of them
    together have that chance (Sidak).  It is ``c`` for one.  Not in the
    paper.
    """
    root = math.sqrt(smoothing)
    quiet = NORMAL.cdf(c * root) ** (1 / max(1, workloads))
    # So large a c that its chance is rounded to nothing needs no help.
    return c if quiet >= 1 else max(c, NORMAL.inv_cdf(quiet) / root)


def judge(ipc: float, mu: float, spread: float) -> Verdict:
    """Return what this IPC asks for; ``spread`` is c * sigma.

    Beyond mu +/- 2 spread: a new phase, the minimum.  Below mu - spread:
    shrink.  Within mu +/- spread: grow.  Between mu + spread and mu + 2
    spread: hold.  Source: Scavenger, section 4.4; the last, DESIGN 7.11.
    """
    if abs(ipc - mu) > PHASE_FACTOR * spread:
        return Verdict.MINIMUM
    if ipc < mu - spread:
        return Verdict.SHRINK
    return Verdict.GROW if ipc <= mu + spread else Verdict.HOLD


def next_quota(quota: float, verdict: Verdict, *, minimum: float,
               maximum: float, increase: float, decrease: float) -> float:
    """The quota of the whole background in cores, or its ways: AIMD.

    Grow by ``increase``, shrink by the factor ``decrease``, never
    below ``minimum`` nor above ``maximum`` (the minimum wins).  Source:
    Scavenger, sections 4.4, 6.1 and 7.
    """
    if verdict is Verdict.GROW:
        quota += increase
    elif verdict is Verdict.SHRINK:
        quota /= decrease
    elif verdict is Verdict.MINIMUM:
        quota = minimum
    return max(minimum, min(quota, maximum))


class _Baseline:
    __slots__ = ('window', 'mu', 'sigma', 'missing', 'last', 'skipped')

    def __init__(self, size: int, smoothing: int) -> None:
        self.window = Window(size)
        self.last: collections.deque[float] = collections.deque(
            maxlen=smoothing)
        self.mu: float | None = None
        self.sigma: float | None = None
        self.missing = self.skipped = 0


class Quota:
    """The quota of the background, and every foreground workload's IPC.

    * A workload below ``ipc_min_cores`` has no vote: it cannot be disturbed
      much, and its IPC says little.  Without any vote the quota grows.
    * One that never had an IPC has no vote: the rule is off for it.  The
      whole rule is ``active`` once there was one IPC.
    * One whose IPC was there and is missing while it runs holds the quota
      for ``blind_ticks`` ticks, then asks for the minimum.
    * After harm the quota grows beyond ``proved``, a part of what was used
      then, only while it is used up: what rested meets its last good quota.
    * One that is learning (its first ``size`` samples, or again after a new
      phase) asks for the minimum: the baseline must not contain what the
      background does.  So only samples of quiet intervals are learnt, for
      which at most ``size`` others are skipped: one of them among 15 makes
      a sigma that hides any harm.  mu and sigma stay until the next phase.
    * After the quota shrank, it shrinks again when ``smoothing`` samples
      were taken since: the mean still holds those from before.

    :ivar params: may be replaced, but for ``ipc_smoothing``; what was learnt
        stays
    :ivar ways: of each last-level cache; ``None`` where none can be divided
    """

    def __init__(self, params: Params, size: int) -> None:
        """
        :param size: samples from which a baseline is learnt
        """
        self.params = params
        self.cores: float | None = None
        self.ways: float | None = None
        self.verdict = Verdict.MINIMUM
        self.by = ''
        self.phases = 0
        self.proved = math.inf
        self._quiet = 0
        self._since_shrink = self._smoothing = params.ipc_smoothing
        self._size = size
        self._baselines: dict[RunKey, _Baseline] = {}

    @property
    def active(self) -> bool:
        """There was an IPC to go by."""
        return self.cores is not None

    def observe(self, foreground: Iterable[WorkloadRates], *,
                minimum: float, maximum: float,
                ways: int | None = None, used: float | None = None) -> None:
        """Take this tick's IPCs and move the quota, in cores, and the ways.

        :param ways: of a cache, all together
        :param used: of what the quota is for, in cores; with it, a quota
            that hurt once grows beyond its half only while it is used up
        """
        p, phases = self.params, self.phases
        baselines: dict[RunKey, _Baseline] = {}
        verdict, by = Verdict.GROW, ''
        # Those that it was not for until now were not limited by it.
        self._quiet = self._quiet + 1 if (
            self.cores == minimum
            and self.ways in (None, LEAST_WAYS)) else 0
        self._since_shrink += 1
        for workload, _, cores, cpi, *_ in foreground:
            key = workload.run
            baseline = self._baselines.get(key)
            if baseline is None:
                if cpi is None or not 0 < cpi < math.inf:
                    continue
                baseline = _Baseline(self._size, self._smoothing)
            baselines[key] = baseline
            vote = self._vote(baseline, cores, cpi)
            if vote is not None and vote < verdict:
                verdict, by = vote, workload.id
        if not baselines and not self._baselines:
            self.cores = self.ways = None
            return
        self._baselines = baselines
        self.verdict, self.by = verdict, by
        verdict = self._move_ways(verdict, ways)
        if verdict is Verdict.SHRINK:
            if self._since_shrink < self._smoothing:
                verdict = Verdict.HOLD
            else:
                self._since_shrink = 0
        cores = minimum if self.cores is None else self.cores
        if used is not None:
            if verdict is Verdict.SHRINK or self.phases > phases:
                self.proved = min(cores, used) / p.ipc_quota_decrease_factor
            elif (verdict is Verdict.GROW and cores >= self.proved
                    and used < BINDING * cores):
                verdict = Verdict.HOLD
        self.cores = next_quota(
            cores, verdict, minimum=minimum, maximum=maximum,
            increase=p.ipc_quota_increase_cores,
            decrease=p.ipc_quota_decrease_factor)

    def _move_ways(self, verdict: Verdict, ways: int | None) -> Verdict:
        """Move the ways; return the verdict that is left for the quota."""
        before = LEAST_WAYS if self.ways is None else self.ways
        self.ways = None if ways is None else next_quota(
            before, verdict, minimum=LEAST_WAYS, maximum=ways,
            increase=1 / self._smoothing,
            decrease=self.params.ipc_quota_decrease_factor)
        answered = (verdict is Verdict.SHRINK and self.ways is not None
                    and self.ways < before)
        return Verdict.HOLD if answered else verdict

    def ways_limit(self, most: int | None, owner: str) -> Cap | None:
        """Return the limit of the part of caches that all background work
        fills together, if it is to have one.

        :param most: ways of a cache, all together
        """
        if self.ways is None or most is None or self.ways >= most:
            return None
        ways = int(self.ways)
        return Cap(
            THE_BACKGROUND, Knob.LLC_WAYS, ways, owner,
            f'IPC of {self.by or "no foreground workload"} asks to '
            f'{self.verdict.name.lower()}: {ways} of {most} ways of each '
            'last-level cache for all background workloads')

    def _vote(self, baseline: _Baseline, cores: float | None,
              cpi: float | None) -> Verdict | None:
        p = self.params
        if cores is not None and cores < p.ipc_min_cores:
            baseline.missing = 0
            return None
        if (cores is None or cpi is None or not 0 < cpi < math.inf
                or not math.isfinite(cores)):
            baseline.missing += 1
            return (Verdict.HOLD if baseline.missing <= p.blind_ticks
                    else Verdict.MINIMUM)
        baseline.missing = 0
        ipc = 1.0 / cpi
        if baseline.mu is None or baseline.sigma is None:
            if (self._quiet < QUIET_TICKS
                    and baseline.skipped < self._size):
                baseline.skipped += 1
                return Verdict.MINIMUM
            baseline.window.add(ipc)
            if baseline.window.full:
                baseline.mu = baseline.window.mean
                baseline.sigma = baseline.window.stddev
            return Verdict.MINIMUM
        last = baseline.last
        last.append(ipc)
        c = p.ipc_c if p.ipc_strict else family_factor(
            p.ipc_c, len(self._baselines), self._smoothing)
        # A mean of fewer samples is allowed to be that much further off.
        vote = judge(math.fsum(last) / len(last), baseline.mu, deviation(
            baseline.mu, baseline.sigma,
            c=c * math.sqrt(self._smoothing / len(last)),
            min_deviation=p.ipc_min_deviation))
        if vote is Verdict.MINIMUM:
            # This sample was taken before the quota dropped: not kept.
            self.phases += 1
            baseline.mu = baseline.sigma = None
            baseline.window.clear()
            baseline.skipped = 0
            last.clear()
        return vote

    def facts(self) -> dict[str, Any]:
        """The numbers behind the quota; plain JSON values."""
        if self.cores is None:
            return {'rule': 'off', 'why': 'no IPC of any foreground workload '
                                          'is measurable here'}
        learning = sum(1 for baseline in self._baselines.values()
                       if baseline.mu is None)
        return {'rule': 'learning' if learning else 'holding',
                'quota_cores': self.cores, 'llc_ways': self.ways,
                'verdict': self.verdict.name.lower(), 'by': self.by,
                'workloads': len(self._baselines), 'learning': learning,
                'phases': self.phases}

    def state(self) -> dict[str, Any] | None:
        """Plain JSON values; ``None`` if there is nothing to keep."""
        if self.cores is None:
            return None
        return {'cores': self.cores, 'ways': self.ways,
                'phases': self.phases, 'quiet': self._quiet,
                'since_shrink': self._since_shrink,
                'proved': None if math.isinf(self.proved) else self.proved,
                'baselines': [
            [*key, baseline.mu, baseline.sigma, baseline.window.state(),
             list(baseline.last), baseline.missing, baseline.skipped]
            for key, baseline in self._baselines.items()]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        cores = quantity(state['cores'])
        ways = None if state['ways'] is None else quantity(state['ways'])
        phases = int(quantity(state['phases']))
        quiet = int(quantity(state['quiet']))
        since_shrink = int(quantity(state['since_shrink']))
        proved = (math.inf if state['proved'] is None
                  else quantity(state['proved']))
        baselines = {}
        for (name, created_s, mu, sigma, window, last,
             missing, skipped) in state['baselines']:
            baseline = _Baseline(self._size, self._smoothing)
            baseline.window.load(window)
            baseline.last.extend(quantity(ipc) for ipc in last)
            baseline.missing = int(quantity(missing))
            baseline.skipped = int(quantity(skipped))
            if mu is not None:
                baseline.mu, baseline.sigma = quantity(mu), quantity(sigma)
            baselines[str(name), float(created_s)] = baseline
        self.cores, self.ways, self.phases = cores, ways, phases
        self.proved = proved
        self._quiet, self._since_shrink = quiet, since_shrink
        self._baselines = baselines
