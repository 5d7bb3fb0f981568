# SPDX-License-Identifier: Apache-2.0

"""Priorities and applications that operators give to VMs, and protection.

:mod:`.classify` says which of them counts; the control plane may always make
a VM foreground.  Only the driver makes one background, since it knows the
flavor; here it becomes foreground again when no operator wants that any more.
Source: DESIGN 6, trust.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from scavenger_openstack.algorithms import classify
from scavenger_openstack.decision.orders import NO_ORDERS
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

SOURCE = 'override'
"""What a workload's ``source`` is when an operator gave its priority."""

FLAVOR = 'its flavor says foreground, which the control plane cannot change'
NOT_ALLOWED = ('only a flavor makes a VM background here; see [conductor] '
               'allow_background in the file of this host')
NO_VM = 'only VMs of libvirt are made background'
NO_PROJECT = 'its project is not known, and an application is of one'


class Tags:
    """Remembers what it made of each workload, which stays the same object
    from one sample to the next."""

    def __init__(self) -> None:
        self._orders = NO_ORDERS
        self._tagged: frozenset[str] = frozenset()
        self._done: dict[str, tuple[Workload, Workload]] = {}
        self.refused: Mapping[str, str] = {}
        """Each tag of a VM of this host that does not count, and why."""

    def apply(self, sample: HostSample, orders: Orders) -> HostSample:
        """The sample with the priorities and applications of the orders."""
        if orders is not self._orders:
            self._orders, self._done = orders, {}
            self._tagged = orders.foreground.union(
                orders.background, orders.denied, orders.applications,
                orders.unprotected)
        elif len(self._done) > 2 * len(sample.workloads):
            self._done = {}     # most of them are gone
        places = [index for index, rated in enumerate(sample.workloads)
                  if rated[0].instance in self._tagged
                  or rated[0].source == SOURCE]
        refused: dict[str, str] = {}
        changed: dict[int, Workload] = {}
        for index in places:
            workload = sample.workloads[index].workload
            tagged = self._of(workload)
            asked = (NO_VM if workload.instance in orders.background
                     else NOT_ALLOWED
                     if workload.instance in orders.denied else '')
            if asked and tagged.priority is Priority.FOREGROUND:
                refused[f'priority {workload.instance}'] = (
                    FLAVOR if tagged.source == 'flavor' else asked)
            if workload.project is None and (
                    workload.instance in orders.applications):
                refused[f'application {workload.instance}'] = NO_PROJECT
            if tagged is not workload:
                changed[index] = tagged
        self.refused = refused
        return dataclasses.replace(sample, workloads=tuple(
            rated._replace(workload=changed[index])
            if index in changed else rated
            for index, rated in enumerate(sample.workloads))
            ) if changed else sample

    def _of(self, workload: Workload) -> Workload:
        before, tagged = self._done.get(workload.id, (None, workload))
        if before is not workload:
            tagged = self._made(workload)
            self._done[workload.id] = workload, tagged
        return tagged

    def _is_foreground(self, workload: Workload) -> bool:
        """Whether an operator makes it so."""
        if workload.instance not in self._orders.foreground:
            return False
        wide = workload.instance in self._orders.unless_flavor
        return classify.classify(
            **{'project' if wide else 'instance': Priority.FOREGROUND},
            flavor=workload.priority if workload.source == 'flavor' else None
        ).source != 'flavor'

    def _made(self, workload: Workload) -> Workload:
        orders = self._orders
        changes: dict[str, Any] = {}
        if self._is_foreground(workload):
            changes = {'priority': Priority.FOREGROUND, 'source': SOURCE}
        elif workload.source == SOURCE and (
                workload.instance not in orders.background):
            changes = {'priority': Priority.FOREGROUND, 'source': 'default'}
        if workload.instance in orders.unprotected:
            changes['protected'] = False
        name = orders.applications.get(workload.instance)
        if name and workload.project is not None:
            # It never is one of another project.
            mine = f'{workload.project}/'
            changes['application'] = mine + name.removeprefix(mine)
        if all(getattr(workload, field) == value
               for field, value in changes.items()):
            return workload
        return dataclasses.replace(workload, **changes)
