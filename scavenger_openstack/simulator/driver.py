# SPDX-License-Identifier: Apache-2.0


"""The simulator as a driver: counters out, limits in, and a clock."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.still_host import StillHost
from scavenger_openstack import errors
from scavenger_openstack.simulator import direct
from scavenger_openstack.simulator.guest import Guest
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.plant import Plant
from scavenger_openstack import types

LINK = 'uplink'
DISK = 'disk'
GROUP = 'background'
"""All background tenants lie in one group, as below one cgroup parent."""

GROUP_KNOBS = (types.Knob.CPU_SET, types.Knob.CPU_IDLE)
"""What can be limited for all of them together."""

KNOBS = (*GROUP_KNOBS, types.Knob.CPU_CORES, types.Knob.MEMORY_BYTES,
         types.Knob.EGRESS_BYTES_PER_S, types.Knob.IO_BYTES_PER_S,
         types.Knob.IO_OPS_PER_S, types.Knob.PAUSED)
"""What has an effect here."""


class Simulator(StillHost):
    """A host that never was.  It stands where a real driver stands.

    The clock is ``now``: it only moves in :meth:`advance`.

    :param floors: knob -> value for every background tenant
    """

    def __init__(self, machine: Machine, tenants: Iterable[Tenant], *,
                 seed: int, step_s: float = 1.0, keep: bool = False,
                 host: str = 'simulated',
                 floors: Mapping[types.Knob, float] | None = None) -> None:
        self.plant = Plant(machine, tenants, seed=seed, step_s=step_s,
                           keep=keep)
        self.plant.welcome = self._limit
        self._machine = machine
        self._topology = machine.topology()
        self._host = host
        self._floors = dict(floors or {})
        self._caps: dict[tuple[str, types.Knob], types.Value] = {}
        self._identities: dict[str, types.Workload] = {}
        self.kills: list[tuple[float, str]] = []
        self._window: direct.Window | None = None
        self._direct: tuple[types.DirectEvidence, ...] = ()

    @property
    def now(self) -> float:
        return self.plant.now

    @property
    def limits(self) -> tuple[tuple[str, types.Knob], ...]:
        """The knobs on which there is a limit."""
        return tuple(self._caps)

    def advance(self, seconds: float,
                each: Callable[[float], None] | None = None) -> None:
        """Let time pass; ``each`` is called with the time after each step."""
        plant = self.plant
        for _ in range(max(1, round(seconds / plant.step_s))):
            plant.step()
            if self._window is not None:
                self._window.observe(plant.guests, plant.now)
            if each is not None:
                each(plant.now)

    def ask(self, asks: Collection[types.Ask]) -> None:
        if asks and self._window is None:
            self._window = direct.Window(asks, self._machine, self.now)
            self._window.observe(self.plant.guests, self.now)
        elif not asks and self._window is not None:
            self._direct = self._window.answers(self.now)
            self._window = None

    def sample(self) -> types.HostSample:
        plant, machine = self.plant, self._machine
        answers, self._direct = self._direct, ()
        used = sum([guest.memory_bytes for guest in plant.guests])
        cached = sum([guest.file_bytes for guest in plant.guests])
        busy_s = plant.cpu_busy_s / machine.cpus
        return types.HostSample(
            host=self._host, boot_id='simulation', time_s=plant.now,
            wall_time_s=plant.now,
            workloads=tuple([self._sample(guest)
                             for guest in plant.guests]),
            cpu_model=machine.cpu_model, topology=self._topology,
            cpu_busy_s=dict.fromkeys(self._topology, busy_s),
            memory_total_bytes=int(machine.memory_bytes),
            memory_available_bytes=max(0, int(machine.memory_bytes - used)),
            links={LINK: machine.link_bytes_per_s},
            link_tx_bytes={LINK: int(plant.link_tx_bytes)},
            link_of=dict.fromkeys(
                [f'tap-{guest.spec.id}' for guest in plant.guests], LINK),
            direct=answers,
            memory_free_bytes=max(
                0, int(machine.memory_bytes - used - cached)),
            refault_bytes=int(plant.refault_bytes))

    def _sample(self, guest: Guest) -> types.WorkloadSample:
        spec = guest.spec
        workload = self._identities.get(spec.id)
        if workload is None:
            workload = self._identities[spec.id] = self._identify(spec)
        pmu = self._machine.pmu
        return types.WorkloadSample(
            workload, guest.cpu_s, guest.run_delay_s, guest.throttled_s, 0.0,
            int(guest.cycles) if pmu else None,
            int(guest.cycles) if pmu else None,
            int(guest.instructions) if pmu else None,
            int(guest.llc_misses) if pmu else None,
            None, None, *((0.0, 0, 0) if spec.buffered else (
                guest.io_wait_s, int(guest.io_ops), int(guest.io_bytes))),
            int(guest.tx_bytes), 0, None, None, None,
            int(guest.memory_bytes), int(guest.file_bytes),
            int(guest.refault_bytes))

    def _identify(self, spec: Tenant) -> types.Workload:
        background = spec.priority is types.Priority.BACKGROUND
        return types.Workload(
            id=spec.id, priority=spec.priority, source='simulator',
            project=spec.project, application=spec.application,
            vcpus=float(spec.vcpus), group=GROUP if background else '',
            floor=self._floors if background else {},
            memory_allotment_bytes=spec.memory_bytes,
            allowed_cpus=spec.pinned, disks=(DISK,),
            interfaces=(f'tap-{spec.id}',), created_s=spec.arrives_s)

    def read(self, workload: str, knob: types.Knob,
             state: base.KnobState | None = None) -> types.Value | None:
        value = self._caps.get((workload, knob))
        if value is not None:
            return value
        members = self._members(workload)
        if knob is types.Knob.CPU_CORES:
            return members[0].spec.quota_cores
        return None

    def restore_actions(self, workload: str, knob: types.Knob,
                        state: base.KnobState | None = None
                        ) -> Sequence[base.RestoreAction]:
        """Return what a lease would hold; its value is the limit of this
        moment."""
        self._members(workload)
        return [{'kind': 'simulated', 'dir': workload, 'file': str(knob),
                 'inode': workload,
                 'text': str(self._caps.get((workload, knob), ''))}]

    def write(self, workload: str, knob: types.Knob, value: types.Value,
              state: base.KnobState | None = None) -> types.Value | None:
        members = self._members(workload)
        if knob not in KNOBS:
            raise errors.Unsupported(f'{workload}: no {knob} here')
        if workload == GROUP and knob not in GROUP_KNOBS:
            raise errors.Unsupported(f'{workload}: no {knob} on a group')
        if knob is types.Knob.MEMORY_BYTES:
            unmet = members[0].memory_bytes - float(value)
            if unmet > 0:
                raise errors.Refused(
                    f'{workload}: {unmet:.0f} bytes cannot be reclaimed',
                    unmet_bytes=int(unmet))
        self._caps[workload, knob] = value
        for guest in members:
            self._limit(guest)
        return value

    def remove(self, workload: str, knob: types.Knob) -> None:
        """Remove a limit, as restoring by a lease does."""
        self._caps.pop((workload, knob), None)
        try:
            members = self._members(workload)
        except errors.WorkloadGone:
            return
        for guest in members:
            self._limit(guest)

    def kill(self, workload: str) -> int:
        self._members(workload)
        self.plant.end(workload)
        self.kills.append((self.now, workload))
        return 1

    def slow_cpu_set(self, group: str) -> bool:
        """The laboratory moves it by itself."""
        return True

    def fast_cpu_set(self, group: str) -> base.CpuSet:
        raise errors.Unsupported(f'{group}: a simulated CPU set moves by '
                                 'itself')

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _members(self, name: str) -> list[Guest]:
        guests = self.plant.guests
        if name == GROUP:
            members = [guest for guest in guests
                       if guest.spec.priority is types.Priority.BACKGROUND]
        else:
            members = [guest for guest in guests if guest.spec.id == name]
        if not members:
            raise errors.WorkloadGone(f'{name} is not there')
        return members

    def _limit(self, guest: Guest) -> None:
        """Put together what limits one guest, its own and its group's."""
        spec, caps, name = guest.spec, self._caps, guest.spec.id

        def number(knob: types.Knob) -> float:
            return float(caps.get((name, knob), math.inf))

        guest.limit_cores = min(number(types.Knob.CPU_CORES),
                                spec.quota_cores or math.inf)
        guest.limit_memory = number(types.Knob.MEMORY_BYTES)
        guest.limit_egress = number(types.Knob.EGRESS_BYTES_PER_S)
        guest.limit_ops = math.inf if spec.buffered else min(
            number(types.Knob.IO_OPS_PER_S),
            number(types.Knob.IO_BYTES_PER_S) / spec.io_bytes)
        guest.paused = bool(caps.get((name, types.Knob.PAUSED), 0))
        group = GROUP if spec.priority is types.Priority.BACKGROUND else name
        guest.idle_class = bool(caps.get((group, types.Knob.CPU_IDLE), 0) or
                                caps.get((name, types.Knob.CPU_IDLE), 0))
        guest.mask = guest.cpus
        for holder in (group, name):
            text = caps.get((holder, types.Knob.CPU_SET))
            if text:
                within = guest.mask & sum(
                    1 << n for n in types.parse_cpus(str(text)))
                guest.mask = within or guest.mask
