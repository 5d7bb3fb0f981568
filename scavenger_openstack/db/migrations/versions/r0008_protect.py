# SPDX-License-Identifier: Apache-2.0

"""Flavors whose instances others are not limited for."""

from __future__ import annotations

from alembic import op
import sqlalchemy
from sqlalchemy import Boolean
from sqlalchemy import Column

revision = '0008'
down_revision = '0007'

TABLE, NAME = 'flavor_tags', 'protect'


def upgrade() -> None:
    """What is there was protected."""
    # MariaDB may have it already, from an upgrade that was interrupted.
    there = {one['name'] for one in
             sqlalchemy.inspect(op.get_bind()).get_columns(TABLE)}
    if NAME not in there:
        op.add_column(TABLE, Column(NAME, Boolean, nullable=False,
                                    server_default=sqlalchemy.true()))
