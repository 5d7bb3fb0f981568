# SPDX-License-Identifier: Apache-2.0

"""The tables.

Each row has an id that only grows; a listing reads one index (filter, id), of
incidents (filter, begun_s, id), and goes on after the last row that it showed.
Times are UNIX times in seconds.  What is only shown, never searched, is one
JSON column.
"""

from __future__ import annotations

import itertools

import sqlalchemy as sa

from scavenger_openstack.db import columns

METADATA = columns.METADATA
BIG, NAME, PROJECT, MAYBE_JSON = (
    columns.BIG, columns.NAME, columns.PROJECT, columns.MAYBE_JSON)

_table, _id, _host, _short, _stamp = (
    columns.table, columns.id_, columns.host, columns.short, columns.stamp)

hosts = _table(
    'hosts', _id(),
    sa.Column('name', NAME, nullable=False, unique=True),
    _short('name'),
    sa.Column('boot_id', sa.String(64), nullable=False, default=''),
    sa.Column('version', sa.String(64), nullable=False, default=''),
    sa.Column('enforcing', sa.Boolean, nullable=False, default=False),
    sa.Column('facts', sa.JSON, nullable=False),
    sa.Column('workloads_digest', sa.String(64), nullable=False, default=''),
    sa.Column('token_hash', sa.String(128)),
    # Until then a report without the token is taken; NULL: never.
    sa.Column('token_from_s', sa.Double),
    # When an operator removed it; NULL for a host that is there.
    sa.Column('removed_s', sa.Double),
    # What operators set for this host: {"modes": {}, "parameters": {}}.
    sa.Column('settings', sa.JSON, nullable=False),
    sa.Column('first_seen_s', sa.Double, nullable=False),
    sa.Column('last_seen_s', sa.Double, nullable=False, index=True),
    # Up to which hour antagonist_totals are.
    sa.Column('totals_hour_s', sa.BigInteger, nullable=False, default=0,
              index=True),
    # What background work used in this hour: {"hour_s":, "core_s":, ...}.
    sa.Column('background', MAYBE_JSON),
    sa.Index('ix_hosts_short', 'short', 'name'))

# The last entry of each run of an agent that is in the database.
runs = _table(
    'runs', _id(), _host(),
    sa.Column('run_id', sa.String(64), nullable=False),
    sa.Column('sequence', sa.BigInteger, nullable=False),
    # When that happened.
    sa.Column('time_s', sa.Double, nullable=False, default=0.0),
    sa.Column('last_seen_s', sa.Double, nullable=False, index=True),
    sa.UniqueConstraint('host_id', 'run_id'),
    sa.Index('ix_runs_host', 'host_id', 'id'))

