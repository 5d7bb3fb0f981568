# SPDX-License-Identifier: Apache-2.0

"""What the flavors of instances say."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import Double
from sqlalchemy import Index
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import MetaData
from sqlalchemy import String
from sqlalchemy import Table

METADATA = MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s'})

Table('flavor_tags', METADATA,
      Column('id', BigInteger().with_variant(Integer, 'sqlite'),
             primary_key=True, autoincrement=True),
      Column('instance', String(36), nullable=False, unique=True),
      Column('host', String(255), nullable=False),
      Column('project', String(64), nullable=False),
      Column('priority', String(16), nullable=False),
      Column('source', String(32), nullable=False),
      Column('application', String(255), nullable=False),
      Column('floor', JSON, nullable=False),
      Column('changed_s', Double, nullable=False, index=True),
      Index('ix_flavor_tags_host', 'host', 'changed_s'),
      sqlite_autoincrement=True, mysql_engine='InnoDB',
      mysql_charset='utf8mb4', mysql_collate='utf8mb4_bin',
      mariadb_engine='InnoDB', mariadb_charset='utf8mb4',
      mariadb_collate='utf8mb4_bin')

revision = '0003'
down_revision = '0002'


def upgrade() -> None:
    # MariaDB may have made it already, in an upgrade that was interrupted.
    METADATA.create_all(op.get_bind())
