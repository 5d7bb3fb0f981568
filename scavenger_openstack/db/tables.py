# SPDX-License-Identifier: Apache-2.0

"""The tables.

Each row has an id that only grows; a listing reads one index (filter, id), of
incidents (filter, begun_s, id), and goes on after the last row that it showed.
Times are UNIX times in seconds.  What is only shown, never searched, is one
JSON column.
"""

from __future__ import annotations

import itertools

from sqlalchemy import BigInteger
from sqlalchemy import Boolean
from sqlalchemy import Column
from sqlalchemy import Double
from sqlalchemy import ForeignKey
from sqlalchemy import Index
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import String
from sqlalchemy import Text
from sqlalchemy import UniqueConstraint

from scavenger_openstack.db import columns

METADATA = columns.METADATA
BIG, NAME, PROJECT, MAYBE_JSON = (
    columns.BIG, columns.NAME, columns.PROJECT, columns.MAYBE_JSON)

_table, _id, _host, _short, _stamp = (
    columns.table, columns.id_, columns.host, columns.short, columns.stamp)

hosts = _table(
    'hosts', _id(),
    Column('name', NAME, nullable=False, unique=True),
    _short('name'),
    Column('boot_id', String(64), nullable=False, default=''),
    Column('version', String(64), nullable=False, default=''),
    Column('enforcing', Boolean, nullable=False, default=False),
    Column('facts', JSON, nullable=False),
    Column('workloads_digest', String(64), nullable=False, default=''),
    Column('token_hash', String(128)),
    # Until then a report without the token is taken; NULL: never.
    Column('token_from_s', Double),
    # When an operator removed it; NULL for a host that is there.
    Column('removed_s', Double),
    # What operators set for this host: {"modes": {}, "parameters": {}}.
    Column('settings', JSON, nullable=False),
    Column('first_seen_s', Double, nullable=False),
    Column('last_seen_s', Double, nullable=False, index=True),
    # Up to which hour antagonist_totals are.
    Column('totals_hour_s', BigInteger, nullable=False, default=0,
           index=True),
    # What background work used in this hour: {"hour_s":, "core_s":, ...}.
    Column('background', MAYBE_JSON),
    Index('ix_hosts_short', 'short', 'name'))

# The last entry of each run of an agent that is in the database.
runs = _table(
    'runs', _id(), _host(),
    Column('run_id', String(64), nullable=False),
    Column('sequence', BigInteger, nullable=False),
    # When that happened.
    Column('time_s', Double, nullable=False, default=0.0),
    Column('last_seen_s', Double, nullable=False, index=True),
    UniqueConstraint('host_id', 'run_id'),
    Index('ix_runs_host', 'host_id', 'id'))

