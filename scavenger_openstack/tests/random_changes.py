# SPDX-License-Identifier: Apache-2.0

"""Random changes of CPUs, guests and cgroups, and an observer of writes.

What the background may have is worked out here from what was done to the
host, and from what its kernel says; nothing of what is tested is used for it.
A write is judged by the state at the agent's last tick, or at the tick before
where the write may have begun before the last one.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import random
from typing import Any
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

BATCH, WEB = '/batch', '/web'
"""Background parent and foreground parent."""

PODS = 3
"""That many cgroups come and go."""


class Write(NamedTuple):
    """A write to a cgroup file; the path begins below all that is tested.

    ``before`` and ``after`` are what a CPU set held and holds.
    """

    path: str
    before: set[int]
    after: set[int]


class Host(Protocol):
    """CPUs and cgroups."""

    version: int
    possible: set[int]
    fixed: set[int]         # CPUs that never go offline
    siblings: set[int]      # the second thread of each core
    written: list[Write]

    @property
    def online(self) -> set[int]:
        ...

    def take_offline(self, *cpus: int) -> None:
        ...

    def bring_online(self, *cpus: int) -> None:
        ...

    def smt(self, on: bool) -> None:
        ...

    def cgroup(self, path: str, cpus: set[int] | None = None) -> None:
        ...

    def delete(self, path: str) -> None:
        ...

    def set_of(self, path: str) -> set[int]:
        ...

    def effective(self, path: str) -> set[int]:
        ...


class Guest(NamedTuple):
    """A foreground VM: CPUs of its dedicated vCPUs, and those of the others.
    """

    dedicated: set[int]
    others: set[int]


class Changes:
    """Makes them, one at a time.

    :ivar guests: the foreground VMs of this moment
    :ivar made: how many changes of each kind were made
    """

    def __init__(self, host: Host, dice: random.Random) -> None:
        self._host = host
        self._dice = dice
        self._number = 0
        self._pods: list[str] = []
        self.guests: dict[str, Guest] = {}
        self.made: collections.Counter[str] = collections.Counter()
        self.kinds = (self.cpus_go, self.cpus_come, self.smt_changes,
                      self.guest_comes, self.guest_goes, self.pod_comes,
                      self.pod_goes, self.pod_is_made_again)
        for path in (BATCH, f'{BATCH}/a', WEB, f'{WEB}/a'):
            host.cgroup(path)

    def change(self) -> str:
        """Make one that is possible now; return its kind."""
        while True:
            kind = self._dice.choice(self.kinds)
            self._number += 1
            if kind():
                self.made[kind.__name__] += 1
                return kind.__name__

    def given(self) -> set[int]:
        """The CPUs that the background may have now: those online that no
        foreground has to itself; one if there are none."""
        online = set(self._host.online)
        own = {cpu for guest in self.guests.values()
               for cpu in guest.dedicated}
        users: collections.Counter[int] = collections.Counter()
        for pod in (f'{WEB}/a', *self._pods):
            cpus = self._host.effective(pod)
            if pod.startswith(WEB) and cpus != online:
                users.update(cpus)
        own |= {cpu for cpu, number in users.items() if number == 1}
        return (online - own) or {max(online)}

    def _some(self, of: set[int], most: int) -> set[int]:
        return set(self._dice.sample(sorted(of), self._dice.randint(
            1, max(1, min(most, len(of))))))

    def cpus_go(self) -> bool:
        online = set(self._host.online)
        free = online - self._host.fixed
        most = min(len(free), len(online) // 2)
        if most:
            self._host.take_offline(*self._some(free, most))
        return self._host.online != online

    def cpus_come(self) -> bool:
        online = set(self._host.online)
        offline = self._host.possible - online
        if offline:
            self._host.bring_online(*self._some(offline, len(offline)))
        return self._host.online != online

    def smt_changes(self) -> bool:
        online, siblings = set(self._host.online), self._host.siblings
        on = not siblings & online
        if on or online - siblings:
            self._host.smt(on)
        return self._host.online != online

    def guest_comes(self) -> bool:
        free = self._host.possible - {
            cpu for guest in self.guests.values() for cpu in guest.dedicated}
        if len(self.guests) == PODS or len(free) < 2:
            return False
        others = self._dice.choice((set(), set(range(
            len(self._host.possible) // 2))))
        self.guests[f'guest-{self._number}'] = Guest(
            self._some(free, min(3, len(free) - 1)), others)
        return True

    def guest_goes(self) -> bool:
        if self.guests:
            del self.guests[self._dice.choice(sorted(self.guests))]
            return True
        return False

    def pod_comes(self) -> bool:
        if len(self._pods) == PODS:
            return False
        above = self._dice.choice((BATCH, WEB, ''))
        cpus = self._host.effective(above)
        if above and self._host.version == 1:
            cpus &= self._host.set_of(above)
        path = f'{above}/pod-{self._number}'
        self._host.cgroup(path, self._some(cpus, 3) if cpus and (
            self._dice.random() < 0.5) else None)
        self._pods.append(path)
        return True

    def pod_goes(self) -> bool:
        if self._pods:
            self._host.delete(self._pods.pop(self._dice.randrange(
                len(self._pods))))
            return True
        return False

    def pod_is_made_again(self) -> bool:
        path = self._dice.choice([f'{BATCH}/a', *[
            path for path in self._pods if path.startswith(BATCH)]])
        self._host.delete(path)
        self._host.cgroup(path)
        return True


class Observer:
    """Judges what is written.

    :ivar judged: how many writes were
    :ivar faults: what should not have been written
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.judged = 0
        self.faults: list[str] = []

    def judge(self, *given: set[int]) -> None:
        """Judge the writes since the last time.

        Only the background's CPU sets may be written, in version 2 only
        that of its parent.  A CPU that was not in the set may come into it
        if it is in one of the sets ``given``.
        """
        while self._host.written:
            write = self._host.written.pop(0)
            self.judged += 1
            path = write.path.removesuffix('/cpuset.cpus')
            if path == write.path or not (path == BATCH or (
                    self._host.version == 1
                    and path.startswith(f'{BATCH}/'))):
                self.faults.append(f'{write.path} is not ours')
            elif not write.after or not any(
                    write.after - write.before <= cpus for cpus in given):
                self.faults.append(
                    f'{path} had {sorted(write.before)} and got '
                    f'{sorted(write.after)}; given: '
                    + ' or '.join(str(sorted(cpus)) for cpus in given))

    def judge_rest(self, given: set[int]) -> None:
        """Judge what the background has once nothing more happens."""
        rest = self._host.set_of(BATCH) & self._host.online
        if not rest <= given:
            self.faults.append(f'{BATCH} still has {sorted(rest - given)}')


