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
"""Turns are a minute apart.  After a longer gap nothing is known of before;
up to here no other conductor can have had the claim in between."""


class State(NamedTuple):
    """What is remembered from one turn to the next, by the id of the host.

    All are UNIX times in seconds.

    :param last_s: when the last turn was
    :param since_s: since when a host has been short at each turn
    :param again_s: when the instances of a host are read again, where
        they were read
    """

    last_s: float = -math.inf
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
    """What to do in one turn.

    :param steps: policy and row of each instance
    :param later: hosts for which the governor, or ``most``, left no room
    """

    steps: list[tuple[str, Row]]
    later: set[int]


def next_state(before: State, short: Iterable[int], now: float) -> State:
    """Return the state after a turn in which these hosts are short."""
    if not 0 <= now - before.last_s <= GAP_S:
        before = State()
    since_s = {host: before.since_s.get(host, now) for host in short}
    return State(now, since_s, {host: again_s for host, again_s
                                in before.again_s.items() if host in since_s})


def due(state: State, params: Params) -> list[int]:
    """Return the hosts that have been short for long enough, the longest
    first, but for those whose instances were read within the cool-down."""
    return sorted((host for host, since_s in state.since_s.items()
                   if state.last_s - since_s >= params.shortage_s
                   and state.again_s.get(host, -math.inf) <= state.last_s),
                  key=lambda host: (state.since_s[host], host))


def done(state: State, hosts: Iterable[int], params: Params) -> State:
    """Return the state after the instances of these hosts were read."""
    again_s = state.last_s + params.cool_down_s
    return state._replace(again_s={**state.again_s,
                                   **dict.fromkeys(hosts, again_s)})


def decide(hosts: Sequence[Host], recent: Sequence[Row],
           recommended: Collection[str], most: int, params: Params, now: float
           ) -> Decision:
    """Decide which instances are evicted, or recommended for it.

    :param recent: evictions of the last hours, ``instance``, ``host`` and
        ``created_s`` of each
    :param recommended: instances that were recommended already
    :param most: so many are recommended
    """
    recent, recommended = list(recent), set(recommended)
    decision = Decision([], set())
    for host in hosts:
        chosen = newest(host, {row['instance'] for row in recent})
        if host.policy != NONE:
            # One at a time: the cool-down decides when the next one goes.
            for instance in chosen[:1]:
                if hold(instance, recent, params, now):
                    decision.later.add(host.id)
                else:
                    recent.append({**instance, 'created_s': now})
                    decision.steps.append((host.policy, instance))
            continue
        for instance in chosen:
            if instance['instance'] in recommended:
                continue
            if most <= 0:
                decision.later.add(host.id)
                break
            most -= 1
            recommended.add(instance['instance'])
            decision.steps.append((NONE, instance))
    return decision


def newest(host: Host, tried: Collection[str]) -> list[Row]:
    """Return the newest instances without which the host is not short, or all
    that may go if these are too few; none of them could stay.

    :param tried: instances whose turn it is not again
    """
    background = [instance for instance in host.instances
                  if instance['priority'] == Priority.BACKGROUND]
    lacks = (sum(instance['vcpus'] for instance in background)
             - host.cores - SLACK_CORES)
    chosen: list[Row] = []
    for instance in sorted(background, reverse=True, key=lambda instance: (
            instance['since_s'], instance['id'])):
        if lacks <= 0:
            break
        if not (instance['exempt'] or instance['flavor'] == Priority.FOREGROUND
                or instance['instance'] in tried or instance['vcpus'] <= 0):
            chosen.append(instance)
            lacks -= instance['vcpus']
    # The last one may be so large that some before it can stay.
    for instance in chosen[::-1]:
        if instance['vcpus'] <= -lacks:
            chosen.remove(instance)
            lacks += instance['vcpus']
    return chosen
