# SPDX-License-Identifier: Apache-2.0

"""Options of what the conductor does in other services of OpenStack.

The credentials for that are in a section of their own, ``[openstack]``, with
the options of keystoneauth.
"""

from __future__ import annotations

from oslo_config import cfg

PLACEMENT_OPTS: list[cfg.Opt] = [
    cfg.BoolOpt('enabled', default=False,
                help='Tell Placement how much background work each host may '
                     'have, so that flavors can ask for it.  It takes '
                     'credentials in [openstack].  "scavenger-manage '
                     'placement remove" takes away what was told.'),
    cfg.FloatOpt('smooth_s', default=300.0, min=1, max=86400,
                 help='Time constant, in seconds, with which more is '
                      'offered; less is offered at once.  Longer offers '
                      'less of what is free for a short time only.'),
    cfg.FloatOpt('step', default=0.1, min=0, max=1,
                 help='Share of what is offered by which it has to change '
                      'before Placement is told.  Each time costs '
                      'nova-compute and nova-scheduler a conflict.'),
    cfg.FloatOpt('interval_s', default=60.0, min=1, max=3600,
                 help='Least time between two changes for a host, in '
                      'seconds.'),
    cfg.FloatOpt('silent_s', default=120.0, min=1, max=86400,
                 help='Seconds without a report after which a host offers '
                      'nothing more than what is in use.'),
]

NOVA_OPTS: list[cfg.Opt] = [
    cfg.BoolOpt('enabled', default=False,
                help='Ask Nova what instances are and where they are, so '
                     'that agents get what flavors, server groups, stacks '
                     'and clusters say also where nova-compute does not tell '
                     'it, and what a host says about an instance of another '
                     'is refused; and which hosts are in its host '
                     'aggregates.  It takes credentials in [openstack].'),
    cfg.FloatOpt('interval_s', default=60.0, min=1, max=3600,
                 help='Seconds from asking Nova what has changed to asking '
                      'again.'),
]

EVICTION_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('policy', default='none', choices=[
        ('none', 'it is only recommended, in the log, in the audit and as an '
         'incident'),
        ('pause', 'it keeps its memory'), ('stop', 'it is shut down'),
        ('shelve', 'it is shut down and leaves the host'),
        ('live-migrate', 'to a host that Nova chooses')],
        help='What Nova is asked to do, without an operator, with a '
             'background instance that disturbs others again and again, or '
             'with the newest ones of a host that is short of CPU for them.  '
             'It takes [nova] enabled.'),
    cfg.DictOpt('aggregate_policies', default={},
                help='Other policies for the hosts of aggregates, as '
                     'AGGREGATE:POLICY, AGGREGATE:POLICY.  The first by name '
                     'counts.'),
    cfg.IntOpt('confirmed', default=5, min=2, max=1000,
               help='Again and again: so many incidents in which a limit on '
                    'the instance helped its victim, within window_h.'),
    cfg.FloatOpt('window_h', default=24.0, min=1, max=720,
                 help='Hours in which they are counted.  In that time an '
                      'instance is evicted once.'),
    cfg.FloatOpt('cool_down_s', default=3600.0, min=60, max=86400,
                 help='Seconds between two evictions from one host.'),
    cfg.FloatOpt('shortage_s', default=3600.0, min=0, max=604800,
                 help='Seconds for which the background instances of a host '
                      'hold more vCPUs than there are cores for them, at '
                      'each look, until its newest ones are recommended or '
                      'evicted; looks are a minute apart.  0: never.'),
    cfg.IntOpt('per_hour', default=10, min=1, max=1000,
               help='Evictions in the whole cloud within an hour, at most; '
                    'those of operators count.'),
]

NOTIFICATIONS_OPTS: list[cfg.Opt] = [
    cfg.ListOpt('topics', default=[],
                help='Send versioned notifications of incidents, limits and '
                     'the kill switch to these topics of the message bus, '
                     'such as interference_notifications.  A conductor sends '
                     'them to [oslo_messaging_notifications] transport_url, '
                     'else to transport_url.  Set it for conductors and the '
                     'API alike.  Something has to consume each topic: '
                     'brokers keep what nothing takes.  Empty: none are '
                     'made.'),
]

SECTIONS = {'placement': PLACEMENT_OPTS, 'nova': NOVA_OPTS,
            'eviction': EVICTION_OPTS, 'notifications': NOTIFICATIONS_OPTS}
