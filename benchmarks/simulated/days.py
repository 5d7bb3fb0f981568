# SPDX-License-Identifier: Apache-2.0

"""Whether what is shown as disturbing disturbs, at each moment of whole days.

A simulated host of 32 CPUs for a day: twelve services in three applications,
and fifty background suspects, five of which disturb for hours at times: two
that compute, two that use the disk, and one that streams through the cache.
The others work and rest at random.

Once per minute two copies of the host go on for ten seconds, one with and one
without each workload that an open incident names (both without its limits).
It is right when its victim's requests are 2 % faster without it; late when
that was so in one of the last five minutes, for which an incident goes on;
stale when it was so at all; else innocent.  Every tenth minute all five that
disturb are tried like that: shown is the part of those that slow a service by
a fifth or more and are named for it.

    python benchmarks/simulated/days.py [--days 1] [--first 9000]
        [--hours 24] [--minutes 1] [--enforce] [--json]

A day takes some five minutes of one CPU, of which one is that of looking;
with ``--minutes 5`` every fifth minute is looked at.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Collection
import concurrent.futures
import json
import os
import pickle
import sys
import time
from typing import Any

import detection

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.laboratory import bench
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.scenario import Scenario
from scavenger_openstack.types import Decision
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Value

MINUTE_S = 60.0
SETTLE_S, LOOK_S = 2.0, 10.0
LATE_MINUTES = 5
ALL_MINUTES = 10
"""So often all that disturb are tried, named or not."""

KINDS = 'right', 'late', 'stale', 'innocent'

DAY = '''
schema: 1
about: a day with fifty suspects
duration_s: 86400
warmup_s: 60
machine: {cpus: 32, llcs: 2, llc_bytes: 40e6, memory_bytes_per_s: 30e9,
          memory_bytes: 512e9, disk_service_s: 0.0002}
tenants:
  - id: shop
    count: 4
    application: shop
    vcpus: 4
    cores: {uniform: [0.5, 1.0]}
    cpu_s: {uniform: [0.003, 0.008]}
    arrivals: {uniform: [2, 8]}
    phases: [&day {shape: wave, period_s: 86400, depth: 0.6,
                   offset_s: {uniform: [0, 14400]}}]
  - id: db
    count: 4
    application: database
    vcpus: 2
    cores: {uniform: [0.2, 0.5]}
    cpu_s: {uniform: [0.003, 0.006]}
    io_ops: {uniform: [1, 4]}
    phases: [*day]
  - id: search
    count: 4
    application: search
    vcpus: 4
    cores: {uniform: [0.4, 0.8]}
    cpu_s: {uniform: [0.004, 0.012]}
    accesses: {loguniform: [0.008, 0.02]}
    footprint_bytes: {uniform: [3e6, 6e6]}
    phases: [*day]
  - id: hog
    count: 2
    priority: background
    role: antagonist
    vcpus: 24
    threads: {integer: [16, 24]}
    weight: {loguniform: [12, 48]}
    accesses: 0.001
    phases: [&hours {shape: bursts, level: 1, low: 0.02,
                     period_s: {uniform: [7200, 21600]},
                     share: {uniform: [0.1, 0.4]},
                     offset_s: {uniform: [0, 21600]}}]
  - id: scan
    count: 2
    priority: background
    role: antagonist
    vcpus: 2
    threads: 0.3
    queue_depth: {loguniform: [2, 16]}
    io_bytes: {choice: [4096, 65536, 262144]}
    phases: [*hours]
  - id: stream
    priority: background
    role: antagonist
    vcpus: 8
    threads: {integer: [4, 8]}
    cpi: 0.5
    accesses: {loguniform: [0.01, 0.03]}
    overlap: 0.85
    footprint_bytes: 1e9
    miss_least: 0.7
    miss_most: 0.9
    phases: [*hours]
  - id: batch
    count: 45
    priority: background
    vcpus: 1
    threads: {uniform: [0.02, 0.3]}
    queue_depth: {choice: [0, 0, 0.01, 0.03]}
    accesses: 0.0004
    footprint_bytes: 0.3e6
    phases: [{shape: bursts, level: 1, low: 0.1,
              period_s: {loguniform: [30, 7200]},
              share: {uniform: [0.2, 0.8]},
              offset_s: {uniform: [0, 7200]}}]
'''


class Copies:
    """A host as it is now, to go on in several ways.

    :param simulator: left as it is
    """

    def __init__(self, simulator: Simulator) -> None:
        # Three times as fast as copy.deepcopy.
        self._host = pickle.dumps(simulator)
        self._limited = {name for name, _ in simulator.limits}
        self._as_it_is = self._means()

    def faster(self, name: str) -> dict[str, float]:
        """By how much faster each service is now without a workload, and its
        limits: 0.2 is a fifth."""
        beside = (self._means(free=name) if name in self._limited
                  else self._as_it_is)
        without = self._means(without=name)
        return {victim: mean_s / without[victim] - 1
                for victim, mean_s in beside.items() if victim in without}

    def _means(self, *, free: str = '', without: str = ''
               ) -> dict[str, float]:
        other: Simulator = pickle.loads(self._host)
        for name, knob in other.limits:
            if name == free:
                other.remove(name, knob)
        if without:
            other.plant.end(without)
        # By what was in line before none is judged.
        other.advance(SETTLE_S)
        other.plant.reset_truth()
        other.advance(LOOK_S)
        return {guest.spec.id: mean_s for guest in other.plant.guests
                if (mean_s := guest.truth.result().mean_s)}


def named(decision: Decision) -> set[tuple[str, str, str]]:
    """Victim, workload and signal of what an operator is shown now."""
    return {(incident.victim, name, incident.signal)
            for incident in decision.incidents
            for name in incident.antagonists}


class Judge:
    """Counts what was shown, by kind."""

    def __init__(self, antagonists: Collection[str]) -> None:
        self._antagonists = antagonists
        self._right: dict[tuple[str, str], float] = {}
        self.counts: collections.Counter[str] = collections.Counter()
        self.signals: dict[str, collections.Counter[str]] = (
            collections.defaultdict(collections.Counter))
        self.worst: collections.Counter[str] = collections.Counter()
        self.disturbing = self.shown = 0

    def look(self, minute: int, simulator: Simulator, decision: Decision
             ) -> None:
        shown = named(decision)
        names = {name for _, name, _ in shown}
        every = minute % ALL_MINUTES == 0
        there = {guest.spec.id for guest in simulator.plant.guests}
        tried = there & (names | set(self._antagonists if every else ()))
        effects: dict[str, dict[str, float]] = {}
        if tried:
            copies = Copies(simulator)
            effects = {name: copies.faster(name) for name in sorted(tried)}
        for name, by_victim in effects.items():
            for victim, by in by_victim.items():
                if by >= detection.FELT:
                    self._right[victim, name] = minute
        for victim, name, signal in sorted(shown):
            last = self._right.get((victim, name))
            kind = ('innocent' if last is None else
                    'right' if last == minute else
                    'late' if minute - last <= LATE_MINUTES else 'stale')
            self.counts[kind] += 1
            self.signals[signal][kind] += 1
            if kind in ('stale', 'innocent'):
                self.worst[f'{kind}: {name} for {victim} ({signal})'] += 1
        if every:
            pairs = {pair[:2] for pair in shown}
            for name in self._antagonists:
                for victim, by in effects.get(name, {}).items():
                    if by >= detection.VICTIM:
                        self.disturbing += 1
                        self.shown += (victim, name) in pairs


def day(seed: int, hours: float, every: int, enforce: bool
        ) -> dict[str, Any]:
    """One day of one host."""
    began_s = time.process_time()
    drawn = Scenario(DAY, 'day.yaml').draw(seed)
    simulator = Simulator(drawn.machine, drawn.tenants, seed=seed,
                          step_s=drawn.step_s, floors=bench.FLOORS)
    detector = attribution.Controller(interval_s=drawn.interval_s)
    judge = Judge([tenant.id for tenant in drawn.tenants
                   if tenant.role == detection.ANTAGONIST])
    in_force: dict[KnobKey, Value] = {}
    before = simulator.sample()
    for second in range(1, round(3600 * hours) + 1):
        simulator.advance(drawn.interval_s)
        sample = simulator.sample()
        decision = detector.step(sample.time_s, rates_.rates(before, sample))
        before = sample
        simulator.ask(decision.asks)
        if enforce:
            in_force = detection.set_limits(simulator, in_force, decision.caps)
        minute, rest = divmod(second, int(MINUTE_S))
        if rest == 0 and minute % every == 0:
            judge.look(minute, simulator, decision)
    return {'seed': seed, **{kind: judge.counts[kind] for kind in KINDS},
            'signals': {signal: dict(kinds) for signal, kinds
                        in judge.signals.items()},
            'disturbing': judge.disturbing, 'shown': judge.shown,
            'worst': judge.worst.most_common(8),
            'cpu_s': round(time.process_time() - began_s)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--days', type=int, default=1)
    parser.add_argument('--first', type=int, default=9000)
    parser.add_argument('--hours', type=float, default=24.0)
    parser.add_argument('--minutes', type=int, default=1)
    parser.add_argument('--enforce', action='store_true')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    total: collections.Counter[str] = collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(day, *zip(*(
                (seed, options.hours, options.minutes, options.enforce)
                for seed in range(options.first,
                                  options.first + options.days)),
                strict=True)):
            total.update({kind: row[kind] for kind in (
                *KINDS, 'disturbing', 'shown')})
            print(json.dumps(row) if options.json else row, flush=True)
    looks = sum(total[kind] for kind in KINDS)
    print(f'shown {looks} times: '
          + ', '.join(f'{kind} {total[kind]}' for kind in KINDS)
          + (f'; right or late {(total["right"] + total["late"]) / looks:.3f}'
             f', right {total["right"] / looks:.3f}' if looks else '')
          + f'; named {total["shown"]} of {total["disturbing"]} that slow a '
          'service by a fifth', file=sys.stderr)


if __name__ == '__main__':
    main()
