# SPDX-License-Identifier: Apache-2.0

"""Reads from Nova what instances are, and where they are.

A cloud without our notification driver gets the same tags as one with it,
later; a tag that was lost is healed.  And what a host says about an instance
that Nova has placed elsewhere is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
from typing import Any

from oslo_log import log

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.conductor.nova import elsewhere
from scavenger_openstack.conductor.nova import evicting
from scavenger_openstack.conductor.nova import protocol
from scavenger_openstack.conductor.nova.protocol import Server
from scavenger_openstack.conductor.nova import server_groups
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

CLAIM = 'nova'

OVERLAP_S = 120.0
"""So far apart the clocks of Nova and ours may be."""

WHOLE_S = 6 * HOUR_S
"""All instances are read again after that; between, what has changed."""

CHANGES_S = 60.0
"""What has changed is read so often while all instances are read, which takes
hours where there are many."""

FAR_S = 2 * DAY_S
"""When Nova was not read for longer, what has changed since is not read:
nothing counts before all instances are read."""

RUNS = 'ACTIVE'
"""The status of an instance that runs."""

MIGRATES = 'MIGRATING'

AGAIN_S = 600.0
"""When a list was not complete, all instances are read again so soon."""

MOST_FAULTS = 3
"""After so many faults in a row the list of all begins again."""

MOST_ASKED = 50
"""Instances that Nova is asked for alone in one turn: of those that only the
broker has sent, of new ones, and of those that are in no list."""

MORE = ('the broker tells of more instances than Nova has changed; Nova is '
        f'asked for {MOST_ASKED} at a time: see who may write to it')


class Whole:
    """How far the list of all instances is read: up to ``after``."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.after: tuple[str, ...] = ()
        self.instances: set[str] = set()
        self.faults = 0


