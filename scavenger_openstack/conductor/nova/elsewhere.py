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
    """End what hosts have said for too long, after Nova has been read:
    host, instance, and the host that has it.

    :param read_s: up to when all changes of instances have been read
    :param moving: instances that Nova is working on: in a migration the new
        host has one long before Nova says so, and may say so for
        :data:`GRACE_S` from now
    """
    flavor_tags.touch(connection, moving, now)
    placed.read_now(connection, read_s + GRACE_S)
    found = []
    for one in placed.wrong(connection, now - GRACE_S):
        found.append((one.host, one.instance, one.placed_on))
        reports.end_workloads(connection, one.host_id,
                              {one.name: one.workload_id}, now, WHY)
        reports.update_host(connection, one.host_id, {'workloads_digest': ''})
        reports.add_audit(connection, [{
            'time_s': now, 'actor': f'agent {one.host}',
            'action': 'report.refused', 'target': one.instance,
            'reason': f'{WHY}: {one.placed_on}'}], by_agent=True)
    return found


def refused(connection: connect.Connection, host_id: int, report: Report,
            now: float) -> frozenset[str]:
    """Workloads of a report that are instances which Nova has placed
    elsewhere: to libvirt's domains their names are those of Nova."""
    told = {one.instance: one.id for one in report.workloads or ()
            if one.instance}
    for entry in report.entries:
        for name in ('victim', 'workload'):
            named = getattr(entry, name, '')
            if len(named) == UUID_CHARS:
                told.setdefault(named, named)
    if not told:
        return frozenset()
    return frozenset(
        told[instance] for instance, _ in placed.elsewhere(
            connection, host_id, report.host, told, now - GRACE_S, now))


def without(report: Report, names: Collection[str]) -> Report:
    """The report without what it says about these workloads."""
    entries = []
    for entry in report.entries:
        if (getattr(entry, 'victim', '') in names
                or getattr(entry, 'workload', '') in names):
            continue
        if isinstance(entry, Incident):
            entry = codec.replace(entry, **{
                part: [one for one in getattr(entry, part)
                       if one.workload not in names]
                for part in ('suspects', 'grounds')})
        entries.append(entry)
    return codec.replace(
        report, entries=entries, workloads=None if report.workloads is None
        else [one for one in report.workloads if one.id not in names])