# A workload on a host; until_s is NULL while it is there.
workloads = _table(
    'workloads', _id(), _host(),
    sa.Column('name', NAME, nullable=False),
    sa.Column('kind', sa.String(16), nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('display_name', NAME, nullable=False, default=''),
    sa.Column('flavor', NAME, nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False, default=''),
    sa.Column('priority', sa.String(16), nullable=False),
    sa.Column('source', sa.String(32), nullable=False, default=''),
    sa.Column('vcpus', sa.Double, nullable=False),
    sa.Column('floor', sa.JSON, nullable=False),
    sa.Column('since_s', sa.Double, nullable=False),
    sa.Column('until_s', sa.Double),
    sa.Index('ix_workloads_host', 'host_id', 'until_s', 'id'),
    sa.Index('ix_workloads_name', 'host_id', 'name', 'until_s'),
    sa.Index('ix_workloads_since', 'since_s'),
    sa.Index('ix_workloads_until', 'until_s', 'id'),
    # For the sum of background vCPUs of all hosts, out of the index alone.
    sa.Index('ix_workloads_background', 'until_s', 'priority', 'host_id',
             'vcpus'),
    # For whether an application of a project has so many.
    sa.Index('ix_workloads_task', 'application', 'project', 'until_s', 'id'),
    *(sa.Index(f'ix_workloads_{name}_until', name, 'until_s', 'id')
      for name in ('instance', 'project', 'application', 'priority')))

incidents = _table(
    'incidents', _id(), _host(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('victim', NAME, nullable=False),
    sa.Column('victim_instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('signal', sa.String(32), nullable=False),
    sa.Column('cause', sa.String(64), nullable=False, default=''),
    sa.Column('controller', sa.String(64), nullable=False, default=''),
    sa.Column('value', sa.Double),
    sa.Column('threshold', sa.Double),
    sa.Column('action', sa.Text, nullable=False),
    sa.Column('outcome', sa.String(32), nullable=False),
    sa.Column('begun_s', sa.Double, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    sa.Column('ended_s', sa.Double),
    # [{"workload":, "signal":, "times_s": [], "values": []}, ...]
    sa.Column('evidence', sa.JSON, nullable=False),
    # [{"workload":, "kind":, "share":, ...}, ...]; NULL for none.
    sa.Column('grounds', MAYBE_JSON),
    # The strongest kind of these, '' for none.
    sa.Column('evidence_kind', sa.String(16), nullable=False, default=''),
    sa.Index('ix_incidents_host', 'host_id', 'begun_s', 'id'),
    sa.Index('ix_incidents_project', 'project', 'begun_s', 'id'),
    sa.Index('ix_incidents_victim', 'victim', 'begun_s', 'id'),
    sa.Index('ix_incidents_victim_instance', 'victim_instance', 'begun_s',
             'id'),
    sa.Index('ix_incidents_cause', 'cause', 'begun_s', 'id'),
    sa.Index('ix_incidents_outcome', 'outcome', 'begun_s', 'id'),
    sa.Index('ix_incidents_evidence_kind', 'evidence_kind', 'begun_s', 'id'),
    # For two filters that are many rows each, and few or none together.
    *(sa.Index(f'ix_incidents_{first.removesuffix("_id")}_{second}', first,
               second, 'begun_s', 'id')
      for first, second in itertools.combinations(
          ('host_id', 'project', 'cause', 'outcome', 'evidence_kind'), 2)),
    sa.Index('ix_incidents_begun', 'begun_s', 'id'),
    sa.Index('ix_incidents_ended', 'ended_s', 'host_id'))

suspects = _table(
    'suspects', _id(),
    sa.Column('incident_id', BIG, sa.ForeignKey('incidents.id'),
              nullable=False),
    sa.Column('workload', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    # NULL: it was named before, and not scored again.
    sa.Column('score', sa.Double),
    sa.Column('antagonist', sa.Boolean, nullable=False),
    # Its priority then: it is never limited.
    sa.Column('foreground', sa.Boolean, nullable=False, default=False),
    # It was named, and disturbs no more.
    sa.Column('earlier', sa.Boolean, nullable=False, default=False),
    # When the incident began.
    sa.Column('begun_s', sa.Double, nullable=False),
    sa.UniqueConstraint('incident_id', 'workload'),
    # For "incidents of this antagonist", in their order.
    sa.Index('ix_suspects_instance', 'instance', 'antagonist', 'begun_s',
             'incident_id'),
    sa.Index('ix_suspects_workload', 'workload', 'antagonist', 'begun_s',
             'incident_id'),
    sa.Index('ix_suspects_project', 'project', 'antagonist', 'incident_id'))

# Limits that were set; removed_s is NULL while one is in force.
caps = _table(
    'caps', _id(), _host(),
    sa.Column('workload', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('knob', sa.String(32), nullable=False),
    sa.Column('value', MAYBE_JSON),
    sa.Column('original', MAYBE_JSON),
    # [[time_s, value], ...]: each value that it had; NULL: only this one.
    sa.Column('steps', MAYBE_JSON),
    sa.Column('owner', sa.String(64), nullable=False),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('why', sa.Text, nullable=False),
    # The ids of those that it answers, a blank between two.
    sa.Column('incidents', sa.Text, nullable=False, default=''),
    sa.Column('set_s', sa.Double, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    sa.Column('removed_s', sa.Double),
    sa.UniqueConstraint('host_id', 'workload', 'knob', 'set_s'),
    sa.Index('ix_caps_host', 'host_id', 'removed_s', 'id'),
    sa.Index('ix_caps_removed', 'removed_s', 'id'),
    *(sa.Index(f'ix_caps_{name}_removed', name, 'removed_s', 'id')
      for name in ('instance', 'project', 'knob')))

# Sums for rankings, by hour, antagonist and victim; kept as reports arrive.
antagonist_hours = _table(
    'antagonist_hours', _id(), _host(),
    sa.Column('hour_s', sa.BigInteger, nullable=False),
    sa.Column('workload', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False, default=''),
    sa.Column('victim', NAME, nullable=False),
    sa.Column('victim_project', PROJECT, nullable=False, default=''),
    sa.Column('cause', sa.String(64), nullable=False),
    sa.Column('incidents', sa.Integer, nullable=False),
    sa.Column('interference_s', sa.Double, nullable=False),
    sa.Column('confirmed', sa.Integer, nullable=False),
    sa.Column('refuted', sa.Integer, nullable=False),
    sa.UniqueConstraint('hour_s', 'host_id', 'workload', 'victim', 'cause',
                        name='uq_antagonist_hours'),
    sa.Index('ix_antagonist_hours_project', 'victim_project', 'hour_s'),
    sa.Index('ix_antagonist_hours_workload', 'host_id', 'workload', 'hour_s'))

# The same by victim, each incident once; see db.resources.hours.
victim_hours = _table(
    'victim_hours', _id(), _host(),
    sa.Column('hour_s', sa.BigInteger, nullable=False),
    sa.Column('victim', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False, default=''),
    sa.Column('incidents', sa.Integer, nullable=False),
    sa.Column('interference_s', sa.Double, nullable=False),
    sa.UniqueConstraint('hour_s', 'host_id', 'victim', name='uq_victim_hours'),
    sa.Index('ix_victim_hours_sums', 'hour_s', 'interference_s', 'incidents'))

# What background work of a host used in an hour that is over.
background_hours = _table(
    'background_hours', _id(), _host(),
    sa.Column('hour_s', sa.BigInteger, nullable=False),
    sa.Column('core_s', sa.Double, nullable=False),
    sa.Column('byte_s', sa.Double, nullable=False),
    sa.UniqueConstraint('hour_s', 'host_id', name='uq_background_hours'),
    sa.Index('ix_background_hours_sums', 'hour_s', 'core_s', 'byte_s'))

# Sums of antagonists by span up to now, in the order of a ranking; see
# db.totals.
antagonist_totals = _table(
    'antagonist_totals',
    sa.Column('host_id', BIG, sa.ForeignKey('hosts.id'), primary_key=True,
              autoincrement=False),
    sa.Column('workload', NAME, primary_key=True),
    sa.Column('span_s', sa.Integer, primary_key=True, autoincrement=False),
    # Of which antagonists or victims: all, or those of one project.
    sa.Column('scope', sa.String(80), primary_key=True),
    sa.Column('interference_ms', sa.BigInteger, nullable=False),
    sa.Column('incidents', sa.Integer, nullable=False),
    sa.Column('victims', sa.Integer, nullable=False),
    sa.Column('confirmed', sa.Integer, nullable=False),
    # [[victim, ..., hours, incidents, ...], ...], where the scope is all.
    sa.Column('parts', MAYBE_JSON),
    *(sa.Index(f'ix_antagonist_totals_{name}', 'span_s', 'scope', column,
               'host_id', 'workload')
      for name, column in (('interference', 'interference_ms'),
                           ('incidents', 'incidents'),
                           ('victims', 'victims'),
                           ('confirmed', 'confirmed'))))

# What operators ask for one knob of one workload, until it expires.
overrides = _table(
    'overrides', _id(), _host(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('workload', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('knob', sa.String(32), nullable=False),
    sa.Column('value', MAYBE_JSON),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('created_by', NAME, nullable=False),
    sa.Column('created_s', sa.Double, nullable=False),
    # The number of db.generation by which conductors see it.
    sa.Column('generation', sa.BigInteger, nullable=False, default=0),
    sa.Column('expires_s', sa.Double, nullable=False),
    sa.Column('deleted_s', sa.Double),
    sa.Index('ix_overrides_host', 'host_id', 'expires_s'),
    sa.Index('ix_overrides_expires', 'expires_s', 'id'))

# Priorities and exemptions of an instance, a project or an aggregate.
rules = _table(
    'rules', _id(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('kind', sa.String(16), nullable=False),     # priority, exemption
    sa.Column('scope', sa.String(16), nullable=False),
    sa.Column('target', NAME, nullable=False),
    sa.Column('value', NAME, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False, default=''),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('created_by', NAME, nullable=False),
    sa.Column('created_s', sa.Double, nullable=False),
    sa.Column('generation', sa.BigInteger, nullable=False, default=0),
    sa.UniqueConstraint('kind', 'scope', 'target'))

# Kill switch and governor of the cloud ('cloud', ''), an aggregate, a host.
switches = _table(
    'switches', _id(),
    sa.Column('scope', sa.String(16), nullable=False),
    sa.Column('target', NAME, nullable=False),
    sa.Column('protection', sa.Boolean, nullable=False),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('caps_per_minute', sa.Integer),
    sa.Column('changed_by', NAME, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    sa.UniqueConstraint('scope', 'target'))

# How the governor divides a minute of the clock: {host: limits}.
governor_minutes = _table(
    'governor_minutes', _id(),
    sa.Column('minute', sa.BigInteger, nullable=False, unique=True),
    sa.Column('shares', sa.JSON, nullable=False))

# Which hosts an operator named for an aggregate, and which Nova has in it; a
# row is one or both.  See db.resources.aggregates for which of them count.
aggregate_hosts = _table(
    'aggregate_hosts', _id(),
    sa.Column('aggregate', NAME, nullable=False),
    sa.Column('host', NAME, nullable=False, index=True),
    sa.Column('named', sa.Boolean, nullable=False),
    sa.Column('nova', sa.Boolean, nullable=False),
    sa.UniqueConstraint('aggregate', 'host'))

# What operators set for the hosts of an aggregate, as in hosts.
aggregate_settings = _table(
    'aggregate_settings', _id(),
    sa.Column('aggregate', NAME, nullable=False, unique=True),
    sa.Column('settings', sa.JSON, nullable=False))

# What the flavor of an instance says, and the host that it is placed on.
flavor_tags = _table(
    'flavor_tags', _id(),
    sa.Column('instance', sa.String(36), nullable=False, unique=True),
    sa.Column('host', NAME, nullable=False),
    _short('host'),
    sa.Column('project', PROJECT, nullable=False),
    sa.Column('priority', sa.String(16), nullable=False),
    sa.Column('source', sa.String(32), nullable=False),
    sa.Column('application', NAME, nullable=False),
    sa.Column('floor', sa.JSON, nullable=False),
    sa.Column('protect', sa.Boolean, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    # The sum of a host's is the version of what flavors say there.
    sa.Column('stamp', sa.BigInteger, nullable=False, default=_stamp),
    # A notification of the broker was the source; Nova was not asked since.
    sa.Column('from_broker', sa.Boolean, nullable=False),
    sa.Index('ix_flavor_tags_from_broker', 'from_broker', 'changed_s'),
    sa.Index('ix_flavor_tags_short', 'short', 'host', 'stamp'))

# The hosts that have a compute service of Nova, if that was read.
compute_services = _table(
    'compute_services', _id(),
    sa.Column('host', NAME, nullable=False, unique=True))

# Instances that Nova is asked to take away; ended_s is NULL until it has.
evictions = _table(
    'evictions', _id(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('instance', sa.String(36), nullable=False),
    sa.Column('host', NAME, nullable=False),
    sa.Column('project', PROJECT, nullable=False),
    sa.Column('how', sa.String(16), nullable=False),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('created_by', NAME, nullable=False),
    sa.Column('created_s', sa.Double, nullable=False, index=True),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('detail', sa.Text, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    sa.Column('ended_s', sa.Double, index=True),
    # The instance until it has ended: an instance has one at a time.
    sa.Column('unfinished', sa.String(36), unique=True),
    *(sa.Index(f'ix_evictions_{name}', name, 'id')
      for name in ('instance', 'host', 'project', 'state')))

# Workloads whose profiles are to be measured; ended_s is NULL until then.
profilings = _table(
    'profilings', _id(), _host(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('workload', NAME, nullable=False),
    sa.Column('instance', sa.String(36), nullable=False, default=''),
    # What the profile is of, and in what form.
    sa.Column('kind', sa.String(16), nullable=False),
    sa.Column('target', NAME, nullable=False),
    sa.Column('project', PROJECT, nullable=False),
    sa.Column('form', sa.String(8), nullable=False),
    # How long it may take, and how long it took.
    sa.Column('seconds', sa.Double, nullable=False),
    sa.Column('used_s', sa.Double, nullable=False),
    sa.Column('reason', sa.Text, nullable=False),
    sa.Column('created_by', NAME, nullable=False),
    sa.Column('created_s', sa.Double, nullable=False),
    sa.Column('state', sa.String(16), nullable=False),
    sa.Column('detail', sa.Text, nullable=False),
    sa.Column('changed_s', sa.Double, nullable=False),
    # It is given up then.
    sa.Column('until_s', sa.Double, nullable=False),
    sa.Column('ended_s', sa.Double, index=True),
    # The host until it has ended: a host has one at a time.
    sa.Column('unfinished', BIG, unique=True),
    sa.Index('ix_profilings_host', 'host_id', 'id'),
    sa.Index('ix_profilings_state', 'state', 'id'))

# Instances whose eviction was recommended within a day.
recommendations = _table(
    'recommendations',
    sa.Column('instance', sa.String(36), primary_key=True),
    sa.Column('time_s', sa.Double, nullable=False, index=True))

# What hosts reported of an hour, until it is part of the specs.
statistics = _table(
    'statistics', _id(), _host(),
    sa.Column('hour_s', sa.BigInteger, nullable=False),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False),
    sa.Column('cpu_model', NAME, nullable=False),
    sa.Column('signal', sa.String(32), nullable=False),
    sa.Column('n', sa.BigInteger, nullable=False),
    sa.Column('mean', sa.Double, nullable=False),
    sa.Column('m2', sa.Double, nullable=False),
    sa.Column('least', sa.Double, nullable=False),
    sa.Column('most', sa.Double, nullable=False),
    sa.Column('cpu_cores', sa.Double),
    sa.Index('ix_statistics_hour', 'hour_s'))

specs = _table(
    'specs', _id(),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('application', NAME, nullable=False),
    sa.Column('cpu_model', NAME, nullable=False),
    sa.Column('signal', sa.String(32), nullable=False),
    sa.Column('mean', sa.Double, nullable=False),
    sa.Column('stddev', sa.Double, nullable=False),
    # The samples of all days, as of the day of the newest: their weight, and
    # the sum of the squared deviations from the mean.
    sa.Column('n', sa.Double, nullable=False),
    sa.Column('m2', sa.Double, nullable=False),
    # The mean CPU use beside the samples, of CPI2's spec.
    sa.Column('cpu_cores', sa.Double),
    sa.Column('day_s', sa.BigInteger, nullable=False, index=True),
    sa.UniqueConstraint('application', 'project', 'cpu_model', 'signal',
                        name='uq_specs'),
    # Three of them fill MySQL's longest key with utf8mb4.
    sa.Index('ix_specs_application', 'application', 'id'),
    sa.Index('ix_specs_project', 'project', 'id'))

# What workloads tolerate and cause; a row never changes: what replaces one
# has its uuid and another id.  The document is that of wire.profile.
profiles = _table(
    'profiles', _id(),
    sa.Column('uuid', sa.String(32), nullable=False, unique=True),
    sa.Column('kind', sa.String(16), nullable=False),
    sa.Column('target', NAME, nullable=False),
    sa.Column('project', PROJECT, nullable=False),
    sa.Column('document', sa.JSON, nullable=False),
    sa.Column('created_by', NAME, nullable=False),
    sa.Column('created_s', sa.Double, nullable=False),
    # When a victim had an incident after it was measured: see estimates.
    sa.Column('stale_s', sa.Double),
    sa.UniqueConstraint('kind', 'target', 'project'),
    *(sa.Index(f'ix_profiles_{name}', name, 'id')
      for name in ('kind', 'target', 'project')))

audit = _table(
    'audit', _id(),
    sa.Column('time_s', sa.Double, nullable=False, index=True),
    # The id of a user, or what else did it; and what it is called.
    sa.Column('actor', NAME, nullable=False),
    sa.Column('actor_name', NAME, nullable=False, default=''),
    sa.Column('project', PROJECT, nullable=False, default=''),
    sa.Column('request_id', sa.String(64), nullable=False, default=''),
    sa.Column('action', sa.String(64), nullable=False),
    sa.Column('target', NAME, nullable=False),
    sa.Column('before', MAYBE_JSON),
    sa.Column('after', MAYBE_JSON),
    sa.Column('reason', sa.Text, nullable=False),
    # An agent was the cause, of which there may be any number of rows.
    sa.Column('by_agent', sa.Boolean, nullable=False, default=False),
    *(sa.Index(f'ix_audit_{name}', name, 'id') for name in (
        'by_agent', 'target', 'actor', 'actor_name', 'action')))

# What is to be sent to the message bus, the oldest first, and not yet is.
notifications = _table(
    'notifications', _id(),
    sa.Column('uuid', sa.String(32), nullable=False),
    sa.Column('event', sa.String(64), nullable=False),
    sa.Column('time_s', sa.Double, nullable=False, index=True),
    sa.Column('payload', sa.JSON, nullable=False))

# Work that is done once: the holder until expires_s.
claims = _table(
    'claims',
    sa.Column('name', sa.String(64), primary_key=True),
    sa.Column('holder', NAME, nullable=False),
    sa.Column('expires_s', sa.Double, nullable=False),
    # How long that was ahead, and how often the claim was extended.
    sa.Column('hold_s', sa.Double, nullable=False, default=0.0),
    sa.Column('beat', sa.BigInteger, nullable=False, default=0))
