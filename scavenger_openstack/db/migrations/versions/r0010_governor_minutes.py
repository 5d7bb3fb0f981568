# SPDX-License-Identifier: Apache-2.0

"""How the governor divides each minute."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import JSON
from sqlalchemy import MetaData
from sqlalchemy import Table

METADATA = MetaData(naming_convention={'pk': 'pk_%(table_name)s'})

Table('governor_minutes', METADATA,
      Column('minute', BigInteger, primary_key=True, autoincrement=False),
      Column('shares', JSON, nullable=False),
      mysql_engine='InnoDB', mysql_charset='utf8mb4',
      mysql_collate='utf8mb4_bin', mariadb_engine='InnoDB',
      mariadb_charset='utf8mb4', mariadb_collate='utf8mb4_bin')

revision = '0010'
down_revision = '0009'


def upgrade() -> None:
    # MariaDB may have made it already, in an upgrade that was interrupted.
    METADATA.create_all(op.get_bind())
