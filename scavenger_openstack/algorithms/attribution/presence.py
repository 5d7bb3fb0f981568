# SPDX-License-Identifier: Apache-2.0

"""Which workloads are the same as before, and which have only their names."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from typing import NamedTuple

from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

KnownRun = tuple[float | None, Priority]
"""What a name stands for: when its workload was made, ``None`` for an
instance, which may be started again."""


class Changes(NamedTuple):
    """``made``: workloads that are new under their names.  ``gone``: names
    that stand for nothing now, or for another workload."""

    made: Collection[Workload]
    gone: Collection[str]


class Presence:
    """The workloads that are there, and instances that are away for a while.

    Neither caps nor guilt pass on to what is made again, nor to what an
    operator made foreground.  But an instance is the same when it is started
    again: what is known of it waits.
    """

    def __init__(self) -> None:
        self._there: dict[str, KnownRun] = {}
        self._away: dict[str, tuple[float, KnownRun]] = {}
        self._kept: set[str] = set()
        self._workloads: list[Workload] = []

    @property
    def background(self) -> set[str]:
        """The workloads that may be limited now."""
        return {name for name, (_, priority) in self._there.items()
                if priority is Priority.BACKGROUND}

    @property
    def away(self) -> Collection[str]:
        """Instances that were there a while ago."""
        return self._away.keys()

    @property
    def kept(self) -> Collection[str]:
        """The workloads of which everything stays known."""
        return self._away.keys() | self._kept

    def follow(self, now: float, workloads: list[Workload], remember_s: float
               ) -> Changes | None:
        """Take those that are there; ``None`` when nothing has changed.

        :param remember_s: for so long an instance may be away
        """
        if workloads == self._workloads and all(
                now < until_s for until_s, _ in self._away.values()):
            return None
        self._workloads = workloads
        there: dict[str, KnownRun] = {
            workload.id: (None if workload.instance else workload.created_s,
                          workload.priority)
            for workload in workloads}
        before = {**self._there, **{
            name: run for name, (_, run) in self._away.items()}}
        until_s = now + remember_s
        away = {name: (until_s, run) for name, run
                in self._there.items() if run[0] is None}
        away.update((name, run) for name, run in self._away.items()
                    if now < run[0])
        self._away = {name: run for name, run in away.items()
                      if name not in there}
        self._kept = {name for name, run in there.items()
                      if run[1] is Priority.BACKGROUND
                      and before.get(name) in (None, run)}
        self._there = there
        return Changes(
            [workload for workload in workloads
             if before.get(workload.id) != there[workload.id]],
            [name for name, run in before.items()
             if there.get(name) != run])

    def state(self, until_s: float) -> list[list[object]]:
        """Background instances, and until when each may be away if it is
        not there after a restart."""
        return [
            *([name, until_s] for name, run in self._there.items()
              if run == (None, Priority.BACKGROUND)),
            *([name, away_s] for name, (away_s, run)
              in self._away.items() if run[1] is Priority.BACKGROUND)]

    def load(self, state: Iterable[tuple[object, object]]) -> None:
        """Go on from that."""
        self._away = {
            str(name): (float(str(until_s)), (None, Priority.BACKGROUND))
            for name, until_s in state}
