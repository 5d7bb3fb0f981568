# SPDX-License-Identifier: Apache-2.0

"""Which hosts are in which aggregate.

An operator names the hosts of an aggregate, or Nova has them in its host
aggregate of that name.  Where an operator has named some, what Nova says of
that aggregate does not count; it is kept, and counts again as soon as the
operator's are taken away.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import NamedTuple

import sqlalchemy as sa

from scavenger_openstack.db.resources import audit
from scavenger_openstack.db.resources import rules
from scavenger_openstack.db import rows
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import tables
from scavenger_openstack import host_names

ACTOR = 'scavenger-manage'

_T = tables.aggregate_hosts.c


class Members(NamedTuple):
    """The hosts of an aggregate: those an operator named, and Nova's."""

    named: frozenset[str] = frozenset()
    nova: frozenset[str] = frozenset()

    @property
    def hosts(self) -> list[str]:
        """Return the hosts that count: those named by an operator, else
        Nova's."""
        return sorted(self.named or self.nova)


NOBODY = Members()


def members(connection: sa.Connection, name: str | None = None, *,
            lock: bool = False) -> dict[str, Members]:
    """The hosts of each aggregate that has some, by the name of the
    aggregate and in its order.

    :param name: only of that one
    :param lock: keep other writers of these rows out until the transaction
        ends
    """
    query = sa.select(_T.aggregate, _T.host, _T.named, _T.nova)
    if lock:    # all in one order, or two may wait for each other
        query = query.order_by(_T.aggregate, _T.host).with_for_update()
    named: dict[str, set[str]] = {}
    nova: dict[str, set[str]] = {}
    for aggregate, host, is_named, is_nova in connection.execute(
            query if name is None else query.where(_T.aggregate == name)):
        if is_named:
            named.setdefault(aggregate, set()).add(host)
        if is_nova:
            nova.setdefault(aggregate, set()).add(host)
    return {aggregate: Members(frozenset(named.get(aggregate, ())),
                               frozenset(nova.get(aggregate, ())))
            for aggregate in sorted(named.keys() | nova.keys())}


def hosts(connection: sa.Connection, name: str | None = None
          ) -> dict[str, list[str]]:
    """The names of the hosts that count; see :func:`members`."""
    return {aggregate: member.hosts
            for aggregate, member in members(connection, name).items()}


class ByHost:
    """The aggregates of each host.

    A name in an aggregate means each host that it may mean: a switch that is
    off must not miss one which has just got its domain, or lost it.

    :param names: the aggregates of each name
    """

    def __init__(self, names: Mapping[str, tuple[str, ...]] = {}) -> None:
        self._names: dict[str, dict[str, tuple[str, ...]]] = {}
        for name, there in names.items():
            self._names.setdefault(host_names.short(name), {})[name] = there

    def of(self, host: str) -> tuple[str, ...]:
        """Return the aggregates of a host, in the order of their names."""
        return tuple(sorted({
            aggregate for name, there in self._names.get(
                host_names.short(host), {}).items()
            if host_names.same(host, name) for aggregate in there}))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByHost) and self._names == other._names


def by_host(connection: sa.Connection) -> ByHost:
    """The aggregates of all hosts."""
    names: dict[str, tuple[str, ...]] = {}
    for aggregate, there in hosts(connection).items():
        for host in there:
            names[host] = (*names.get(host, ()), aggregate)
    return ByHost(names)


def hosts_of(connection: sa.Connection, name: str) -> list[str]:
    """The hosts in an aggregate, by the names by which they report."""
    aggregates_of = ByHost(dict.fromkeys(
        hosts(connection, name).get(name, ()), (name,)))
    return [host for host in _reported(connection) if aggregates_of.of(host)]


def names(connection: sa.Connection) -> list[str]:
    """Return the names of all aggregates that have a host."""
    return list(connection.scalars(sa.select(_T.aggregate).distinct()))


def settings(connection: sa.Connection, name: str, *, lock: bool = False
             ) -> Row | None:
    """The row with what is set for the hosts of an aggregate.

    :param lock: keep other writers of it out until the transaction ends
    """
    table = tables.aggregate_settings
    query = sa.select(table).where(table.c.aggregate == name)
    return rows.first(connection, query.with_for_update() if lock else query)


