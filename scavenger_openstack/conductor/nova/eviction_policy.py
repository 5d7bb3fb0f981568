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

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.conductor.nova.eviction_params import hold
from scavenger_openstack.conductor.nova.eviction_params import NONE
from scavenger_openstack.conductor.nova.eviction_params import Params
from scavenger_openstack.conductor.nova import shortage
from scavenger_openstack.db import connect
from scavenger_openstack.db import eviction_policy as rows
from scavenger_openstack.db import evictions
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.rows import Row
from scavenger_openstack import grounds
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

CLAIM = 'eviction-policy'
EVERY_S = 60.0
RECOMMENDED = 'eviction.recommended'
"""The action in the audit."""
RECOMMENDED_S = DAY_S
"""The same instance is recommended once in so long, which is the longest
``cool_down_s``."""
MOST = 100
"""So many are recommended in one turn, the others in the next."""

ACTOR = 'policy'
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
        self._state = shortage.State()

    def turn(self, still: Callable[[], None]) -> int:
        """Ask Nova for the evictions of the policies; return how many.

        :raises DatabaseError: the database cannot be used.
        """
        sentences: list[str]
        sentences, self._state = connect.retried(
            self._engine, functools.partial(
                apply, params=self._params, now=self._clock(),
                before=self._state), on_duplicate=True)
        for sentence in sentences:
            LOG.warning('%s', sentence)
        return len(sentences)


def apply(connection: connect.Connection, params: Params, now: float,
          before: shortage.State) -> tuple[list[str], shortage.State]:
    """Evict or recommend once; return the sentences for the log, and the
    state for the next turn.

    :param now: UNIX time in seconds
    :param before: the state that the last turn returned
    """
    candidates = rows.candidates(connection, now - params.window_h * HOUR_S,
                                 params.confirmed, now)
    short = {row['host_id']: row for row in rows.short(
        connection, shortage.SLACK_CORES, now)} if params.shortage_s else {}
    state = shortage.next_state(before, short, now)
    due = shortage.due(state, params)
    if not (candidates or due):
        return [], state
    turn = _Turn(connection, params, now)
    turn.antagonists(candidates)
    done = turn.shortages([short[host] for host in due])
    return turn.sentences, shortage.done(state, done, params)


