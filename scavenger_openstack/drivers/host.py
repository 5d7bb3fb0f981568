# SPDX-License-Identifier: Apache-2.0

"""A real Linux host: /proc, cgroups, VMs and network devices as one driver."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import logging
import time
import typing

from oslo_config import cfg

from scavenger_openstack.conf import cgroups as conf_cgroups
from scavenger_openstack.conf import host as conf_host
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.cgroup import cgroups
from scavenger_openstack.drivers.cgroup.memory import counts_refaults
from scavenger_openstack.drivers.cgroup.memory import RecentRefaults
from scavenger_openstack.drivers.delay import accounting
from scavenger_openstack.drivers.direct import cache
from scavenger_openstack.drivers.direct import cpu
from scavenger_openstack.drivers.direct import disk
from scavenger_openstack.drivers.direct import link
from scavenger_openstack.drivers.direct import memory
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.network import shared_links
from scavenger_openstack.drivers.perf import perf
from scavenger_openstack.drivers import prerequisites
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.drivers.resctrl import control
from scavenger_openstack import errors
from scavenger_openstack.knobs import OF_NETWORK
from scavenger_openstack import log_once
from scavenger_openstack.types import Ask
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Floor
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_BACKGROUND
from scavenger_openstack.types import Value
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

# Loaded when the driver is made, on a host with VMs or with limits of network
# traffic: other hosts need 1 MiB less of memory.
if typing.TYPE_CHECKING:
    from scavenger_openstack.drivers.libvirt import domains
    from scavenger_openstack.drivers.network import limits

LOG = logging.getLogger(__name__)

_LIBVIRT_CAME = ('libvirt was started after the agent, so no VM is measured '
                 'or limited: type "systemctl restart scavenger-agent"')


def _is_domain(workload: str) -> bool:
    """Ids of cgroups are paths, ids of domains are UUIDs."""
    return not workload.startswith('/') and workload != THE_BACKGROUND


def _network(links: Mapping[str, float | None],
             interfaces: Mapping[str, tuple[str, str]],
             root_dir: str) -> limits.Network:
    from scavenger_openstack.drivers.network import limits
    return limits.Network(
        links, {workload: device
                for workload, (device, _) in interfaces.items()}, root_dir)


def _domains(conf: cfg.ConfigOpts, uri: str, missing: list[str],
             logged: log_once.LogOnce, executor: calls.Executor,
             mounts: Mapping[str, cgroup_mounts.Mount]
             ) -> domains.Domains | None:
    """Return the VMs of this host; ``None``, and one more sentence in
    ``missing``, where libvirt-python is not installed.
    """
    from scavenger_openstack.drivers.libvirt import client
    from scavenger_openstack.drivers.libvirt import domains
    group = conf.libvirt
    try:
        return domains.Domains(
            uri, run_dir=group.run_dir, floors=conf_cgroups.floors(conf),
            stats_ticks=group.stats_ticks, timeout_s=group.timeout_s,
            root_dir=conf.root_dir, pressure=conf.cgroups.pressure,
            logged=logged, mounts=mounts, executor=executor)
    except client.Missing as exc:
        missing.append('the VMs of this host are not watched, and their load '
                       f'counts as foreground: {exc}')
        return None


class Host:
    """Implements :class:`scavenger_openstack.drivers.base.Driver`.

    :raises ConfigError: an option cannot work on this host.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._name: str = conf.agent.host
        self._topology: Mapping[int, Cpu] = {}
        group = conf.cgroups
        self._logged = logged = log_once.LogOnce()
        uri = conf_host.libvirt_uri(conf)
        self._conf = conf
        links = conf_host.links(conf)
        self._interfaces = conf_host.interfaces(conf, links)
        finds = not links and bool(uri or self._interfaces)
        self._links = shared_links.SharedLinks(
            links, self._interfaces, root_dir=conf.root_dir, finds=finds)
        self._cgroups = cgroups.Cgroups(
            background_parents=group.background_parents,
            foreground_parents=group.foreground_parents,
            killable_parents=group.killable_parents,
            background_groups=group.background_groups,
            floors=conf_cgroups.floors(conf), memory_root=group.memory_root,
            io_devices=group.io_devices, root_dir=conf.root_dir,
            pressure=group.pressure, logged=logged)
        mounts = self._cgroups.mounts
        self._proc = proc.Proc(conf.root_dir, logged,
                               refaults=counts_refaults(mounts))
        self._refaults = RecentRefaults(conf.agent.interval_s)
        self._network = (
            _network(self._links.now, self._interfaces, conf.root_dir)
            if self._links.now or self._interfaces or uri else None)
        self._perf = perf.Perf(perf.Settings(
            **{name: getattr(conf.perf, name) for name
               in perf.Settings._fields}), conf.root_dir, logged=logged)
        self._delays = accounting.DelayAccounting(
            accounting.Settings(group.delay_tasks, group.delay_cpu_s), mounts,
            conf.root_dir)
        self._with_interfaces: dict[str, tuple[Workload, Workload]] = {}
        self._taps: dict[str, tuple[str, ...]] = {}
        self._domain_cgroups = cgroup_overlap.DomainCgroups(mounts)
        self._evidence = tuple(
            kind(mounts, self._domain_cgroups, conf.root_dir, logged)
            for kind in (cpu.CpuEvidence, disk.DiskEvidence,
                         link.LinkEvidence, memory.MemoryEvidence,
                         cache.CacheEvidence))
        self._llc = control.Control(self._evidence[0].threads, conf.root_dir)
        self._changes = self._ticks = 0
        self._runs: dict[str, float] = {}
        always: list[str] = []
        self.executor = base.new_executor(conf.libvirt.timeout_s)
        self._domains = _domains(conf, uri, always, logged, self.executor,
                                 mounts) if uri else None
        self._without_libvirt = ''.join(always)
        if not uri and not group.background_parents:
            always.append(
                ('no libvirt on this host' if conf.libvirt.uri is None
                 else '[libvirt] uri is empty')
                + ' and no [cgroups] background_parents: only '
                + ('the foreground' if group.foreground_parents
                   else "the host's own use") + ' is measured, nothing is '
                f'limited: set background_parents, {base.RESTART}')
        self._always = always
        self._missing = tuple(always)

    def facts(self) -> base.Facts:
        grade = {**self._perf.facts(), 'delays': self._delays.facts(),
                 'direct': {part.resource.value: part.facts()
                            for part in self._evidence}}
        if self._domains is not None:
            libvirt = self._domains.libvirt_facts(), self._domains.instances()
            return base.Facts(self._missing, grade, *libvirt)
        return base.Facts(self._missing, grade, {
            'state': 'is not used', 'why': self._without_libvirt,
            'since_s': None, 'domains': {}, 'waits': []}
            if self._without_libvirt else None)

    def ended(self, workload: str) -> str | None:
        return ('' if self._domains is None or not _is_domain(workload)
                else self._domains.ends.why(workload))

    def sample(self) -> HostSample:
        self._ticks += 1
        if not self._ticks % base.RESCAN_TICKS:
            self._find_new_services()
        topology = self._proc.topology()
        if topology is not self._topology:
            self._cgroups.cpus_changed()
            self._topology = topology
        memory = self._cgroups.memory() or self._proc.memory()
        with_refaults = self._refaults.update(memory.refaults)
        workloads = self._cgroups.sample(with_refaults=with_refaults)
        virtual: tuple[WorkloadSample, ...] = ()
        if self._domains is not None:
            assert self._network is not None
            link_bytes = self._network.link_bytes()
            virtual = self._domains.sample(link_bytes,
                                           with_refaults=with_refaults)
            if self._domains.tracked.changes != self._changes:
                self._follow(self._domains, virtual)
            virtual = self._network.without_withheld(virtual, link_bytes)
            workloads = self._domain_cgroups.without(workloads)
        time_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        measured = self._perf.add(
            workloads + virtual, time_s,
            self._domains.tracked.place if self._domains is not None else None)
        workloads, virtual = (measured[:len(workloads)],
                              measured[len(workloads):])
        workloads = self._delays.add(workloads, time_s)
        if self._ticks % base.RESCAN_TICKS == 1:
            self._missing = self._check(memory).missing(workloads, virtual)
        links = {}
        link_tx: dict[str, int] = {}
        link_rx: dict[str, int] = {}
        if self._network is not None:
            workloads = tuple(map(self._add_network, workloads))
            links = self._network.capacities()
            link_rx, link_tx = self._network.link_totals()
        workloads += virtual
        sample = HostSample(
            host=self._name, boot_id=self._proc.boot_id,
            time_s=time_s, wall_time_s=time.time(), workloads=workloads,
            cpu_model=self._proc.cpu_model, topology=topology,
            cpu_busy_s=self._proc.cpu_busy_s(),
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            memory_free_bytes=memory.free, refault_bytes=memory.refaults,
            links=links, link_tx_bytes=link_tx, link_rx_bytes=link_rx,
            link_of=self._links.link_of,
            direct=tuple(answer for evidence in self._evidence
                         for answer in evidence.answers(time.monotonic())),
            llc_ways=self._llc.ways,
            memory_limit_ends=self._cgroups.memory_limit_ends)
        for part in (*self._evidence, self._llc):
            part.follow(sample)
        return sample

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        return self._knobs(workload, knob).read(workload, knob, state)

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None
                        ) -> Sequence[base.RestoreAction]:
        return self._knobs(workload, knob).restore_actions(
            workload, knob, state)

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        if knob in OF_NETWORK and self._domains is not None:
            self._log_other_interfaces(workload, self._domains)
        return self._knobs(workload, knob).write(workload, knob, value, state)

    def queue(self, workload: str, knob: Knob) -> str:
        return self._part(workload, knob).queue(workload, knob)

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        parts = self._cgroups, self._llc, self._domains
        every = [part.refresh(held) for part in parts if part is not None]
        return base.Changes(
            {name for changes in every for name in changes.changed},
            {key for changes in every for key in changes.rewrite},
            dict(size for changes in every for size in changes.unmet.items()))

    def notify(self, event: base.Event) -> bool:
        workload, knob = (event.keys[0] if isinstance(event, base.TimedOut)
                          else (event.workload, event.knob))
        return self._part(workload, knob).notify(event)

    def allow(self, instances: Mapping[str, Floor]) -> None:
        if self._domains is not None:
            self._domains.allow(instances)

    def ask(self, asks: Collection[Ask]) -> None:
        for evidence in self._evidence:
            evidence.ask([workload for workload, resource in asks
                          if resource is evidence.resource], time.monotonic())

    def kill(self, workload: str) -> int:
        return self._cgroups.kill(workload)

    def fast_cpu_set(self, group: str) -> base.CpuSet:
        return (self._domains if self._domains is not None
                and _is_domain(group) else self._cgroups).fast_cpu_set(group)

    def close(self) -> None:
        for part in (*self._evidence, self._llc):
            part.close()
        self._perf.close()
        self._delays.close()
        self._cgroups.close()
        self._proc.close()
        if self._domains is not None:
            self._domains.close()
        if self._network is not None:
            self._network.close()

    def _knobs(self, workload: str, knob: Knob) -> base.Knobs:
        if knob in OF_NETWORK:
            if self._network is None:
                raise errors.Unsupported(
                    'no network interface is configured; see [network]',
                    cause='no network interface')
            if not self._taps.get(workload, ('any',)):
                raise errors.Unsupported(
                    f'domain {workload} has no network device on this host')
        return self._part(workload, knob)

    def _part(self, workload: str, knob: Knob) -> base.Knobs:
        if knob in OF_NETWORK and self._network is not None:
            return self._network
        if knob is Knob.LLC_WAYS:
            return self._llc
        if self._domains is not None and _is_domain(workload):
            return self._domains
        return self._cgroups

    def _follow(self, virtual: domains.Domains,
                samples: tuple[WorkloadSample, ...]) -> None:
        """Take over the domains, taps and links after a change."""
        assert self._network is not None
        runs = {sample.workload.id: sample.workload.created_s
                for sample in samples}
        for workload, run in self._runs.items():
            if runs.get(workload) != run:
                self._network.ended(workload)
        self._runs = runs
        self._domain_cgroups.follow(virtual.tracked.machines)
        self._follow_taps(virtual.tracked.interfaces)
        self._links.follow([sample.workload.interfaces for sample in samples])
        self._changes = virtual.tracked.changes

    def _follow_taps(self, taps: Mapping[str, tuple[str, ...]]) -> None:
        """Attach the taps of the background to the network limits."""
        if taps == self._taps or self._network is None:
            return
        from scavenger_openstack.drivers.network import tap
        for workload in self._taps:
            if not taps.get(workload):
                self._network.detach(workload)
                self._logged.forget(('interfaces', workload))
        for workload, names in taps.items():
            if names and self._taps.get(workload) != names:
                self._network.attach(workload, tap.Tap(names[0], names[1:]))
        self._taps = dict(taps)

    def _check(self, memory: proc.Memory) -> prerequisites.Prerequisites:
        return prerequisites.Prerequisites(
            self._conf.agent.protect or list(Resource), self._always,
            self._cgroups.lacks, str(self._delays.facts()['why']),
            {part.resource: part.why for part in self._evidence},
            self._perf.why_off(), self._llc.why, bool(self._links.now),
            memory.refaults is not None, self._interfaces,
            self._domains is not None)

    def _find_new_services(self) -> None:
        """Search for a link or a libvirt that came after the agent started."""
        if (self._domains is None and not self._without_libvirt
                and conf_host.libvirt_uri(self._conf)):
            self._always[:] = [_LIBVIRT_CAME]
        if self._network is not None and self._links.refresh():
            self._network.follow_links(self._links.now)

    def _log_other_interfaces(self, workload: str, virtual: domains.Domains
                              ) -> None:
        """Log once that a VM has other devices than its taps."""
        count = virtual.tracked.other_interfaces(workload)
        if not count:
            self._logged.over(('interfaces', workload))
        elif self._logged.due(('interfaces', workload), count):
            LOG.warning('domain %s: %d of its network interfaces have no '
                        'device on this host (SR-IOV, vhost-user): their '
                        'traffic is not limited', workload, count)

    def _add_network(self, sample: WorkloadSample) -> WorkloadSample:
        """Return the sample with its interface and its traffic."""
        workload = sample.workload
        if workload.id not in self._interfaces:
            return sample
        assert self._network is not None
        device, _ = self._interfaces[workload.id]
        original, replaced = self._with_interfaces.get(
            workload.id, (None, workload))
        if original is not workload:
            replaced = dataclasses.replace(workload, interfaces=(device,))
            self._with_interfaces[workload.id] = (workload, replaced)
        received, sent = self._network.received_sent(device) or (None, None)
        return sample._replace(workload=replaced, net_tx_bytes=sent,
                               net_rx_bytes=received)
