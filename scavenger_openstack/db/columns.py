# SPDX-License-Identifier: Apache-2.0

"""How :mod:`.tables` are made, and columns that several of them have."""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy import Column
from sqlalchemy import ForeignKey
from sqlalchemy import Index
from sqlalchemy import Integer
from sqlalchemy import JSON
from sqlalchemy import MetaData
from sqlalchemy import String
from sqlalchemy import Table
from sqlalchemy import UniqueConstraint

from scavenger_openstack import host_names
from scavenger_openstack import text

METADATA = MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'fk': 'fk_%(table_name)s_%(column_0_name)s',
    'pk': 'pk_%(table_name)s'})

BIG = BigInteger().with_variant(Integer, 'sqlite')
"""SQLite counts up only columns that are called INTEGER."""
NAME = String(255)
PROJECT = String(64)
MAYBE_JSON = JSON(none_as_null=True)
"""JSON, where None is NULL and not the JSON value null."""


def table(name: str, *parts: Column | Index | UniqueConstraint) -> Table:
    """Return a table whose ids are never used again (which SQLite does
    otherwise) and whose names are compared exactly, with case (which MySQL's
    default collation does not)."""
    return Table(name, METADATA, *parts, sqlite_autoincrement=any(
                     part.name == 'id' for part in parts),
                 mysql_engine='InnoDB', mysql_charset='utf8mb4',
                 mysql_collate='utf8mb4_bin', mariadb_engine='InnoDB',
                 mariadb_charset='utf8mb4', mariadb_collate='utf8mb4_bin')


def id_() -> Column:
    """Return the column of an id that only grows."""
    return Column('id', BIG, primary_key=True, autoincrement=True)


def host() -> Column:
    """Return the column of the id of a host."""
    return Column('host_id', BIG, ForeignKey('hosts.id'), nullable=False)


def short(name: str) -> Column:
    """Return the column of what :func:`.host_names.short` makes of
    another."""
    def default(context: Any) -> str:
        return host_names.short(context.get_current_parameters()[name])

    return Column('short', NAME, nullable=False, default=default)


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
