# SPDX-License-Identifier: Apache-2.0

"""The counters of one domain, over kept descriptors.

Only the kernel is read: libvirt is not called, and a domain whose
libvirt or QEMU hangs is read like any other.  The machine's own cgroup has
CPU time (the emulator's work, too), memory and pressure; the vCPU threads
have the time that they waited for a CPU; their cgroups, where libvirt puts
the quota, have the part of it that our own limits caused; the taps count the
network.  Without a cgroup of its own (session mode) CPU time and memory are
those of the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import logging
import os

from scavenger_openstack.drivers.cgroup import counters
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.rtnetlink import LinkBytes
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.drivers.qemu.process import GONE
from scavenger_openstack.drivers.qemu.process import Process
from scavenger_openstack.drivers.qemu.taps import Taps
from scavenger_openstack.drivers.qemu.vcpus import Vcpus
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LOG = logging.getLogger(__name__)

RESCAN_TICKS = 16
"""Ticks from one search for new vCPUs and taps to the next, at most."""

PLUG_TICKS = 4
"""Ticks from one check whether vCPUs came or went to the next; it is made in
each tick once there was a limit, which has to be the sum over all of them."""

NO_BLOCKS: tuple[None, None, None] = (None, None, None)
NO_DEVICES: LinkBytes = {}


class DomainCounters:
    """The kept descriptors of one domain and their last values.

    :param uuid: of the domain, which QEMU has on its command line
    :param mounts: where cgroup controllers are mounted
    :param interfaces: the network devices of the domain on this host
    :param root_dir: the directory of /proc and /sys
    :param pressure: sample PSI where it exists
    :param logged: what was logged of this host already
    :raises WorkloadGone: this process is not (any more) the domain's QEMU.
    :raises OSError: there are no descriptors left.
    """

    def __init__(self, pid: int, uuid: str, mounts: Mapping[str, Mount],
                 interfaces: Sequence[str] = (), root_dir: str = '/', *,
                 pressure: bool = False,
                 logged: log_once.LogOnce | None = None) -> None:
        self._logged = logged or log_once.LogOnce()
        self._process = Process(pid, uuid, root_dir)
        self._taps = Taps(interfaces, root_dir)
        self._counters: counters.Counters | None = None
        self._vcpus: Vcpus | None = None
        self._tick = pid        # not all domains search in the same tick
        self._relist = True
        self._limited = False
        self._count = 0
        try:
            self.machine = domain_cgroup.machine(
                os.fsdecode(self._process.read('cgroup')), mounts)
            if self.machine is not None:
                self._counters = counters.Counters(
                    domain_cgroup.sources(self.machine, pressure=pressure),
                    f'/{self.machine.name}', self._logged)
            self._vcpus = Vcpus(self._process, self.machine)
            self._vcpus.refresh(relist=True)
            self._vcpus.read()
            self.plugged()
        except OSError as exc:
            gone = exc.errno in GONE and not self._lives()
            self.close()
            if not gone:
                raise
            raise errors.WorkloadGone(f'process {pid} of domain {uuid} is '
                                      'gone') from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def plugged(self) -> bool:
        """Return whether there are more vCPUs, or fewer, than at the last
        call: libvirt has no event for that."""
        before = self._count
        self._count = 0 if self._vcpus is None else len(self._vcpus)
        return before != self._count

    def relist(self) -> None:
        """List the vCPUs in the next tick, since some came or went."""
        self._relist = True

    def set_interfaces(self, names: Sequence[str]) -> None:
        """Replace the network devices of the domain by these."""
        self._taps.set(names)

    def wake(self) -> None:
        """Read all files the next time: a limit was set."""
        self._limited = True
        if self._counters is not None:
            self._counters.wake()
        vcpus = self._vcpus     # the tick may close this meanwhile
        if vcpus is not None:
            vcpus.wake()

    def sample(self, workload: Workload, blocks: tuple[
            float | None, int | None, int | None] = NO_BLOCKS,
            link_bytes: LinkBytes = NO_DEVICES, *,
            with_refaults: bool = True) -> WorkloadSample | None:
        """Return the present sample, ``None`` if the process is gone.

        :param blocks: ``io_wait_s``, ``io_ops`` and ``io_bytes``, which only
            libvirt counts
        :param link_bytes: of the network devices of the host, empty when that
            is not known
        :param with_refaults: see :meth:`.cgroup.counters.Counters.read`
        """
        self._tick += 1
        vcpus = self._vcpus
        if vcpus is None or (
                self._relist or not len(vcpus)
                or (self._limited or not self._tick % PLUG_TICKS)
                and (not self._tick % RESCAN_TICKS or vcpus.changed())
                ) and not self._find_parts(vcpus):
            return None
        if not vcpus.read():
            self._relist = True
            if not self._find_parts(vcpus):
                return None
            vcpus.read()
        cpu_s = own_s = memory = droppable = refaults = None
        psi_cpu_s = psi_io_s = psi_memory_s = None
        if self._counters is not None:
            values = self._counters.read(with_refaults=with_refaults)
            if values is None:
                return None
            (cpu_s, own_s, used, droppable, _, _,
             psi_cpu_s, psi_io_s, psi_memory_s, refaults) = values
            if used is not None and droppable is not None:
                memory = max(0, int(used - droppable))
        else:
            try:
                cpu_s, memory = self._process.usage()
            except (ValueError, IndexError):
                pass        # unknown
            except OSError:
                return None
        sent, received = self._taps.read(link_bytes)
        return WorkloadSample(
            workload, cpu_s,
            vcpus.delay_s,
            vcpus.throttled(own_s),
            None, None, None, None, None, None, None, *blocks,
            sent, received, psi_cpu_s, psi_io_s, psi_memory_s, memory,
            droppable, refaults)  # type: ignore[arg-type]

    def _find_parts(self, vcpus: Vcpus) -> bool:
        """Find the vCPUs and taps; return false if the process is gone."""
        try:
            self._taps.refresh()
            if self._counters is not None and self._relist:
                self._counters.wake()
            has_vcpus = vcpus.refresh(relist=self._relist)
            self._relist = False
            self._logged.over(('QEMU', self.pid))
            return has_vcpus or self._lives()
        except OSError as exc:
            if exc.errno in GONE:
                return self._lives()
            if self._logged.due(('QEMU', self.pid), cause=exc.strerror):
                LOG.warning('QEMU process %s cannot be read: %s; its vCPUs '
                            'and interfaces are taken to be as before%s',
                            self.pid, exc.strerror, log_once.SAME_CAUSE)
            return True

    def _lives(self) -> bool:
        """Return whether the process runs; true where that is not known."""
        try:
            return self._process.alive()
        except OSError:
            return True

    def close(self) -> None:
        """Close the descriptors."""
        self._logged.forget(('QEMU', self._process.pid))
        for reader in (self._counters, self._vcpus, self._process):
            if reader is not None:
                reader.close()
        self._vcpus = None
