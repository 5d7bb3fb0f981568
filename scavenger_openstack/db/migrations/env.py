# SPDX-License-Identifier: Apache-2.0


"""What alembic runs first: the migrations, on the connection it was given."""

from __future__ import annotations

from alembic import context

from scavenger_openstack.db import tables

connection = context.config.attributes['connection']
context.configure(connection=connection, target_metadata=tables.METADATA,
                  render_as_batch=connection.dialect.name == 'sqlite')
with context.begin_transaction():
    context.run_migrations()
