# SPDX-License-Identifier: Apache-2.0


"""The shares of one disk: what each background workload may do there.

The budget of ``io_budget``, split by the deficits of ``deficit``; the rules
and the letters are explained in ``io_shares``.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.floors import floors as floors_of
from scavenger_openstack.algorithms.max_min import DEMAND_FACTOR
from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms.perfiso.deficit import deficit
from scavenger_openstack.algorithms.perfiso.deficit import fair_part
from scavenger_openstack.algorithms.perfiso.deficit import parts_of
from scavenger_openstack.algorithms.perfiso.deficit import priority
from scavenger_openstack.algorithms.perfiso.io_budget import IoBudget
from scavenger_openstack.algorithms.perfiso.io_params import MOST_OPS_PER_S
from scavenger_openstack.algorithms.perfiso.io_params import Params
from scavenger_openstack.algorithms import signals
from scavenger_openstack.algorithms.window import samples
from scavenger_openstack import types

KNOB = types.Knob.IO_OPS_PER_S

LEAST_OPS_PER_S = 1.0
"""A floor below this counts as this: 0 would remove some limits.  Fewer
operations are none."""

QUIET = 1.25
"""The background rests while it does no more than so many times what its
floors let it do."""

BINDING = 0.8
"""What does so much of its cap is held by it."""

SLICE_OPS_PER_S = 10.0
"""The kernel lets operations of a container through in slices of a tenth of a
second, whole ones: of 19 a second, 10."""

LOOSEN_SHARE = 0.1
"""Share of the budget by which a limit rises per tick at the most; it falls at
once."""


class Background:
    """The background workloads of one tick, each in its place.

    ``used``: what all do, ``None`` if it is not known of each.  ``least``:
    the sum of their floors.  ``allowed``: what these let them do.
    """

    __slots__ = ('keys', 'uses', 'floors', 'weights', 'parts', 'used',
                 'least', 'allowed')

    def __init__(self, rates: Sequence[types.WorkloadRates]) -> None:
        self.keys = [rated[0].run for rated in rates]
        self.uses = [signals.number(rated.io_ops_per_s) for rated in rates]
        self.floors = [max(LEAST_OPS_PER_S, low)
                       for low in floors_of(rates, KNOB)]
        self.weights = [rated[0].vcpus for rated in rates]
        self.parts = parts_of(self.weights)
        measured = [use for use in self.uses if use is not None]
        self.used = (math.fsum(measured) if len(measured) == len(rates)
                     else None)
        self.least = math.fsum(self.floors)
        self.allowed = [
            low * signals.disk_limits(rated[0])
            for low, rated in zip(self.floors, rates, strict=True)]


def let_through(limit: float) -> float:
    """Return the operations per second that a limit really allows."""
    return (limit - limit % SLICE_OPS_PER_S
            if SLICE_OPS_PER_S <= limit < math.inf else limit)


class DiskShares:
    """The budget of one disk and its shares, from tick to tick.

    :param label: begins the reasons of limits
    :param best: what the foreground waited at its best, on any disk
    :ivar busy: the workloads that did some operations lately
    :ivar limits: of each workload there, in operations per second
    """

    def __init__(self, label: str, params: Params, interval_s: float,
                 best: BestWaits) -> None:
        self._params = params
        self._label = label
        self._interval_s = interval_s
        self._budget = IoBudget(
            params, samples(params.wait_window_s, interval_s), best)
        self._done: dict[types.RunKey,
                         collections.deque[tuple[float, ...]]] = {}
        self._unknown: dict[types.RunKey, int] = {}
        self.limits: dict[types.RunKey, float] = {}
        self.busy: set[types.RunKey] = set()

    def tune(self, params: Params) -> None:
        """Go on with other constants; what was learnt stays."""
        self._params = self._budget.params = params

    def step(self, now: float, foreground: Iterable[types.WorkloadRates],
             background: Sequence[types.WorkloadRates],
             ) -> tuple[list[types.Cap], dict[str, Any],
                        tuple[float, float] | None]:
        """Return the limits of this disk, the facts, and the sum of all
        floors with the budget where they do not fit."""
        work = Background(background)
        budget, facts = self._observe(now, foreground, work)
        if not work.keys or budget >= MOST_OPS_PER_S:
            self.limits, self._done, self.busy = {}, {}, set()
            return [], facts, None
        caps = self._share(work, budget)
        facts['budget_ops_per_s'] = budget
        return caps, facts, (
            (work.least, budget) if work.least > budget else None)

    def _observe(self, now: float, foreground: Iterable[types.WorkloadRates],
                 work: Background) -> tuple[float, dict[str, Any]]:
        """Return what the background may do in all, and why."""
        quiet = self._rests(work)
        most = self._params.max_ops_per_s or MOST_OPS_PER_S
        self._budget.observe(
            now, foreground, used=work.used, floors=work.least, most=most,
            quiet=quiet, binding=any(
                use is not None and part > 0 and use >= BINDING * let_through(
                    self.limits.get(key, math.inf))
                for key, use, part in zip(work.keys, work.uses, work.parts,
                                          strict=True)))
        total = self._budget.total
        return most if total is None else min(most, total), {
            **self._budget.facts(), 'used_ops_per_s': work.used,
            'floors_ops_per_s': work.least, 'quiet': quiet}

    def _rests(self, work: Background) -> bool:
        """Return whether the background does no more than its floors let it.

        What has had no counters for some ticks is taken to keep to its limit:
        else nothing could be learnt beside it.
        """
        before, self._unknown = self._unknown, {}
        used = 0.0
        for key, use, allowed in zip(work.keys, work.uses, work.allowed,
                                     strict=True):
            if use is None:
                ticks = self._unknown[key] = before.get(key, 0) + 1
                if (ticks <= self._params.blind_ticks
                        or self.limits.get(key, math.inf) > allowed):
                    used = math.inf
                    continue
            used += allowed if use is None else use
        return used <= QUIET * math.fsum(work.allowed)

    def _share(self, work: Background, budget: float) -> list[types.Cap]:
        """Split the budget.  Down to a share at once, up step by step."""
        weights = self._weights(work)
        deficits = self._deficits(work, weights, budget)
        shares = split(
            budget, [math.inf if use is None else use * DEMAND_FACTOR
                     for use in work.uses],
            [weight * priority(rated) for weight, rated in
             zip(weights, deficits, strict=True)], work.floors)
        step = max(1.0, LOOSEN_SHARE * budget)
        why = self._reason(budget, len(shares))
        before = self.limits
        self.limits = {}
        caps = []
        for key, use, share, low, rated in zip(
                work.keys, work.uses, shares, work.floors, deficits,
                strict=True):
            value = min(share, before.get(key, low) + step)
            # Whole ones, as they are read back.
            value = self.limits[key] = max(low, float(math.floor(value)))
            busy = self._is_busy(key)
            if busy:
                self.busy.add(key)
            # What does no operations is not limited before it begins.
            if busy or use is None:
                caps.append(types.Cap(
                    key[0], KNOB, value, '',
                    why if rated is None else f'{why}; deficit {rated:+.2f}'))
        self.busy.intersection_update(self.limits)
        return caps

    def _is_busy(self, key: types.RunKey) -> bool:
        """Return whether a workload did some operations lately."""
        return any(own >= LEAST_OPS_PER_S
                   for own, *_ in self._done.get(key, ()))

    def _weights(self, work: Background) -> list[float]:
        """Return what each weighs: nothing, while it does no operations.

        Else what is due to it would lie idle, and the others would always be
        above what is due to them.
        """
        return [
            weight if use is None or use >= LEAST_OPS_PER_S
            or self._is_busy(key) else 0.0
            for key, use, weight in zip(work.keys, work.uses, work.weights,
                                        strict=True)]

    def _deficits(self, work: Background, weights: Sequence[float],
                  budget: float) -> list[float | None]:
        """Note what was done in this tick; Def of each over delta."""
        size = max(1, round(self._params.deficit_window_s / self._interval_s))
        uses, all_parts = work.uses, parts_of(weights)
        curr = math.fsum(use for use in uses if use is not None)
        parts_left = iter(parts_of([
            weight for weight, use in zip(weights, uses, strict=True)
            if use is not None]))
        before = self._done
        self._done = {}
        deficits: list[float | None] = []
        for key, use, low, part in zip(work.keys, uses, work.floors,
                                       all_parts, strict=True):
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
        limits, label = self._budget, self._label
        if limits.rule == 'learning':
            return (f'{label}: learning how long the foreground waits '
                    'undisturbed, until then the floor')
        if limits.rule == 'blind':
            return (f'{label}: how long the foreground waits is not '
                    'measurable any more, so the floor')
        why = ('no foreground workload uses it much'
               if limits.ratio is None else
               f'the foreground waits {limits.ratio:.2f} x as long as '
               f'undisturbed')
        if limits.total is None or budget < limits.total:
            why = 'max_ops_per_s is set'
        return (f'{label}: {why}, so {budget:.0f} operations/s for {count} '
                'workloads')

    def state(self) -> dict[str, Any] | None:
        """Plain JSON values; ``None`` if there is nothing to keep."""
        return self._budget.state()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``.

        :raises KeyError, TypeError, ValueError: it is not a state.
        """
        self._budget.load(state)
