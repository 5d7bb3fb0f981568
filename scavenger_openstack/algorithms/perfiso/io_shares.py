# SPDX-License-Identifier: Apache-2.0


"""PerfIso: deficit-weighted shares of what the disks do.

Iorgulescu et al.  *PerfIso: Performance Isolation for Commercial
Latency-Sensitive Services*.  USENIX ATC 2018.  Section 4.1, I/O throttling;
its equations are in ``deficit``.

Letters: w_i is the weight of background workload i, its vCPUs; curr the
operations per second of all of them, curr_i those of one; lim_i what it is
guaranteed; D_i its part of what was done, Def_i how far it is above (or,
below 0, under) what it is due.  All but w and Def in operations per second.

The paper only says that priorities are adjusted "based on the computed
deficit values".  So these are ours, not in the paper:

* D_i is a mean over delta, and so is curr_i, which in the deficit stands
  where the paper has the curr of the drive.
* lim_i is the weighted part of the budget, at least the floor.
* The rule: a workload weighs w_i / (1 + Def_i), between half and twice w_i.
  What did twice what it is due weighs half until that is made up for, and
  the budget is split by these weights (DESIGN 7.6), so that what one does
  not want goes to the others.  A cap falls at once and rises by a part of
  the budget per tick.
* How large the budget is: ``io_budget``.  The paper limits kinds of background
  work to constants, in bytes per second; ``max_ops_per_s`` is one for all.

Operations alone are limited, not bytes: the budget follows what the
foreground feels, so it is the smaller the larger operations are.  Of a
container (and of a VM whose disks have limits of their own) a limit counts
each direction and device on its own, what is measured is their sum: one that
reads and writes may do twice its cap.  The budget takes this into account,
since it is cut from what was done.  All disks of a host count as one,
whatever uses which: with several, the background loses more than it had to,
the foreground nothing.

Weird input is taken as in ``scavenger``.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from scavenger_openstack.algorithms.floors import floors as floors_of
from scavenger_openstack.algorithms.floors import Overcommitted
from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms.perfiso.deficit import deficit
from scavenger_openstack.algorithms.perfiso.deficit import fair_part
from scavenger_openstack.algorithms.perfiso.deficit import parts_of
from scavenger_openstack.algorithms.perfiso.deficit import priority
from scavenger_openstack.algorithms.perfiso.io_budget import IoBudget
from scavenger_openstack.algorithms.perfiso.io_budget import MOST_OPS_PER_S
from scavenger_openstack.algorithms import saved_state
from scavenger_openstack.algorithms import signals
from scavenger_openstack.algorithms.window import samples
from scavenger_openstack import types

NAME = 'io_shares'
KNOB = types.Knob.IO_OPS_PER_S

LEAST_OPS_PER_S = 1.0
"""A floor below this counts as this: 0 would remove some limits.  Fewer
operations are none."""

NO_DISK = 'it does no disk operations'

QUIET = 1.25
"""The background rests while it does no more than so many times what its
floors let it do."""

BINDING = 0.8
"""What does so much of its cap is held by it."""

RunKey = tuple[str, float]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned.  Times in seconds; one sample per tick."""

    wait_tolerance: float = dataclasses.field(default=0.1, metadata={
        'help': 'Share by which disk operations of the foreground may take '
                'longer than while background work does next to none, on '
                'average over all foreground workloads; twice that for each '
                'one. Less protects more and delays background work.',
        'min': 0.01, 'max': 10.0, 'source': 'not in the paper'})
    wait_c: float = dataclasses.field(default=1.0, metadata={
        'help': "Standard deviations of the foreground's time per disk "
                'operation that are tolerated, where that is more than '
                'wait_tolerance. More lets background work disturb disks '
                'whose times vary a lot.',
        'min': 0.0, 'max': 100.0, 'source': 'not in the paper'})
    wait_window_s: float = dataclasses.field(default=30.0, metadata={
        'help': 'Seconds of quiet disks in which it is learnt how long '
                'operations of the foreground take undisturbed. For as long '
                'after a start, background work has its floor. Of VMs, '
                '[libvirt] stats_ticks times as long: only new measurements '
                'count. Longer learns more surely.',
        'min': 2.0, 'max': 86400.0, 'source': 'not in the paper'})
    wait_smoothing: int = dataclasses.field(default=5, metadata={
        'help': 'Measurements of the time per operation whose mean is judged. '
                'More keeps noise from costing background work its share; '
                'small disturbances are then noticed that much later, large '
                'ones still at once. Of VMs there is one in [libvirt] '
                'stats_ticks ticks.',
        'min': 1, 'max': 60, 'source': 'not in the paper'})
    increase_share: float = dataclasses.field(default=0.05, metadata={
        'help': 'Part by which the operations of all background work grow '
                'per tick while no foreground workload suffers: of what '
                'they were when one did last, or of what they are. More '
                'fills the disks sooner and overshoots further.',
        'min': 0.001, 'max': 1.0, 'source': 'not in the paper'})
    decrease_factor: float = dataclasses.field(default=2.0, metadata={
        'help': 'Factor by which the operations of all background work are '
                'divided, at least, when the foreground suffers. More '
                'relieves the foreground for longer.',
        'min': 1.01, 'max': 1000.0, 'source': 'not in the paper'})
    deficit_window_s: float = dataclasses.field(default=10.0, metadata={
        'help': 'Seconds of disk operations that deficits are computed '
                'from (delta in the paper). Longer lets a workload that '
                'did little before have more for longer.',
        'min': 1.0, 'max': 3600.0,
        'source': 'PerfIso, section 4.1, which gives no value'})
    loosen_share: float = dataclasses.field(default=0.1, metadata={
        'help': 'Part of the operations of all background work by which the '
                'limit of one workload rises per tick at the most. Limits '
                'fall at once.',
        'min': 0.001, 'max': 1.0, 'source': 'not in the paper'})
    demand_factor: float = dataclasses.field(default=1.25, metadata={
        'help': 'Demand of a background workload, as a multiple of the '
                'operations that it does now. More lets each grow faster '
                'and leaves less to the others.',
        'min': 1.0, 'max': 10.0, 'source': 'not in the paper; DESIGN 7.6'})
    max_ops_per_s: float = dataclasses.field(default=0.0, metadata={
        'help': 'Disk operations per second of all background work '
                'together, at the most. It also holds where the time per '
                'operation of the foreground cannot be measured. 0: as many '
                'as the foreground tolerates.',
        'min': 0.0, 'max': MOST_OPS_PER_S,
        'source': 'PerfIso, section 4.1 and 6, static limits'})
    blind_ticks: int = dataclasses.field(default=3, metadata={
        'help': 'Ticks for which the last limits are held while the time '
                'per operation, which was measurable, is missing for all of '
                'the foreground. After them background work falls to its '
                'floor.',
        'min': 0, 'max': 3600, 'source': 'not in the paper'})


