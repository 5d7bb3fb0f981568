# SPDX-License-Identifier: Apache-2.0

"""Which instances Nova is asked to take away without an operator, or which
ones are only recommended.

An instance whose limits helped its victims again and again (their outcome was
``confirmed``) disturbs them again and again, too.  And where the background
instances of a host hold more vCPUs than there are cores for them, the newest
of these go.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import functools
import shlex
import uuid

from oslo_log import log

from scavenger_openstack.conductor.nova.eviction_params import hold
from scavenger_openstack.conductor.nova.eviction_params import HOUR_S
from scavenger_openstack.conductor.nova.eviction_params import NONE
from scavenger_openstack.conductor.nova.eviction_params import Params
from scavenger_openstack.conductor.nova import shortage
from scavenger_openstack.db import connect
from scavenger_openstack.db import eviction_policy as rows
from scavenger_openstack.db import evictions
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.rows import Row
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

CLAIM = 'eviction-policy'
EVERY_S = 60.0
RECOMMENDED = 'eviction.recommended'
"""The action in the audit."""
RECOMMENDED_S = 86400.0
"""The same instance is recommended once in so long, which is the longest
``cool_down_s``."""
MOST = 100
"""So many are recommended in one look, the others in the next."""

ACTOR = 'policy'
CAUSE = 'eviction'
OUTCOME = 'recommended'
"""Of the incident that recommends one."""


class Policy:
    """Looks at all antagonists, and hosts that are short of CPU; for one
    thread.

    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, params: Params,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._params = params
        self._clock = clock
        self._seen = shortage.Seen()

    def turn(self, still: Callable[[], None]) -> int:
        """Ask for what the policies say; for how many.

        :raises DatabaseError: the database cannot be used.
        """
        said: list[str]
        said, self._seen = connect.retried(self._engine, functools.partial(
            apply, params=self._params, now=self._clock(),
            before=self._seen), on_duplicate=True)
        for sentence in said:
            LOG.warning('%s', sentence)
        return len(said)


def apply(connection: connect.Connection, params: Params, now: float,
          before: shortage.Seen) -> tuple[list[str], shortage.Seen]:
    """One look; what an operator is told, and what the next look needs.

    :param now: UNIX time in seconds
    :param before: what the last look left
    """
    candidates = rows.candidates(connection, now - params.window_h * HOUR_S,
                                 params.confirmed, now)
    short = {row['host_id']: row for row in rows.short(
        connection, shortage.SLACK_CORES, now)} if params.shortage_s else {}
    seen = shortage.look(before, short, now)
    due = shortage.due(seen, params)
    if not (candidates or due):
        return [], seen
    look = _Look(connection, params, now)
    look.antagonists(candidates)
    done = look.shortages([short[host] for host in due])
    return look.said, shortage.done(seen, done, params)


