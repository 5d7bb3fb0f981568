# SPDX-License-Identifier: Apache-2.0

"""Which hosts of an aggregate an operator named, and which Nova has in it."""

from __future__ import annotations

from alembic import op
import sqlalchemy
from sqlalchemy import Boolean
from sqlalchemy import Column

revision = '0005'
down_revision = '0004'

TABLE = 'aggregate_hosts'


def upgrade() -> None:
    """What is there was named by operators."""
    # MariaDB may have one already, from an upgrade that was interrupted.
    there = {one['name'] for one in
             sqlalchemy.inspect(op.get_bind()).get_columns(TABLE)}
    for name, value in (('named', sqlalchemy.true()),
                        ('nova', sqlalchemy.false())):
        if name not in there:
            op.add_column(TABLE, Column(name, Boolean, nullable=False,
                                        server_default=value))
