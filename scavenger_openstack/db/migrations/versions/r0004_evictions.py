# SPDX-License-Identifier: Apache-2.0

"""Instances that Nova is asked to take away from their hosts."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import Double
from sqlalchemy import Index
from sqlalchemy import Integer
from sqlalchemy import MetaData
from sqlalchemy import String
from sqlalchemy import Table
from sqlalchemy import Text

METADATA = MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s'})

Table('evictions', METADATA,
      Column('id', BigInteger().with_variant(Integer, 'sqlite'),
             primary_key=True, autoincrement=True),
      Column('uuid', String(32), nullable=False, unique=True),
      Column('instance', String(36), nullable=False),
      Column('host', String(255), nullable=False),
      Column('project', String(64), nullable=False),
      Column('how', String(16), nullable=False),
      Column('reason', Text, nullable=False),
      Column('created_by', String(255), nullable=False),
      Column('created_s', Double, nullable=False),
      Column('state', String(16), nullable=False),
      Column('detail', Text, nullable=False),
      Column('changed_s', Double, nullable=False),
      Column('ended_s', Double, index=True),
      Index('ix_evictions_instance', 'instance', 'id'),
      sqlite_autoincrement=True, mysql_engine='InnoDB',
      mysql_charset='utf8mb4', mysql_collate='utf8mb4_bin',
      mariadb_engine='InnoDB', mariadb_charset='utf8mb4',
      mariadb_collate='utf8mb4_bin')

revision = '0004'
down_revision = '0003'


def upgrade() -> None:
    # MariaDB may have made it already, in an upgrade that was interrupted.
    METADATA.create_all(op.get_bind())
