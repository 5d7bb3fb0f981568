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
since it is cut from what was done.

Each disk has its own budget and shares, so that a slow one does not cost the
others; a workload of which the disks are not known may use any.  It has one
limit, the tightest of its disks.

Weird input is taken as in ``scavenger``.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from scavenger_openstack.algorithms.best_waits import BestWaits
from scavenger_openstack.algorithms.floors import Overcommitted
from scavenger_openstack.algorithms.perfiso.disk_shares import DiskShares
from scavenger_openstack.algorithms.perfiso.disk_shares import KNOB
from scavenger_openstack.algorithms.perfiso.io_params import Params as Params
from scavenger_openstack.algorithms import saved_state
from scavenger_openstack.algorithms import sharing
from scavenger_openstack import types

NAME = 'io_shares'

NO_DISK = 'it does no disk operations'


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
        self._best = BestWaits()
        self._disks: dict[str, DiskShares] = {}

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = params
        for shares in self._disks.values():
            shares.tune(params)

    def step(self, now: float, rates: types.Rates) -> types.Decision:
        """All the caps that should be in force now.  ``now`` in seconds."""
        if not self._time_s < now < math.inf:
            return self._decision
        gap_s = now - self._time_s
        if gap_s > max(2 * self._interval_s, self.params.wait_window_s):
            self._disks = {}
        self._time_s = now
        before, self._disks = self._disks, {}
        caps: dict[str, types.Cap] = {}
        short: dict[str, tuple[float, float]] = {}
        facts: dict[str, Any] = {}
        by_disk = sharing.by_disk(rates.workloads)
        for disk, users in by_disk.items():
            shares = self._disks[disk] = before.get(disk) or self._new(disk)
            own, facts[disk], excess = shares.step(
                now, *sharing.sides(users))
            if excess is not None:
                short[f'{KNOB} {disk}' if len(by_disk) > 1 else KNOB] = excess
            for cap in own:
                # Of several disks the tightest counts: a workload has but one
                # limit, on each of them.
                if (cap.workload not in caps or float(cap.value)
                        < float(caps[cap.workload].value)):
                    caps[cap.workload] = cap._replace(owner=NAME)
        self._decision = types.Decision(
            tuple(caps.values()), self._overcommitted.incidents(now, short),
            facts[disk] if len(facts) == 1 else {'disks': facts},
            removal_reasons={
                (key[0], KNOB): NO_DISK for shares in self._disks.values()
                for key in shares.limits
                if key not in shares.busy and key[0] not in caps})
        return self._decision

    def _new(self, disk: str) -> DiskShares:
        return DiskShares(f'disk {disk}' if disk else 'disks', self.params,
                          self._interval_s, self._best)

    def state(self) -> dict[str, Any]:
        """What to keep over a restart; plain JSON values."""
        if not math.isfinite(self._time_s):
            return {}
        return {'saved_s': self._time_s, 'best_waits': self._best.state(),
                'disks': {disk: shares.state()
                          for disk, shares in self._disks.items()}}

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
            self._best.load(state.get('best_waits') or {}, now)
            for disk, kept in (state.get('disks') or {}).items():
                if kept:
                    self._disks[disk] = self._new(disk)
                    self._disks[disk].load(kept)
        except saved_state.UNREADABLE:
            self._time_s = -math.inf
            self._disks = {}