class _Turn:
    """One turn: asks for evictions and recommends some.

    An instance is a row with ``host_id``, ``host``, ``name``, ``instance``
    and ``project``.
    """

    def __init__(self, connection: connect.Connection, params: Params,
                 now: float) -> None:
        self.sentences: list[str] = []
        self._connection = connection
        self._params = params
        self._now = now
        self._recent = evictions.since(connection, now - max(
            HOUR_S, params.cool_down_s, params.window_h * HOUR_S))
        self._aggregates = aggregates.by_host(connection)
        self._exempt = rows.exempt(connection)
        rows.forget_recommended(connection, now, RECOMMENDED_S)
        self._left = MOST

    def antagonists(self, candidates: Sequence[Row]) -> None:
        """Evict, or recommend, antagonists that were confirmed often enough.

        :param candidates: the worst first
        """
        recommended = self._recommended(candidates)
        for instance in candidates:
            policy = self._params.of(self._names(instance))
            if self._is_exempt(instance):
                continue
            why = (f"it disturbed others {instance['confirmed']} times within "
                   f'{self._params.window_h:g} h, which limits on it '
                   'confirmed')
            if policy != NONE:
                if not hold(instance, self._recent, self._params, self._now):
                    self._request(instance, policy, why)
            elif instance['instance'] not in recommended and self._left > 0:
                self._recommend(instance, why, 'disturbs others')
                recommended.add(instance['instance'])

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
        listed = rows.instances(self._connection, by_id)
        instances: dict[int, list[Row]] = {host: [] for host in by_id}
        for instance in listed:
            instance['exempt'] = self._is_exempt(instance)
            instances[instance['host_id']].append(instance)
        decision = shortage.decide(
            [shortage.Host(host, row['cores'], policies[host],
                           instances[host]) for host, row in by_id.items()],
            self._recent, self._recommended(listed), self._left, self._params,
            self._now)
        for policy, instance in decision.steps:
            host = by_id[instance['host_id']]
            why = ('it is one of the newest background instances of a host '
                   f"where these hold {host['held']:.1f} vCPUs and have "
                   f"{host['cores']:.1f} cores, too few for at least "
                   f'{self._params.shortage_s / 60:.0f} min')
            if policy == NONE:
                self._recommend(instance, why, 'lasting shortage of CPU')
            else:
                self._request(instance, policy, why)
        return by_id.keys() - decision.later

    def _policy_now(self, host: Row) -> str:
        """Return the policy of a host, '' while no instance of it may go."""
        names = self._names(host)
        policy = self._params.of(names)
        if self._exempt & {('aggregate', name) for name in names} or (
                policy != NONE and hold({**host, 'instance': ''},
                                        self._recent, self._params,
                                        self._now)):
            return ''
        return policy

    def _names(self, row: Row) -> Sequence[str]:
        """Return the aggregates of the host in a row."""
        return self._aggregates.of(row['host'])

    def _is_exempt(self, row: Row) -> bool:
        return bool(self._exempt & {
            ('instance', row['instance']), ('project', row['project']),
            *(('aggregate', name) for name in self._names(row))})

    def _recommended(self, instances: Sequence[Row]) -> set[str]:
        """Return the instances that need not be recommended again."""
        return set(rows.recommended(
            self._connection,
            [instance['instance'] for instance in instances]))

    def _recommend(self, instance: Row, why: str, reason: str) -> None:
        """Recommend an eviction in log, audit and an incident.

        Readers of the project see the incident: so it has no figures, which
        are of others, too, and has the command as its action, which they are
        not shown.

        :param reason: for the command
        """
        command = printable(shlex.join([
            'openstack', 'antagonist', 'evict', instance['instance'],
            '--reason', reason, '--how', 'live-migrate']))
        sentence = (printable(f"{instance['instance']} on {instance['host']}")
                    + f': {why}; to have Nova take it away: {command}')
        reports.add_audit(self._connection, [{
            'time_s': self._now, 'actor': ACTOR,
            'project': instance['project'], 'action': RECOMMENDED,
            'target': instance['instance'], 'reason': sentence}])
        rows.add_recommended(self._connection, instance['instance'], self._now)
        reports.add_incidents(self._connection, [{
            'host_id': instance['host_id'], 'uuid': uuid.uuid4().hex,
            'victim': instance['name'],
            'victim_instance': instance['instance'],
            'project': instance['project'], 'signal': '',
            'cause': grounds.EVICTION,
            'controller': ACTOR, 'action': f'recommended: {command}',
            'outcome': OUTCOME, 'begun_s': self._now,
            'changed_s': self._now, 'ended_s': self._now, 'evidence': []}])
        self._left -= 1
        self.sentences.append(sentence)

    def _request(self, instance: Row, policy: str, why: str) -> None:
        row = {'uuid': uuid.uuid4().hex, 'instance': instance['instance'],
               'host': instance['host'], 'project': instance['project'],
               'how': policy, 'reason': why, 'created_by': ACTOR,
               'created_s': self._now,
               'state': evictions.ASKED, 'detail': '',
               'changed_s': self._now}
        evictions.add(self._connection, **row)
        reports.add_audit(self._connection, [{
            'time_s': self._now, 'actor': ACTOR,
            'project': instance['project'], 'action': 'eviction.ask',
            'target': instance['instance'],
            'after': {'how': policy, 'host': instance['host']},
            'reason': why}])
        self._recent.append(row)
        self.sentences.append(printable(instance['instance'])
                              + f': {why}: Nova is asked to {policy} it')
