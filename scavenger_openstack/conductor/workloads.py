# SPDX-License-Identifier: Apache-2.0

"""The list of a host's workloads: which are new, other, or gone."""

from __future__ import annotations

from collections.abc import Sequence

from scavenger_openstack.db import reports
from scavenger_openstack.db import rows
from scavenger_openstack.db import tables
from scavenger_openstack.wire.report import Workload

IDENTITY = ('kind', 'instance')
"""With another of these it is another workload of the same name."""

GONE = 'the workload ended'

MOST_VCPUS = 2.0 ** 20
"""More cannot be, and the sum of a host's would overflow."""


def apply(connection: reports.Connection, host_id: int,
          listed: Sequence[Workload], now: float) -> None:
    """Make the rows of a host those that its agent lists."""
    have = reports.workloads(connection, host_id)
    want = {row['name']: row for row in map(_row, listed)}
    gone = {name: row['id'] for name, row in have.items()
            if name not in want or any(row[each] != want[name][each]
                                       for each in IDENTITY)}
    reports.end_workloads(connection, host_id, gone, now, GONE)
    rows.insert_rows(connection, tables.workloads, [
        {**row, 'host_id': host_id, 'since_s': now, 'until_s': None}
        for name, row in want.items() if name not in have or name in gone])
    rows.update_rows(connection, tables.workloads, [
        {'id': have[name]['id'], **row} for name, row in want.items()
        if name in have and name not in gone
        and any(have[name][each] != value for each, value in row.items())])


def _row(workload: Workload) -> reports.Row:
    return rows.cut(tables.workloads, {
        'name': workload.id, 'kind': workload.kind,
        'instance': workload.instance, 'display_name': workload.display_name,
        'flavor': workload.flavor, 'project': workload.project,
        'application': workload.application,
        'priority': workload.priority, 'source': workload.source,
        'vcpus': min(MOST_VCPUS, workload.vcpus),
        'floor': dict(workload.floor)})
