# SPDX-License-Identifier: Apache-2.0

"""Instances that a host has, and Nova has placed elsewhere.

A host may say so for :data:`GRACE_S`: a migration ends on the hosts before
Nova knows.  Then nothing that it says about the instance is taken.  Only
while Nova is read: without it the host knows best.
"""

from __future__ import annotations

from collections.abc import Collection

from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import placed
from scavenger_openstack.db import reports
from scavenger_openstack.wire import codec
from scavenger_openstack.wire.report import Incident
from scavenger_openstack.wire.report import Report

GRACE_S = 300.0

UUID_CHARS = 36

WHY = 'Nova has placed the instance on another host'


def read_s(connection: connect.Connection) -> float | None:
    """Up to when all changes of instances have been read from Nova."""
    until_s = placed.read_until(connection)
    return None if until_s is None else until_s - GRACE_S


def end(connection: connect.Connection, now: float, read_s: float,
        moving: Collection[str] = ()) -> list[tuple[str, str, str]]:
    """End what hosts have reported for too long, after Nova has been read:
    host, instance, and the host that has it.

    :param read_s: up to when all changes of instances have been read
    :param moving: instances that Nova is working on: in a migration the new
        host has one long before Nova says so, and may say so for
        :data:`GRACE_S` from now
    """
    flavor_tags.touch(connection, moving, now)
    placed.read_now(connection, read_s + GRACE_S)
    moved = []
    for workload in placed.wrong(connection, now - GRACE_S):
        moved.append((workload.host, workload.instance, workload.placed_on))
        reports.end_workloads(connection, workload.host_id,
                              {workload.name: workload.workload_id}, now, WHY)
        reports.update_host(connection, workload.host_id,
                            {'workloads_digest': ''})
        reports.add_audit(connection, [{
            'time_s': now, 'actor': f'agent {workload.host}',
            'action': 'report.refused', 'target': workload.instance,
            'reason': f'{WHY}: {workload.placed_on}'}], by_agent=True)
    return moved


def refused(connection: connect.Connection, host_id: int, report: Report,
            now: float) -> frozenset[str]:
    """Return the workloads of a report that are instances which Nova has
    placed elsewhere: to libvirt's domains their names are those of Nova."""
    ids = {workload.instance: workload.id
           for workload in report.workloads or () if workload.instance}
    for entry in report.entries:
        for name in ('victim', 'workload'):
            named = getattr(entry, name, '')
            if len(named) == UUID_CHARS:
                ids.setdefault(named, named)
    if not ids:
        return frozenset()
    return frozenset(
        ids[instance] for instance, _ in placed.elsewhere(
            connection, host_id, report.host, ids, now - GRACE_S, now))


def without(report: Report, names: Collection[str]) -> Report:
    """The report without what it says about these workloads."""
    entries = []
    for entry in report.entries:
        if (getattr(entry, 'victim', '') in names
                or getattr(entry, 'workload', '') in names):
            continue
        if isinstance(entry, Incident):
            entry = codec.replace(entry, **{
                part: [suspect for suspect in getattr(entry, part)
                       if suspect.workload not in names]
                for part in ('suspects', 'grounds')})
        entries.append(entry)
    return codec.replace(
        report, entries=entries, workloads=None if report.workloads is None
        else [workload for workload in report.workloads
              if workload.id not in names])