class Reconciler:
    """Reads for all conductors; for one thread.

    While all instances are read, what has changed is read every
    :data:`CHANGES_S`.

    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, nova: protocol.Nova,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._nova = nova
        self._clock = clock
        # All changes up to that time are in the database, if what is there
        # is complete: it was when Nova was read last, a short time ago.
        self._changes_s: float | None = None
        self._complete = False
        self._whole: Whole | None = None
        self._whole_s: float | None = None
        self._again_s = -math.inf
        self._groups = server_groups.Groups(nova)
        self._missing: list[str] = []
        self._busy: set[str] = set()
        self._logged = log_once.LogOnce()

    def turn(self, still: Callable[[], None]) -> int:
        """Read what has changed; return how many rows that made.

        :param still: called before each page; may raise to end the turn
        :raises Unreachable: Nova does not answer.
        :raises DatabaseError: the database cannot be used.
        """
        now = self._clock()
        first = self._changes_s is None
        if first:
            self._begin(now, still)
        if self._whole is None and not 0 <= now - self._again_s < WHOLE_S:
            self._groups.read(now, still)
            self._whole = Whole(now)
        changed = 0
        if self._complete or not first:
            changed += self._read_changes(still)
        while self._whole is not None:
            still()
            changed += self._read_page(self._whole)
            if self._whole is None:
                changed += self._forget(still)
            elif not 0 <= self._clock() - (self._changes_s or 0) < CHANGES_S:
                changed += self._read_changes(still)
        changed += self._ask_missing(still)
        changed += self._confirm(still)
        if changed:
            LOG.debug('%d tags of instances were not what Nova says', changed)
        return changed

    def _begin(self, now: float, still: Callable[[], None]) -> None:
        """Go on where the conductor before has ended."""
        with connect.reading(self._engine) as connection:
            read_s = elsewhere.read_s(connection)
        for page in self._pages(still, status=MIGRATES):
            self._busy.update(server.id for server in page if server.busy)
        self._whole_s = read_s
        self._complete = read_s is not None and 0 <= now - read_s < FAR_S
        self._changes_s = read_s if self._complete else now

    def _pages(self, still: Callable[[], None], **search: Any
               ) -> Iterator[list[Server]]:
        """The pages of a list."""
        after: tuple[str, ...] = ()
        while True:
            still()
            page = self._nova.page(after, **search)
            if not page.after:
                return
            yield page.servers
            after = page.after

    def _read_changes(self, still: Callable[[], None]) -> int:
        """Read what has changed since the last time."""
        began, changed = self._clock(), 0
        for servers in self._pages(
                still, since_s=(self._changes_s or began) - OVERLAP_S):
            self._groups.expect(servers)
            changed += self._apply(servers)
        self._changes_s = began
        self._end_wrong()
        return changed

    def _end_wrong(self) -> None:
        """End what hosts have reported of the instances of others for long."""
        if not self._complete or self._changes_s is None:
            return
        for host, instance, other in self._written(functools.partial(
                elsewhere.end, now=self._clock(), read_s=self._changes_s,
                moving=frozenset(self._busy))):
            LOG.warning('%s says that it runs the instance %s, and Nova that '
                        '%s does: what it says about it is refused', host,
                        instance, other)

    def _read_page(self, whole: Whole) -> int:
        """Read a page of all instances; no ``_whole`` is left after the
        last."""
        try:
            page = self._nova.page(whole.after)
        except errors.Unreachable:
            whole.faults += 1
            if whole.faults >= MOST_FAULTS:
                self._whole = None
            raise
        whole.faults = 0
        if page.after:
            whole.after = page.after
            whole.instances.update(server.id for server in page.servers)
            return self._apply(page.servers)
        with connect.reading(self._engine) as connection:
            self._missing = flavor_tags.others(
                connection, whole.instances, whole.began_s)
        self._whole, self._again_s = None, whole.began_s
        self._complete = True
        return 0

    def _forget(self, still: Callable[[], None]) -> int:
        """Forget the instances that are not in the list of all, and in that
        of those that were deleted since the list before."""
        gone: set[str] = set()
        since_s, self._whole_s = self._whole_s, self._again_s
        if len(self._missing) > MOST_ASKED and since_s is not None:
            missing = frozenset(self._missing)
            for servers in self._pages(still, deleted=True,
                                       since_s=since_s - OVERLAP_S):
                gone |= missing.intersection(
                    server.id for server in servers if server.deleted)
        changed = self._forgotten(sorted(gone))
        self._missing = [instance for instance in self._missing
                         if instance not in gone]
        self._end_wrong()
        return changed

    def _forgotten(self, gone: Sequence[str]) -> int:
        self._busy.difference_update(gone)
        forgotten: int = self._written(functools.partial(
            flavor_tags.forget_all, instances=gone,
            before_s=self._again_s)) if gone else 0
        return forgotten

    def _ask_missing(self, still: Callable[[], None]) -> int:
        """Ask Nova for some of those that are in no list: one leaves out the
        instances of a cell that does not answer."""
        gone, why = [], ''
        for instance in self._missing[:MOST_ASKED]:
            still()
            try:
                server = self._nova.server(instance)
            except errors.Unreachable as exc:
                why = str(exc)
            else:
                if server is None or server.deleted:
                    gone.append(instance)
                elif server.unknown:
                    why = f'Nova: the cell of {instance} does not answer'
            if why:     # each other one of that cell may take a minute, too
                break
        if why and self._logged.due('missing'):
            LOG.warning('not all instances are in the list of Nova, what is '
                        'known of the others stays: %s', why)
        changed = self._forgotten(gone)
        if why:
            self._missing = []
            self._again_s += AGAIN_S - WHOLE_S
        else:
            self._missing = self._missing[MOST_ASKED:]
            self._logged.over('missing')
        return changed

    def _confirm(self, still: Callable[[], None]) -> int:
        """Ask Nova for the instances that only the broker has sent, each
        of whose clients may send a tag, and for new ones, of whose server
        groups no list tells.  Returns how many rows changed."""
        with connect.reading(self._engine) as connection:
            unconfirmed = flavor_tags.from_broker(connection, MOST_ASKED)
        if len(unconfirmed) == MOST_ASKED:
            if self._logged.due('more'):
                LOG.warning(MORE)
        changed = 0
        for instance in dict.fromkeys([*unconfirmed, *self._groups.expected(
                MOST_ASKED)]):
            still()
            now = self._clock()
            try:
                server = self._nova.server(instance)
                if server is not None and not server.unknown:
                    self._groups.add(server)
            except errors.Unreachable:
                server, away = None, True
            else:
                away = server is not None and server.unknown
            if away:    # the others first, at the next turn
                self._groups.remove(instance)
                self._written(functools.partial(
                    flavor_tags.touch, instances=[instance], now_s=now))
                break
            if server is None:
                self._groups.remove(instance)
                self._busy.discard(instance)
                changed += self._written(functools.partial(
                    flavor_tags.forget_all, instances=[instance],
                    before_s=now))
            else:
                changed += self._apply([server])
        return changed

    def _written(self, work: Callable[[connect.Connection], Any]) -> Any:
        return connect.retried(self._engine, work, idempotent=True,
                               on_duplicate=True)

    def _apply(self, servers: Sequence[Server]) -> int:
        groups = {server.id: self._groups.of(server.id) for server in servers}
        for server in servers:
            if server.busy and not server.deleted:
                self._busy.add(server.id)
            else:
                self._busy.discard(server.id)
            for text in mistakes(server, groups[server.id]):
                if self._logged.due(text):
                    LOG.warning('%s', printable(text))
        written: int = self._written(functools.partial(
            apply, servers=servers, groups=groups, now=self._clock()))
        return written


def apply(connection: connect.Connection, servers: Iterable[Server],
          groups: Mapping[str, str], now: float) -> int:
    """Store what Nova says of these instances; return how many changed."""
    servers = list(servers)
    evicting.resumed(connection, [
        server.id for server in servers
        if server.status == RUNS and not server.busy], now - OVERLAP_S, now)
    tags = flavor_tags.of_instances(
        connection, [server.id for server in servers])
    changed = 0
    for server in servers:
        row = None if server.deleted or not server.host else tag(
            server, groups.get(server.id, ''))
        if row == tags.get(server.id):
            continue
        changed += 1
        if row is None:
            flavor_tags.forget(connection, server.id)
        else:
            flavor_tags.put(connection, row, now)
    flavor_tags.confirmed(connection, [server.id for server in servers])
    return changed


def tag(server: Server, group: str) -> reports.Row:
    """Return what is kept of an instance.

    Without an application of these its agent finds one, by the property of
    its image or by image and flavor: Nova's API has another image of one that
    was shelved.

    :param group: its server group, or ''
    """
    of_flavor = flavor.read(server.specs)
    classified = classify.classify(flavor=of_flavor.priority)
    return {'instance': server.id, 'host': server.host,
            'project': server.project, 'priority': str(classified.priority),
            'source': classified.source,
            'application': flavor.application(
                of_flavor.application, group, server.stack),
            'protect': of_flavor.protect,
            'floor': {str(knob): value
                      for knob, value in of_flavor.floor.items()}}


def mistakes(server: Server, group: str) -> Iterable[str]:
    """Generate what an operator may wonder about."""
    for spec in flavor.read(server.specs).wrong:
        yield (f'instance {server.id}: extra spec {spec.key!a:.80} = '
               f'{spec.value!a:.80} of its flavor is ignored: {spec.why}')
    names = [*server.strays, *([group] if group.startswith(flavor.PREFIX)
                               else [])]
    for name in names:
        yield (f'instance {server.id}: {name!a:.80} in its metadata, tags or '
               'server group sets no priority: tenants write that, and only '
               'flavors and host aggregates count')
