# SPDX-License-Identifier: Apache-2.0


"""The CPU quota that follows what everything else leaves over.

Not in the papers.  The kernel compares ``cpu.idle`` between siblings only.
Below one parent with a busy foreground, background that takes all the rest
lets processes outside of that parent stand still for seconds; with a quota
of a little less than the rest they do not
(``benchmarks/agent/starvation.py``).  Directly below the root there is no
such parent, and no such harm, but for kubelet's top cgroup.

A quota is set on what ``cpu.idle`` is set on: a group of containers, whose
total the kernel then limits, whatever is born in it; or a VM.  QEMU itself
is in the cgroup of its VM, and hardly runs on a full host while that is idle
(``benchmarks/agent/qemu_answers.py``): then the quota alone holds a VM back.

Weird input: ``None``, NaN and infinite numbers are unknown.
"""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.back_off import HoldTimes
from scavenger_openstack.algorithms.back_off import Stay
from scavenger_openstack.algorithms.classify import is_of_kubelet
from scavenger_openstack.algorithms.max_min import DEMAND_FACTOR
from scavenger_openstack.algorithms.max_min import split
from scavenger_openstack.algorithms.scavenger.params import Params
from scavenger_openstack.algorithms.signals import number
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates
from scavenger_openstack.types import RunKey
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

OWNER = 'leftover'
"""Of these limits: unlike others they move all the time."""

LEAST_OF = 3
"""Ticks of which the least leftover counts: a quota falls at once, and rises
when that was possible in so many ticks in a row."""

HELD_SHARE = 0.9
"""What uses that much of its quota may want all that it can use."""

VM_SLACK = 0.1
"""The quota of a VM, each of which costs a call to libvirt, rises by more
than this share only."""

ROOM_FACTOR = 2.0
"""After the host was full, VMs may be idle again when the budget is above
so many times the floors, for as long as :data:`FULL` says."""

FULL = HoldTimes(60.0, 900.0)
"""Until then their quotas alone hold them back."""

ROUNDING = 1e-9
"""By this share sums of floats may miss the budget."""


class Unit(NamedTuple):
    """A cgroup or VM that gets one quota.  Numbers in cores.

    ``most`` is what it can use, ``need`` what it is taken to need,
    ``quota`` its last one, ``None`` if it had none.
    """

    name: str
    most: float
    need: float
    floor: float
    quota: float | None = None
    slack: float = 0.0


def nested(rated: WorkloadRates) -> bool:
    """Whether a workload's group may have foreground siblings in a parent
    that is not the root.

    libvirt puts all VMs into one parent.  A group of kubelet is not idle
    itself, only the pods in it are: outside of it nothing has precedence.
    """
    group = rated[0].group_id
    return (bool(rated[0].instance) or group.count('/') > 1
            or is_of_kubelet(group))


def left_over(before_s: Mapping[int, float], busy_s: Mapping[int, float],
              cpus: Collection[int], used: float, interval_s: float
              ) -> float | None:
    """Cores that everything but the background leaves of some CPUs.

    That is what was idle of them and what the background used.  A CPU of
    which the busy time is not known leaves nothing; ``None`` if that holds
    for all.

    :param before_s: busy seconds per CPU up to ``interval_s`` ago
    :param busy_s: the same up to now
    :param cpus: those that the background may run on
    :param used: what it used in the interval, in cores
    """
    if not 0 < interval_s < math.inf:
        return None
    growths = [busy_s.get(cpu, math.nan) - before_s.get(cpu, math.nan)
               for cpu in cpus]
    measured = [growth for growth in growths if 0 <= growth < math.inf]
    if not measured:
        return None
    # The kernel counts in ticks: only the sum over all CPUs is exact.
    idle = len(measured) - math.fsum(measured) / interval_s
    return min(max(0.0, idle + used), float(len(measured)))


def units(background: Iterable[WorkloadRates],
          quotas: Mapping[str, float]) -> list[Unit]:
    """Return what gets a quota, from the workloads in it.

    A floor is that of one workload, and more as far as several make use of
    theirs: else 60 that stand still would count for 6 cores.

    :param quotas: the last ones
    """
    members: dict[str, list[WorkloadRates]] = {}
    for rated in background:
        members.setdefault(rated[0].group_id, []).append(rated)
    default = DEFAULT_FLOORS[Knob.CPU_CORES]
    result = []
    for name, every in members.items():
        used = [number(rated.cpu_cores) for rated in every]
        sizes = [number(rated[0].vcpus) or 0.0 for rated in every]
        needs = [size if use is None else use * DEMAND_FACTOR
                 for size, use in zip(sizes, used, strict=True)]
        floors = [rated[0].floor.get(Knob.CPU_CORES, default)
                  for rated in every]
        most = math.fsum(sizes)
        quota = quotas.get(name)
        held = quota is not None and HELD_SHARE * quota <= math.fsum(
            use or 0.0 for use in used)
        result.append(Unit(
            name=name, most=most, quota=quota,
            need=most if held else min(most, math.fsum(needs)),
            floor=max(*floors, math.fsum(map(min, needs, floors))),
            slack=VM_SLACK if every[0][0].instance else 0.0))
    return result


