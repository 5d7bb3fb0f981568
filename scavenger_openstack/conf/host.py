# SPDX-License-Identifier: Apache-2.0

"""The host driver's options but for cgroups, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection
import math
import pathlib

from oslo_config import cfg

from scavenger_openstack import errors

LIBVIRT_SOCKETS = ('/run/libvirt/libvirt-sock',
                   '/run/libvirt/virtqemud-sock')
LIBVIRT_URI = 'qemu:///system'

NETWORK_OPTS: list[cfg.Opt] = [
    cfg.ListOpt('links', default=[],
                help='Devices that foreground and background share, as '
                     'DEVICE or DEVICE=BYTES_PER_S (default: its speed).  '
                     'A device in a network namespace is NETNS:DEVICE.'),
    cfg.ListOpt('interfaces', default=[],
                help='Which device carries the traffic of one background '
                     'workload and nothing else: WORKLOAD=DEVICE or '
                     'WORKLOAD=NETNS:DEVICE.  It is limited there.  '
                     'With several links, /LINK at the end names the one '
                     'that the traffic leaves by.'),
]

PERF_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('enabled', default='auto', choices=['auto', 'on', 'off'],
               help='Hardware counters (cycles, instructions, cache misses) '
                    'of each workload, VMs of KVM without what QEMU does for '
                    'them.  auto: where this host has them; on: '
                    'do not start without; off: leave the PMU alone.  The '
                    'status and the log say the grade of the host: A (PMU '
                    'and resctrl), B (PMU) or C (no PMU).'),
    cfg.FloatOpt('sample_s', default=10.0, min=1, max=600,
                 help='Seconds at the end of each period_s in which the '
                      'counters run; without a period_s they always do.  At '
                      'least [agent] interval_s.  Source: CPI2, section '
                      '3.1.'),
    cfg.FloatOpt('period_s', default=0.0, min=0, max=3600,
                 help='Seconds from one measurement to the next, 60 in '
                      'CPI2, section 3.1; 0, or no more than sample_s: '
                      'always.  A period costs less and leaves the PMU to '
                      'others meanwhile; but a CPU that switches from one '
                      'cgroup to another takes about a third longer for it '
                      'also while they rest, since one counter on each CPU '
                      'stays open to keep the clock of cgroups running.  '
                      'Where that is too much, set enabled = off.  '
                      'Set the period to what [cpi2] has, and '
                      'only where no rule needs each tick: [scavenger] '
                      'use_ipc would take the pauses for a lost signal and '
                      'keep the background at its minimum.'),
    cfg.IntOpt('max_counters', default=4, min=2, max=4,
               help='Hardware counters that are used on each CPU at the '
                    'same time, so that others (guests with a virtual PMU, '
                    'perf sessions) find some free.  2: instructions and '
                    'reference cycles, which is cpi; 3: also misses in the '
                    'last-level cache; 4: also core cycles.  Not in the '
                    'papers.'),
    cfg.FloatOpt('min_running_share', default=0.2, min=0.05, max=1,
                 help='A tick counts as not measured when the counters ran '
                      'for less than this share of the time in which the '
                      'workload ran, because they took turns with others.  '
                      'With 0.2 at least 50 of the turns, of 4 ms, in a '
                      'second of CPU time were seen; fewer are no fair '
                      'sample.  Not in the papers.'),
]

LIBVIRT_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('uri',
               sample_default='qemu:///system where libvirt runs',
               help='The libvirtd whose VMs are watched and limited: '
                    'qemu:///system, or with another socket '
                    'qemu+unix:///system?socket=/PATH.  Default: that of '
                    'this host, if libvirtd or virtqemud has its socket in '
                    '/run/libvirt when the agent starts.  Empty: none.  A VM '
                    'is background only if its flavor has the extra spec '
                    'scavenger:priority=background; all others are '
                    'foreground and never limited.  While libvirt cannot be '
                    'reached, VMs are still measured, their limits stay, '
                    'and it is tried again.'),
    cfg.StrOpt('run_dir', default='/run/libvirt/qemu',
               help='Where libvirt keeps the process number of each VM, as '
                    'NAME.pid.'),
    cfg.IntOpt('stats_ticks', default=5, min=1, max=60,
               help='Ticks from one question to libvirt about what disks '
                    'did (operations, bytes, time) to the next.  What '
                    'happened in between is handed out in equal parts, so '
                    'that fewer questions make io_wait and I/O rates '
                    'smoother and later, and cost libvirt less: it asks '
                    'each QEMU.  io_shares moves its budget once for each '
                    'answer, so it learns and grows that much slower.  '
                    'Source of the default: PerfCloud, section '
                    'III-D, intervals of 5 s.'),
    cfg.FloatOpt('timeout_s', default=2.0, min=0.1, max=60,
                 help='Seconds that libvirt may take to answer.  After '
                      'that the log and the status say that it, or the QEMU '
                      'of this VM, does not answer, and no limit is set '
                      'until it does.  A VM whose QEMU takes longer has no '
                      'numbers of its disks either; other VMs are not held '
                      'up by it.'),
]


def libvirt_uri(conf: cfg.ConfigOpts) -> str:
    """The libvirtd whose VMs are watched; empty: there is none."""
    if conf.libvirt.uri is not None:
        return str(conf.libvirt.uri)
    if pathlib.Path(conf.root_dir) == pathlib.Path('/') and any(
            pathlib.Path(path).is_socket() for path in LIBVIRT_SOCKETS):
        return LIBVIRT_URI
    return ''


def links(conf: cfg.ConfigOpts) -> dict[str, float | None]:
    """Return the shared devices and their capacity in bytes per second.

    :raises ConfigError: an entry is not DEVICE or DEVICE=BYTES_PER_S.
    """
    capacities: dict[str, float | None] = {}
    for entry in conf.network.links:
        device, equals, text = entry.partition('=')
        try:
            capacity = float(text) if equals else None
        except ValueError:
            capacity = math.nan
        if not device or capacity is not None and not (
                0 < capacity < math.inf):
            raise errors.ConfigError(
                f'[network] links: {entry!r} is neither DEVICE nor '
                'DEVICE=BYTES_PER_S')
        capacities[device] = capacity
    return capacities


def wrong_links(conf: cfg.ConfigOpts) -> list[str]:
    """Return what is wrong in the option ``links``."""
    try:
        links(conf)
    except errors.ConfigError as exc:
        return list(exc.args)
    return []


def interfaces(conf: cfg.ConfigOpts, shared: Collection[str]
               ) -> dict[str, tuple[str, str]]:
    """Return the device of a workload's traffic, and its link, by workload.

    The link is '' where it is the one that is found by itself.

    :param shared: the shared devices that are configured
    :raises ConfigError: an entry is not WORKLOAD=DEVICE, or its link is
        unknown or not clear.
    """
    by_workload = {}
    for entry in conf.network.interfaces:
        workload, equals, target = entry.rpartition('=')
        device, _, link = target.partition('/')
        if not (equals and workload and device):
            raise errors.ConfigError(
                f'[network] interfaces: {entry!r} is not WORKLOAD=DEVICE')
        if not link and len(shared) == 1:
            link = next(iter(shared))
        if shared and link not in shared:
            raise errors.ConfigError(
                f'[network] interfaces: {entry!r} does not name one of '
                f'links ({", ".join(shared)})')
        by_workload[workload] = (device, link)
    return by_workload
