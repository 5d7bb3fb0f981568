# SPDX-License-Identifier: Apache-2.0


"""Which of the background can slow down the instructions of others.

Not in the paper, which holds back all background work when the IPC of the
foreground falls, whatever the reason is.  What hardly misses the cache takes
nothing of it, nor of the memory bus, from others.  Nor does it take much of
their cores, while there are idle cores for its threads.  To hold it back
helps no one then: the IPC fell for another reason, such as the service's own
doing.

What is limited is judged by what it would miss with all its vCPUs, or it
would be free again as soon as it is held back.  Misses that are not
measurable are taken for many.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from scavenger_openstack.algorithms.back_off import HoldTimes
from scavenger_openstack.algorithms.back_off import Stay
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import WorkloadRates

LEAST_MISSES_PER_S = 1e6
"""So many misses, 64 MB/s, disturb no workload: as ``min_misses_per_s`` of
``attribution``."""

LEAST_SHARE = 0.05
"""Nor do so many of those that the foreground has itself."""

RELEASED = 0.5
"""Part of these below which what was limited has to stay."""

LEAST_CORES = 0.01
"""Of less use it is not judged what it would miss."""

CROWDED = 0.8
"""Part of the cores of a host that may be busy before threads share some."""

HOLD = HoldTimes(60.0, 900.0)
"""For so long threads are taken to share cores after they did."""


class Contenders:
    """Those that were limited in the last tick, and what each misses per
    second of CPU time."""

    def __init__(self) -> None:
        self._users: set[RunKey] = set()
        self._misses_per_cpu_s: dict[RunKey, float] = {}
        self._sharing = Stay(HOLD)

    def step(self, now: float, foreground: Sequence[WorkloadRates],
             background: Sequence[WorkloadRates],
             topology: Mapping[int, Cpu]) -> Sequence[WorkloadRates]:
        """Return those of the background that a quota is for.

        The others together miss less than is of any account.

        :param now: in seconds
        :param topology: of the CPUs online
        """
        users = self._of_the_cache(foreground, background)
        if share_cores([*foreground, *background], topology):
            self._sharing.want(now)
        else:
            self._sharing.release(now)
        return background if self._sharing.on else users

    def _of_the_cache(self, foreground: Iterable[WorkloadRates],
                      background: Sequence[WorkloadRates]
                      ) -> list[WorkloadRates]:
        least = max(LEAST_MISSES_PER_S, LEAST_SHARE * math.fsum(
            number(rated.llc_misses_per_s) or 0.0 for rated in foreground))
        rest: list[tuple[float, RunKey]] = []
        users: set[RunKey] = set()
        intensity: dict[RunKey, float] = {}
        for rated in background:
            workload, cores = rated[0], number(rated.cpu_cores)
            misses = number(rated.llc_misses_per_s)
            key = workload.run
            if misses is not None and cores is not None and (
                    cores >= LEAST_CORES):
                intensity[key] = misses / cores
            elif key in self._misses_per_cpu_s:
                intensity[key] = self._misses_per_cpu_s[key]
            if misses is None or (
                    key in self._users and (
                        key not in intensity or intensity[key]
                        * workload.vcpus > RELEASED * least)):
                users.add(key)
            else:
                rest.append((misses, key))
        rest.sort()
        left = math.fsum(misses for misses, _ in rest)
        while rest and left > least:
            misses, key = rest.pop()
            users.add(key)
            left -= misses
        self._users, self._misses_per_cpu_s = users, intensity
        return [rated for rated in background
                if rated[0].run in users]

    def state(self) -> list[list[Any]]:
        """Return plain JSON values; :meth:`load` takes them back."""
        return [[*key, misses, key in self._users]
                for key, misses in self._misses_per_cpu_s.items()]

    def load(self, state: Iterable[Any]) -> None:
        """Go on from ``state``.

        :raises TypeError, ValueError: it is not a state.
        """
        read = {(str(name), float(created_s)): (quantity(misses), bool(user))
                for name, created_s, misses, user in state}
        self._misses_per_cpu_s = {
            key: misses for key, (misses, _) in read.items()}
        self._users = {key for key, (_, user) in read.items() if user}


def share_cores(workloads: Iterable[WorkloadRates],
                topology: Mapping[int, Cpu]) -> bool:
    """Return whether so many CPUs are busy that threads share cores.

    The kernel takes idle cores first.  Without SMT none are shared.
    """
    cores = len(set(topology.values()))
    return 0 < cores < len(topology) and math.fsum(
        number(rated.cpu_cores) or 0.0
        for rated in workloads) > CROWDED * cores
