# SPDX-License-Identifier: Apache-2.0

"""Reads from Nova what instances are, and where they are.

A cloud without our notification driver gets the same tags as one with it,
later; a tag that was lost is healed.  And what a host says about an instance
that Nova has placed elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import Protocol

from oslo_log import log

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor
from scavenger_openstack.conductor.nova import elsewhere
from scavenger_openstack.conductor.nova import evicting
from scavenger_openstack.conductor.nova import said
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

CLAIM = 'nova'

OVERLAP_S = 120.0
"""So far apart the clocks of Nova and ours may be."""

WHOLE_S = 6 * 3600.0
"""All instances are read again after that; between, what has changed."""

RUNS = 'ACTIVE'
"""The status of an instance that runs."""

AT_ONCE = 200
"""Instances in one transaction."""

AGAIN_S = 600.0
"""When a list was not complete, all instances are read again so soon."""

MOST_ASKED = 50
"""Instances that Nova is asked for alone in one turn, of those that only the
broker has told of."""

MORE = ('the broker tells of more instances than Nova has changed; Nova is '
        f'asked for {MOST_ASKED} at a time: see who may write to it')


class Instance(Protocol):
    """What :class:`.client.Server` has."""

    id: str
    project: str
    host: str
    deleted: bool
    unknown: bool
    busy: bool
    status: str
    specs: Mapping[str, str]
    strays: tuple[str, ...]
    stack: str


class Source(Protocol):
    """What :class:`.client.Nova` does."""

    def servers(self, since_s: float | None) -> Iterable[Any]: ...

    def server(self, instance: str) -> Any: ...

    def groups(self) -> Mapping[str, str]: ...


class Reconciler:
    """Reads for all conductors; for one thread.

    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, nova: Source,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._nova = nova
        self._clock = clock
        self._read_s: float | None = None
        self._whole_s = 0.0
        self._busy: set[str] = set()
        self._said_away = False
        self._said = said.Said()

    def turn(self, still: Callable[[], None]) -> int:
        """Read what has changed; how many rows that made.

        :param still: called before each page; may raise to end the turn
        :raises Unreachable: Nova does not answer.
        :raises DatabaseError: the database cannot be used.
        """
        began = self._clock()
        since = self._read_s
        if since is None or not 0 <= began - self._whole_s < WHOLE_S:
            since = None
        servers = iter(self._nova.servers(
            None if since is None else since - OVERLAP_S))
        groups: Mapping[str, str] | None = None
        there: set[str] = set()
        changed = 0
        while some := list(itertools.islice(servers, AT_ONCE)):
            still()
            if groups is None:
                groups = self._nova.groups()
            there.update(one.id for one in some)
            changed += self._apply(some, groups, began)
        if since is None:
            changed += self._forget(there, began, still)
        changed += self._confirm(groups, began, still)
        self._read_s = began
        for host, instance, other in self._written(functools.partial(
                elsewhere.end, now=began, moving=frozenset(self._busy))):
            LOG.warning('%s says that it runs the instance %s, and Nova that '
                        '%s does: what it says about it is refused', host,
                        instance, other)
        if changed:
            LOG.debug('%d tags of instances were not what Nova says', changed)
        return changed

    def _forget(self, there: set[str], began: float,
                still: Callable[[], None]) -> int:
        """Forget instances that Nova does not have any more; how many.

        A list leaves out the instances of a cell that does not answer, so
        Nova is asked for each that is missing.
        """
        with connect.reading(self._engine) as connection:
            missing = flavor_tags.others(connection, there, began)
        gone, why = [], ''
        for instance in missing:
            still()
            try:
                found = self._nova.server(instance)
            except errors.Unreachable as exc:
                why = str(exc)
            else:
                if found is None or found.deleted:
                    gone.append(instance)
                elif found.unknown:
                    why = f'Nova: the cell of {instance} does not answer'
            if why:     # each other one of that cell may take a minute, too
                break
        if why and not self._said_away:
            LOG.warning('not all instances are in the list of Nova, what is '
                        'known of the others stays: %s', why)
        self._said_away = bool(why)
        self._whole_s = began - WHOLE_S + AGAIN_S if why else began
        self._busy.difference_update(gone)
        forgotten: int = self._written(functools.partial(
            flavor_tags.forget_all, instances=gone, before_s=began))
        return forgotten

    def _confirm(self, groups: Mapping[str, str] | None, began: float,
                 still: Callable[[], None]) -> int:
        """Ask Nova for the instances that only the broker has told of: each
        of its clients may send a tag.  Returns how many rows changed."""
        with connect.reading(self._engine) as connection:
            unconfirmed = flavor_tags.from_broker(connection, MOST_ASKED)
        if len(unconfirmed) == MOST_ASKED:
            self._said.warn(MORE)
        changed = 0
        for instance in unconfirmed:
            still()
            try:
                server = self._nova.server(instance)
                if server and groups is None:
                    groups = self._nova.groups()
            except errors.Unreachable:
                server, away = None, True
            else:
                away = server is not None and server.unknown
            if away:    # the others first, at the next turn
                self._written(functools.partial(
                    flavor_tags.touch, instances=[instance], now_s=began))
                break
            if server is None:
                self._busy.discard(instance)
                changed += self._written(functools.partial(
                    flavor_tags.forget_all, instances=[instance],
                    before_s=began))
            else:
                changed += self._apply([server], groups or {}, began)
        return changed

    def _written(self, work: Callable[[connect.Connection], Any]) -> Any:
        return connect.retried(self._engine, work, idempotent=True,
                               on_duplicate=True)

    def _apply(self, servers: Sequence[Instance], groups: Mapping[str, str],
               now: float) -> int:
        for one in servers:
            if one.busy and not one.deleted:
                self._busy.add(one.id)
            else:
                self._busy.discard(one.id)
            for text in mistakes(one, groups.get(one.id, '')):
                self._said.warn(text)
        found: int = self._written(functools.partial(
            apply, servers=servers, groups=groups, now=now))
        return found


