# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells the conductor of an instance that it starts."""

from __future__ import annotations

from typing import Literal

from scavenger_openstack.wire.report import Amounts
from scavenger_openstack.wire.report import Priority
from scavenger_openstack.wire.report import Wire
from scavenger_openstack.wire.texts import Host
from scavenger_openstack.wire.texts import Instance
from scavenger_openstack.wire.texts import MaybeName
from scavenger_openstack.wire.texts import MaybeProject

MAX_TAG_BYTES = 16 << 10


class InstanceTag(Wire, frozen=True):
    """What the flavor of an instance says, and the host that it is on.

    ``source`` is 'flavor', or 'default' when the flavor says no priority;
    ``application`` is without the project; ``protect`` as in
    :class:`.flavor.Flavor`.
    """

    instance: Instance
    host: Host
    priority: Priority
    source: Literal['default', 'flavor'] = 'default'
    project: MaybeProject = ''
    application: MaybeName = ''
    floor: Amounts = {}
    protect: bool = True
