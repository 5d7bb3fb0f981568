# SPDX-License-Identifier: Apache-2.0

"""The tables of the first release, as :mod:`scavenger_openstack.db.tables`
declares them."""

from __future__ import annotations

from alembic import op

from scavenger_openstack.db import tables

revision = '0012'
down_revision = None
kind = 'expand'


def upgrade() -> None:
    tables.METADATA.create_all(op.get_bind())
