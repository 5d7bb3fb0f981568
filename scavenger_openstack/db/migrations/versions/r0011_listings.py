# SPDX-License-Identifier: Apache-2.0

"""Indexes for each filter of workloads, limits, audit and evictions, and the
names of actors.

A page of a filter of few rows is read from one index in its order.
"""

from __future__ import annotations

from alembic import op
import sqlalchemy

revision = '0011'
down_revision = '0010'

NEW = {
    **{f'ix_workloads_{name}_until': ('workloads', [name, 'until_s', 'id'])
       for name in ('project', 'application', 'priority')},
    **{f'ix_caps_{name}_removed': ('caps', [name, 'removed_s', 'id'])
       for name in ('instance', 'project', 'knob')},
    'ix_evictions_host': ('evictions', ['host', 'id']),
    'ix_evictions_state': ('evictions', ['state', 'id']),
    'ix_audit_actor': ('audit', ['actor', 'id']),
    'ix_audit_actor_name': ('audit', ['actor_name', 'id'])}
"""The table and the columns of each index."""

OLD = {'ix_workloads_project': 'workloads', 'ix_caps_instance': 'caps',
       'ix_caps_project': 'caps'}
"""Those that another one takes the place of, and their table."""

UNTIL = 'ix_workloads_until'


def upgrade() -> None:
    # MariaDB may have some, from an upgrade that was interrupted.
    there = sqlalchemy.inspect(op.get_bind())
    if not any(column['name'] == 'actor_name'
               for column in there.get_columns('audit')):
        op.add_column('audit', sqlalchemy.Column(
            'actor_name', sqlalchemy.String(255), nullable=False,
            server_default=''))
    names = {str(index['name']) for table in ('workloads', 'caps',
                                              'evictions', 'audit')
             for index in there.get_indexes(table)}
    for name, (table, columns) in NEW.items():
        if name not in names:
            op.create_index(name, table, columns)
    for name, table in OLD.items():
        if name in names:
            op.drop_index(name, table)
    # It was of until_s alone.
    if UNTIL in names:
        op.drop_index(UNTIL, 'workloads')
    op.create_index(UNTIL, 'workloads', ['until_s', 'id'])
