# SPDX-License-Identifier: Apache-2.0

"""Hosts whose background instances hold more vCPUs than there are cores for
them, and which of these instances would end that.

Pure.  None of this is in the papers.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from scavenger_openstack.conductor.nova.eviction_params import hold
from scavenger_openstack.conductor.nova.eviction_params import NONE
from scavenger_openstack.conductor.nova.eviction_params import Params
from scavenger_openstack.db.rows import Row
from scavenger_openstack.types import Priority

SLACK_CORES = 0.5
"""A host that lacks no more is not short: so much is not measured exactly."""

GAP_S = 90.0
"""Looks are a minute apart.  After a longer gap nothing is known of before;
up to here no other conductor can have had the claim in between."""


class Seen(NamedTuple):
    """What is remembered from one look to the next, by the id of the host.

    All are UNIX times in seconds.

    :param looked_s: when the last look was
    :param since_s: since when a host has been short at each look
    :param again_s: when the instances of a host are looked at again, where
        they were looked at
    """

    looked_s: float = -math.inf
    since_s: Mapping[int, float] = {}
    again_s: Mapping[int, float] = {}


class Host(NamedTuple):
    """A host that has been short for long enough.

    :param cores: for its background instances
    :param policy: one of :data:`.eviction_params.POLICIES`
    :param instances: its background instances; rows with ``host_id``,
        ``host``, ``name``, ``instance``, ``project``, ``priority``,
        ``flavor`` (the priority that its flavor says), ``vcpus``,
        ``since_s``, ``id`` and ``exempt``
    """

    id: int
    cores: float
    policy: str
    instances: Sequence[Row]


class Decision(NamedTuple):
    """What to do in one look.

    :param steps: policy and row of each instance
    :param later: hosts for which the governor, or ``most``, left no room
    """

    steps: list[tuple[str, Row]]
    later: set[int]


def look(before: Seen, short: Iterable[int], now: float) -> Seen:
    """What is remembered after a look that found these hosts short."""
    if not 0 <= now - before.looked_s <= GAP_S:
        before = Seen()
    since_s = {host: before.since_s.get(host, now) for host in short}
    return Seen(now, since_s, {host: again_s for host, again_s
                               in before.again_s.items() if host in since_s})


def due(seen: Seen, params: Params) -> list[int]:
    """Hosts that have been short for long enough, the longest first, but for
    those that were looked at within the cool-down."""
    return sorted((host for host, since_s in seen.since_s.items()
                   if seen.looked_s - since_s >= params.shortage_s
                   and seen.again_s.get(host, -math.inf) <= seen.looked_s),
                  key=lambda host: (seen.since_s[host], host))


def done(seen: Seen, hosts: Iterable[int], params: Params) -> Seen:
    """What is remembered when the instances of these were looked at."""
    again_s = seen.looked_s + params.cool_down_s
    return seen._replace(again_s={**seen.again_s,
                                  **dict.fromkeys(hosts, again_s)})


def decide(hosts: Sequence[Host], recent: Sequence[Row],
           known: Collection[str], most: int, params: Params, now: float
           ) -> Decision:
    """Which instances are evicted, or recommended for it.

    :param recent: evictions of the last hours, ``instance``, ``host`` and
        ``created_s`` of each
    :param known: instances that were recommended already
    :param most: so many are recommended
    """
    recent, known = list(recent), set(known)
    decision = Decision([], set())
    for host in hosts:
        chosen = newest(host, {row['instance'] for row in recent})
        if host.policy != NONE:
            # One at a time: the cool-down decides when the next one goes.
            for one in chosen[:1]:
                if hold(one, recent, params, now):
                    decision.later.add(host.id)
                else:
                    recent.append({**one, 'created_s': now})
                    decision.steps.append((host.policy, one))
            continue
        for one in chosen:
            if one['instance'] in known:
                continue
            if most <= 0:
                decision.later.add(host.id)
                break
            most -= 1
            known.add(one['instance'])
            decision.steps.append((NONE, one))
    return decision


def newest(host: Host, tried: Collection[str]) -> list[Row]:
    """The newest instances without which the host is not short, or all that
    may go if these are too few; none of them could stay.

    :param tried: instances whose turn it is not again
    """
    background = [instance for instance in host.instances
                  if instance['priority'] == Priority.BACKGROUND]
    lacks = sum(one['vcpus'] for one in background) - host.cores - SLACK_CORES
    found: list[Row] = []
    for one in sorted(background, reverse=True,
                      key=lambda one: (one['since_s'], one['id'])):
        if lacks <= 0:
            break
        if not (one['exempt'] or one['flavor'] == Priority.FOREGROUND
                or one['instance'] in tried or one['vcpus'] <= 0):
            found.append(one)
            lacks -= one['vcpus']
    # The last one may be so large that some before it can stay.
    for one in found[::-1]:
        if one['vcpus'] <= -lacks:
            found.remove(one)
            lacks += one['vcpus']
    return found
