# SPDX-License-Identifier: Apache-2.0


"""What operators set for the hosts of an aggregate."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import MetaData
from sqlalchemy import String
from sqlalchemy import Table

METADATA = MetaData(naming_convention={
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s'})

Table('aggregate_settings', METADATA,
      Column('id', BigInteger().with_variant(Integer, 'sqlite'),
             primary_key=True, autoincrement=True),
      Column('aggregate', String(255), nullable=False, unique=True),
      Column('settings', JSON, nullable=False),
      sqlite_autoincrement=True, mysql_engine='InnoDB',
      mysql_charset='utf8mb4', mysql_collate='utf8mb4_bin',
      mariadb_engine='InnoDB', mariadb_charset='utf8mb4',
      mariadb_collate='utf8mb4_bin')

revision = '0002'
down_revision = '0001'


def upgrade() -> None:
    # MariaDB may have made it already, in an upgrade that was interrupted.
    METADATA.create_all(op.get_bind())