# A workload on a host; until_s is NULL while it is there.
workloads = _table(
    'workloads', _id(), _host(),
    Column('name', NAME, nullable=False),
    Column('kind', String(16), nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('display_name', NAME, nullable=False, default=''),
    Column('flavor', NAME, nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('application', NAME, nullable=False, default=''),
    Column('priority', String(16), nullable=False),
    Column('source', String(32), nullable=False, default=''),
    Column('vcpus', Double, nullable=False),
    Column('floor', JSON, nullable=False),
    Column('since_s', Double, nullable=False),
    Column('until_s', Double),
    Index('ix_workloads_host', 'host_id', 'until_s', 'id'),
    Index('ix_workloads_name', 'host_id', 'name', 'until_s'),
    Index('ix_workloads_since', 'since_s'),
    Index('ix_workloads_instance', 'instance', 'id'),   # of few rows
    Index('ix_workloads_until', 'until_s', 'id'),
    # For the sum of background vCPUs of all hosts, out of the index alone.
    Index('ix_workloads_background', 'until_s', 'priority', 'host_id',
          'vcpus'),
    # For whether an application of a project has so many.
    Index('ix_workloads_task', 'application', 'project', 'until_s', 'id'),
    *(Index(f'ix_workloads_{name}_until', name, 'until_s', 'id')
      for name in ('project', 'application', 'priority')))

incidents = _table(
    'incidents', _id(), _host(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('victim', NAME, nullable=False),
    Column('victim_instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('signal', String(32), nullable=False),
    Column('cause', String(64), nullable=False, default=''),
    Column('controller', String(64), nullable=False, default=''),
    Column('value', Double),
    Column('threshold', Double),
    Column('action', Text, nullable=False),
    Column('outcome', String(32), nullable=False),
    Column('begun_s', Double, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('ended_s', Double),
    # [{"workload":, "signal":, "times_s": [], "values": []}, ...]
    Column('evidence', JSON, nullable=False),
    # [{"workload":, "kind":, "share":, ...}, ...]; NULL for none.
    Column('grounds', MAYBE_JSON),
    # The strongest kind of these, '' for none.
    Column('evidence_kind', String(16), nullable=False, default=''),
    Index('ix_incidents_host', 'host_id', 'begun_s', 'id'),
    Index('ix_incidents_project', 'project', 'begun_s', 'id'),
    Index('ix_incidents_victim', 'victim', 'begun_s', 'id'),
    Index('ix_incidents_victim_instance', 'victim_instance', 'begun_s', 'id'),
    Index('ix_incidents_cause', 'cause', 'begun_s', 'id'),
    Index('ix_incidents_outcome', 'outcome', 'begun_s', 'id'),
    Index('ix_incidents_evidence_kind', 'evidence_kind', 'begun_s', 'id'),
    # For two filters that are many rows each, and few or none together.
    *(Index(f'ix_incidents_{one.removesuffix("_id")}_{two}', one, two,
            'begun_s', 'id') for one, two in itertools.combinations(
                ('host_id', 'project', 'cause', 'outcome',
                 'evidence_kind'), 2)),
    Index('ix_incidents_begun', 'begun_s', 'id'),
    Index('ix_incidents_ended', 'ended_s', 'host_id'))

suspects = _table(
    'suspects', _id(),
    Column('incident_id', BIG, ForeignKey('incidents.id'), nullable=False),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    # NULL: it was named before, and not scored again.
    Column('score', Double),
    Column('antagonist', Boolean, nullable=False),
    # Its priority then: it is never limited.
    Column('foreground', Boolean, nullable=False, default=False),
    # It was named, and disturbs no more.
    Column('earlier', Boolean, nullable=False, default=False),
    # When the incident began.
    Column('begun_s', Double, nullable=False),
    UniqueConstraint('incident_id', 'workload'),
    # For "incidents of this antagonist", in their order.
    Index('ix_suspects_instance', 'instance', 'antagonist', 'begun_s',
          'incident_id'),
    Index('ix_suspects_workload', 'workload', 'antagonist', 'begun_s',
          'incident_id'),
    Index('ix_suspects_project', 'project', 'antagonist', 'incident_id'))

# Limits that were set; removed_s is NULL while one is in force.
caps = _table(
    'caps', _id(), _host(),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('knob', String(32), nullable=False),
    Column('value', MAYBE_JSON),
    Column('original', MAYBE_JSON),
    # [[time_s, value], ...]: each value that it had; NULL: only this one.
    Column('steps', MAYBE_JSON),
    Column('owner', String(64), nullable=False),
    Column('reason', Text, nullable=False),
    Column('why', Text, nullable=False),
    # The ids of those that it answers, a blank between two.
    Column('incidents', Text, nullable=False, default=''),
    Column('set_s', Double, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('removed_s', Double),
    UniqueConstraint('host_id', 'workload', 'knob', 'set_s'),
    Index('ix_caps_host', 'host_id', 'removed_s', 'id'),
    Index('ix_caps_removed', 'removed_s', 'id'),
    *(Index(f'ix_caps_{name}_removed', name, 'removed_s', 'id')
      for name in ('instance', 'project', 'knob')))

# Sums for rankings, by hour, antagonist and victim; kept as reports arrive.
antagonist_hours = _table(
    'antagonist_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('application', NAME, nullable=False, default=''),
    Column('victim', NAME, nullable=False),
    Column('victim_project', PROJECT, nullable=False, default=''),
    Column('cause', String(64), nullable=False),
    Column('incidents', Integer, nullable=False),
    Column('interference_s', Double, nullable=False),
    Column('confirmed', Integer, nullable=False),
    Column('refuted', Integer, nullable=False),
    UniqueConstraint('hour_s', 'host_id', 'workload', 'victim', 'cause',
                     name='uq_antagonist_hours'),
    Index('ix_antagonist_hours_project', 'victim_project', 'hour_s'),
    Index('ix_antagonist_hours_workload', 'host_id', 'workload', 'hour_s'))

# The same by victim, each incident once; see db.resources.hours.
victim_hours = _table(
    'victim_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('victim', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('application', NAME, nullable=False, default=''),
    Column('incidents', Integer, nullable=False),
    Column('interference_s', Double, nullable=False),
    UniqueConstraint('hour_s', 'host_id', 'victim', name='uq_victim_hours'),
    Index('ix_victim_hours_sums', 'hour_s', 'interference_s', 'incidents'))

# What background work of a host used in an hour that is over.
background_hours = _table(
    'background_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('core_s', Double, nullable=False),
    Column('byte_s', Double, nullable=False),
    UniqueConstraint('hour_s', 'host_id', name='uq_background_hours'),
    Index('ix_background_hours_sums', 'hour_s', 'core_s', 'byte_s'))

# Sums of antagonists by span up to now, in the order of a ranking; see
# db.totals.
antagonist_totals = _table(
    'antagonist_totals',
    Column('host_id', BIG, ForeignKey('hosts.id'), primary_key=True,
           autoincrement=False),
    Column('workload', NAME, primary_key=True),
    Column('span_s', Integer, primary_key=True, autoincrement=False),
    # Of which antagonists or victims: all, or those of one project.
    Column('scope', String(80), primary_key=True),
    Column('interference_ms', BigInteger, nullable=False),
    Column('incidents', Integer, nullable=False),
    Column('victims', Integer, nullable=False),
    Column('confirmed', Integer, nullable=False),
    # [[victim, ..., hours, incidents, ...], ...], where the scope is all.
    Column('parts', MAYBE_JSON),
    *(Index(f'ix_antagonist_totals_{name}', 'span_s', 'scope', column,
            'host_id', 'workload')
      for name, column in (('interference', 'interference_ms'),
                           ('incidents', 'incidents'),
                           ('victims', 'victims'),
                           ('confirmed', 'confirmed'))))

# What operators ask for one knob of one workload, until it expires.
overrides = _table(
    'overrides', _id(), _host(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('knob', String(32), nullable=False),
    Column('value', MAYBE_JSON),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    # The number of db.generation by which conductors see it.
    Column('generation', BigInteger, nullable=False, default=0),
    Column('expires_s', Double, nullable=False),
    Column('deleted_s', Double),
    Index('ix_overrides_host', 'host_id', 'expires_s'),
    Index('ix_overrides_expires', 'expires_s', 'id'))

# Priorities and exemptions of an instance, a project or an aggregate.
rules = _table(
    'rules', _id(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('kind', String(16), nullable=False),     # priority, exemption
    Column('scope', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('value', NAME, nullable=False, default=''),
    Column('application', NAME, nullable=False, default=''),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('generation', BigInteger, nullable=False, default=0),
    UniqueConstraint('kind', 'scope', 'target'))

# Kill switch and governor of the cloud ('cloud', ''), an aggregate, a host.
switches = _table(
    'switches', _id(),
    Column('scope', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('protection', Boolean, nullable=False),
    Column('reason', Text, nullable=False),
    Column('caps_per_minute', Integer),
    Column('changed_by', NAME, nullable=False),
    Column('changed_s', Double, nullable=False),
    UniqueConstraint('scope', 'target'))

# How the governor divides a minute of the clock: {host: limits}.
governor_minutes = _table(
    'governor_minutes', _id(),
    Column('minute', BigInteger, nullable=False, unique=True),
    Column('shares', JSON, nullable=False))

# Which hosts an operator named for an aggregate, and which Nova has in it; a
# row is one or both.  See db.resources.aggregates for which of them count.
aggregate_hosts = _table(
    'aggregate_hosts', _id(),
    Column('aggregate', NAME, nullable=False),
    Column('host', NAME, nullable=False, index=True),
    Column('named', Boolean, nullable=False),
    Column('nova', Boolean, nullable=False),
    UniqueConstraint('aggregate', 'host'))

# What operators set for the hosts of an aggregate, as in hosts.
aggregate_settings = _table(
    'aggregate_settings', _id(),
    Column('aggregate', NAME, nullable=False, unique=True),
    Column('settings', JSON, nullable=False))

# What the flavor of an instance says, and the host that it is placed on.
flavor_tags = _table(
    'flavor_tags', _id(),
    Column('instance', String(36), nullable=False, unique=True),
    Column('host', NAME, nullable=False),
    _short('host'),
    Column('project', PROJECT, nullable=False),
    Column('priority', String(16), nullable=False),
    Column('source', String(32), nullable=False),
    Column('application', NAME, nullable=False),
    Column('floor', JSON, nullable=False),
    Column('protect', Boolean, nullable=False),
    Column('changed_s', Double, nullable=False),
    # The sum of a host's is the version of what flavors say there.
    Column('stamp', BigInteger, nullable=False, default=_stamp),
    # A notification of the broker was the source; Nova was not asked since.
    Column('from_broker', Boolean, nullable=False),
    Index('ix_flavor_tags_from_broker', 'from_broker', 'changed_s'),
    Index('ix_flavor_tags_short', 'short', 'host', 'stamp'))

# The hosts that have a compute service of Nova, if that was read.
compute_services = _table(
    'compute_services', _id(),
    Column('host', NAME, nullable=False, unique=True))

# Instances that Nova is asked to take away; ended_s is NULL until it has.
evictions = _table(
    'evictions', _id(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('instance', String(36), nullable=False),
    Column('host', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('how', String(16), nullable=False),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False, index=True),
    Column('state', String(16), nullable=False),
    Column('detail', Text, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('ended_s', Double, index=True),
    # The instance until it has ended: an instance has one at a time.
    Column('unfinished', String(36), unique=True),
    *(Index(f'ix_evictions_{name}', name, 'id')
      for name in ('instance', 'host', 'project', 'state')))

# Workloads whose profiles are to be measured; ended_s is NULL until then.
profilings = _table(
    'profilings', _id(), _host(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False, default=''),
    # What the profile is of, and in what form.
    Column('kind', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('form', String(8), nullable=False),
    # How long it may take, and how long it took.
    Column('seconds', Double, nullable=False),
    Column('used_s', Double, nullable=False),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('state', String(16), nullable=False),
    Column('detail', Text, nullable=False),
    Column('changed_s', Double, nullable=False),
    # It is given up then.
    Column('until_s', Double, nullable=False),
    Column('ended_s', Double, index=True),
    # The host until it has ended: a host has one at a time.
    Column('unfinished', BIG, unique=True),
    Index('ix_profilings_host', 'host_id', 'id'),
    Index('ix_profilings_state', 'state', 'id'))

# Instances whose eviction was recommended within a day.
recommendations = _table(
    'recommendations',
    Column('instance', String(36), primary_key=True),
    Column('time_s', Double, nullable=False, index=True))

# What hosts reported of an hour, until it is part of the specs.
statistics = _table(
    'statistics', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('project', PROJECT, nullable=False, default=''),
    Column('application', NAME, nullable=False),
    Column('cpu_model', NAME, nullable=False),
    Column('signal', String(32), nullable=False),
    Column('n', BigInteger, nullable=False),
    Column('mean', Double, nullable=False),
    Column('m2', Double, nullable=False),
    Column('least', Double, nullable=False),
    Column('most', Double, nullable=False),
    Column('cpu_cores', Double),
    Index('ix_statistics_hour', 'hour_s'))

specs = _table(
    'specs', _id(),
    Column('project', PROJECT, nullable=False, default=''),
    Column('application', NAME, nullable=False),
    Column('cpu_model', NAME, nullable=False),
    Column('signal', String(32), nullable=False),
    Column('mean', Double, nullable=False),
    Column('stddev', Double, nullable=False),
    # The samples of all days, as of the day of the newest: their weight, and
    # the sum of the squared deviations from the mean.
    Column('n', Double, nullable=False),
    Column('m2', Double, nullable=False),
    # The mean CPU use beside the samples, of CPI2's spec.
    Column('cpu_cores', Double),
    Column('day_s', BigInteger, nullable=False, index=True),
    UniqueConstraint('application', 'project', 'cpu_model', 'signal',
                     name='uq_specs'),
    # Three of them fill MySQL's longest key with utf8mb4.
    Index('ix_specs_application', 'application', 'id'),
    Index('ix_specs_project', 'project', 'id'))

# What workloads tolerate and cause; a row never changes: what replaces one
# has its uuid and another id.  The document is that of wire.profile.
profiles = _table(
    'profiles', _id(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('kind', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('document', JSON, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    # When a victim had an incident after it was measured: see estimates.
    Column('stale_s', Double),
    UniqueConstraint('kind', 'target', 'project'),
    *(Index(f'ix_profiles_{name}', name, 'id')
      for name in ('kind', 'target', 'project')))

audit = _table(
    'audit', _id(),
    Column('time_s', Double, nullable=False, index=True),
    # The id of a user, or what else did it; and what it is called.
    Column('actor', NAME, nullable=False),
    Column('actor_name', NAME, nullable=False, default=''),
    Column('project', PROJECT, nullable=False, default=''),
    Column('request_id', String(64), nullable=False, default=''),
    Column('action', String(64), nullable=False),
    Column('target', NAME, nullable=False),
    Column('before', MAYBE_JSON),
    Column('after', MAYBE_JSON),
    Column('reason', Text, nullable=False),
    # An agent was the cause, of which there may be any number of rows.
    Column('by_agent', Boolean, nullable=False, default=False),
    *(Index(f'ix_audit_{name}', name, 'id') for name in (
        'by_agent', 'target', 'actor', 'actor_name', 'action')))

# What is to be sent to the message bus, the oldest first, and not yet is.
notifications = _table(
    'notifications', _id(),
    Column('uuid', String(32), nullable=False),
    Column('event', String(64), nullable=False),
    Column('time_s', Double, nullable=False, index=True),
    Column('payload', JSON, nullable=False))

# Work that is done once: the holder until expires_s.
claims = _table(
    'claims',
    Column('name', String(64), primary_key=True),
    Column('holder', NAME, nullable=False),
    Column('expires_s', Double, nullable=False),
    # How long that was ahead, and how often the claim was extended.
    Column('hold_s', Double, nullable=False, default=0.0),
    Column('beat', BigInteger, nullable=False, default=0))
