# SPDX-License-Identifier: Apache-2.0

"""What operators want, as the directives of a host need it."""

from __future__ import annotations

import collections
from collections.abc import Collection
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import claims
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources.aggregates import ByHost
from scavenger_openstack.db.resources import profilings
from scavenger_openstack.db.resources import services
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack import host_names

SPECS = 'specs'
"""The action of the audit's row that says that specs have changed."""

SPECS_CHANGED = 'specs-changed'
"""The number in :mod:`.claims` that is another one then."""

WORDS = {'cloud': 'the cloud', 'aggregate': 'aggregate', 'host': 'host'}

SETTLED_S = 600.0

KEPT_MINUTES = 30
"""Of what the governor divided, the last ones by their ids: conductors whose
clocks differ divide minutes that are far apart."""


class Switch(NamedTuple):
    """Kill switch and governor of a scope."""

    protection: bool
    reason: str
    caps_per_minute: int | None


class Rule(NamedTuple):
    """A priority or an exemption."""

    value: Any
    application: str
    reason: str


class Override(NamedTuple):
    """A limit that an operator set."""

    uuid: str
    workload: str
    instance: str
    knob: Any
    value: Any
    reason: str
    expires_s: float


class Wanted(NamedTuple):
    """All that operators want of the cloud.

    ``switches`` is by (scope, target), ``switched`` has the hosts with one,
    ``rules`` is by (kind, scope, target), ``overrides`` by host id.
    ``specs`` is another number when specs have changed, 0 before the first.
    ``settings`` are those of each aggregate that has some, ``services`` the
    hosts with a compute service of Nova.  ``profilings`` are rows by host id.
    """

    switches: dict[tuple[str, str], Switch] = {}
    switched: ByHost = ByHost()
    aggregates: ByHost = ByHost()
    rules: dict[tuple[str, str, str], Rule] = {}
    overrides: dict[int, tuple[Override, ...]] = {}
    specs: int = 0
    settings: dict[str, dict[str, Any]] = {}
    services: host_names.Index | None = None
    profilings: dict[int, Row] = {}

    def allows_profiling(self, host: str) -> bool:
        """Return whether an aggregate of the host allows that profiles are
        measured there."""
        return any(self.settings.get(name, {}).get('profiling', False)
                   for name in self.aggregates.of(host))

    def setting(self, host: str, kind: str, own: dict[str, Any]
                ) -> dict[str, Any]:
        """Return what is set for a host: its own, else that of the first
        aggregate by name that has it.

        :param kind: ``modes`` or ``parameters``
        """
        inherited: dict[str, Any] = {}
        for name in reversed(self.aggregates.of(host)):
            inherited |= self.settings.get(name, {}).get(kind, {})
        return inherited | own

    def scopes(self, host: str) -> list[tuple[str, str]]:
        """The scopes and targets that a host is in, the widest first."""
        return [('cloud', ''), *(
            (scope, name) for scope, names in (
                ('aggregate', self.aggregates), ('host', self.switched))
            for name in names.of(host))]

    def protection(self, host: str) -> tuple[bool, str]:
        """Return whether limits may be set on a host, and why not: the widest
        switch that is off decides."""
        for scope, target in self.scopes(host):
            switch = self.switches.get((scope, target))
            if switch is not None and not switch.protection:
                where = f'{WORDS[scope]} {target}'.strip()
                return False, (f'switched off for {where}: '
                               f'{switch.reason}')[:2000]
        return True, ''


def of_host(connection: sa.Connection, host: str) -> Wanted:
    """The switches, aggregates and settings that concern one host."""
    names = aggregates.by_host(connection).of(host)
    common = tables.aggregate_settings.c
    return Wanted(
        *_switches(connection), ByHost({host: names}),
        settings=dict(connection.execute(sa.select(
            common.aggregate, common.settings).where(
                common.aggregate.in_(names))).tuples().all()))


def wanted(connection: sa.Connection, now: float) -> Wanted:
    """Read it all; of overrides those that have not expired."""
    rules, common = tables.rules.c, tables.aggregate_settings.c
    return Wanted(
        *_switches(connection), aggregates.by_host(connection),
        {(kind, scope, target): Rule(*rule) for kind, scope, target, *rule
         in connection.execute(sa.select(
             rules.kind, rules.scope, rules.target, rules.value,
             rules.application, rules.reason))},
        _overrides(connection, now),
        specs=claims.counted(connection, SPECS_CHANGED),
        settings=dict(connection.execute(sa.select(
            common.aggregate, common.settings)).tuples().all()),
        services=services.index(connection),
        profilings={row['host_id']: row for row
                    in profilings.unfinished(connection, now)})


