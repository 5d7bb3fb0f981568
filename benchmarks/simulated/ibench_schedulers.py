# SPDX-License-Identifier: Apache-2.0

"""Schedulers for iBench, section V-A, and the machines that they choose from.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import random
from typing import Any

import ibench_cluster as cluster
from ibench_cluster import App
from scavenger_openstack.algorithms import placing
from scavenger_openstack.algorithms import profiles
from scavenger_openstack.algorithms.profiles import Profile
from scavenger_openstack.simulator.machine import Machine

LATE_S = 15.0
"""How old a summary of the hosts may be: agents report every 5 s, and
nova-scheduler reads the API every 10 s."""
CANDIDATES = 12
"""Of the least loaded machines, those that the model is asked about."""


@functools.cache
def alone_rate(app: App, machine: Machine) -> float:
    return cluster.rates(machine, [app])[0]


@dataclasses.dataclass(slots=True, eq=False)
class Running:
    """An application on a node, and how much of its work is left."""

    app: App
    began_s: float
    left_s: float
    alone: float
    speed: float = 1.0


class Node:
    """A machine of the cluster and what runs there."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.running: list[Running] = []
        self.primary: Running | None = None
        self.used = 0.0, 0.0
        """The shares of its CPUs and memory that are given away."""
        self.version = 0
        self.moved_s = self.primary_s = self.busy_s = self.work_s = 0.0
        self.in_use_s = 0.0

    def fits(self, app: App) -> bool:
        cpus, memory = self.used
        return (cpus + app.vcpus / self.machine.cpus <= 1 + 1e-9
                and memory + app.memory_bytes / self.machine.memory_bytes
                <= 1 + 1e-9)

    def load(self) -> float:
        return sum(self.used) / 2

    def move(self, now_s: float) -> None:
        """Do the work up to now."""
        passed_s = now_s - self.moved_s
        for each in self.running:
            each.left_s -= passed_s * each.speed
            self.work_s += passed_s * each.speed * each.app.vcpus
            self.busy_s += passed_s * each.app.vcpus
        if self.primary is not None:
            self.primary_s += passed_s * self.primary.speed
        self.in_use_s += passed_s * bool(self.running)
        self.moved_s = now_s

    def settle(self) -> float:
        """Compute all speeds again; seconds until the first ends."""
        self.version += 1
        self.used = (sum(each.app.vcpus for each in self.running)
                     / self.machine.cpus,
                     sum(each.app.memory_bytes for each in self.running)
                     / self.machine.memory_bytes)
        speeds = cluster.rates(self.machine,
                               [each.app for each in self.running])
        for each, rate in zip(self.running, speeds, strict=True):
            each.speed = cluster.performance(each.app, self.machine, rate,
                                             each.alone)
        return min((max(0.0, each.left_s) / each.speed
                    for each in self.running if each is not self.primary),
                   default=float('inf'))


class View:
    """What a scheduler knows: nodes, profiles, the time."""

    def __init__(self, measured: Mapping[str, Profile], drawn: random.Random
                 ) -> None:
        self.measured = measured
        self.drawn = drawn
        self.now_s = 0.0
        self._kept: dict[Node, tuple[Any, _Sides, profiles.Levels]] = {}

    def residents(self, node: Node, late_s: float = 0.0
                  ) -> tuple[_Sides, profiles.Levels]:
        names = tuple(each.app.name for each in node.running
                      if each.began_s <= self.now_s - late_s)
        kept = self._kept.get(node)
        if kept is None or kept[0] != names:
            whole = profiles.together(_sides(self.measured[name])
                                      for name in names)
            kept = names, whole, profiles.levels(*whole)
            self._kept[node] = kept
        return kept[1:]

    def harm(self, app: App, node: Node, late_s: float = 0.0) -> float:
        return profiles.harm(_levels(self.measured[app.name]),
                             self.residents(node, late_s)[1])

    def distance(self, app: App, node: Node) -> float:
        """Equation (1) to the letter, in both directions."""
        own = _sides(self.measured[app.name])
        tolerated, caused = self.residents(node)[0]
        others = {**_FULL, **tolerated}, {**_NONE, **caused}
        return sum(profiles.distance(one[0], other[1])
                   for one, other in ((own, others), (others, own)))