class Agent:
    """Blind isolation between the real drivers of CPUs and cgroups; of
    leases and actuator only what it asks of them.

    :ivar adopted: what was taken for another program's write
    :ivar off: why the fast loop did not run after a tick, how often
    """

    def __init__(self, driver: Cgroups, source: proc.Proc, changes: Changes,
                 params: perfiso.Params, prefix: str = '') -> None:
        held: Any = self
        self._driver = driver
        self._source = source
        self._changes = changes
        self._batch = prefix + BATCH
        self._isolation = blind_isolation.BlindIsolation(driver, held, params,
                                                         Mode.ENFORCE)
        self._topology: Mapping[int, Cpu] = {}
        self._held: dict[KnobKey, base.KnobState] = {}
        self._now = 0.0
        self.adopted: list[str] = []
        self.off: collections.Counter[str] = collections.Counter()
        self.stop = self._isolation.stop
        self.facts = self._isolation.facts

    @property
    def isolates(self) -> bool:
        return self._isolation.owns((self._batch, Knob.CPU_SET))

    def tick(self) -> None:
        """What the slow loop does: look at the host, and let it follow."""
        held: Any = self
        topology = self._source.topology()
        if topology is not self._topology:
            self._driver.cpus_changed()
            self._topology = topology
        self._now += 1.0
        rates = [WorkloadRates(one.workload, 1.0)
                 for one in self._driver.sample()]
        rates += [WorkloadRates(Workload(
            name, Priority.FOREGROUND,
            allowed_cpus=frozenset(guest.dedicated | guest.others),
            dedicated_cpus=frozenset(guest.dedicated)), 1.0)
            for name, guest in self._changes.guests.items()]
        self._isolation.follow([], Rates(self._now, 1.0, tuple(rates),
                                         topology=topology), False, held)
        if not self.isolates:
            self.off[self.facts()['state']] += 1

    def check(self) -> None:
        """The leases hold."""

    @contextlib.contextmanager
    def writing(self, workload: str, knob: Knob) -> Iterator[None]:
        yield

    def hold(self, workload: str, knob: Knob,
             theirs: Mapping[int, frozenset[int]] | None) -> None:
        key = (workload, knob)
        self.adopted += map(format_cpus, (theirs or {}).values())
        state = self._held.get(key)
        actions = self._driver.restore_actions(*key, state)
        if state is None:
            self._held[key] = base.KnobState(base.Setting(
                self._driver.read(*key), actions))

    def held(self) -> dict[KnobKey, base.KnobState]:
        return self._held

    def lost(self) -> set[KnobKey]:
        return set()
