# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What the broker has told and Nova was not asked for."""

from __future__ import annotations

from alembic import op
import sqlalchemy
from sqlalchemy import Boolean
from sqlalchemy import Column

revision = '0009'
down_revision = '0008'

TABLE, NAME = 'flavor_tags', 'told'


def upgrade() -> None:
    """What is there was Nova's, or will be when all is read."""
    # MariaDB may have it already, from an upgrade that was interrupted.
    there = {one['name'] for one in
             sqlalchemy.inspect(op.get_bind()).get_columns(TABLE)}
    if NAME not in there:
        op.add_column(TABLE, Column(NAME, Boolean, nullable=False,
                                    server_default=sqlalchemy.false()))
