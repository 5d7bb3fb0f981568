# SPDX-License-Identifier: Apache-2.0

"""Follows the host aggregates of Nova: their hosts, and the priority that
their metadata says.

The priority is kept as the rule that an operator may give an aggregate, so
what such rules are weaker than it is weaker than, too: a flavor that says a
priority, and what an operator gave the instance or its project.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import functools
import math

from oslo_log import log

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.conductor.nova import protocol
from scavenger_openstack.conductor.nova.protocol import Aggregate
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db.resources import rules
from scavenger_openstack.db.resources import services
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack import text
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

CLAIM = 'nova-aggregates'

SERVICES_S = 600.0
"""So often the compute services are read."""


class Follower:
    """Follows them for all conductors; for one thread.

    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, nova: protocol.Nova,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._nova = nova
        self._clock = clock
        self._logged = log_once.LogOnce()
        self._services_s = -math.inf

    def turn(self, still: Callable[[], None]) -> int:
        """Read all aggregates; return how many changed.

        :param still: called once they are read; may raise to end the turn
        :raises Unreachable: Nova does not answer; nothing changes.
        :raises DatabaseError: the database cannot be used.
        """
        in_nova = self._nova.aggregates()
        still()
        self._read_services()
        still()
        for aggregate in in_nova:
            for mistake in mistakes(aggregate):
                if self._logged.due(mistake):
                    LOG.warning('%s', printable(mistake))
        changed: int = connect.retried(
            self._engine, functools.partial(apply, in_nova=in_nova,
                                            now=self._clock()),
            idempotent=True, on_duplicate=True)
        if changed:
            LOG.debug('%d hosts or priorities of aggregates were not what '
                      'Nova says', changed)
        return changed

    def _read_services(self) -> None:
        """Read which hosts have a compute service, now and then.

        :raises DatabaseError: the database cannot be used.
        """
        now = self._clock()
        if 0 <= now - self._services_s < SERVICES_S:
            return
        try:
            names = self._nova.services()
        except errors.Unreachable as exc:   # perhaps it is not allowed
            why = printable(text.without_ids(str(exc)))
            if self._logged.due('services', why):
                LOG.warning(
                    'compute services are not read from Nova, so hosts that '
                    'report by a name which Nova does not have are not '
                    'noticed: %s', why)
        else:
            connect.retried(self._engine, functools.partial(
                services.follow, names=names), idempotent=True,
                on_duplicate=True)
        self._services_s = now


def apply(connection: connect.Connection, in_nova: Iterable[Aggregate],
          now: float) -> int:
    """Store the aggregates of Nova; return of how many either hosts or
    priority have changed."""
    in_nova = list(in_nova)
    changed = aggregates.follow(
        connection, {aggregate.name: aggregate.hosts for aggregate in in_nova},
        now_s=now)
    counting = {name for name, there in aggregates.members(connection).items()
                if not there.named}
    return changed + rules.follow_priorities(
        connection, {aggregate.name: value for aggregate in in_nova
                     if aggregate.name in counting
                     and (value := priority(aggregate))},
        now_s=now)


def priority(aggregate: Aggregate) -> str | None:
    """Return the priority in the metadata, ``None`` if there is none."""
    value = aggregate.metadata.get(flavor.PRIORITY)
    return (value if value is not None
            and not flavor.mistake(flavor.PRIORITY, value) else None)


def mistakes(aggregate: Aggregate) -> Iterator[str]:
    """Generate what an operator may wonder about."""
    for key, value in sorted(aggregate.metadata.items()):
        if key.startswith(flavor.PREFIX):
            why = (flavor.mistake(key, value) if key == flavor.PRIORITY
                   else f'of an aggregate only {flavor.PRIORITY} counts')
            if why:
                yield (f'host aggregate {aggregate.name!a:.80}: {key!a:.80} = '
                       f'{value!a:.80} in its metadata is ignored: {why}')