class _Background:
    """The background workloads of one tick, each in its place.

    ``used``: what all do, ``None`` if it is not known of each.  ``least``:
    the sum of their floors.  ``allowed``: what these let them do.
    """

    __slots__ = ('keys', 'uses', 'floors', 'weights', 'parts', 'used',
                 'least', 'allowed')

    def __init__(self, rates: Sequence[types.WorkloadRates]) -> None:
        self.keys: list[RunKey] = [
            (rated[0].id, rated[0].created_s) for rated in rates]
        self.uses = [signals.number(rated.io_ops_per_s) for rated in rates]
        self.floors = [max(LEAST_OPS_PER_S, low)
                       for low in floors_of(rates, KNOB)]
        self.weights = [rated[0].vcpus for rated in rates]
        self.parts = parts_of(self.weights)
        measured = [use for use in self.uses if use is not None]
        self.used = (math.fsum(measured) if len(measured) == len(rates)
                     else None)
        self.least = math.fsum(self.floors)
        self.allowed = math.fsum([
            low * signals.disk_limits(rated[0])
            for low, rated in zip(self.floors, rates, strict=True)])


class Controller:
    """The shares of one host's disks.  It remembers, nothing else.

    ``interval_s`` is the time between steps; ``host`` and ``boot_id`` go
    into the ids of incidents.
    """

    name = NAME
    kind = 'regulator'
    params_type = Params
    at_start = frozenset({'wait_window_s', 'wait_smoothing',
                          'deficit_window_s'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '') -> None:
        self.params = params or Params()
        self._interval_s = interval_s
        self._time_s = -math.inf
        self._decision = types.Decision()
        self._overcommitted = Overcommitted(host, boot_id)
        self._forget()

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = p = params
        self._budget.tune(
            c=p.wait_c, tolerance=p.wait_tolerance, increase=p.increase_share,
            decrease=p.decrease_factor, blind_ticks=p.blind_ticks)

    def _forget(self) -> None:
        p = self.params
        self._budget = IoBudget(
            c=p.wait_c, tolerance=p.wait_tolerance,
            size=samples(p.wait_window_s, self._interval_s),
            smoothing=p.wait_smoothing, increase=p.increase_share,
            decrease=p.decrease_factor, blind_ticks=p.blind_ticks)
        self._caps: dict[RunKey, float] = {}
        self._done: dict[RunKey, collections.deque[tuple[float, ...]]] = {}
        self._busy: set[RunKey] = set()

    def step(self, now: float, rates: types.Rates) -> types.Decision:
        """All the caps that should be in force now.  ``now`` in seconds."""
        if not self._time_s < now < math.inf:
            return self._decision
        gap_s = now - self._time_s
        if gap_s > max(2 * self._interval_s, self.params.wait_window_s):
            self._forget()
        self._time_s = now
        some = _Background([rated for rated in rates.workloads
                            if rated[0].priority is types.Priority.BACKGROUND])
        budget, facts = self._observe(rates, some)
        caps: list[types.Cap] = []
        short: dict[str, tuple[float, float]] = {}
        if not some.keys or budget >= MOST_OPS_PER_S:
            self._caps, self._done, self._busy = {}, {}, set()
        else:
            caps = self._share(some, budget)
            facts['budget_ops_per_s'] = budget
            if some.least > budget:
                short[str(KNOB)] = some.least, budget
        self._decision = types.Decision(
            tuple(caps), self._overcommitted.incidents(now, short), facts,
            removal_reasons={(key[0], KNOB): NO_DISK for key in self._caps
                             if key not in self._busy})
        return self._decision

    def _observe(self, rates: types.Rates, some: _Background,
                 ) -> tuple[float, dict[str, Any]]:
        """Return what the background may do in all, and why."""
        quiet = some.used is not None and some.used <= QUIET * some.allowed
        most = self.params.max_ops_per_s or MOST_OPS_PER_S
        self._budget.observe(
            [rated for rated in rates.workloads
             if rated[0].priority is not types.Priority.BACKGROUND],
            used=some.used, floors=some.least, most=most, quiet=quiet,
            binding=any(
                use is not None and part > 0
                and use >= BINDING * self._caps.get(key, math.inf)
                for key, use, part in zip(some.keys, some.uses, some.parts,
                                          strict=True)))
        total = self._budget.total
        return most if total is None else min(most, total), {
            **self._budget.facts(), 'used_ops_per_s': some.used,
            'floors_ops_per_s': some.least, 'quiet': quiet}

    def _share(self, some: _Background, budget: float) -> list[types.Cap]:
        """Split the budget.  Down to a share at once, up step by step."""
        p = self.params
        deficits = self._deficits(some, budget)
        shares = split(
            budget, [math.inf if use is None else use * p.demand_factor
                     for use in some.uses],
            [weight * priority(rated) for weight, rated in
             zip(some.weights, deficits, strict=True)], some.floors)
        step = max(1.0, p.loosen_share * budget)
        why = self._reason(budget, len(shares))
        before = self._caps
        self._caps = {}
        caps = []
        for key, use, share, low, rated in zip(
                some.keys, some.uses, shares, some.floors, deficits,
                strict=True):
            value = min(share, before.get(key, low) + step)
            # Whole ones, as they are read back.
            value = self._caps[key] = max(low, float(math.floor(value)))
            if self._uses_disks(key, use):
                caps.append(types.Cap(
                    key[0], KNOB, value, NAME,
                    why if rated is None else f'{why}; deficit {rated:+.2f}'))
        self._busy.intersection_update(self._caps)
        return caps

    def _uses_disks(self, key: RunKey, use: float | None) -> bool:
        """Whether a workload did some operations lately, or may do some now:
        one that does none is not limited, and at once when it begins."""
        busy = any(own >= LEAST_OPS_PER_S for own, *_ in self._done[key])
        if busy:
            self._busy.add(key)
        return busy or use is None

    def _deficits(self, some: _Background,
                  budget: float) -> list[float | None]:
        """Note what was done in this tick; Def of each over delta."""
        size = max(1, round(self.params.deficit_window_s / self._interval_s))
        uses, weights = some.uses, some.weights
        curr = math.fsum(use for use in uses if use is not None)
        parts_left = iter(parts_of([
            weight for weight, use in zip(weights, uses, strict=True)
            if use is not None]))
        before = self._done
        self._done = {}
        deficits: list[float | None] = []
        for key, use, low, part in zip(some.keys, uses, some.floors,
                                       some.parts, strict=True):
            past = self._done[key] = before.get(key) or collections.deque(
                maxlen=size)
            if use is not None:
                past.append((use, next(parts_left), curr))
            if not past:
                deficits.append(None)
                continue
            own, parts, totals = zip(*past, strict=True)
            deficits.append(deficit(
                math.fsum(own) / len(own), max(low, part * budget),
                fair_part(parts, totals)))
        return deficits

    def _reason(self, budget: float, count: int) -> str:
        limits = self._budget
        if limits.rule == 'learning':
            return ('disks: learning how long the foreground waits '
                    'undisturbed, until then the floor')
        if limits.rule == 'blind':
            return ('disks: how long the foreground waits is not measurable '
                    'any more, so the floor')
        why = ('no foreground workload uses them much'
               if limits.ratio is None else
               f'the foreground waits {limits.ratio:.2f} x as long as '
               f'undisturbed')
        if limits.total is None or budget < limits.total:
            why = 'max_ops_per_s is set'
        return (f'disks: {why}, so {budget:.0f} operations/s for {count} '
                'workloads')

    def state(self) -> dict[str, Any]:
        """What to keep over a restart; plain JSON values."""
        if not math.isfinite(self._time_s):
            return {}
        return {'saved_s': self._time_s, 'budget': self._budget.state()}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from a state that is not older than the window.

        What the next step finds to be older, or what is from a later time
        (another boot) or unreadable, is learnt again.  ``now`` in seconds,
        same clock as ``step``.
        """
        saved_s = saved_state.saved_s(state, now)
        if saved_s is None:
            return
        self._time_s = saved_s
        try:
            if state.get('budget'):
                self._budget.load(state['budget'])
        except saved_state.UNREADABLE:
            self._time_s = -math.inf
            self._forget()
