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

"""The CPU sets of groups below a limited one, which others may set as well.

On cgroup version 1 they are all in the lease of that group.
"""

from __future__ import annotations

from collections.abc import Sequence

from oslo_log import log

from scavenger_openstack.agent.apply import originals
from scavenger_openstack.agent import base as base_
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.types import KnobKey

LOG = log.getLogger(__name__)

SHOWN = 3
"""So many groups are named in one line of the log."""


class Trees:
    """Keeps their originals up to date."""

    def __init__(self, leases: base_.Leases) -> None:
        self._leases = leases
        self._known: set[KnobKey] = set()

    def begin(self, key: KnobKey) -> None:
        """There is a lease since now: the driver knows each write below."""
        self._known.add(key)

    def end(self, key: KnobKey) -> None:
        """There is none any more."""
        self._known.discard(key)

    def look(self, key: KnobKey, now: Sequence[RestoreAction]) -> None:
        """Take groups into the lease that were born below, and what other
        programs set there.

        :raises LeaseError: no durable record could be made
        """
        held = self._leases.held()[key]
        actions = originals.below(held.actions, now, known=key in self._known)
        if actions == list(held.actions):
            return
        self._leases.replace(*key, actions, held.original)
        changed = originals.changed_below(held.actions, actions)
        if changed:
            LOG.warning('%s %s: another program changed it in %d groups '
                        'below, which will be restored: %s', *key,
                        len(changed), ', '.join(changed[:SHOWN]))