_Sides = tuple[dict[str, float], dict[str, float]]


def _sides(profile: Profile) -> _Sides:
    tolerated, caused = ({name: estimate.value for name, estimate
                          in side.items()} for side in profile)
    return tolerated, caused


def _levels(profile: Profile) -> profiles.Levels:
    return profiles.levels(*_sides(profile))


_NAMES = ('memory_capacity', *(soi.name for soi in cluster.SOIS))
_FULL = dict.fromkeys(_NAMES, 1.0)
_NONE = dict.fromkeys(_NAMES, 0.0)

Choose = Callable[[App, Sequence[Node], View], Node]


def least_loaded(app: App, nodes: Sequence[Node], view: View) -> Node:
    return min(nodes, key=Node.load)


def at_random(app: App, nodes: Sequence[Node], view: View) -> Node:
    return view.drawn.choice(nodes)


def by_profiles(app: App, nodes: Sequence[Node], view: View,
                late_s: float = 0.0) -> Node:
    return min(nodes, key=lambda node: (view.harm(app, node, late_s),
                                        node.load()))


def late(app: App, nodes: Sequence[Node], view: View) -> Node:
    """As by profiles, by a summary that is old: what was placed since counts
    as one more of the same, as for our weigher."""
    own = _levels(view.measured[app.name])
    again = profiles.harm(own, own)

    def harm(node: Node) -> float:
        fresh = any(each.began_s > view.now_s - LATE_S
                    for each in node.running)
        return view.harm(app, node, LATE_S) + again * fresh
    return min(nodes, key=lambda node: (harm(node), node.load()))


def by_distance(app: App, nodes: Sequence[Node], view: View) -> Node:
    return min(nodes, key=lambda node: (view.distance(app, node),
                                        node.load()))


def by_model(app: App, nodes: Sequence[Node], view: View) -> Node:
    """Where all lose least by the model itself, which no scheduler has: what
    one that places one after the other could gain here."""
    def loss(node: Node) -> float:
        running = [*node.running, Running(app, 0.0, 0.0, alone_rate(
            app, node.machine))]
        speeds = cluster.rates(node.machine, [each.app for each in running])
        return sum(each.speed for each in node.running) - sum(
            cluster.performance(each.app, node.machine, rate, each.alone)
            for each, rate in zip(running, speeds, strict=True))
    return min(sorted(nodes, key=Node.load)[:CANDIDATES], key=loss)


def nova(app: App, nodes: Sequence[Node], view: View, multiplier: float = 1.0
         ) -> Node:
    """As nova-scheduler adds up our weigher and its own of CPU and RAM."""
    free = [(node.machine.cpus - used[0] * node.machine.cpus,
             node.machine.memory_bytes * (1 - used[1]))
            for node in nodes for used in [node.used]]
    spans = [(min(column), (max(column) - min(column)) or 1.0)
             for column in zip(*free, strict=True)]
    weights = [
        multiplier * (placing.weight(placing.Host(silent=False), False,
                                     view.harm(app, node)) + 2) / 3
        + sum((amount - low) / span for amount, (low, span)
              in zip(amounts, spans, strict=True))
        for node, amounts in zip(nodes, free, strict=True)]
    return nodes[max(range(len(nodes)), key=weights.__getitem__)]


SCHEDULERS: dict[str, Choose] = {
    'least-loaded': least_loaded, 'random': at_random,
    'profiles': by_profiles,
    'profiles, summary late': late,
    'profiles, only late': functools.partial(by_profiles, late_s=LATE_S),
    'equation (1)': by_distance,
    'nova, no profiles': functools.partial(nova, multiplier=0.0),
    'nova, weigher x 1': nova,
    'nova, weigher x 10': functools.partial(nova, multiplier=10.0),
    'the model itself': by_model}
