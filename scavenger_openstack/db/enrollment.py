# SPDX-License-Identifier: Apache-2.0


"""Tokens of hosts.

The database has a hash only: a token is shown once, when it is made.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db import reports
from scavenger_openstack.db import tables
from scavenger_openstack.wire import proof

ACTOR = 'scavenger-manage'

RECENT_S = 600.0
"""A host that has reported within that reports at present."""

TOKEN_BYTES = 32


class Enrolled(NamedTuple):
    """The token of a host.

    :param had_one: whether it had another
    :param reports: whether it reported a short time ago
    :param grace_until_s: until when its reports without the token are taken
    """

    token: str
    had_one: bool
    reports: bool
    grace_until_s: float | None


def enroll(connection: sa.Connection, name: str, *, now_s: float,
           grace_s: float = 0.0) -> Enrolled:
    """Give a host a token of its own, with a row in the audit; one that it
    had is worth nothing now.

    :param name: as ``[agent] host`` of its agent says it
    :param grace_s: so long, or until its first report with the token, a host
        that reports without one at present may do so
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    hosts = tables.hosts
    before = connection.execute(sa.select(
        hosts.c.token_hash, hosts.c.last_seen_s, hosts.c.removed_s).where(
            hosts.c.name == name).with_for_update()).first()
    there = before if before and before.removed_s is None else None
    had_one = there is not None and there.token_hash is not None
    recent = there is not None and now_s - there.last_seen_s < RECENT_S
    until_s = (now_s + grace_s if recent and not had_one and grace_s > 0
               else None)
    if before is None:
        connection.execute(sa.insert(hosts).values(
            name=name, token_hash=proof.key(token), facts={}, settings={},
            first_seen_s=now_s, last_seen_s=0.0,
            totals_hour_s=reports.hour(now_s)))
    else:
        connection.execute(sa.update(hosts).where(hosts.c.name == name).values(
            token_hash=proof.key(token), token_from_s=until_s, removed_s=None,
            last_seen_s=there.last_seen_s if there else 0.0))
    _record(connection, 'host.enroll', name, now_s, before={
        'token': had_one}, after={'token': True, 'grace_until_s': until_s})
    return Enrolled(token, had_one, recent, until_s)


def unenroll(connection: sa.Connection, name: str, *, now_s: float
             ) -> bool | None:
    """Take a host's token away, with a row in the audit: over the broker it
    is taken at its word again.

    :returns: whether it had one; ``None``: there is no such host
    """
    hosts = tables.hosts
    before = connection.execute(sa.select(hosts.c.token_hash).where(
        hosts.c.name == name, hosts.c.removed_s.is_(None)
    ).with_for_update()).first()
    if before is None:
        return None
    if before.token_hash is None:
        return False
    connection.execute(sa.update(hosts).where(hosts.c.name == name).values(
        token_hash=None, token_from_s=None))
    _record(connection, 'host.unenroll', name, now_s,
            before={'token': True}, after={'token': False})
    return True


def proved(connection: sa.Connection, host_id: int) -> None:
    """Note that a host has shown its token: it needs it from now on."""
    connection.execute(sa.update(tables.hosts).where(
        tables.hosts.c.id == host_id).values(token_from_s=None))


def _record(connection: sa.Connection, action: str, name: str, now_s: float,
            before: reports.Row, after: reports.Row) -> None:
    reports.add_audit(connection, [{
        'time_s': now_s, 'actor': ACTOR, 'action': action, 'target': name,
        'before': before, 'after': after, 'reason': ''}])


def key(connection: sa.Connection, name: str) -> str:
    """The hash of a host's token, '' for one without."""
    return connection.execute(
        sa.select(tables.hosts.c.token_hash)
        .where(tables.hosts.c.name == name)).scalar_one_or_none() or ''


def without_token(connection: sa.Connection) -> int:
    """Return how many hosts that have reported have no token."""
    hosts = tables.hosts.c
    return connection.execute(sa.select(sa.func.count()).where(
        hosts.token_hash.is_(None), hosts.removed_s.is_(None))).scalar_one()


def keys(connection: sa.Connection, most: int) -> list[tuple[str, str]]:
    """The names of hosts with a token, at most so many, and its hash."""
    hosts = tables.hosts
    return [(row.name, row.token_hash) for row in connection.execute(
        sa.select(hosts.c.name, hosts.c.token_hash)
        .where(hosts.c.token_hash.is_not(None))
        .order_by(hosts.c.last_seen_s.desc()).limit(most))]
