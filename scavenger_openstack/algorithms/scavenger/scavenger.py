# SPDX-License-Identifier: Apache-2.0


"""Scavenger: give away what the foreground does not use.

Javadi, Suresh, Wajahat, Gandhi.  *Scavenger: A Black-Box Batch Workload
Resource Manager for Improving Utilization in Cloud Environments*.  SoCC
2019.  Section 4; defaults from section 6.1.  Memory and network (4.2, 4.3)
share the rules in ``reserve``, x(t) is in ``usage``, how busy a link may be
(ours) in ``link``, the page cache (ours) in ``page_cache``, the quota by IPC
(4.4) and the ways of caches (7) in ``quota``, the quota by what is left over
(ours) in ``leftover``, what can be tuned in ``params``.

Weird input: ``None``, NaN and infinite numbers are no signal (the rule is
off, or holds and then goes to the floor); so is a capacity of 0.  A step
whose time is not after the last one changes nothing and says again what was
said last.  After a gap longer than a window, that window is learnt again.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.algorithms.floors import floors as floors_of
from scavenger_openstack.algorithms.floors import Overcommitted
from scavenger_openstack.algorithms.max_min import DEMAND_FACTOR
from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms import saved_state
from scavenger_openstack.algorithms.scavenger.contenders import Contenders
from scavenger_openstack.algorithms.scavenger.leftover import Leftover
from scavenger_openstack.algorithms.scavenger import link as shared_link
from scavenger_openstack.algorithms.scavenger import page_cache
from scavenger_openstack.algorithms.scavenger.params import Params as Params
from scavenger_openstack.algorithms.scavenger import pins as cpu_pins
from scavenger_openstack.algorithms.scavenger.quota import Quota
from scavenger_openstack.algorithms.scavenger.reserve import kept_s
from scavenger_openstack.algorithms.scavenger.reserve import reason
from scavenger_openstack.algorithms.scavenger.reserve import Resource
from scavenger_openstack.algorithms.scavenger import usage
from scavenger_openstack.algorithms.scavenger.usage import groups as groups
from scavenger_openstack.algorithms import sharing
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.window import samples as samples
from scavenger_openstack import types

NAME = 'scavenger'
FULL = ('the host is full: with cpu.idle QEMU would not answer; the CPU quota '
        'alone limits the VM')
GIB, MBIT, MS_PER_S = 2.0 ** 30, 125_000.0, 1000.0


def _demands(used: Iterable[float | None]) -> list[float]:
    return [(use or 0.0) * DEMAND_FACTOR for use in used]


class _Tick:
    """The input and the results so far of one step."""

    __slots__ = ('rates', 'background', 'foreground', 'memory', 'caps',
                 'overcommitted', 'shortage_bytes', 'removal_reasons')

    def __init__(self, rates: types.Rates) -> None:
        self.rates = rates
        self.foreground, self.background = sharing.sides(rates.workloads)
        self.memory: dict[str, tuple[float, str]] = {}
        self.caps: list[types.Cap] = []
        self.overcommitted: dict[str, tuple[float, float]] = {}
        self.shortage_bytes = 0.0
        self.removal_reasons: dict[types.KnobKey, str] = {}

    def cap(self, workloads: Iterable[types.WorkloadRates], knob: types.Knob,
            values: Iterable[float], why: str) -> None:
        whole = knob is not types.Knob.CPU_CORES      # bytes
        self.caps += [
            types.Cap(rated[0].id, knob, int(value) if whole else value,
                      NAME, why)
            for rated, value in zip(workloads, values, strict=True)]

    def cap_memory(self, shares: Iterable[float], floors: Iterable[float],
                   why: str) -> None:
        """Limit what is not limited by itself; the tighter limit counts."""
        for rated, share, low in zip(self.background, shares, floors,
                                     strict=True):
            before = self.memory.get(rated[0].id)
            if share < (math.inf if before is None else before[0]) and (
                    usage.binds(share, rated, low)):
                self.memory[rated[0].id] = share, why

    def check(self, signal: str, floors: Iterable[float],
              budget: float) -> None:
        least = math.fsum(floors)
        if least > budget:
            self.overcommitted[signal] = (least, budget)


class Controller:
    """The rules of section 4, and ours, over one host.  It remembers,
    nothing else.

    ``interval_s`` is the time between steps; ``host`` and ``boot_id`` go
    into the ids of incidents.
    """

    name = NAME
    kind = 'regulator'
    params_type = Params
    at_start = frozenset({'memory_window_s', 'memory_peak_s',
                          'network_window_s', 'network_peak_s',
                          'ipc_window_s', 'ipc_smoothing'})

    def __init__(self, params: Params | None = None, *,
                 interval_s: float = 1.0, host: str = '',
                 boot_id: str = '') -> None:
        self.params = params or Params()
        self._interval_s = interval_s
        self._time_s = -math.inf
        self._decision = types.Decision()
        self._memory = self._new_resource()
        self._links: dict[tuple[str, str], Resource] = {}
        self._quota = self._new_quota()
        self._contenders = Contenders()
        self._leftover = Leftover(self.params)
        self._memory_window = usage.MemoryWindow()
        self._page_cache = page_cache.PageCache(self.params)
        self._overcommitted = Overcommitted(host, boot_id)

    def _new_resource(self, *, link: bool = False) -> Resource:
        p, interval_s = self.params, self._interval_s
        c, window_s, peak_s = (
            (p.network_c, p.network_window_s, p.network_peak_s) if link
            else (p.memory_c, p.memory_window_s, p.memory_peak_s))
        return Resource(
            c=c, size=samples(window_s, interval_s),
            min_headroom=p.min_headroom, blind_ticks=p.blind_ticks,
            rule=p.reserve_rule, peak_size=samples(peak_s, interval_s))

    def _new_quota(self) -> Quota:
        return Quota(self.params, samples(
            self.params.ipc_window_s, self._interval_s))

    def tune(self, params: Params) -> None:
        """See :class:`.decision.controller.Controller`."""
        self.params = p = params
        # What is off is not observed: later it is learnt again.
        observed = {direction.name for direction in usage.directions(
            received=p.use_network_received) if p.use_network}
        self._links = {key: link for key, link in self._links.items()
                       if key[0] in observed}
        if not p.use_memory:
            self._memory = self._new_resource()
            self._memory_window = usage.MemoryWindow()
        if not p.use_page_cache:
            self._page_cache = page_cache.PageCache(p)
        if not (p.use_cpu_idle and p.use_cpu_leftover):
            self._leftover = Leftover(p)
        if not p.use_ipc:
            self._quota, self._contenders = self._new_quota(), Contenders()
        for resource, c in ((self._memory, p.memory_c),
                            *((link, p.network_c)
                              for link in self._links.values())):
            resource.tune(c=c, min_headroom=p.min_headroom,
                          blind_ticks=p.blind_ticks, rule=p.reserve_rule)
        self._page_cache.params = self._leftover.params = p
        self._quota.params = p

    def step(self, now: float, rates: types.Rates) -> types.Decision:
        """All the caps that should be in force now.  ``now`` in seconds."""
        if not self._time_s < now < math.inf:
            return self._decision
        self._forget(now - self._time_s)
        self._time_s = now
        params = self.params
        tick = _Tick(rates)
        facts: dict[str, Any] = {}
        if params.use_memory:
            facts['memory'] = self._regulate_memory(tick)
        if params.use_page_cache:
            facts['page_cache'] = self._regulate_page_cache(tick)
        if params.use_network:
            by_link = [usage.by_link(part, rates.link_of)
                       for part in (tick.background, tick.foreground)]
            for direction in usage.directions(
                    received=params.use_network_received):
                facts[direction.name] = self._regulate_network(
                    tick, direction, *by_link)
        crowded, cpus = False, cpu_pins.usable(rates.topology)
        if params.use_cpu_set and cpus:
            crowded, cpus, caps, facts['cpu_set'] = cpu_pins.limits(
                tick.foreground, groups(tick.background), rates.topology,
                NAME)
            tick.caps += caps
        if params.use_ipc or crowded:
            facts['ipc'] = self._regulate_quota(tick, crowded=crowded)
        if params.use_cpu_idle:
            idle = tick.background
            if params.use_cpu_leftover:
                tick.caps += self._leftover.step(rates, idle, cpus)
                facts['leftover'] = self._leftover.facts()
                if self._leftover.full:
                    tick.removal_reasons = dict.fromkeys(
                        ((group, types.Knob.CPU_IDLE) for group in groups(
                            rated for rated in idle if rated[0].instance)),
                        FULL)
                    idle = [rated for rated in idle if not rated[0].instance]
            tick.caps += [
                types.Cap(group, types.Knob.CPU_IDLE, 1, NAME,
                          'background runs only where nothing else wants to')
                for group in groups(idle)]
        self._decision = types.Decision(
            (*(types.Cap(name, types.Knob.MEMORY_BYTES, int(share), NAME, why)
               for name, (share, why) in tick.memory.items()), *tick.caps),
            self._overcommitted.incidents(now, tick.overcommitted), facts,
            tick.shortage_bytes, tick.removal_reasons)
        return self._decision

    def _forget(self, gap_s: float) -> None:
        params = self.params
        # However short a window is, it holds two samples.
        if gap_s <= 2 * self._interval_s:
            return
        rule = params.reserve_rule
        if gap_s > kept_s(rule, params.memory_window_s, params.memory_peak_s):
            self._memory = self._new_resource()
            self._memory_window = usage.MemoryWindow()
        if gap_s > params.memory_window_s:
            self._page_cache = page_cache.PageCache(params)
        if gap_s > kept_s(rule, params.network_window_s,
                          params.network_peak_s):
            self._links = {}
        if gap_s > params.ipc_window_s:
            self._quota = self._new_quota()
            self._contenders = Contenders()
        for resource in (self._memory, *self._links.values()):
            resource.skip(gap_s / self._interval_s - 1)

    def _regulate_memory(self, tick: _Tick) -> dict[str, Any]:
        memory, rates, background = self._memory, tick.rates, tick.background
        used = [number(rated.memory_bytes) for rated in background]
        measured = [use for use in used if use is not None]
        memory.observe(
            usage.foreground_memory(
                rates.memory_total_bytes, rates.memory_available_bytes,
                sum(measured)),
            rates.memory_total_bytes,
            [(rated[0].run, rated.memory_bytes,
              rated[0].memory_allotment_bytes) for rated in tick.foreground],
            certain=len(measured) == len(used))
        facts = memory.facts()
        rule = memory.rule
        if rule == 'off' or not background:
            self._memory_window = usage.MemoryWindow()
            return facts
        floors = floors_of(background, types.Knob.MEMORY_BYTES)
        budget = memory.budget()
        if rule == 'holding':
            self._memory_window = usage.MemoryWindow()
            tick.shortage_bytes = sum(measured) - budget
            shares = usage.memory_shares(budget, background, used,
                                         _demands(used), floors)
        else:
            shares = self._memory_window.shares(
                background, used, floors, budget, growth=rule == 'learning')
        if rule != 'blind':
            tick.check(str(types.Knob.MEMORY_BYTES), floors, budget)
        tick.cap_memory(shares, floors, reason(
            facts, 'memory', 'GiB', GIB, len(background)))
        return facts

    def _regulate_page_cache(self, tick: _Tick) -> dict[str, Any]:
        background, rule = tick.background, self._page_cache
        floors = floors_of(background, types.Knob.MEMORY_BYTES)
        shares = rule.step(self._time_s, tick.rates, background, floors)
        facts = rule.facts()
        if shares:
            tick.cap_memory(shares, floors, page_cache.reason(
                facts, len(background)))
        return facts

    def _regulate_network(self, tick: _Tick, direction: usage.Direction,
                          background: usage.ByLink,
                          foreground: usage.ByLink) -> dict[str, Any]:
        rates, carried = tick.rates, direction.of_links(tick.rates)
        for link in rates.links:
            if (direction.name, link) not in self._links:
                self._links[direction.name, link] = self._new_resource(
                    link=True)
        facts: dict[str, Any] = {}
        for (name, link), resource in list(self._links.items()):
            if name != direction.name:
                continue
            limited = background.get(link, [])
            if link not in rates.links and not limited:
                del self._links[name, link]
                continue
            used = [number(direction.of_workload(rated)) for rated in limited]
            uses = [(rated[0].run, direction.of_workload(rated), None)
                    for rated in foreground.get(link, ())]
            resource.observe(
                usage.foreground_rate(
                    carried.get(link), sum(filter(None, used)),
                    sum(number(use) or 0.0 for _, use, _ in uses)),
                rates.links.get(link), uses, certain=None not in used)
            facts[link] = resource.facts()
            rule = resource.rule
            if rule == 'off' or not limited:
                continue
            shares = floors = floors_of(limited, direction.knob)
            if rule != 'blind':
                tick.check(f'{direction.knob} {link}', floors,
                           resource.budget())
            wait_s = self.params.network_wait_s
            budget = facts[link]['budget'] = shared_link.budget(
                resource.capacity or 0.0, resource.reserved(), wait_s)
            why = reason(facts[link], f'{direction.act} over {link}',
                         'Mbit/s', MBIT, len(limited))
            if rule == 'holding':
                shares = split(budget, _demands(used),
                               [rated[0].vcpus for rated in limited], floors)
                if wait_s:
                    why += (f'; a packet of the foreground may wait '
                            f'{wait_s * MS_PER_S:g} ms on average')
            tick.cap(limited, direction.knob, shares, why)
        return facts

    def _regulate_quota(self, tick: _Tick, *, crowded: bool
                        ) -> dict[str, Any]:
        quota = self._quota
        background: Sequence[types.WorkloadRates] = tick.background
        if not crowded and not quota.active and all(
                rated.cpi is None for rated in tick.foreground):
            return quota.facts()        # no IPC so far
        if self.params.use_ipc and not (self.params.ipc_strict or crowded):
            background = self._contenders.step(
                self._time_s, tick.foreground, background,
                tick.rates.topology)
        floors = floors_of(background, types.Knob.CPU_CORES)
        weights = [rated[0].vcpus for rated in background]
        minimum = math.fsum(floors)
        maximum = max(len(tick.rates.topology) or math.fsum(
            number(weight) or 0.0 for weight in weights),
                      minimum + self.params.ipc_quota_increase_cores)
        used = [number(rated.cpu_cores) for rated in background]
        if self.params.use_ipc:
            quota.observe(
                tick.foreground, minimum=minimum, maximum=maximum,
                ways=tick.rates.llc_ways if self.params.use_llc_ways else None,
                used=None if self.params.ipc_strict
                else math.fsum(use or 0.0 for use in used))
            limit = quota.ways_limit(tick.rates.llc_ways, NAME)
            if limit is not None and tick.background:
                tick.caps.append(limit)
        facts = quota.facts()
        cores = quota.cores
        if crowded:
            cores = minimum
            why = 'no CPU is free of pinned foreground workloads: the floor'
        elif cores is None or cores >= maximum:
            return facts
        else:
            why = (f'IPC of {quota.by or "no foreground workload"} asks to '
                   f'{quota.verdict.name.lower()}: {cores:.2f} cores for '
                   'all background workloads')
        tick.cap(background, types.Knob.CPU_CORES,
                 split(cores, _demands(used), weights, floors), why)
        return facts

    def state(self) -> dict[str, Any]:
        """What to keep over a restart; plain JSON values."""
        if not math.isfinite(self._time_s):
            return {}
        return {'saved_s': self._time_s, 'memory': self._memory.state(),
                'links': [[*key, resource.state()]
                          for key, resource in self._links.items()],
                'quota': self._quota.state(),
                'contenders': self._contenders.state()}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from a state that is not older than its windows.

        What the next step finds to be older, or what is from a later time
        (another boot) or unreadable, is learnt again.  ``now`` in seconds,
        same clock as ``step``.
        """
        saved_s = saved_state.saved_s(state, now)
        if saved_s is None:
            return
        self._time_s = saved_s
        try:
            if state.get('memory'):
                self._memory.load(state['memory'])
            for name, link, kept in state.get('links') or ():
                if kept:
                    self._links[name, link] = self._new_resource(link=True)
                    self._links[name, link].load(kept)
            # An undisturbed IPC takes limits that are in force.
            if state.get('quota') and not state.get('observed'):
                self._quota.load(state['quota'])
            self._contenders.load(state.get('contenders') or ())
        except saved_state.UNREADABLE:
            self._time_s = -math.inf
            self._forget(math.inf)