def quotas(budget: float, every: Sequence[Unit]) -> list[float]:
    """The budget in cores, shared out: at least the floor for each.

    Max-min over need, then over what each can use, in equal parts: idle
    cgroups all weigh the same to the kernel, however many vCPUs are in them.
    All fall when together they would exceed the budget, and only then; each
    rises when it can.  What needs less than its floor counts with what it
    needs.
    """
    needs, equal = [unit.need for unit in every], [1.0] * len(every)
    if math.fsum(needs) < budget:
        shares = split(budget, [unit.most for unit in every], equal, needs)
    else:
        shares = split(budget, needs, equal, [
            min(unit.need, unit.floor) for unit in every])
    wanted = [max(share, unit.floor)
              for share, unit in zip(shares, every, strict=True)]
    limits = [
        new if unit.quota is None or unit.quota < unit.floor
        or new > unit.quota * (1 + unit.slack) else unit.quota
        for unit, new in zip(every, wanted, strict=True)]
    charged = math.fsum(
        quota if quota > unit.floor else min(quota, unit.need)
        for unit, quota in zip(every, limits, strict=True))
    if charged > budget * (1 + ROUNDING):
        limits = list(map(min, limits, wanted))
    return limits


class Leftover:
    """The quotas of the background, from one tick to the next.

    :ivar params: may be replaced; what was learnt stays
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self._forget('nothing is known yet')

    def _forget(self, why: str) -> None:
        self._why = why
        self._busy_s: Mapping[int, float] = {}
        self._there: Sequence[Workload] = ()
        self._left: collections.deque[float] = collections.deque(
            maxlen=LEAST_OF)
        self._unsure = self._cpus = 0
        self._quotas: dict[str, float] = {}
        self._full = Stay(FULL)

    @property
    def full(self) -> bool:
        """Whether no more is left over than the floors, or was not lately."""
        return self._full.on

    def step(self, rates: Rates, background: Sequence[WorkloadRates],
             cpus: Collection[int]) -> list[Cap]:
        """All quotas that should be in force now.

        :param cpus: those that the background may run on
        """
        if not any(map(nested, background)):
            self._forget('no background has siblings below the root')
            return []
        self._look(rates, background, cpus)
        if not self._left:
            self._quotas, self._full = {}, Stay(FULL)
            self._why = 'it is not known how busy the CPUs are'
            return []
        budget, every = self.budget, units(background, self._quotas)
        least = math.fsum(unit.floor for unit in every)
        if budget <= least * (ROOM_FACTOR if self.full else 1.0):
            self._full.want(rates.time_s)
        else:
            self._full.release(rates.time_s)
        why = (f'everything else leaves {min(self._left):.2f} of '
               f'{self._cpus} CPUs: {budget:.2f} cores for all background')
        self._quotas = {unit.name: quota for unit, quota in zip(
            every, quotas(budget, every), strict=True)}
        return [Cap(unit.name, Knob.CPU_CORES, quota, OWNER, why)
                for unit, quota in zip(every, self._quotas.values(),
                                       strict=True) if quota < unit.most]

    @property
    def budget(self) -> float:
        """Cores that the background may use; 0 while that is not known."""
        return self.params.cpu_leftover_share * min(self._left, default=0.0)

    def facts(self) -> dict[str, Any]:
        """The numbers behind the quotas; plain JSON values."""
        if not self._left:
            return {'rule': 'off', 'why': self._why}
        return {'rule': 'holding' if self._unsure else 'following',
                'cpus': self._cpus, 'left_cores': min(self._left),
                'budget_cores': self.budget, 'full': self.full}

    def _look(self, rates: Rates, background: Sequence[WorkloadRates],
              cpus: Collection[int]) -> None:
        """Note what is left over.

        What workloads used that have just come or gone is not known, and
        looks like the foreground's: what was known before holds for some
        ticks.
        """
        used = [number(rated.cpu_cores) for rated in background]
        left = left_over(
            self._busy_s, rates.cpu_busy_s, cpus,
            math.fsum(use for use in used if use is not None),
            rates.interval_s)
        there = [rated[0] for rated in background]
        sure = (left is not None and None not in used
                and (there == self._there or _runs(there) == _runs(
                    self._there)))
        self._busy_s, self._there = rates.cpu_busy_s, there
        self._cpus = len(cpus)
        self._unsure = 0 if sure else self._unsure + 1
        if self._left and 0 < self._unsure <= self.params.blind_ticks:
            return
        if left is None:
            self._left.clear()
        else:
            self._left.append(left)


def _runs(workloads: Iterable[Workload]) -> set[RunKey]:
    return {workload.run for workload in workloads}
