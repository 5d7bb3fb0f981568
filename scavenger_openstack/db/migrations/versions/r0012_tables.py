# SPDX-License-Identifier: Apache-2.0

"""The tables of the first release."""

from __future__ import annotations

import itertools

from alembic import op
from sqlalchemy import BigInteger
from sqlalchemy import Boolean
from sqlalchemy import Column
from sqlalchemy import Double
from sqlalchemy import ForeignKey
from sqlalchemy import Index
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import MetaData
from sqlalchemy import String
from sqlalchemy import Table
from sqlalchemy import Text
from sqlalchemy import UniqueConstraint

METADATA = MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'fk': 'fk_%(table_name)s_%(column_0_name)s',
    'pk': 'pk_%(table_name)s'})

BIG = BigInteger().with_variant(Integer, 'sqlite')
"""SQLite counts up only columns that are called INTEGER."""
NAME = String(255)
PROJECT = String(64)
MAYBE_JSON = JSON(none_as_null=True)
"""JSON, where None is NULL and not the JSON value null."""


def _table(name: str, *parts: Column | Index | UniqueConstraint) -> Table:
    """A table whose ids are never used again (which SQLite does otherwise)
    and whose names are compared exactly, with case (which MySQL's default
    collation does not)."""
    return Table(name, METADATA, *parts, sqlite_autoincrement=any(
                     part.name == 'id' for part in parts),
                 mysql_engine='InnoDB', mysql_charset='utf8mb4',
                 mysql_collate='utf8mb4_bin', mariadb_engine='InnoDB',
                 mariadb_charset='utf8mb4', mariadb_collate='utf8mb4_bin')


def _id() -> Column:
    return Column('id', BIG, primary_key=True, autoincrement=True)


def _host() -> Column:
    return Column('host_id', BIG, ForeignKey('hosts.id'), nullable=False)


hosts = _table(
    'hosts', _id(),
    Column('name', NAME, nullable=False, unique=True),
    Column('short', NAME, nullable=False),
    Column('boot_id', String(64), nullable=False),
    Column('version', String(64), nullable=False),
    Column('enforcing', Boolean, nullable=False),
    Column('facts', JSON, nullable=False),
    Column('workloads_digest', String(64), nullable=False),
    Column('token_hash', String(128)),
    Column('token_from_s', Double),
    Column('removed_s', Double),
    Column('settings', JSON, nullable=False),
    Column('first_seen_s', Double, nullable=False),
    Column('last_seen_s', Double, nullable=False, index=True),
    Column('totals_hour_s', BigInteger, nullable=False, index=True),
    Column('background', MAYBE_JSON),
    Index('ix_hosts_short', 'short', 'name'))

runs = _table(
    'runs', _id(), _host(),
    Column('run_id', String(64), nullable=False),
    Column('sequence', BigInteger, nullable=False),
    # When that happened.
    Column('time_s', Double, nullable=False, default=0.0),
    Column('last_seen_s', Double, nullable=False, index=True),
    UniqueConstraint('host_id', 'run_id'),
    Index('ix_runs_host', 'host_id', 'id'))

