# SPDX-License-Identifier: Apache-2.0

"""Runs of the simulated host for :mod:`simulator_figures`, and how to say
what came of them."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import statistics
from typing import NamedTuple

from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.truth import Result
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority

BACKGROUND = Priority.BACKGROUND
COUNTERS = ('cycles', 'instructions', 'llc_misses', 'io_wait_s', 'io_ops',
            'io_bytes')
Set = Callable[[Simulator], None]


class Run(NamedTuple):
    """What came of one run, and rates per tenant and interval."""

    results: dict[str, Result]
    cpi: dict[str, list[float]]
    io_wait_s: dict[str, list[float]]
    io_bytes_per_s: dict[str, list[float]]
    misses_per_s: dict[str, list[float]]
    latency_s: dict[str, list[float]]


def heading(figure: str, paper: str) -> None:
    print(f'\n{figure}\n  paper: {paper}')


def say(text: str, matches: bool | None = None) -> None:
    mark = {None: '   ', True: ' ok', False: 'NOT'}[matches]
    print(f'  {mark} {text}')


def nothing(simulator: Simulator) -> None:
    """No limit at all."""


def run(machine: Machine, tenants: Iterable[Tenant], *,
        seconds: float = 300, interval_s: float = 5, set_: Set = nothing,
        seed: int = 1) -> Run:
    """Run tenants in steps of a second, sampled every ``interval_s``."""
    simulator = Simulator(machine, tenants, seed=seed, keep=True)
    simulator.advance(20)
    set_(simulator)
    simulator.advance(20)
    simulator.plant.reset_truth()
    for guest in simulator.plant.guests:
        guest.truth.series.clear()
    found = Run({}, {}, {}, {}, {}, {})
    before = {one.workload.id: one for one in simulator.sample().workloads}
    for _ in range(int(seconds / interval_s)):
        simulator.advance(interval_s)
        for now in simulator.sample().workloads:
            name, then = now.workload.id, before[now.workload.id]
            before[name] = now
            grown = {field: getattr(now, field) - getattr(then, field)
                     for field in COUNTERS}
            if grown['instructions']:
                found.cpi.setdefault(name, []).append(
                    grown['cycles'] / grown['instructions'])
            if grown['io_ops']:
                found.io_wait_s.setdefault(name, []).append(
                    grown['io_wait_s'] / grown['io_ops'])
            found.io_bytes_per_s.setdefault(name, []).append(
                grown['io_bytes'] / interval_s)
            found.misses_per_s.setdefault(name, []).append(
                grown['llc_misses'] / interval_s)
    for guest in simulator.plant.guests:
        name = guest.spec.id
        found.results[name] = guest.truth.result()
        values = [value for _, value in guest.truth.series]
        size = int(interval_s)
        found.latency_s[name] = [
            statistics.fmean(values[i:i + size])
            for i in range(0, len(values), size)]
    return found


def deviation(series: Mapping[str, list[float]], prefix: str) -> list[float]:
    """Standard deviation across alike VMs, per interval."""
    members = [values for name, values in series.items()
               if name.startswith(prefix)]
    return [statistics.pstdev(values)
            for values in zip(*members, strict=False)]


def rising(values: list[float]) -> bool:
    return all(a <= b * 1.03 for a, b in zip(values, values[1:],
                                             strict=False))


def limited(knob: Knob, value: float | str, name: str = 'bully') -> Set:
    def set_(simulator: Simulator) -> None:
        simulator.write(name, knob, value)
    return set_
