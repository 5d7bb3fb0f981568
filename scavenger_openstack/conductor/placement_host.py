# SPDX-License-Identifier: Apache-2.0

"""One host in Placement: what is remembered of it, and what is written."""

from __future__ import annotations

import enum
import functools
import math
import random

from oslo_log import log

from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor import placement_api

LOG = log.getLogger(__name__)

TRUST_S = 1800.0
"""What Placement has is read again after one to two times that, in case
another program changed it."""

GONE = 404


class Urgency(enum.IntEnum):
    """Which hosts are written before others."""

    LESS = 0
    NEW = 1
    REST = 2
    FAILS = 3


class Provider:
    """A host's providers; while a thread writes them, they are its alone.

    :param root: UUID of the host's own, '' while it is not known
    :param child: UUID of the background provider, likewise
    """

    def __init__(self, name: str, root: str = '', child: str = '') -> None:
        self.name = name
        self.root = root
        self.child = child
        self.report: placement.HostReport | None = None
        self.faults = 0
        self.fault = ''
        self.retry_s = -math.inf
        self.reset()

    def reset(self) -> None:
        """Forget what Placement has of them."""
        self.state = placement.State()
        self.root_inventory: placement.Inventory = {}
        self.usage: placement_api.Usage | None = None
        self.traits: frozenset[str] | None = None
        self.traits_s = self.until_s = -math.inf

    @property
    def is_read(self) -> bool:
        """Whether the inventory in Placement has been read."""
        return self.state.level_s > -math.inf

    def urgency(self, report: placement.HostReport | None, now: float,
                params: placement.Params) -> Urgency | None:
        """Return how urgent it is to write a host, ``None`` if not due."""
        if now < self.retry_s:
            return None
        self.report = placement.within(report, self.root_inventory)
        if self.faults:
            return Urgency.FAILS
        if not self.is_read:
            return Urgency.NEW
        self.state = placement.smoothed(self.state, self.report, now, params)
        # What is allocated makes no difference to whether it is due.
        inventory = placement.plan(self.state, {}, now, params)
        if inventory is None:
            return Urgency.REST if now >= self.until_s or (
                self._has_new_traits(now, params)) else None
        return Urgency.LESS if any(
            inventory[name].offered < amount.offered
            for name, amount in self.state.written.items()) else Urgency.REST

    def write(self, api: placement_api.Placement, now: float,
              params: placement.Params) -> bool:
        """Write the providers by the last report; return whether the inventory
        was written.

        :raises Refused: Placement does not want to.
        :raises Unreachable: there is no answer.
        """
        if not self.root:
            root = api.root(self.name)
            if root is None:
                raise placement_api.Refused(
                    f'Placement has no provider {self.name}', GONE)
            self.root = root
        if not self.child:
            self.child = api.make_child(self.name, self.root)
            LOG.info('%s: Placement has a provider of its background now',
                     self.name)
        if now >= self.until_s:
            self._read(api, now)
            self.report = placement.within(self.report, self.root_inventory)
        self.state = placement.smoothed(self.state, self.report, now, params)
        is_due = placement.plan(self.state, {}, now, params) is not None
        if is_due:
            inventory, self.usage = api.write(
                self.child, functools.partial(placement.inventory,
                                              self.state), self.usage)
            self.state = placement.written(self.state, inventory, now)
            LOG.debug('%s: written to Placement: %s', self.name, {
                kind: amount.offered for kind, amount in inventory.items()})
        if self._has_new_traits(now, params):
            traits = placement.traits(self.report, now, params)
            api.set_traits(self.root, traits)
            self.traits, self.traits_s = traits, now
        return is_due

    def _has_new_traits(self, now: float, params: placement.Params) -> bool:
        return now - self.traits_s >= params.interval_s and (
            self.traits != placement.traits(self.report, now, params))

    def _read(self, api: placement_api.Placement, now: float) -> None:
        """Read what Placement has of them."""
        inventory = api.inventory(self.child)
        if not inventory.keys() >= set(placement.CLASSES):
            inventory = {}      # it is new, or broken: written at once
        if inventory and not self.is_read:
            self.state = placement.State(
                level={kind: float(inventory[kind].offered)
                       for kind in placement.CLASSES}, level_s=now)
        self.state = self.state._replace(written=inventory)
        self.root_inventory = api.inventory(self.root)
        self.traits = None
        self.until_s = now + TRUST_S * random.uniform(1, 2)
