# SPDX-License-Identifier: Apache-2.0

"""Has Nova take background instances away from their hosts, as operators
asked.

Each is asked of Nova once: a conductor that dies while it sends leaves a row
that says so, and nothing is sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import functools
import shlex
import time

from oslo_log import log

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor.nova import eviction_policy
from scavenger_openstack.conductor.nova import protocol
from scavenger_openstack.conductor.nova.protocol import Server
from scavenger_openstack.db import connect
from scavenger_openstack.db import directives as wishes
from scavenger_openstack.db import evictions
from scavenger_openstack.db.evictions import ASKED
from scavenger_openstack.db.evictions import DOING
from scavenger_openstack.db.evictions import DONE
from scavenger_openstack.db.evictions import FAILED
from scavenger_openstack.db.evictions import SENDING
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors
from scavenger_openstack import host_names
from scavenger_openstack.types import printable
from scavenger_openstack.types import Priority

LOG = log.getLogger(__name__)

EVERY_S = 2.0
GIVE_UP_S = 1800.0
"""A live migration may take long."""

WAIT_S = 600.0
"""An eviction that Nova could not be asked for by then has failed: its reason
may be gone."""

MOST_FAULTS = 3
"""A turn ends after so many calls that Nova did not answer."""

STATUSES = {'pause': ('PAUSED',), 'stop': ('SHUTOFF',),
            'shelve': ('SHELVED', 'SHELVED_OFFLOADED')}
"""What an instance is when that is done."""

MIGRATE = 'live-migrate'

DECIDED = flavor_tags.OF_FLAVOR, 'override'
"""Sources that an agent names when flavor or conductor say a priority."""


class Evicting:
    """Carries out all of them; for one thread.

    :param clock: UNIX time in seconds
    :param elapsed: seconds that only grow; by these an eviction has to wait
        until it fails, from when it is first read here
    :param moved: gets how, and the state that one came to
    """

    def __init__(self, engine: connect.Engine, nova: protocol.Nova,
                 clock: Callable[[], float],
                 elapsed: Callable[[], float] = time.monotonic,
                 moved: Callable[[str, str], None] = lambda how, state: None
                 ) -> None:
        self._engine = engine
        self._nova = nova
        self._count_moved = moved
        self._clock = clock
        self._elapsed = elapsed
        self._since_s: dict[tuple[int, str], float] | None = None
        self._unanswered: set[int] = set()

    def turn(self, still: Callable[[], None]) -> int:
        """Check each eviction that has not ended; return how many there are.

        :param still: called before each, and before Nova is asked to do it;
            may raise to end the turn
        :raises Unreachable: Nova does not answer.
        :raises DatabaseError: the database cannot be used.
        """
        with connect.reading(self._engine) as connection:
            rows = evictions.unfinished(connection)
        # The others first: it may be their cell alone that does not answer.
        rows.sort(key=lambda row: row['id'] in self._unanswered)
        self._count_from(rows)
        failed: list[errors.Unreachable] = []
        for row in rows:
            still()
            self._unanswered.discard(row['id'])
            try:
                self._step(row, still)
            except errors.Unreachable as exc:
                failed.append(exc)      # perhaps of this instance alone
                self._unanswered.add(row['id'])
                if len(failed) in (len(rows), MOST_FAULTS):
                    raise
                LOG.debug('eviction of %s: next try in the next turn: %s',
                          row['instance'], exc)
        return len(rows)

    def _count_from(self, rows: Sequence[Row]) -> None:
        """Note since when each has been as it is; in the first turn as its
        row says, by whatever clock."""
        before, now = self._since_s, self._elapsed()
        self._since_s = {
            (row['id'], row['state']):
            before.get((row['id'], row['state']), now) if before is not None
            else now - max(0.0, self._clock() - row['changed_s'])
            for row in rows}

    def _waited_s(self, row: Row) -> float:
        now, since_s = self._elapsed(), self._since_s or {}
        return now - since_s.get((row['id'], row['state']), now)

    def _step(self, row: Row, still: Callable[[], None]) -> None:
        if row['state'] == SENDING:
            self._move(row, SENDING, FAILED,
                       'the conductor ended while it asked Nova, which '
                       'may have done it')
        elif row['state'] == ASKED:
            if self._waited_s(row) > WAIT_S:
                self._move(row, ASKED, FAILED, 'Nova could not be asked in '
                           f'{WAIT_S / 60:.0f} minutes: ask for it again')
            else:
                self._send(row, still)
        else:
            try:
                self._check(row)
            except errors.Unreachable:
                if self._waited_s(row) <= GIVE_UP_S:
                    raise
                self._move(row, DOING, FAILED, 'whether Nova has done it is '
                           'not known: it does not answer')

    def _send(self, row: Row, still: Callable[[], None]) -> None:
        """Ask Nova; it answers before it has done it.

        :param still: called when nothing has been asked for yet
        """
        server = self._nova.server(row['instance'])
        if server is not None and server.unknown:
            raise errors.Unreachable(
                f"Nova: the cell of {row['instance']} does not answer")
        why = refusal(row, server)
        if server is not None and not why:
            now = self._clock()
            with connect.reading(self._engine) as connection:
                wanted = wishes.wanted(connection, now)
                why = (withdrawn(wanted, row, server)
                       or foreground(connection, wanted, row, server))
        if why:
            self._move(row, ASKED, FAILED, why)
            return
        still()     # Nova may have taken a minute
        if not self._move(row, ASKED, SENDING, ''):
            return
        try:
            self._nova.act(row['instance'], row['how'])
        except errors.ScavengerError as exc:
            self._move(row, SENDING, FAILED, str(exc))
        else:
            self._move(row, SENDING, DOING, 'Nova does it')

    def _check(self, row: Row) -> None:
        """Check whether Nova has done an eviction."""
        server = self._nova.server(row['instance'])
        if server is None:
            self._move(row, DOING, DONE, 'the instance was deleted')
        elif server.busy or server.unknown:
            if self._waited_s(row) > GIVE_UP_S:
                self._move(row, DOING, FAILED, f'Nova has not done it in '
                           f'{GIVE_UP_S / 60:.0f} minutes')
        elif row['how'] == MIGRATE and server.host and not host_names.same(
                server.host, row['host']):
            self._move(row, DOING, DONE, f'it is on {server.host} now')
        elif server.status in STATUSES.get(row['how'], ()):
            self._move(row, DOING, DONE, f'its status is {server.status}')
        else:
            self._move(row, DOING, FAILED,
                       f'Nova has not done it: its status is {server.status}, '
                       f'on {server.host or "no host"}; see: '
                       + shlex.join(['openstack', 'server', 'event', 'list',
                                     row['instance']]))

    def _move(self, row: Row, before: str, state: str, detail: str) -> bool:
        now, detail = self._clock(), printable(detail)
        moved: bool = connect.retried(self._engine, functools.partial(
            _moved, row=row, before=before, state=state, detail=detail,
            now=now), idempotent=True)
        if moved and self._since_s is not None:
            self._since_s[row['id'], state] = self._elapsed()
        if moved:
            self._count_moved(row['how'], state)
        if moved and state in (DONE, FAILED):
            log_it = LOG.info if state == DONE else LOG.warning
            log_it('eviction of %s from %s by %s, asked for by %s: %s, %s',
                   *map(printable, (row['instance'], row['host'], row['how'],
                                    row['created_by'], state, detail)))
        return moved


def _moved(connection: connect.Connection, row: Row, before: str, state: str,
           detail: str, now: float) -> bool:
    if not evictions.move(connection, row['id'], before, state, detail, now):
        return False
    if state in (DONE, FAILED):
        reports.add_audit(connection, [{
            'time_s': now, 'actor': 'conductor', 'project': row['project'],
            'action': f'eviction.{state}', 'target': row['instance'],
            'after': {'how': row['how'], 'host': row['host'],
                      'created_by': row['created_by']},
            'reason': detail}])
    return True


def resumed(connection: connect.Connection, instances: Sequence[str],
            before_s: float, now: float) -> None:
    """Evictions of instances that run, and were paused before then: they have
    failed, so that the instances count on their hosts again."""
    for row in evictions.paused(connection, instances, before_s):
        _moved(connection, row, DONE, FAILED, 'it was resumed since', now)


def refusal(row: Row, server: Server | None) -> str:
    """Return why Nova is not asked, '' when it is: what its agent says of an
    instance is not enough to stop it."""
    if server is None:
        return 'Nova has no such instance'
    if not host_names.same(server.host, row['host']):
        return (f'Nova has placed it on {server.host or "no host"}, and '
                f'{row["host"]} says that it has it')
    if flavor.read(server.specs).priority is Priority.FOREGROUND:
        return 'its flavor says foreground, which is never evicted'
    if server.busy:
        return 'Nova does something else with it'
    return ''


def withdrawn(wanted: wishes.Wanted, row: Row, server: Server) -> str:
    """Return why the policy does not ask for an eviction any more, '' when it
    does or an operator asked: minutes may pass until Nova answers, and an
    operator has no other way to take back what the policy asked for."""
    if row['created_by'] != eviction_policy.ACTOR:
        return ''
    if directives.exempt(wanted, wanted.aggregates.of(row['host']),
                         [(row['instance'], server.project, '')]):
        return 'it is exempt by now'
    return wanted.protection(row['host'])[1]


def foreground(connection: connect.Connection, wanted: wishes.Wanted,
               row: Row, server: Server) -> str:
    """Return why an instance may not be background any more, '' when it is:
    since the eviction was asked for an operator may have set that, or it was
    resized, and its agent needs a moment to follow.

    :param row: the eviction
    :param server: what Nova has
    """
    has = evictions.workload(connection, row['instance'])
    if has is None:
        return 'no host reports it any more'
    if not evictions.is_background(has):
        return f"{has['host']} says that it is foreground by now"
    of_flavor = flavor.read(server.specs).priority
    tags = directives.tags(
        wanted, wanted.aggregates.of(has['host']),
        [(row['instance'], server.project, '')],
        [flavor_tags.FlavorTag(row['instance'], of_flavor,
                               flavor_tags.OF_FLAVOR, '')]
        if of_flavor else ())
    if tags:
        return ('' if tags[0].priority == Priority.BACKGROUND
                else f'the {tags[0].source} was given the priority '
                'foreground')
    # Else the host has a reason of its own, unless it has not followed yet.
    return (f"its {has['source']} does not say any more that it is "
            'background' if has['source'] in DECIDED else '')
