# SPDX-License-Identifier: Apache-2.0

"""Options of all programs on a host, of the agent and of replays."""

from __future__ import annotations

import socket

from oslo_config import cfg

from scavenger_openstack.types import PROTECTED

DEFAULT_STATE_DIR = '/run/scavenger'
DEFAULT_STOP_FILE = '/var/lib/scavenger/stop'
DEFAULT_HISTORY_DIR = '/var/lib/scavenger/history'

CONTROLLERS = ('scavenger', 'io_shares', 'attribution')
"""Those of the slow loop on a fresh install."""

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
               help='Name of this hypervisor in reports.  The control plane '
                    'takes 1 to 255 letters, digits and "._-".'),
    cfg.StrOpt('driver', default='host',
               help='Entry point in scavenger.drivers that reads and '
                    'limits workloads.'),
    cfg.ListOpt('protect', default=[],
                item_type=cfg.types.String(choices=list(PROTECTED)),
                help='Resources that background workloads are kept from '
                     'taking from the foreground, any of cpu, memory, '
                     'network and disk.  The regulators of these resources '
                     '([scavenger], [perfiso], [io_shares]) set limits on '
                     'them, unless their own mode says something else; '
                     'limits on all other resources are only shown.  '
                     'Devices and links are found; what is still missing '
                     'on this host is a line of the status.  Empty: the '
                     'mode of each controller alone decides.'),
    cfg.ListOpt('controllers',
                default=list(CONTROLLERS),
                help='Entry points in scavenger.controllers that run in '
                     'the slow loop, each with a section of its own.  '
                     'perfiso runs beside it and is not listed.'),
    cfg.FloatOpt('interval_s', default=1.0, min=0.1, max=10,
                 help='Seconds between two ticks of the slow loop.  '
                      'Shorter reacts sooner and costs more CPU.  '
                      'Source: Scavenger, section 4.1.'),
    cfg.FloatOpt('lease_s', default=15.0, min=1, max=600,
                 help='Seconds without a sign of life of the agent after '
                      'which the watcher restores every limit.'),
    cfg.FloatOpt('write_deadline_s', default=0.5, min=0.05, max=10,
                 help='Seconds that one tick waits for memory limits and '
                      'those of VMs to take hold: the kernel may have to '
                      'reclaim first, and libvirt asks each QEMU.'),
    cfg.BoolOpt('require_watcher', default=True,
                help='Set no limit while no scavenger-restore --watch '
                     'runs, since limits would stay if the agent died.'),
    cfg.StrOpt('stop_file',
               sample_default=DEFAULT_STOP_FILE,
               help='While this file exists no limit is set and all are '
                    'removed (scavenger-agent stop-all makes it).  It '
                    'survives a reboot.  With another state_dir the '
                    'default is the file "stop" in there.'),
    cfg.FloatOpt('profile_seconds_per_day', default=900.0, min=0,
                 max=86400,
                 help='Most seconds of a day in which load may be injected '
                      'on this host to measure the profile of a workload, '
                      'when an operator asks for one and the aggregate of '
                      'this host allows it.  0 allows none.'),
    cfg.StrOpt('history_dir',
               sample_default=DEFAULT_HISTORY_DIR,
               help='Directory, for these files alone, in which limits that '
                    'were set, changed and removed, incidents and kills are '
                    'written, for scavenger-agent history, and from which '
                    'they are reported to the control plane.  It has to '
                    'survive a reboot.  With another state_dir the default '
                    'is the directory history in there.'),
    cfg.IntOpt('history_mib', default=16, min=0, max=4096,
               help='Most that the history takes, in MiB.  An event takes '
                    'some 300 bytes.  What waits for the control plane is '
                    'kept also beyond this.  0 keeps nothing else.'),
]

REPLAY_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('file',
               help='Recording that the driver "replay" plays back, one '
                    'sample per tick.  It can only be observed.'),
]
