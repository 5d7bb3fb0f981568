# SPDX-License-Identifier: Apache-2.0

"""Totals of antagonists over a day, a week and 30 days.

They are made by conductors from the hourly sums, host by host, so that an
upgrade does not wait for it; until then rankings are read from these sums.
"""

from __future__ import annotations

from typing import Any

from alembic import op
import sqlalchemy
from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import ForeignKey
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import String

revision = '0006'
down_revision = '0005'

TABLE = 'antagonist_totals'
HOUR = 'totals_hour_s'


def upgrade() -> None:
    # MariaDB may have some, from an upgrade that was interrupted.
    there = sqlalchemy.inspect(op.get_bind())
    if HOUR not in {one['name'] for one in there.get_columns('hosts')}:
        op.add_column('hosts', Column(HOUR, BigInteger, nullable=False,
                                      server_default='0'))
    if f'ix_hosts_{HOUR}' not in {one['name']
                                  for one in there.get_indexes('hosts')}:
        op.create_index(f'ix_hosts_{HOUR}', 'hosts', [HOUR])
    if there.has_table(TABLE):      # nothing writes it before the upgrade
        op.drop_table(TABLE)
    options: dict[str, Any] = {
        f'{dialect}_{name}': value for dialect in ('mysql', 'mariadb')
        for name, value in (('engine', 'InnoDB'), ('charset', 'utf8mb4'),
                            ('collate', 'utf8mb4_bin'))}
    op.create_table(
        TABLE,
        Column('host_id', BigInteger().with_variant(Integer, 'sqlite'),
               ForeignKey('hosts.id', name=f'fk_{TABLE}_host_id'),
               primary_key=True, autoincrement=False),
        Column('workload', String(255), primary_key=True),
        Column('span_s', Integer, primary_key=True, autoincrement=False),
        Column('scope', String(80), primary_key=True),
        Column('interference_ms', BigInteger, nullable=False),
        Column('incidents', Integer, nullable=False),
        Column('victims', Integer, nullable=False),
        Column('parts', JSON(none_as_null=True)),
        **options)
    for name, column in (('interference', 'interference_ms'),
                         ('incidents', 'incidents'),
                         ('victims', 'victims')):
        op.create_index(f'ix_{TABLE}_{name}', TABLE,
                        ['span_s', 'scope', column, 'host_id', 'workload'])