workloads = _table(
    'workloads', _id(), _host(),
    Column('name', NAME, nullable=False),
    Column('kind', String(16), nullable=False),
    Column('instance', String(36), nullable=False),
    Column('display_name', NAME, nullable=False),
    Column('flavor', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('application', NAME, nullable=False),
    Column('priority', String(16), nullable=False),
    Column('source', String(32), nullable=False),
    Column('vcpus', Double, nullable=False),
    Column('floor', JSON, nullable=False),
    Column('since_s', Double, nullable=False),
    Column('until_s', Double),
    Index('ix_workloads_host', 'host_id', 'until_s', 'id'),
    Index('ix_workloads_name', 'host_id', 'name', 'until_s'),
    Index('ix_workloads_since', 'since_s'),
    Index('ix_workloads_instance', 'instance', 'id'),
    Index('ix_workloads_until', 'until_s', 'id'),
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
    Column('victim_instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('signal', String(32), nullable=False),
    Column('cause', String(64), nullable=False),
    Column('controller', String(64), nullable=False),
    Column('value', Double),
    Column('threshold', Double),
    Column('action', Text, nullable=False),
    Column('outcome', String(32), nullable=False),
    Column('begun_s', Double, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('ended_s', Double),
    Column('evidence', JSON, nullable=False),
    Column('grounds', MAYBE_JSON),
    Column('evidence_kind', String(16), nullable=False),
    Index('ix_incidents_host', 'host_id', 'begun_s', 'id'),
    Index('ix_incidents_project', 'project', 'begun_s', 'id'),
    Index('ix_incidents_victim', 'victim', 'begun_s', 'id'),
    Index('ix_incidents_victim_instance', 'victim_instance', 'begun_s', 'id'),
    Index('ix_incidents_cause', 'cause', 'begun_s', 'id'),
    Index('ix_incidents_outcome', 'outcome', 'begun_s', 'id'),
    Index('ix_incidents_evidence_kind', 'evidence_kind', 'begun_s', 'id'),
    *(Index(f'ix_incidents_{first.removesuffix("_id")}_{second}', first,
            second, 'begun_s', 'id')
      for first, second in itertools.combinations(
          ('host_id', 'project', 'cause', 'outcome', 'evidence_kind'), 2)),
    Index('ix_incidents_begun', 'begun_s', 'id'),
    Index('ix_incidents_ended', 'ended_s', 'host_id'))

suspects = _table(
    'suspects', _id(),
    Column('incident_id', BIG, ForeignKey('incidents.id'), nullable=False),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('score', Double),
    Column('antagonist', Boolean, nullable=False),
    Column('foreground', Boolean, nullable=False),
    Column('earlier', Boolean, nullable=False),
    Column('begun_s', Double, nullable=False),
    UniqueConstraint('incident_id', 'workload'),
    Index('ix_suspects_instance', 'instance', 'antagonist', 'begun_s',
          'incident_id'),
    Index('ix_suspects_workload', 'workload', 'antagonist', 'begun_s',
          'incident_id'),
    Index('ix_suspects_project', 'project', 'antagonist', 'incident_id'))

caps = _table(
    'caps', _id(), _host(),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('knob', String(32), nullable=False),
    Column('value', MAYBE_JSON),
    Column('original', MAYBE_JSON),
    Column('steps', MAYBE_JSON),
    Column('owner', String(64), nullable=False),
    Column('reason', Text, nullable=False),
    Column('why', Text, nullable=False),
    Column('incidents', Text, nullable=False),
    Column('set_s', Double, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('removed_s', Double),
    UniqueConstraint('host_id', 'workload', 'knob', 'set_s'),
    Index('ix_caps_host', 'host_id', 'removed_s', 'id'),
    Index('ix_caps_removed', 'removed_s', 'id'),
    *(Index(f'ix_caps_{name}_removed', name, 'removed_s', 'id')
      for name in ('instance', 'project', 'knob')))

antagonist_hours = _table(
    'antagonist_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('application', NAME, nullable=False),
    Column('victim', NAME, nullable=False),
    Column('victim_project', PROJECT, nullable=False),
    Column('cause', String(64), nullable=False),
    Column('incidents', Integer, nullable=False),
    Column('interference_s', Double, nullable=False),
    Column('confirmed', Integer, nullable=False),
    Column('refuted', Integer, nullable=False),
    UniqueConstraint('hour_s', 'host_id', 'workload', 'victim', 'cause',
                     name='uq_antagonist_hours'),
    Index('ix_antagonist_hours_project', 'victim_project', 'hour_s'),
    Index('ix_antagonist_hours_workload', 'host_id', 'workload', 'hour_s'))

victim_hours = _table(
    'victim_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('victim', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('application', NAME, nullable=False),
    Column('incidents', Integer, nullable=False),
    Column('interference_s', Double, nullable=False),
    UniqueConstraint('hour_s', 'host_id', 'victim', name='uq_victim_hours'),
    Index('ix_victim_hours_sums', 'hour_s', 'interference_s', 'incidents'))

background_hours = _table(
    'background_hours', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('core_s', Double, nullable=False),
    Column('byte_s', Double, nullable=False),
    UniqueConstraint('hour_s', 'host_id', name='uq_background_hours'),
    Index('ix_background_hours_sums', 'hour_s', 'core_s', 'byte_s'))

antagonist_totals = _table(
    'antagonist_totals',
    Column('host_id', BIG, ForeignKey('hosts.id'), primary_key=True,
           autoincrement=False),
    Column('workload', NAME, primary_key=True),
    Column('span_s', Integer, primary_key=True, autoincrement=False),
    Column('scope', String(80), primary_key=True),
    Column('interference_ms', BigInteger, nullable=False),
    Column('incidents', Integer, nullable=False),
    Column('victims', Integer, nullable=False),
    Column('confirmed', Integer, nullable=False),
    Column('parts', MAYBE_JSON),
    *(Index(f'ix_antagonist_totals_{name}', 'span_s', 'scope', column,
            'host_id', 'workload')
      for name, column in (('interference', 'interference_ms'),
                           ('incidents', 'incidents'),
                           ('victims', 'victims'),
                           ('confirmed', 'confirmed'))))

overrides = _table(
    'overrides', _id(), _host(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('knob', String(32), nullable=False),
    Column('value', MAYBE_JSON),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('generation', BigInteger, nullable=False),
    Column('expires_s', Double, nullable=False),
    Column('deleted_s', Double),
    Index('ix_overrides_host', 'host_id', 'expires_s'),
    Index('ix_overrides_expires', 'expires_s', 'id'))

rules = _table(
    'rules', _id(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('kind', String(16), nullable=False),
    Column('scope', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('value', NAME, nullable=False),
    Column('application', NAME, nullable=False),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('generation', BigInteger, nullable=False),
    UniqueConstraint('kind', 'scope', 'target'))

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

governor_minutes = _table(
    'governor_minutes', _id(),
    Column('minute', BigInteger, nullable=False, unique=True),
    Column('shares', JSON, nullable=False))

aggregate_hosts = _table(
    'aggregate_hosts', _id(),
    Column('aggregate', NAME, nullable=False),
    Column('host', NAME, nullable=False, index=True),
    Column('named', Boolean, nullable=False),
    Column('nova', Boolean, nullable=False),
    UniqueConstraint('aggregate', 'host'))

aggregate_settings = _table(
    'aggregate_settings', _id(),
    Column('aggregate', NAME, nullable=False, unique=True),
    Column('settings', JSON, nullable=False))

flavor_tags = _table(
    'flavor_tags', _id(),
    Column('instance', String(36), nullable=False, unique=True),
    Column('host', NAME, nullable=False),
    Column('short', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('priority', String(16), nullable=False),
    Column('source', String(32), nullable=False),
    Column('application', NAME, nullable=False),
    Column('floor', JSON, nullable=False),
    Column('protect', Boolean, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('stamp', BigInteger, nullable=False),
    Column('from_broker', Boolean, nullable=False),
    Index('ix_flavor_tags_from_broker', 'from_broker', 'changed_s'),
    Index('ix_flavor_tags_short', 'short', 'host', 'stamp'))

compute_services = _table(
    'compute_services', _id(),
    Column('host', NAME, nullable=False, unique=True))

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
    Column('unfinished', String(36), unique=True),
    Index('ix_evictions_instance', 'instance', 'id'),
    Index('ix_evictions_host', 'host', 'id'),
    Index('ix_evictions_project', 'project', 'id'),
    Index('ix_evictions_state', 'state', 'id'))

profilings = _table(
    'profilings', _id(), _host(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('workload', NAME, nullable=False),
    Column('instance', String(36), nullable=False),
    Column('kind', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('form', String(8), nullable=False),
    Column('seconds', Double, nullable=False),
    Column('used_s', Double, nullable=False),
    Column('reason', Text, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('state', String(16), nullable=False),
    Column('detail', Text, nullable=False),
    Column('changed_s', Double, nullable=False),
    Column('until_s', Double, nullable=False),
    Column('ended_s', Double, index=True),
    Column('unfinished', BIG, unique=True),
    Index('ix_profilings_host', 'host_id', 'id'),
    Index('ix_profilings_state', 'state', 'id'))

recommendations = _table(
    'recommendations',
    Column('instance', String(36), primary_key=True),
    Column('time_s', Double, nullable=False, index=True))

statistics = _table(
    'statistics', _id(), _host(),
    Column('hour_s', BigInteger, nullable=False),
    Column('project', PROJECT, nullable=False),
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
    Column('project', PROJECT, nullable=False),
    Column('application', NAME, nullable=False),
    Column('cpu_model', NAME, nullable=False),
    Column('signal', String(32), nullable=False),
    Column('mean', Double, nullable=False),
    Column('stddev', Double, nullable=False),
    Column('n', Double, nullable=False),
    Column('m2', Double, nullable=False),
    Column('cpu_cores', Double),
    Column('day_s', BigInteger, nullable=False, index=True),
    UniqueConstraint('application', 'project', 'cpu_model', 'signal',
                     name='uq_specs'),
    Index('ix_specs_application', 'application', 'id'),
    Index('ix_specs_project', 'project', 'id'))

profiles = _table(
    'profiles', _id(),
    Column('uuid', String(32), nullable=False, unique=True),
    Column('kind', String(16), nullable=False),
    Column('target', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('document', JSON, nullable=False),
    Column('created_by', NAME, nullable=False),
    Column('created_s', Double, nullable=False),
    Column('stale_s', Double),
    UniqueConstraint('kind', 'target', 'project'),
    *(Index(f'ix_profiles_{name}', name, 'id')
      for name in ('kind', 'target', 'project')))

audit = _table(
    'audit', _id(),
    Column('time_s', Double, nullable=False, index=True),
    Column('actor', NAME, nullable=False),
    Column('actor_name', NAME, nullable=False),
    Column('project', PROJECT, nullable=False),
    Column('request_id', String(64), nullable=False),
    Column('action', String(64), nullable=False),
    Column('target', NAME, nullable=False),
    Column('before', MAYBE_JSON),
    Column('after', MAYBE_JSON),
    Column('reason', Text, nullable=False),
    Column('by_agent', Boolean, nullable=False),
    Index('ix_audit_by_agent', 'by_agent', 'id'),
    Index('ix_audit_target', 'target', 'id'),
    Index('ix_audit_actor', 'actor', 'id'),
    Index('ix_audit_actor_name', 'actor_name', 'id'),
    Index('ix_audit_action', 'action', 'id'))

notifications = _table(
    'notifications', _id(),
    Column('uuid', String(32), nullable=False),
    Column('event', String(64), nullable=False),
    Column('time_s', Double, nullable=False, index=True),
    Column('payload', JSON, nullable=False))

claims = _table(
    'claims',
    Column('name', String(64), primary_key=True),
    Column('holder', NAME, nullable=False),
    Column('expires_s', Double, nullable=False),
    # How long that was ahead, and how often the claim was extended.
    Column('hold_s', Double, nullable=False, default=0.0),
    Column('beat', BigInteger, nullable=False, default=0))

revision = '0012'
down_revision = None
kind = 'expand'


def upgrade() -> None:
    METADATA.create_all(op.get_bind())
