# SPDX-License-Identifier: Apache-2.0

"""What nova-compute tells the conductor of an instance that it starts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from scavenger_openstack.wire.report import Knob
from scavenger_openstack.wire.report import MaybeName
from scavenger_openstack.wire.report import Name
from scavenger_openstack.wire.report import NotNegative
from scavenger_openstack.wire.report import Priority
from scavenger_openstack.wire.report import Wire

MAX_TAG_BYTES = 16 << 10


class InstanceTag(Wire, frozen=True):
    """What the flavor of an instance says, and the host that it is on.

    ``source`` is 'flavor', or 'default' when the flavor says no priority;
    ``application`` is without the project; ``protect`` as in
    :class:`.flavor.Flavor`.
    """

    instance: Annotated[str, Meta(
        pattern='^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')]
    host: Name
    priority: Priority
    source: MaybeName = 'default'
    project: Annotated[str, Meta(max_length=64)] = ''
    application: MaybeName = ''
    floor: dict[Knob, NotNegative] = {}
    protect: bool = True
