# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Which antagonists Nova is asked to take away without an operator, or which
ones are only recommended.

An instance whose limits helped its victims again and again (their outcome was
``confirmed``) disturbs them again and again, too.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import uuid

from oslo_log import log

from scavenger_openstack.db import connect
from scavenger_openstack.db import eviction_policy as rows
from scavenger_openstack.db import evictions
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

CLAIM = 'eviction-policy'
EVERY_S = 60.0
HOUR_S = 3600.0
RECOMMENDED_S = 86400.0
"""The same instance is recommended once in so long."""

NONE = 'none'
POLICIES = (NONE, 'pause', 'stop', 'shelve', 'live-migrate')
ACTOR = 'policy'


@dataclasses.dataclass(frozen=True)
class Params:
    """The options of section ``[eviction]``.

    :param policy: where no aggregate of a host has another
    :param aggregate_policies: by the name of the aggregate; the first by
        name counts
    :param confirmed: so often within ``window_h`` hours
    :param cool_down_s: between two from one host
    :param per_hour: in the whole cloud, those of operators too
    """

    policy: str
    aggregate_policies: Mapping[str, str]
    confirmed: int
    window_h: float
    cool_down_s: float
    per_hour: int

    def of(self, aggregates: Sequence[str]) -> str:
        """The policy of a host in these aggregates."""
        for name in sorted(aggregates):
            if name in self.aggregate_policies:
                return self.aggregate_policies[name]
        return self.policy


def check(params: Params) -> None:
    """
    :raises ConfigError: a policy does not exist.
    """
    for name, policy in params.aggregate_policies.items():
        if policy not in POLICIES:
            raise errors.ConfigError(
                f'[eviction] aggregate_policies: {name}:{policy}: it has to '
                f'be one of {", ".join(POLICIES)}')


class Policy:
    """Looks at all antagonists; for one thread.

    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, params: Params,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._params = params
        self._clock = clock

    def turn(self, still: Callable[[], None]) -> int:
        """Ask for what the policies say; for how many.

        :raises DatabaseError: the database cannot be used.
        """
        said: list[str] = connect.retried(self._engine, functools.partial(
            apply, params=self._params, now=self._clock()))
        for sentence in said:
            LOG.warning('%s', sentence)
        return len(said)


def apply(connection: connect.Connection, params: Params, now: float
          ) -> list[str]:
    """One look; what an operator is told."""
    found = rows.candidates(connection, now - params.window_h * HOUR_S,
                            params.confirmed, now)
    if not found:
        return []
    recent = evictions.since(connection, now - max(
        HOUR_S, params.cool_down_s, params.window_h * HOUR_S))
    by_host = aggregates.by_host(connection)
    exempt = rows.exempt(connection)
    said = []
    for one in found:
        names = by_host.get(one['host'], ())
        policy = params.of(names)
        if exempt & {('instance', one['instance']),
                     ('project', one['project']),
                     *(('aggregate', name) for name in names)}:
            continue
        if policy == NONE:
            if rows.recommended(connection, one['instance'],
                                now - RECOMMENDED_S):
                continue
            said.append(_recommend(connection, one, params, now))
        elif not hold(one, recent, params, now):
            row = _ask(connection, one, policy, params, now)
            recent.append(row)
            said.append(f"{one['instance']}: {row['reason']}: Nova is asked "
                        f'to {policy} it')
    return said


def hold(one: Row, recent: Sequence[Row], params: Params, now: float) -> str:
    """Why an antagonist stays for now, '' when nothing speaks for it.

    :param recent: evictions of the last hours
    """
    if any(row['instance'] == one['instance'] for row in recent):
        return 'it was evicted, or tried to be, a short time ago'
    if any(row['host'] == one['host']
           and now - row['created_s'] < params.cool_down_s for row in recent):
        return 'another one of this host was a short time ago'
    if sum(now - row['created_s'] < HOUR_S for row in recent
           ) >= params.per_hour:
        return 'enough were in this hour'
    return ''


def _why(one: Row, params: Params) -> str:
    return (f"it disturbed others {one['confirmed']} times within "
            f'{params.window_h:g} h, which limits on it confirmed')


def _recommend(connection: connect.Connection, one: Row, params: Params,
               now: float) -> str:
    sentence = (f"{one['instance']} on {one['host']}: {_why(one, params)}; to "
                'have Nova take it away: openstack antagonist evict '
                f"{one['instance']} --reason \"disturbs others\"")
    reports.add_audit(connection, [{
        'time_s': now, 'actor': ACTOR, 'project': one['project'],
        'action': rows.RECOMMENDED, 'target': one['instance'],
        'reason': sentence}])
    return sentence


def _ask(connection: connect.Connection, one: Row, policy: str,
         params: Params, now: float) -> Row:
    row = {'uuid': uuid.uuid4().hex, 'instance': one['instance'],
           'host': one['host'], 'project': one['project'], 'how': policy,
           'reason': _why(one, params), 'created_by': ACTOR,
           'created_s': now, 'state': evictions.ASKED, 'detail': '',
           'changed_s': now}
    evictions.add(connection, **row)
    reports.add_audit(connection, [{
        'time_s': now, 'actor': ACTOR, 'project': one['project'],
        'action': 'eviction.ask', 'target': one['instance'],
        'after': {'how': policy, 'host': one['host']},
        'reason': row['reason']}])
    return row
