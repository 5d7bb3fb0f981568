# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Every option, its help and its checks, in one place.

What an algorithm lets an operator tune is a field of its ``Params``; the
options of its section are made from those fields, so that a number, its
help and its bounds stand once.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import difflib
import math
import pathlib
import socket
from typing import Any
from typing import TypeVar

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.algorithms import arbitrate
from scavenger_openstack.algorithms import cpi2
from scavenger_openstack.algorithms import detector
from scavenger_openstack.algorithms import io_shares
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.algorithms import perfiso
from scavenger_openstack.algorithms import scavenger_params
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode

P = TypeVar('P')

DEFAULT_STATE_DIR = '/run/scavenger'
DEFAULT_STOP_FILE = '/var/lib/scavenger/stop'
DEFAULT_HISTORY_FILE = '/var/lib/scavenger/history.jsonl'

PARAMS: dict[str, type] = {'scavenger': scavenger_params.Params,
                           'perfiso': perfiso.Params,
                           'io_shares': io_shares.Params,
                           'cpi2': cpi2.Params,
                           'perfcloud': perfcloud.Params,
                           'attribution': detector.Params}

COMMON_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('state-dir', default=DEFAULT_STATE_DIR,
               help='Directory for leases, status and lock.  It has to be '
                    'gone after a reboot, as the limits of cgroups are.'),
    cfg.StrOpt('root-dir', default='/',
               help='Where /proc and /sys are looked for.'),
]

AGENT_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('host', default=socket.gethostname(),
               sample_default='the host name',
               help='Name of this hypervisor in reports.'),
    cfg.StrOpt('driver', default='host',
               help='Entry point in scavenger.drivers that reads and '
                    'limits workloads.'),
    cfg.ListOpt('controllers', default=['scavenger'],
                help='Entry points in scavenger.controllers that run in '
                     'the slow loop, each with a section of its own.'),
    cfg.FloatOpt('interval_s', default=1.0, min=0.1, max=10,
                 help='Seconds between two ticks of the slow loop.  '
                      'Shorter reacts sooner and costs more CPU.  '
                      'Source: Scavenger, section 4.1.'),
    cfg.FloatOpt('lease_s', default=15.0, min=1, max=600,
                 help='Seconds after which every limit is taken back when '
                      'the agent no longer says that it lives.'),
    cfg.FloatOpt('write_deadline_s', default=0.5, min=0.05, max=10,
                 help='Seconds that one tick waits for memory limits and '
                      'those of VMs to take hold: the kernel may have to '
                      'reclaim first, and libvirt asks each QEMU.'),
    cfg.BoolOpt('require_watcher', default=True,
                help='Set no limit while no scavenger-restore --watch '
                     'runs, since nobody would take limits back if the '
                     'agent died.'),
    cfg.StrOpt('stop_file',
               sample_default=DEFAULT_STOP_FILE,
               help='While this file exists no limit is set and all are '
                    'taken back (scavenger-agent stop-all makes it).  It '
                    'survives a reboot.  With another state_dir the '
                    'default is the file "stop" in there.'),
    cfg.StrOpt('history_file',
               sample_default=DEFAULT_HISTORY_FILE,
               help='Where limits that were set, changed and removed, '
                    'incidents and kills are written, for scavenger-agent '
                    'history.  It has to survive a reboot.  With another '
                    'state_dir the default is history.jsonl in there.'),
    cfg.IntOpt('history_mib', default=16, min=0, max=4096,
               help='Most that the history takes, in MiB: half for the file '
                    'that is written, half for the one before.  An event '
                    'takes some 300 bytes.  0 writes none.'),
]

FLOORS = {
    Knob.CPU_CORES: 'CPU that every background workload keeps, in cores.',
    Knob.MEMORY_BYTES: 'Memory that every background container keeps, in '
                       'bytes.',
    Knob.EGRESS_BYTES_PER_S: 'Egress that every background workload keeps, '
                             'in bytes per second.',
    Knob.IO_BYTES_PER_S: 'Disk throughput that every background workload '
                         'keeps, in bytes per second; of containers, each '
                         'direction and device.',
    Knob.IO_OPS_PER_S: 'Disk operations per second that every background '
                       'workload keeps; of containers, each direction '
                       'and device.',
}