def _switches(connection: sa.Connection
              ) -> tuple[dict[tuple[str, str], Switch], ByHost]:
    """Return all switches, and those of hosts by each name that these may
    have: one that is off must not miss a host which has just got its domain,
    or lost it."""
    table = tables.switches.c
    switches = {(scope, target): Switch(*switch) for scope, target, *switch
                in connection.execute(sa.select(
                    table.scope, table.target, table.protection, table.reason,
                    table.caps_per_minute))}
    return switches, ByHost({target: (target,) for scope, target in switches
                             if scope == 'host'})


def hosts(connection: sa.Connection, now: float, since_s: float, host: str
          ) -> list[str]:
    """The names of those that the governor shares among, in the order of
    their ids: with a token or a compute service of Nova all that have reported
    since then; of others, whose names a client may have invented, those that
    have done so for :data:`SETTLED_S`.

    :param host: reports now
    """
    table = tables.hosts.c
    index = services.index(connection)
    rows = connection.execute(
        sa.select(table.name, table.token_hash, table.first_seen_s,
                  table.last_seen_s, table.short).where(sa.or_(
                      table.last_seen_s >= since_s, table.name == host)
               ).order_by(table.id)).all()
    forms = collections.Counter(row.short for row in rows)
    return [row.name for row in rows if row.token_hash
            or index is not None and (
                row.name in index.find_all(row.name)
                or forms[row.short] == 1 and index.find_all(row.name))
            or row.first_seen_s <= now - SETTLED_S and (
                row.last_seen_s >= now - SETTLED_S or row.name == host)]


def shares(connection: sa.Connection, minute: int) -> dict[str, int] | None:
    """Return how many limits each host may set in that minute; ``None`` while
    it is not divided."""
    table = tables.governor_minutes.c
    divided: dict[str, int] | None = connection.execute(sa.select(
        table.shares).where(table.minute == minute)).scalar()
    return divided


def add_shares(connection: sa.Connection, minute: int, shares: dict[str, int]
               ) -> None:
    """Divide a minute, once.

    :raises IntegrityError: another conductor has done it meanwhile.
    """
    table = tables.governor_minutes
    connection.execute(sa.insert(table).values(minute=minute, shares=shares))
    oldest = connection.execute(sa.select(table.c.id).order_by(
        table.c.id.desc()).limit(1).offset(KEPT_MINUTES)).scalar()
    if oldest is not None:
        connection.execute(sa.delete(table).where(table.c.id <= oldest))


def _overrides(connection: sa.Connection, now: float
               ) -> dict[int, tuple[Override, ...]]:
    table = tables.overrides.c
    overrides: dict[int, tuple[Override, ...]] = {}
    for host_id, *override in connection.execute(sa.select(
            table.host_id, table.uuid, table.workload, table.instance,
            table.knob, table.value, table.reason, table.expires_s).where(
                table.expires_s > now, table.deleted_s.is_(None))
            .order_by(table.id)):
        overrides[host_id] = (*overrides.get(host_id, ()), Override(*override))
    return overrides


_workloads = tables.workloads.c
_PRESENT = sa.select(
    _workloads.instance, _workloads.project, _workloads.application).where(
        _workloads.host_id == sa.bindparam('host_id'),
        _workloads.until_s.is_(None)).distinct()


def present(connection: sa.Connection, host_id: int
            ) -> list[tuple[str, str, str]]:
    """Instance, project and application of each workload on a host."""
    return [(instance, project, application)
            for instance, project, application
            in connection.execute(_PRESENT, {'host_id': host_id})]


def specs(connection: sa.Connection, cpu_model: str,
          applications: Collection[tuple[str, str]], least_n: int,
          least_tasks: int) -> list[Row]:
    """The specs of applications, each (project, name), on a CPU model.

    :param least_n: specs of fewer samples are left out
    :param least_tasks: those of applications of which there are fewer
        workloads on all hosts together, too
    """
    table, spec_rows = tables.specs.c, []
    # One after so many others: no more of them are read than that.
    last_task = sa.select(_workloads.id).where(
        _workloads.application == table.application,
        _workloads.project == table.project,
        _workloads.until_s.is_(None)).limit(1).offset(
            least_tasks - 1).scalar_subquery()
    for pairs in rows.batches(sorted(applications)):
        spec_rows += [
            {**row, 'n': round(row['n'])} for row in connection.execute(
            sa.select(table.project, table.application, table.cpu_model,
                      table.signal, table.mean, table.stddev, table.n,
                      table.cpu_cores).where(
                          rows.keyed(connection, (table.project,
                                                  table.application), pairs),
                          table.cpu_model == cpu_model, table.n >= least_n,
                          last_task.is_not(None)).order_by(table.id)).mappings()
            if (row['project'], row['application']) in applications]
    return spec_rows
