# SPDX-License-Identifier: Apache-2.0

"""CPU limits of groups that are inside one another, on cgroup version 1.

The lease of a group's CPU set has the sets of all groups below, which others
may set as well.  And the kernel takes no quota above that of a group around.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import os

from oslo_log import log

from scavenger_openstack.agent.apply import originals
from scavenger_openstack.agent import base as base_
from scavenger_openstack import amounts
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey

LOG = log.getLogger(__name__)

SHOWN = 3
"""So many groups are named in one line of the log."""


def inside(wanted: Mapping[KnobKey, Cap], in_force: Mapping[KnobKey, Cap]
           ) -> dict[KnobKey, Cap]:
    """The same limits, but no quota above that of a group around it.

    Neither the one in force nor the one wanted: so whichever is written
    first, the kernel takes it, if that inside is tightened before.  The
    innermost come first.
    """
    found: dict[KnobKey, Cap] = {}
    for (workload, knob), cap in wanted.items():
        if knob is not Knob.CPU_CORES or not workload.startswith('/'):
            continue
        group = workload
        while group := group.rpartition('/')[0]:
            for limits in (in_force, wanted):
                around = limits.get((group, knob))
                if around is not None and float(around.value) < float(
                        cap.value):
                    cap = cap._replace(
                        value=around.value, owner=around.owner,
                        reason=f'{cap.reason}; no more than {group} has')
        found[workload, knob] = cap
    return {**dict(sorted(found.items(), key=lambda item: -item[0][0].count(
        '/'))), **{key: cap for key, cap in wanted.items()
                   if key not in found}}


class Trees:
    """Keeps their originals up to date."""

    def __init__(self, leases: base_.Leases) -> None:
        self._leases = leases
        self._known: set[KnobKey] = set()

    def begin(self, key: KnobKey) -> None:
        """There is a lease since now: of a CPU set, the driver knows each
        write below."""
        if key[1] is Knob.CPU_SET:
            self._known.add(key)

    def end(self, key: KnobKey) -> None:
        """There is none any more."""
        self._known.discard(key)

    def look(self, key: KnobKey, now: Sequence[RestoreAction]) -> None:
        """Take groups into the lease that were born below, and what other
        programs set there; and disks that came.

        :raises LeaseError: no durable record could be made
        """
        held = self._leases.held()[key]
        actions = originals.below(held.actions, now, known=key in self._known)
        if actions == list(held.actions):
            return
        there = {action.get('dir') for action in now}
        actions = [action for action in actions if 'dir' not in action
                   or action['dir'] in there or os.path.isdir(action['dir'])]
        self._leases.replace(*key, actions,
                             originals.value_of(actions, held.original))
        changed = originals.changed_below(held.actions, actions)
        if changed:
            LOG.warning('%s %s: another program changed it in %s below, '
                        'which will be restored: %s', *key,
                        amounts.counted(len(changed), 'group'),
                        ', '.join(changed[:SHOWN]))