CGROUPS_OPTS: list[cfg.Opt] = [
    cfg.ListOpt('background_parents', default=[],
                help='Cgroups, as paths below the cgroup mount, whose '
                     'direct children are background workloads, such as '
                     '/batch.'),
    cfg.ListOpt('foreground_parents', default=[],
                help='Cgroups whose direct children are shown as foreground '
                     'workloads.  All that is not below '
                     'background_parents is protected anyway.  VMs that '
                     '[libvirt] uri looks after, and what holds them, are '
                     'left out, here and in background_parents.'),
    cfg.ListOpt('killable_parents', default=[],
                help='Those of background_parents whose containers may be '
                     'killed, newest first, when the foreground needs '
                     'their memory and the kernel cannot take it back.'),
    cfg.StrOpt('memory_root',
               help='Cgroup whose memory limit counts as the memory of the '
                    'host.  Default: the machine itself.'),
    cfg.ListOpt('io_devices', default=[],
                help='Disks that I/O limits are set on, such as sda.  '
                     'Default: all whole disks.'),
    cfg.BoolOpt('pressure', default=False,
                help='Sample the pressure stall information of each '
                     'workload, where a cgroup v2 directory of the same '
                     'path exists.  No rule needs it yet; it doubles the '
                     'cost of sampling.'),
    cfg.IntOpt('delay_tasks', default=500, min=0, max=1000000,
               help='How many cgroups, processes and (where the cgroup does '
                    'not count its own I/O) threads one tick may look at for '
                    'the signals io_wait and run_delay; each takes some 5 us '
                    'of CPU.  With more on this host the foreground comes '
                    'first; of the other workloads some have the signals for '
                    '60 ticks and then others.  0 leaves them off.  '
                    'They are off, and cost nothing, while '
                    'kernel.task_delayacct is 0, too.  Not in the papers.'),
    cfg.FloatOpt('delay_cpu_s', default=0.005, min=0.0001, max=1,
                 help='CPU time, in seconds, after which one tick lists no '
                      'more processes for io_wait and run_delay, those of '
                      'the foreground first; the other workloads wait for '
                      'their turn.  Not in the papers.'),
    *(cfg.FloatOpt(f'floor_{knob}', default=arbitrate.DEFAULT_FLOORS[knob],
                   min=0, help=f'{text}  No cap goes below.')
      for knob, text in FLOORS.items()),
]

NETWORK_OPTS: list[cfg.Opt] = [
    cfg.ListOpt('links', default=[],
                help='Devices that foreground and background send over, as '
                     'DEVICE or DEVICE=BYTES_PER_S (default: its speed).  '
                     'A device in a network namespace is NETNS:DEVICE.'),
    cfg.ListOpt('interfaces', default=[],
                help='Which device carries the traffic of one background '
                     'workload and nothing else: WORKLOAD=DEVICE or '
                     'WORKLOAD=NETNS:DEVICE.  Its egress is shaped there.  '
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
    cfg.StrOpt('uri', default='',
               help='The libvirtd whose VMs are watched and limited: '
                    'qemu:///system, or with another socket '
                    'qemu+unix:///system?socket=/PATH.  Empty: none.  A VM '
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
                    'III-C, intervals of 5 s.'),
    cfg.FloatOpt('timeout_s', default=2.0, min=0.1, max=60,
                 help='Seconds that libvirt may take to answer.  After '
                      'that the log and the status say that it, or the QEMU '
                      'of this VM, does not answer, and no limit is set '
                      'until it does.  A VM whose QEMU takes longer has no '
                      'numbers of its disks either; other VMs are not held '
                      'up by it.'),
]

REPLAY_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('file',
               help='Recording that the driver "replay" plays back, one '
                    'sample per tick.  It can only be observed.'),
]

SECTIONS: dict[str, list[cfg.Opt]] = {'agent': AGENT_OPTS,
                                      'cgroups': CGROUPS_OPTS,
                                      'network': NETWORK_OPTS,
                                      'libvirt': LIBVIRT_OPTS,
                                      'perf': PERF_OPTS,
                                      'replay': REPLAY_OPTS}


def mode_opt() -> cfg.Opt:
    return cfg.StrOpt('mode', default=str(Mode.OBSERVE),
                      choices=[str(mode) for mode in Mode],
                      help='off: nothing is computed; observe: decisions '
                           'are made and shown, nothing is touched; '
                           'enforce: limits are set.')


def opts_of(params: type) -> list[cfg.Opt]:
    """The mode and one option per field of a ``Params`` dataclass."""
    kinds = {'bool': cfg.BoolOpt, 'int': cfg.IntOpt, 'float': cfg.FloatOpt,
             'str': cfg.StrOpt}
    options = [mode_opt()]
    for field in dataclasses.fields(params):
        kind = kinds[getattr(field.type, '__name__', str(field.type))]
        meta = field.metadata
        bounds = {name: meta[name] for name in ('min', 'max', 'choices')
                  if meta.get(name) is not None}
        source = meta.get('source')
        text = meta['help'] + (f'  Source: {source}.' if source else '')
        options.append(kind(field.name, default=field.default, help=text,
                            **bounds))
    return options


def params_of(conf: cfg.ConfigOpts, section: str, params: type[P]) -> P:
    """Fill a ``Params`` dataclass from its section."""
    conf.register_opts(opts_of(params), section)
    group = conf[section]
    return params(**{field.name: getattr(group, field.name)
                     for field in dataclasses.fields(params)})  # type: ignore[arg-type]


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """All options, for oslo-config-generator."""
    return [(None, COMMON_OPTS), *SECTIONS.items(),
            *((name, opts_of(params)) for name, params in PARAMS.items())]


