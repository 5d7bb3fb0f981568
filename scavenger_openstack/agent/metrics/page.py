# SPDX-License-Identifier: Apache-2.0

"""The agent's metrics, made of its status.

The status has under ``metrics``, by name, the rows of those that are counted
from tick to tick (:mod:`.totals`); the others are facts that it has anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections import Counter
from typing import Any

from scavenger_openstack.agent.metrics import text_format
from scavenger_openstack.agent.metrics.text_format import Row
from scavenger_openstack.agent import status
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import orders
from scavenger_openstack.decision.removal import CONTROLLER_OF
from scavenger_openstack import grounds
from scavenger_openstack.metrics.metric import COUNTER
from scavenger_openstack.metrics.metric import GAUGE
from scavenger_openstack.metrics.metric import Metric
from scavenger_openstack.metrics.metric import OTHER
from scavenger_openstack.metrics.metric import table
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Resource

LIMIT = 'knob', 'controller'
INSTANCE = 'project', 'server_id', 'priority'

RESULTS = 'confirmed', 'refuted', 'unclear'

METRICS: Mapping[str, Metric] = table(
    ('agent_info', GAUGE, 'The agent: its version, and the grade of what its '
     'host can measure.', ('version', 'grade')),
    ('agent_last_tick_timestamp_seconds', GAUGE,
     'UNIX time of the last tick.', ()),
    ('agent_ticks_total', COUNTER, 'Ticks of the slow loop.', ()),
    ('agent_blind_ticks_total', COUNTER,
     'Ticks in which the host could not be read.', ()),
    ('agent_cpu_seconds_total', COUNTER,
     'CPU time of all threads of the agent.', ()),
    ('agent_memory_peak_bytes', GAUGE,
     'Most memory that the agent has had.', ()),
    ('agent_stopped', GAUGE, '1 while an operator has stopped all limits.',
     ()),
    ('watcher_up', GAUGE, '1 while a watcher runs, which restores limits if '
     'the agent fails.', ()),
    ('controller_mode', GAUGE, '1 for the mode that a controller is in.',
     ('controller', 'mode')),
    ('capacity_cpu_cores', GAUGE, 'CPUs of the host.', ()),
    ('capacity_memory_bytes', GAUGE, 'Memory of the host.', ()),
    ('capacity_network_bytes_per_second', GAUGE,
     'Capacity of the links that foreground and background share.', ()),
    ('headroom_cpu_cores', GAUGE, 'CPUs that were idle.', ()),
    ('headroom_memory_bytes', GAUGE, 'Memory that the background may use '
     'besides what it has.', ()),
    ('headroom_network_bytes_per_second', GAUGE, 'What the background may '
     'send besides what it does.', ()),
    ('background_cpu_seconds_total', COUNTER,
     'CPU time that background workloads got.', ()),
    ('background_memory_bytes', GAUGE,
     'Memory that background workloads use.', ()),
    ('background_io_operations_total', COUNTER,
     'Disk operations of background workloads.', ()),
    ('background_egress_bytes_total', COUNTER,
     'What background workloads sent.', ()),
    ('limits', GAUGE, 'Limits in force.', LIMIT),
    ('would_be_limits', GAUGE,
     'Limits that would be set if their controllers enforced.', LIMIT),
    ('limited_seconds_total', COUNTER,
     'Time that limits were in force, added up over all limits.', LIMIT),
    ('limit_changes_total', COUNTER, 'Limits that were set, changed and '
     'removed, as far as the history has a line of it.',
     (*LIMIT, 'action')),
    ('limits_not_restored', GAUGE, 'Limits that may be in force and that '
     'neither agent nor watcher can restore.', ()),
    ('incidents_open', GAUGE, 'Incidents that are open.', ('cause',)),
    ('incidents_total', COUNTER, 'Incidents that have ended.',
     ('cause', 'outcome')),
    ('interference_seconds_total', COUNTER,
     'Time that workloads were disturbed, added up over all of them.',
     ('cause',)),
    ('trials_total', COUNTER, 'Limits by which a detector tried a suspect.',
     ('controller', 'result')),
    ('kills_total', COUNTER,
     'Kills of containers for want of memory.', ()),
    ('missing', GAUGE, 'What protecting a resource takes and this host does '
     'not have: lines "missing" of the status.', ('resource',)),
    ('libvirt_up', GAUGE, '1 while libvirt answers.', ()),
    ('spool_bytes', GAUGE,
     'What waits to be reported to the conductor.', ()),
    ('instance_run_delay_seconds_total', COUNTER,
     'Time that the threads of a VM waited for a CPU.', INSTANCE),
    ('instance_io_wait_seconds_total', COUNTER,
     'Time that a VM waited for its disks.', INSTANCE),
    ('instance_limited_seconds_total', COUNTER,
     'Time that a VM had a limit.', INSTANCE),
    ('instances_left_out', GAUGE, 'VMs without metrics of their own, as '
     'there are more than [agent] metrics_instances.', ()),
)
"""All that an agent has, in the order of its page."""


def page(document: Mapping[str, Any]) -> bytes:
    """Return the metrics of a status as Prometheus reads them.

    :param document: the status with its ``watcher`` and the names of lease
        records that were ``refused``
    :raises ScavengerError: see :func:`.status.understood`.
    """
    with status.understood():
        rows = dict(document['metrics'])
        rows.update(_facts(document))
        return text_format.page((metric, rows.get(name, ()))
                                for name, metric in METRICS.items())


def owner(name: str, controllers: Iterable[str]) -> str:
    """Return the label ``controller`` of what a limit is owned by."""
    name = CONTROLLER_OF.get(name, name)
    return name if name in (*controllers, perfiso.Controller.name,
                            orders.OWNER) else OTHER


def cause(name: str) -> str:
    """Return the label ``cause`` of an incident."""
    return name if name in grounds.CAUSES else OTHER


def _facts(document: Mapping[str, Any]
           ) -> Iterator[tuple[str, Iterable[Row]]]:
    """Generate the rows of what the status has besides, by metric."""
    controllers, counters = document['controllers'], document['counters']
    modes = {name: controller['mode']
             for name, controller in controllers.items()}
    if fast := (document['isolation'] or {}).get('mode'):
        modes[perfiso.Controller.name] = fast
    libvirt, conductor = document['libvirt'], document['conductor']
    would = Counter((cap['knob'], owner(cap['owner'], controllers))
                    for cap in document['would'])
    incidents = Counter(cause(incident['cause'])
                        for incident in document['incidents'])
    resources = list(Resource)
    missing = Counter(
        resource if (resource := sentence.partition(':')[0]) in resources
        else OTHER for sentence in document['missing'])
    yield from {
        'agent_last_tick_timestamp_seconds': [[document['wall_time_s']]],
        'agent_ticks_total': [[counters['ticks']]],
        'agent_blind_ticks_total': [[counters['blind_ticks']]],
        'agent_memory_peak_bytes': [[document['peak_rss_bytes']]],
        'agent_stopped': [[int(document['stopped'])]],
        'watcher_up': [[int(document['watcher']['running'])]],
        'controller_mode': [[name, str(mode), int(mode == is_now)]
                            for name, is_now in modes.items()
                            for mode in Mode],
        'would_be_limits': [[*key, count] for key, count in would.items()],
        'limits_not_restored': [[len(document['refused'])]],
        'incidents_open': [[name, incidents[name]]
                           for name in (*grounds.CAUSES, OTHER)],
        'trials_total': [
            [name, result, tried[result]]
            for name, controller in controllers.items()
            if (tried := controller['facts'].get('tried'))
            for result in RESULTS],
        'kills_total': [[counters['kills']]],
        'missing': [[str(resource), missing[resource]]
                    for resource in (*resources, OTHER)],
        'libvirt_up': [[int(libvirt['since_s'] is None)]] if libvirt else [],
        'spool_bytes': [[conductor['spool_bytes']]] if conductor else [],
    }.items()