def apply(connection: connect.Connection, servers: Iterable[Instance],
          groups: Mapping[str, str], now: float) -> int:
    """Make what is known of these instances what Nova says; how many were
    not."""
    servers = list(servers)
    evicting.resumed(connection, [
        one.id for one in servers if one.status == RUNS and not one.busy],
        now - OVERLAP_S, now)
    known = flavor_tags.of_instances(connection, [one.id for one in servers])
    changed = 0
    for one in servers:
        row = None if one.deleted or not one.host else tag(
            one, groups.get(one.id, ''))
        if row == known.get(one.id):
            continue
        changed += 1
        if row is None:
            flavor_tags.forget(connection, one.id)
        else:
            flavor_tags.put(connection, row, now)
    flavor_tags.confirmed(connection, [one.id for one in servers])
    return changed


def tag(server: Instance, group: str) -> reports.Row:
    """What is kept of an instance.

    Without an application of these its agent finds one, by the property of
    its image or by image and flavor: Nova's API has another image of one that
    was shelved.

    :param group: its server group, or ''
    """
    of_flavor = flavor.read(server.specs)
    found = classify.classify(flavor=of_flavor.priority)
    return {'instance': server.id, 'host': server.host,
            'project': server.project, 'priority': str(found.priority),
            'source': found.source,
            'application': flavor.application(
                of_flavor.application, group, server.stack),
            'protect': of_flavor.protect,
            'floor': {str(knob): value
                      for knob, value in of_flavor.floor.items()}}


def mistakes(server: Instance, group: str) -> Iterable[str]:
    """What an operator may wonder about."""
    for one in flavor.read(server.specs).wrong:
        yield (f'instance {server.id}: extra spec {one.key!a:.80} = '
               f'{one.value!a:.80} of its flavor is ignored: {one.why}')
    names = [*server.strays, *([group] if group.startswith(flavor.PREFIX)
                               else [])]
    for name in names:
        yield (f'instance {server.id}: {name!a:.80} in its metadata, tags or '
               'server group sets no priority: tenants write that, and only '
               'flavors and host aggregates count')
