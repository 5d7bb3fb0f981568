# SPDX-License-Identifier: Apache-2.0

"""Hosts that do not report any more, logged once.

They go on protecting themselves, with the directives that they have; what
operators change does not reach them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import time

from oslo_log import log

from scavenger_openstack.conductor import leader
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

CLAIM = 'silence'

EVERY_S = 10.0

MOST_NAMED = 10
"""More hosts at once are counted, and so many of them named."""


class Watch:
    """Looks for hosts that fell silent since the last look.

    :param silent_s: without a report for longer, a host is silent
    :param clock: UNIX time in seconds
    """

    def __init__(self, engine: connect.Engine, silent_s: float,
                 clock: Callable[[], float]) -> None:
        self._engine = engine
        self._silent_s = silent_s
        self._clock = clock
        self._silent: frozenset[str] = frozenset()
        self._began_s: float | None = None

    def turn(self, still: Callable[[], None]) -> None:
        """Log the hosts that fell silent since the last turn; none is silent
        until turns have succeeded for as long: after an outage of database or
        conductors each host needs its time.

        :raises DatabaseError: the database cannot be used
        """
        now, began_s = self._clock(), self._began_s
        self._began_s = None
        with connect.reading(self._engine) as connection:
            silent = frozenset(hosts.silent(connection, now - self._silent_s))
        self._began_s = now if began_s is None else began_s
        if now - self._began_s < self._silent_s:
            return
        new, again = silent - self._silent, self._silent - silent
        if new:
            LOG.warning('no report for more than %.0f s from %s: what '
                        'operators change does not get there; see whether '
                        'its agent runs and reaches the broker',
                        self._silent_s, _named(new))
        if again:
            LOG.info('reports come again from %s', _named(again))
        self._silent = silent


def make_leader(engine: connect.Engine, silent_s: float, holder: str
                ) -> leader.Leader:
    """Return what watches for silent hosts in one of all conductors.

    :param holder: see :class:`.leader.Leader`
    """
    return leader.Leader(
        engine, CLAIM, holder, time.time,
        Watch(engine, silent_s, time.time).turn, every_s=EVERY_S,
        what='hosts that do not report are not looked for')


def _named(names: Collection[str]) -> str:
    """The names, or how many they are and the first ones."""
    first = ', '.join(map(printable, sorted(names)[:MOST_NAMED]))
    return (first if len(names) <= MOST_NAMED
            else f'{len(names)} hosts, among them {first}')