def register(conf: cfg.ConfigOpts) -> None:
    log.register_options(conf)
    # oslo.log would print to standard output, where our JSON goes.
    conf.set_default('use_stderr', True)
    conf.register_cli_opts(COMMON_OPTS)
    for section, options in SECTIONS.items():
        conf.register_opts(options, section)
    for section, params in PARAMS.items():
        conf.register_opts(opts_of(params), section)


def load(conf: cfg.ConfigOpts, argv: Sequence[str], prog: str) -> None:
    """Read the command line and the files into ``conf``.

    :raises ConfigError: a value is wrong, a file cannot be read, or one of
        our sections has an option that does not exist.
    """
    from scavenger_openstack import version
    try:
        conf(argv, project='scavenger', prog=prog, version=version())
        for name, _ in list_opts():
            if name:
                for option in conf[name]:
                    value = getattr(conf[name], option)
                    if isinstance(value, float) and math.isnan(value):
                        raise ValueError(
                            f'[{name}] {option}: nan is no number')
    except UnicodeDecodeError as exc:
        raise errors.ConfigError(
            f'a configuration file is not UTF-8: {exc}; given: '
            + ' '.join(argv)) from exc
    except (cfg.Error, ValueError, OSError) as exc:
        raise errors.ConfigError(str(exc).replace('\n', ' ')) from exc
    except SystemExit as exc:   # oslo.config has said why, or given help
        raise SystemExit(2 if exc.code else 0) from None
    for path in conf.config_file or ():
        _refuse_unknown(conf, path)


def _refuse_unknown(conf: cfg.ConfigOpts, path: str) -> None:
    sections: dict[str, dict[str, Any]] = {}
    cfg.ConfigParser(path, sections).parse()
    ours = {name for name, _ in list_opts() if name}
    for name in sorted(ours & set(sections)):
        known = set(conf[name])
        for option in sections[name]:
            if option.replace('-', '_') not in known:
                close = difflib.get_close_matches(option, known, 1)
                hint = f'; did you mean {close[0]}?' if close else ''
                raise errors.ConfigError(
                    f'{path}: [{name}] {option}: no such option{hint}')
    near = {section: difflib.get_close_matches(section, ours, 1)
            for section in sections
            if section not in ours and section not in conf.agent.controllers}
    for section, close in near.items():
        if close:
            raise errors.ConfigError(
                f'{path}: [{section}]: no such section; did you mean '
                f'[{close[0]}]?')


def state_dir(conf: cfg.ConfigOpts) -> pathlib.Path:
    return pathlib.Path(conf.state_dir)


def stop_file(conf: cfg.ConfigOpts) -> pathlib.Path:
    """Where the kill switch is."""
    if conf.agent.stop_file:
        return pathlib.Path(conf.agent.stop_file)
    if conf.state_dir == DEFAULT_STATE_DIR:
        return pathlib.Path(DEFAULT_STOP_FILE)
    return state_dir(conf) / 'stop'


def history_file(conf: cfg.ConfigOpts) -> pathlib.Path:
    if conf.agent.history_file:
        return pathlib.Path(conf.agent.history_file)
    if conf.state_dir == DEFAULT_STATE_DIR:
        return pathlib.Path(DEFAULT_HISTORY_FILE)
    return state_dir(conf) / 'history.jsonl'


def floors(conf: cfg.ConfigOpts) -> dict[Knob, float]:
    return {knob: getattr(conf.cgroups, f'floor_{knob}') for knob in FLOORS}


def links(conf: cfg.ConfigOpts) -> dict[str, float | None]:
    """Shared devices and their capacity in bytes per second.

    :raises ConfigError: an entry is not DEVICE or DEVICE=BYTES_PER_S.
    """
    found: dict[str, float | None] = {}
    for entry in conf.network.links:
        device, equals, capacity = entry.partition('=')
        try:
            found[device] = float(capacity) if equals else None
        except ValueError:
            raise errors.ConfigError(
                f'[network] links: {entry!r} is not DEVICE=BYTES_PER_S'
            ) from None
    return found


def interfaces(conf: cfg.ConfigOpts) -> dict[str, tuple[str, str]]:
    """Device that carries a workload's traffic, and its link, by workload.

    :raises ConfigError: an entry is not WORKLOAD=DEVICE, or its link is
        unknown or not clear.
    """
    known = links(conf)
    found = {}
    for entry in conf.network.interfaces:
        workload, equals, target = entry.rpartition('=')
        device, _, link = target.partition('/')
        if not (equals and workload and device):
            raise errors.ConfigError(
                f'[network] interfaces: {entry!r} is not WORKLOAD=DEVICE')
        if not link and len(known) == 1:
            link = next(iter(known))
        if link not in known:
            raise errors.ConfigError(
                f'[network] interfaces: {entry!r} does not name one of '
                f'links ({", ".join(known) or "none is set"})')
        found[workload] = (device, link)
    return found
