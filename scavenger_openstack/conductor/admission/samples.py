# SPDX-License-Identifier: Apache-2.0

"""Which statistics of a host count for the specs of all hosts.

A host may say what it likes of any application of any project: it counts only
for those of the workloads that it lists, with no more samples than these can
have, and not more often than an honest host.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence

from oslo_log import log

from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db import reports
from scavenger_openstack.db import statistics
from scavenger_openstack.wire.report import Statistics

LOG = log.getLogger(__name__)

MOST_VALUE = 1e4
"""No signal is larger: cycles of an instruction, seconds waited for each one
run or for an operation; and no workload uses as many cores."""

LEAST_SYNC_S = 1
"""The shortest ``[conductor] sync_s``: a workload has one sample in it."""

HOUR_SAMPLES = 360
"""What a host counts for in an hour at most: as one workload with a sample in
10 s, which is the default of ``sync_s``."""


def usable(connection: reports.Connection, host_id: int, host: str,
           entries: Sequence[Statistics],
           take_hours: Callable[[float], bool]) -> list[Statistics]:
    """The statistics that specs can be made of.

    :param take_hours: whether the host may report as many hours of one
        application
    """
    if not entries:
        return []
    listed = statistics.listed(connection, host_id, min(
        entry.hour_s for entry in entries))
    usable = [entry for entry in entries if _is_possible(entry, listed.get(
        (entry.project, entry.application), 0))]
    hours: dict[tuple[str, ...], float] = {}
    for entry in usable:
        key = entry.project, entry.application, entry.cpu_model, entry.signal
        hours[key] = hours.get(key, 0.0) + min(1.0, entry.n / HOUR_SAMPLES)
    if hours and not take_hours(max(hours.values())):
        usable = []
    if len(usable) < len(entries):
        LOG.debug('%s: %d of %d statistics are left out: the host lists no '
                  'such workload, the numbers cannot be, or they are too many',
                  host, len(entries) - len(usable), len(entries))
    return usable


def _is_possible(entry: Statistics, workloads: int) -> bool:
    """Return whether statistics of a host can be true.

    :param workloads: which the host has of the application
    """
    return (entry.signal in SIGNALS
            and entry.n <= workloads * HOUR_S / LEAST_SYNC_S
            and max(map(abs, (entry.mean, entry.least, entry.most)))
            <= MOST_VALUE and entry.m2 <= entry.n * MOST_VALUE ** 2
            and (entry.cpu_cores or 0.0) <= MOST_VALUE)
