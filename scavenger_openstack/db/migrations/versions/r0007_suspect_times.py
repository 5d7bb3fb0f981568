# SPDX-License-Identifier: Apache-2.0

"""When the incident of a suspect began, and indexes for listings.

A page of the incidents of an antagonist, or of two filters that are many rows
each, is read from one index in its order.
"""

from __future__ import annotations

import itertools

from alembic import op
import sqlalchemy
from sqlalchemy import column
from sqlalchemy import Column
from sqlalchemy import Double
from sqlalchemy import func
from sqlalchemy import select
from sqlalchemy import table

revision = '0007'
down_revision = '0006'

BATCH = 10_000
"""Suspects of one statement."""

SUSPECTS = table('suspects', column('id'), column('incident_id'),
                 column('begun_s'))
INCIDENTS = table('incidents', column('id'), column('begun_s'))

FILTERS = ('host_id', 'project', 'cause', 'outcome')


def upgrade() -> None:
    # MariaDB may have some, from an upgrade that was interrupted.
    there = sqlalchemy.inspect(op.get_bind())
    if 'begun_s' not in {one['name'] for one in there.get_columns('suspects')}:
        op.add_column('suspects', Column('begun_s', Double, nullable=False,
                                         server_default='0'))
    names = {one['name'] for one in there.get_indexes('suspects')}
    for name in ('instance', 'workload'):
        if f'ix_suspects_{name}' in names:
            op.drop_index(f'ix_suspects_{name}', 'suspects')
    fill()
    for name in ('instance', 'workload'):
        op.create_index(f'ix_suspects_{name}', 'suspects',
                        [name, 'antagonist', 'begun_s', 'incident_id'])
    names = {one['name'] for one in there.get_indexes('incidents')}
    for one, two in itertools.combinations(FILTERS, 2):
        name = f'ix_incidents_{one.removesuffix("_id")}_{two}'
        if name not in names:
            op.create_index(name, 'incidents', [one, two, 'begun_s', 'id'])


def fill() -> None:
    """Each suspect has the time of its incident."""
    connection = op.get_bind()
    suspects = SUSPECTS.c
    last = connection.scalar(select(func.max(suspects.id))) or 0
    first = connection.scalar(select(func.min(suspects.id))) or 0
    for begin in range(first, last + 1, BATCH):
        connection.execute(SUSPECTS.update().where(
            suspects.id >= begin, suspects.id < begin + BATCH).values(
                begun_s=select(INCIDENTS.c.begun_s).where(
                    INCIDENTS.c.id == suspects.incident_id)
                .scalar_subquery()))
