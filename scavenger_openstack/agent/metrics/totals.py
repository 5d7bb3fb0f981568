# SPDX-License-Identifier: Apache-2.0

"""What is counted from tick to tick for the metrics: pure."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections import Counter
from collections import defaultdict
import operator
from typing import Any

from scavenger_openstack.agent import capacity
from scavenger_openstack.agent.loop import Tick
from scavenger_openstack.agent.metrics import page
from scavenger_openstack.agent.metrics.text_format import Row
from scavenger_openstack.events import Event
from scavenger_openstack import grounds
from scavenger_openstack.metrics.metric import OTHER
from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.wire import report

MOST_S = 30.0
"""A tick counts as no longer than this: an agent that stood still has lost
its limits meanwhile."""

UNITS = {Resource.CPU: 'cpu_cores', Resource.MEMORY: 'memory_bytes',
         Resource.NETWORK: 'network_bytes_per_second'}

_KNOB_AND_OWNER = operator.itemgetter(1, 3)
"""Of a :class:`.types.Cap`: a host may have hundreds in each tick."""

RATES = {'background_cpu_seconds_total': 'cpu_cores',
         'background_io_operations_total': 'io_ops_per_s',
         'background_egress_bytes_total': 'net_tx_bytes_per_s'}
"""Each metric, and the rate that adds up to it."""


class Totals:
    """The counters of one agent.

    :param controllers: whose limits have a label of their own
    :param most_instances: VMs that have metrics of their own, at most
    """

    def __init__(self, controllers: Collection[str], most_instances: int = 0
                 ) -> None:
        self._controllers = tuple(controllers)
        self._most = most_instances
        self._ticked_s: float | None = None
        self._sample: HostSample | None = None
        self._busy: tuple[float, Mapping[int, float]] = 0.0, {}
        self._rates: Rates | None = None
        self._limits: Counter[tuple[str, ...]] = Counter()
        self._limited_s: dict[tuple[str, ...], float] = defaultdict(float)
        self._changes: Counter[tuple[str, ...]] = Counter()
        self._incidents: Counter[tuple[str, ...]] = Counter()
        self._interference_s: dict[str, float] = defaultdict(
            float, dict.fromkeys(grounds.CAUSES, 0.0))
        self._disturbed: set[tuple[str, str]] = set()
        self._background: dict[str, float] = {}
        self._limited: frozenset[str] = frozenset()
        self._instance_s: dict[str, float] = {}

    def happened(self, events: Iterable[Event]) -> None:
        """Count what the history has a line of."""
        for event in events:
            if isinstance(event, report.Limit):
                self._changes[event.knob, self._owner(event.owner),
                              event.what] += 1
            elif isinstance(event, report.Incident) and event.what == 'ended':
                self._incidents[
                    page.cause(event.cause), event.outcome if event.outcome
                    in list(Outcome) else OTHER] += 1

    def tick(self, tick: Tick, in_force: Mapping[KnobKey, Cap]) -> None:
        """Add the time since the last tick to what was so then.

        :param in_force: the limits, those of the fast loop among them
        """
        lasted_s = (0.0 if self._ticked_s is None else
                    min(max(0.0, tick.time_s - self._ticked_s), MOST_S))
        self._ticked_s = tick.time_s
        for key, count in self._limits.items():
            self._limited_s[key] += lasted_s * count
        for _, cause in self._disturbed:
            self._interference_s[cause] += lasted_s
        self._limits.clear()
        for (knob, name), count in Counter(
                map(_KNOB_AND_OWNER, in_force.values())).items():
            self._limits[knob.value, self._owner(name)] += count
        if tick.sample is None:
            return      # not known is not over
        self._sample, self._rates = tick.sample, tick.rates
        self._disturbed = {(incident.victim, page.cause(incident.cause))
                           for incident in tick.incidents.values()}
        self._use(tick.rates)
        if self._most:
            self._limit_instances(tick.sample, lasted_s)
            self._limited = frozenset(workload for workload, _ in in_force)

    def _owner(self, name: str) -> str:
        return page.owner(name, self._controllers)

    def _use(self, rates: Rates | None) -> None:
        """Add what background workloads used, as far as that is known."""
        if rates is None or not rates.complete:
            return
        workloads = capacity.background(rates)
        for name, rate in RATES.items():
            used = [value for workload in workloads
                    if (value := getattr(workload, rate)) is not None]
            if used or not workloads:
                self._background[name] = self._background.get(
                    name, 0.0) + sum(used) * rates.interval_s

    def _limit_instances(self, sample: HostSample, lasted_s: float) -> None:
        seconds, limited = {}, self._limited
        for workload, *_ in sample.workloads:
            if workload.instance:
                seconds[workload.instance] = self._instance_s.get(
                    workload.instance, 0.0) + lasted_s * (
                        not limited.isdisjoint(workload.limit_ids))
        self._instance_s = seconds

    def rows(self, controllers: Mapping[str, Any]) -> dict[str, list[Row]]:
        """Return the rows of what is counted, by metric.

        :param controllers: those of the status, with their facts
        """
        rows: dict[str, list[Row]] = {
            'limits': _rows(self._limits),
            'limited_seconds_total': _rows(self._limited_s),
            'limit_changes_total': _rows(self._changes),
            'incidents_total': _rows(self._incidents),
            'interference_seconds_total': [
                [cause, round(seconds, 3)] for cause, seconds
                in self._interference_s.items()],
            **{name: [[round(value, 3)]]
               for name, value in self._background.items()}}
        sample, rates = self._sample, self._rates
        if sample is not None:
            before_s, before = self._busy
            idle = capacity.idle_cores(before, sample.cpu_busy_s,
                                       sample.time_s - before_s)
            self._busy = sample.time_s, sample.cpu_busy_s
            for what, amounts in (
                    ('capacity', capacity.capacity(sample)),
                    ('headroom', capacity.headroom(controllers, rates,
                                                   idle))):
                rows.update((f'{what}_{UNITS[resource]}', [[amount]])
                            for resource, amount in amounts.items())
            memory = capacity.used(rates).get(Resource.MEMORY)
            rows['background_memory_bytes'] = [[memory]]
            if self._most:
                rows.update(self._instances(sample))
        return rows

    def end(self) -> None:
        """Note that the limits of this agent are removed."""
        self._limits.clear()

    def _instances(self, sample: HostSample) -> dict[str, list[Row]]:
        """Return the rows of VMs, those with the lowest UUIDs."""
        machines = sorted(
            (machine for machine in sample.workloads
             if machine.workload.instance),
            key=lambda machine: machine.workload.instance)
        rows: dict[str, list[Row]] = {
            'instances_left_out': [[max(0, len(machines) - self._most)]]}
        for name in ('run_delay', 'io_wait', 'limited'):
            rows[f'instance_{name}_seconds_total'] = []
        for machine in machines[:self._most]:
            workload = machine.workload
            labels = [workload.project or '', workload.instance,
                      str(workload.priority)]
            for name, value in (
                    ('run_delay', machine.run_delay_s),
                    ('io_wait', machine.io_wait_s),
                    ('limited', self._instance_s.get(workload.instance))):
                rows[f'instance_{name}_seconds_total'].append([
                    *labels, None if value is None else round(value, 3)])
        return rows


def _rows(values: Mapping[tuple[str, ...], float]) -> list[Row]:
    return [[*labels, round(value, 3)]
            for labels, value in sorted(values.items())]
