# SPDX-License-Identifier: Apache-2.0

"""The condition that a row is of a host, as :mod:`.host_names` compares."""

from __future__ import annotations

from typing import Any

from sqlalchemy import and_
from sqlalchemy import bindparam
from sqlalchemy import ColumnElement
from sqlalchemy import or_

from scavenger_openstack.db import tables
from scavenger_openstack import host_names


def same(one: Any, one_short: Any, two: Any, two_short: Any
         ) -> ColumnElement[bool]:
    """The condition that :func:`.host_names.same` holds for two names, each
    with what :func:`.host_names.short` makes of it."""
    return and_(one_short == two_short, or_(
        one == two, one == one_short, two == two_short))


def of(table: Any) -> ColumnElement[bool]:
    """The condition for ``host`` and ``short`` of a table; a statement with it
    takes :func:`parameters`."""
    return same(table.host, table.short,
                bindparam('host', type_=tables.NAME),
                bindparam('host_short', type_=tables.NAME))


def parameters(name: str) -> dict[str, str]:
    """What :func:`of` needs of a host's name."""
    return {'host': name, 'host_short': host_names.short(name)}
