# SPDX-License-Identifier: Apache-2.0

"""Keeps what Placement is told up to date with what agents report."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import random
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import summary
from scavenger_openstack import host_names

LOG = log.getLogger(__name__)

CLAIM = 'placement'
EVERY_S = 10.0

LIST_S = 60.0
"""All providers are listed again after that; 10,000 hosts are 20,000."""

TRUST_S = 1800.0
"""What Placement has is read again after one to two times that, in case
another program changed it."""

MOST_FAULTS = 3
"""After so many faults of Placement in a row a turn ends."""

GONE = 404
BAD = 400


class Known:
    """What is remembered of a host's provider."""

    def __init__(self, state: placement.State, until_s: float) -> None:
        self.state = state
        self.root: placement.Inventory = {}     # of the host's own provider
        self.until_s = until_s
        self.traits: frozenset[str] | None = None
        self.traits_s = float('-inf')


class Reported(NamedTuple):
    """The last report of a host: what its row says of it, when that changed
    here, and whether it is sure that this was then."""

    noted_s: float
    time_s: float
    sure: bool


class Writer:
    """Writes for all hosts; for one thread.

    A host is silent when its row has not changed for so long, by the time
    that passed here: conductors note its reports by their clocks, which may
    be set.

    :param clock: UNIX time in seconds; counts at the first look at a host
    :param elapsed: seconds that only grow; ``None``: the clock is like that
    """

    def __init__(self, engine: connect.Engine, api: placement_api.Placement,
                 params: placement.Params, clock: Callable[[], float],
                 elapsed: Callable[[], float] | None = None) -> None:
        self._engine = engine
        self._api = api
        self._params = params
        self._clock = clock
        self._elapsed = elapsed or clock
        self._reports: dict[str, Reported] = {}
        self._prepared = False
        self._listed_s = float('-inf')
        self._roots: dict[str, str] = {}
        self._providers = host_names.Index({})
        self._children: dict[str, str] = {}
        self._known: dict[str, Known] = {}
        self._said: set[str] = set()
        self._missed_s: dict[str, float] = {}
        self._faults = 0

    def turn(self, still: Callable[[], None]) -> int:
        """Look at all hosts; how many were written.

        :param still: called before each host; may raise to end the turn
        :raises Unreachable: Placement does not answer.
        :raises DatabaseError: the database cannot be used.
        """
        now = self._elapsed()
        with connect.reading(self._engine) as connection:
            rows = summary.hosts(connection)
        self._reports = {row['name']: self._reported(row, now)
                         for row in rows}
        hosts = host_names.Index({row['name']: row['last_seen_s']
                                  for row in rows})
        self._list(now)
        written, done = 0, set()
        for row in rows:
            still()
            name = self._providers.find(row['name'])
            if name is not None:
                self._missed_s.pop(row['name'], None)
            if name is None:
                # At first nova-compute may not have made it yet.
                if self._listed_s - self._missed_s.setdefault(
                        row['name'], self._listed_s) < LIST_S:
                    continue
                self._say(row['name'], f"{row['name']}: Placement has no "
                          'provider of that name: its background is not '
                          'offered; [agent] host has to be the name that '
                          '"openstack compute service list" shows')
            elif hosts.find(name) != row['name']:
                self._say(row['name'], f"{row['name']}: an agent of another "
                          f'name reports for {name}, too: this one is left '
                          'out')
            else:
                done.add(name)
                reported = self._reports[row['name']]
                # Else it may be silent, and Placement has what it was told.
                if reported.sure or (now - reported.time_s
                                     > self._params.silent_s):
                    written += self._host(name, seen(row, reported.time_s),
                                          now)
        for name in self._children.keys() - done:
            still()     # its agent never reported, or has another name now
            if name in self._roots:
                written += self._host(name, None, now)
        return written

    def _reported(self, row: Mapping[str, Any], now: float) -> Reported:
        """When a host reported last, by the time that passes here."""
        noted_s, before = row['last_seen_s'], self._reports.get(row['name'])
        if before is None:
            ago_s = self._clock() - noted_s
            sure = abs(ago_s) <= self._params.silent_s
            return Reported(noted_s, now - max(0.0, ago_s) * sure, sure)
        return before if before.noted_s == noted_s else Reported(
            noted_s, now, True)

    def _list(self, now: float) -> None:
        if not self._prepared:
            self._api.prepare()
            self._prepared = True
        if not 0 <= now - self._listed_s < LIST_S:
            self._roots, self._children = self._api.listed()
            self._providers = host_names.Index(dict.fromkeys(
                self._roots, 0.0))
            self._listed_s = now

    def _host(self, name: str, what: placement.Seen | None, now: float
              ) -> int:
        try:
            written = self._write(name, what, now)
        except placement_api.Failed:
            self._faults += 1
            if self._faults >= MOST_FAULTS:
                self._faults = 0
                raise
            LOG.debug('%s: next try in the next turn', name, exc_info=True)
            return 0
        except placement_api.Refused as exc:
            self._known.pop(name, None)
            self._listed_s = float('-inf')
            if exc.status == BAD:   # perhaps our classes or traits are gone
                self._prepared = False
            if exc.status != GONE:
                self._say(name, f'{name}: {exc}')
            return 0
        self._faults = 0
        return written

    def _write(self, name: str, what: placement.Seen | None, now: float
               ) -> int:
        if name not in self._children:
            self._children[name] = self._api.make_child(name,
                                                        self._roots[name])
            self._known.pop(name, None)
            LOG.info('%s: Placement has a provider of its background now',
                     name)
        child = self._children[name]
        known = self._read(name, child, now)
        what = placement.within(what, known.root)
        known.state = placement.smoothed(known.state, what, now,
                                         self._params)
        wanted = placement.traits(what, now, self._params)
        if wanted != known.traits and (
                now - known.traits_s >= self._params.interval_s):
            self._api.set_traits(self._roots[name], wanted)
            known.traits, known.traits_s = wanted, now
        # What is allocated makes no difference to whether it is due.
        if placement.plan(known.state, {}, now, self._params) is None:
            return 0
        inventory = placement.plan(known.state, self._api.allocated(child),
                                   now, self._params)
        if inventory is None:
            return 0
        self._api.write(child, inventory)
        known.state = placement.written(known.state, inventory, now)
        LOG.debug('%s: Placement was told %s', name, {
            kind: amount.offered for kind, amount in inventory.items()})
        self._said.discard(name)
        return 1

    def _read(self, name: str, child: str, now: float) -> Known:
        """What is known of a provider, from Placement if need be."""
        known = self._known.get(name)
        if known is not None and now < known.until_s:
            return known
        inventory = self._api.inventory(child)
        if not inventory.keys() >= set(placement.CLASSES):
            inventory = {}      # it is new, or broken: written at once
        if known is None:
            known = self._known[name] = Known(placement.State(), 0.0)
            if inventory:
                known.state = placement.State(
                    level={kind: float(inventory[kind].offered)
                           for kind in placement.CLASSES}, level_s=now)
        known.state = known.state._replace(written=inventory)
        known.traits = None
        known.root = self._api.inventory(self._roots[name])
        known.until_s = now + TRUST_S * random.uniform(1, 2)
        return known

    def _say(self, name: str, text: str) -> None:
        """Log once per host."""
        if name not in self._said:
            self._said.add(name)
            LOG.warning('%s', text)


def seen(row: Mapping[str, Any], time_s: float) -> placement.Seen:
    """What the last report of a host says, which was then.

    One that sets no limits offers nothing: nothing would hold back what
    comes.
    """
    facts = row['facts'] or {}
    offer = placement.offer(facts.get('headroom', {}), facts.get('used', {})
                            ) if facts.get('enforcing') else {}
    return placement.Seen(time_s, offer, facts.get('grade', ''),
                          bool(row['incidents']))
