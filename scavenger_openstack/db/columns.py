# SPDX-License-Identifier: Apache-2.0

"""How :mod:`.tables` are made, and columns that several of them have."""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
from typing import Any

import sqlalchemy as sa

from scavenger_openstack import host_names
from scavenger_openstack import text

METADATA = sa.MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'fk': 'fk_%(table_name)s_%(column_0_name)s',
    'pk': 'pk_%(table_name)s'})

BIG = sa.BigInteger().with_variant(sa.Integer, 'sqlite')
"""SQLite counts up only columns that are called INTEGER."""
NAME = sa.String(255)
PROJECT = sa.String(64)
MAYBE_JSON = sa.JSON(none_as_null=True)
"""JSON, where None is NULL and not the JSON value null."""


def table(name: str, *parts: sa.Column | sa.Index | sa.UniqueConstraint
          ) -> sa.Table:
    """Return a table whose ids are never used again (which SQLite does
    otherwise) and whose names are compared exactly, with case (which MySQL's
    default collation does not)."""
    return sa.Table(name, METADATA, *parts, sqlite_autoincrement=any(
                     part.name == 'id' for part in parts),
                    mysql_engine='InnoDB', mysql_charset='utf8mb4',
                    mysql_collate='utf8mb4_bin', mariadb_engine='InnoDB',
                    mariadb_charset='utf8mb4', mariadb_collate='utf8mb4_bin')


def id_() -> sa.Column:
    """Return the column of an id that only grows."""
    return sa.Column('id', BIG, primary_key=True, autoincrement=True)


def host() -> sa.Column:
    """Return the column of the id of a host."""
    return sa.Column('host_id', BIG, sa.ForeignKey('hosts.id'), nullable=False)


def short(name: str) -> sa.Column:
    """Return the column of what :func:`.host_names.short` makes of
    another."""
    def default(context: Any) -> str:
        return host_names.short(context.get_current_parameters()[name])

    return sa.Column('short', NAME, nullable=False, default=default)


def stamp(context: Any) -> int:
    """Return the default of a column that :func:`stamp_of` fills."""
    return stamp_of(context.get_current_parameters())


def stamp_of(row: Mapping[str, Any]) -> int:
    """Return 48 bits that differ when what a flavor says of an instance, or
    the instance's host, does."""
    parts = [row['instance'], row['host'], row['priority'], row['source'],
             row['application'], row['protect'], sorted(row['floor'].items())]
    return int.from_bytes(hashlib.sha256(text.json_line(
        parts).encode()).digest()[:6], 'big')