class _Look:
    """What one look asks for and recommends.

    An instance is a row with ``host_id``, ``host``, ``name``, ``instance``
    and ``project``.
    """

    def __init__(self, connection: connect.Connection, params: Params,
                 now: float) -> None:
        self.said: list[str] = []
        self._connection = connection
        self._params = params
        self._now = now
        self._recent = evictions.since(connection, now - max(
            HOUR_S, params.cool_down_s, params.window_h * HOUR_S))
        self._aggregates = aggregates.by_host(connection)
        self._exempt = rows.exempt(connection)
        rows.forget_recommended(connection, now, RECOMMENDED_S)
        self._left = MOST

    def antagonists(self, found: Sequence[Row]) -> None:
        """Evict, or recommend, antagonists that were confirmed often enough.

        :param found: the worst first
        """
        known = self._known(found)
        for one in found:
            policy = self._params.of(self._names(one))
            if self._is_exempt(one):
                continue
            why = (f"it disturbed others {one['confirmed']} times within "
                   f'{self._params.window_h:g} h, which limits on it '
                   'confirmed')
            if policy != NONE:
                if not hold(one, self._recent, self._params, self._now):
                    self._ask(one, policy, why)
            elif one['instance'] not in known and self._left > 0:
                self._recommend(one, why, 'disturbs others')
                known.add(one['instance'])

    def shortages(self, short: Sequence[Row]) -> set[int]:
        """Evict, or recommend, instances of hosts that have been short for
        long enough.

        :return: ids of those of them where nothing is left to do for now
        """
        policies = {row['host_id']: self._policy_now(row) for row in short}
        by_id = {row['host_id']: row for row in [
            row for row in short if policies[row['host_id']]][:MOST]}
        if not by_id:
            return set()
        found = rows.instances(self._connection, by_id)
        instances: dict[int, list[Row]] = {host: [] for host in by_id}
        for one in found:
            one['exempt'] = self._is_exempt(one)
            instances[one['host_id']].append(one)
        decision = shortage.decide(
            [shortage.Host(host, row['cores'], policies[host],
                           instances[host]) for host, row in by_id.items()],
            self._recent, self._known(found), self._left, self._params,
            self._now)
        for policy, one in decision.steps:
            host = by_id[one['host_id']]
            why = ('it is one of the newest background instances of a host '
                   f"where these hold {host['held']:.1f} vCPUs and have "
                   f"{host['cores']:.1f} cores, too few for at least "
                   f'{self._params.shortage_s / 60:.0f} min')
            if policy == NONE:
                self._recommend(one, why, 'lasting shortage of CPU')
            else:
                self._ask(one, policy, why)
        return by_id.keys() - decision.later

    def _policy_now(self, host: Row) -> str:
        """The policy of a host, '' while no instance of it may go."""
        names = self._names(host)
        policy = self._params.of(names)
        if self._exempt & {('aggregate', name) for name in names} or (
                policy != NONE and hold({**host, 'instance': ''},
                                        self._recent, self._params,
                                        self._now)):
            return ''
        return policy

    def _names(self, one: Row) -> Sequence[str]:
        """The aggregates that it is in."""
        return self._aggregates.of(one['host'])

    def _is_exempt(self, one: Row) -> bool:
        return bool(self._exempt & {
            ('instance', one['instance']), ('project', one['project']),
            *(('aggregate', name) for name in self._names(one))})

    def _known(self, found: Sequence[Row]) -> set[str]:
        """The instances of these that need not be recommended again."""
        return set(rows.recommended(
            self._connection, [one['instance'] for one in found]))

    def _recommend(self, one: Row, why: str, reason: str) -> None:
        """In log, audit and an incident.

        Readers of the project see the incident: so it has no figures, which
        are of others, too, and has the command as its action, which they are
        not shown.

        :param reason: for the command
        """
        command = printable(shlex.join([
            'openstack', 'antagonist', 'evict', one['instance'], '--reason',
            reason, '--how', 'live-migrate']))
        sentence = (printable(f"{one['instance']} on {one['host']}")
                    + f': {why}; to have Nova take it away: {command}')
        reports.add_audit(self._connection, [{
            'time_s': self._now, 'actor': ACTOR, 'project': one['project'],
            'action': RECOMMENDED, 'target': one['instance'],
            'reason': sentence}])
        rows.add_recommended(self._connection, one['instance'], self._now)
        reports.add_incidents(self._connection, [{
            'host_id': one['host_id'], 'uuid': uuid.uuid4().hex,
            'victim': one['name'], 'victim_instance': one['instance'],
            'project': one['project'], 'signal': '', 'cause': CAUSE,
            'controller': ACTOR, 'action': f'recommended: {command}',
            'outcome': OUTCOME, 'begun_s': self._now,
            'changed_s': self._now, 'ended_s': self._now, 'evidence': []}])
        self._left -= 1
        self.said.append(sentence)

    def _ask(self, one: Row, policy: str, why: str) -> None:
        row = {'uuid': uuid.uuid4().hex, 'instance': one['instance'],
               'host': one['host'], 'project': one['project'], 'how': policy,
               'reason': why, 'created_by': ACTOR, 'created_s': self._now,
               'state': evictions.ASKED, 'detail': '',
               'changed_s': self._now}
        evictions.add(self._connection, **row)
        reports.add_audit(self._connection, [{
            'time_s': self._now, 'actor': ACTOR, 'project': one['project'],
            'action': 'eviction.ask', 'target': one['instance'],
            'after': {'how': policy, 'host': one['host']}, 'reason': why}])
        self._recent.append(row)
        self.said.append(printable(one['instance']) + f': {why}: Nova is '
                         f'asked to {policy} it')
