# SPDX-License-Identifier: Apache-2.0


"""Tokens of hosts, for agents that report over HTTPS.

The database has a hash only: a token is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sqlalchemy import Connection
from sqlalchemy import func
from sqlalchemy import insert
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import reports
from scavenger_openstack.db import tables

TOKEN_BYTES = 32
"""Random: a plain hash of it cannot be turned round by trying."""


def enroll(connection: Connection, name: str, *, now_s: float
           ) -> tuple[str, bool]:
    """Give a host a token of its own; one that it had is worth nothing now.

    :param name: as ``[agent] host`` of its agent says it
    :returns: the token, and whether the host had another
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    hosts = tables.hosts
    before = connection.execute(
        select(hosts.c.token_hash).where(hosts.c.name == name)).first()
    if before is None:
        connection.execute(insert(hosts).values(
            name=name, token_hash=hashed(token), facts={}, settings={},
            first_seen_s=now_s, last_seen_s=0.0,
            totals_hour_s=reports.hour(now_s)))
    else:
        connection.execute(update(hosts).where(hosts.c.name == name).values(
            token_hash=hashed(token)))
    return token, before is not None and before.token_hash is not None


def may_speak(connection: Connection, name: str, token: str) -> bool:
    """Whether a token is that of the host."""
    expected = connection.execute(
        select(tables.hosts.c.token_hash)
        .where(tables.hosts.c.name == name)).scalar_one_or_none()
    return hmac.compare_digest(hashed(token), expected or '')


def without_token(connection: Connection) -> int:
    """How many hosts that have reported have no token."""
    hosts = tables.hosts.c
    return connection.execute(select(func.count()).where(
        hosts.token_hash.is_(None))).scalar_one()


def hashed(token: str) -> str:
    return 'sha256:' + hashlib.sha256(token.encode(
        errors='surrogateescape')).hexdigest()