def set_settings(connection: sa.Connection, name: str,
                 settings: dict[str, Any], *, new: bool) -> None:
    """Store what is set for the hosts of an aggregate.

    :param new: there is no row yet
    """
    table = tables.aggregate_settings
    if new:
        connection.execute(sa.insert(table).values(aggregate=name,
                                                   settings=settings))
    else:
        connection.execute(sa.update(table).where(
            table.c.aggregate == name).values(settings=settings))


def put(connection: sa.Connection, name: str, wanted: Collection[str], *,
        now_s: float) -> tuple[Members, Members]:
    """Make these, and no others, the hosts that an operator named for an
    aggregate, with a row in the audit; without any, Nova's count.

    A priority that Nova says for its aggregate of that name ends.

    :return: its hosts before and after
    """
    before = members(connection, name, lock=True).get(name, NOBODY)
    after = before._replace(named=frozenset(wanted))
    _set(connection, name, 'named', before, after)
    _record(connection, ACTOR, name, before, after, now_s)
    if wanted:
        rules.end_nova(connection, name, actor=ACTOR, now_s=now_s)
    return before, after


def follow(connection: sa.Connection,
           nova_hosts: Mapping[str, Collection[str]], *, now_s: float) -> int:
    """Make these the hosts that Nova has in its aggregates, with rows in the
    audit where they count; how many aggregates had others."""
    stored = members(connection)
    changed = 0
    for name in sorted(stored.keys() | nova_hosts.keys()):
        nova = frozenset(nova_hosts.get(name, ()))
        if stored.get(name, NOBODY).nova == nova:
            continue
        changed += 1
        # Again: an operator may have named others meanwhile.
        before = members(connection, name, lock=True).get(name, NOBODY)
        after = before._replace(nova=nova)
        _set(connection, name, 'nova', before, after)
        if after.hosts != before.hosts:
            _record(connection, rules.NOVA, name, before, after, now_s)
    return changed


def _set(connection: sa.Connection, name: str,
         column: Literal['named', 'nova'], before: Members, after: Members
         ) -> None:
    """Change one of the two sources.

    :param before: read with its rows locked
    """
    there = before.named | before.nova
    had, wanted = getattr(before, column), getattr(after, column)
    for some, value in ((had - wanted, False), ((wanted - had) & there, True)):
        if some:
            connection.execute(sa.update(tables.aggregate_hosts).where(
                _T.aggregate == name, _T.host.in_(sorted(some))
            ).values({column: value}))
    if wanted - there:
        connection.execute(sa.insert(tables.aggregate_hosts), [
            {'aggregate': name, 'host': host, 'named': False, 'nova': False,
             column: True} for host in sorted(wanted - there)])
    connection.execute(sa.delete(tables.aggregate_hosts).where(
        _T.aggregate == name, _T.named.is_(False), _T.nova.is_(False)))


def _record(connection: sa.Connection, actor: str, name: str, before: Members,
            after: Members, now_s: float) -> None:
    """How many hosts count, and which came and went: the list of all may be
    long."""
    had, has = set(before.hosts), set(after.hosts)
    changes = {'added': sorted(has - had), 'removed': sorted(had - has)}
    audit.add(connection, time_s=now_s, actor=actor, action='aggregate.set',
              target=name, before={'hosts': len(had)},
              after={'hosts': len(has), **{
                  what: some for what, some in changes.items() if some}})


def unknown(connection: sa.Connection, names: Collection[str]) -> list[str]:
    """Return which names belong to no host that has reported or has been
    enrolled."""
    index = host_names.Index(dict.fromkeys(_reported(connection), 0.0))
    return sorted(name for name in set(names) if not index.find_all(name))


def _reported(connection: sa.Connection) -> list[str]:
    """The names of hosts that have reported or were enrolled."""
    return list(connection.scalars(sa.select(tables.hosts.c.name).where(
        tables.hosts.c.removed_s.is_(None))))
