# SPDX-License-Identifier: Apache-2.0

"""Options of cgroups: which hold workloads, and what each of these keeps."""

from __future__ import annotations

from oslo_config import cfg

from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.types import Knob

FLOORS = {
    Knob.CPU_CORES: 'CPU that every background workload keeps, in cores.',
    Knob.MEMORY_BYTES: 'Memory that every background container keeps, in '
                       'bytes.',
    Knob.EGRESS_BYTES_PER_S: 'Egress that every background workload keeps, '
                             'in bytes per second.',
    Knob.INGRESS_BYTES_PER_S: 'What every background workload may receive in '
                              'any case, in bytes per second; of VMs, by '
                              'each network card.',
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
    cfg.ListOpt('background_groups', default=[],
                help='Cgroups above background_parents that hold nothing '
                     'else, now and later: what is set for the background '
                     'as a whole (CPU set, idle scheduling) is set there.  '
                     'Default: on each of background_parents; nothing '
                     'above these is ever written to.'),
    cfg.ListOpt('foreground_parents', default=[],
                help='Cgroups whose direct children are shown as foreground '
                     'workloads.  All that is not below '
                     'background_parents is protected anyway.  VMs of '
                     '[libvirt] uri, and what holds them, are left '
                     'out, here and in background_parents.'),
    cfg.ListOpt('killable_parents', default=[],
                help='Those of background_parents whose containers may be '
                     'killed, newest first, when the foreground needs '
                     'their memory and the kernel cannot take it back.'),
    cfg.StrOpt('memory_root',
               help='Cgroup whose memory limit counts as the memory of the '
                    'host.  Default: the machine itself.'),
    cfg.ListOpt('io_devices', default=[],
                help='Disks that I/O limits are set on, such as sda.  '
                     'Default: all whole disks that are not built on '
                     'others, and multipath disks instead of their paths.'),
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
    *(cfg.FloatOpt(f'floor_{knob}', default=DEFAULT_FLOORS[knob],
                   min=0, help=f'{text}  No limit goes below.')
      for knob, text in FLOORS.items()),
]


def floors(conf: cfg.ConfigOpts) -> dict[Knob, float]:
    return {knob: getattr(conf.cgroups, f'floor_{knob}') for knob in FLOORS}
