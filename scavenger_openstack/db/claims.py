# SPDX-License-Identifier: Apache-2.0

"""Work that one of many processes does: a row says which, and until when."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy import exc
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import tables

_claims = tables.claims.c


def take(connection: Connection, name: str, holder: str, now: float,
         until_s: float) -> bool:
    """Claim the work ``name`` until then; false while a claim holds."""
    done = connection.execute(update(tables.claims).where(
        _claims.name == name, _claims.expires_s <= now).values(
            holder=holder, expires_s=until_s))
    if done.rowcount:
        return True
    if connection.execute(select(_claims.name).where(
            _claims.name == name)).first() is not None:
        return False
    try:
        with connection.begin_nested():
            connection.execute(insert(tables.claims).values(
                name=name, holder=holder, expires_s=until_s))
    except exc.IntegrityError:      # another process was first
        return False
    return True


def extend(connection: Connection, name: str, holder: str, until_s: float
           ) -> bool:
    """Hold a claim until then; false when it is another's by now."""
    return bool(connection.execute(update(tables.claims).where(
        _claims.name == name, _claims.holder == holder).values(
            expires_s=until_s)).rowcount)
