# SPDX-License-Identifier: Apache-2.0

"""Takes what nova-compute tells of instances.

What comes over the broker is as trustworthy as those that may write to it: an
agent makes nothing background for it unless ``allow_background`` says so in
the file of its host.
"""

from __future__ import annotations

from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.wire.tag import InstanceTag

FLAVOR = 'flavor'


def take(connection: reports.Connection, tag: InstanceTag, now_s: float
         ) -> bool:
    """Remember a tag; return whether its host is one that has reported.

    A flavor that says nothing is not remembered.  nova-compute sends the same
    for an instance that was deleted.
    """
    if hosts.by_name(connection, tag.host) is None:
        return False
    if (tag.source != FLAVOR and not tag.application and not tag.floor
            and tag.protect):
        flavor_tags.forget(connection, tag.instance)
    else:
        flavor_tags.put(connection, {
            'instance': tag.instance, 'host': tag.host,
            'project': tag.project, 'priority': tag.priority,
            'source': tag.source[:32], 'application': tag.application,
            'protect': tag.protect, 'floor': dict(tag.floor)}, now_s,
            from_broker=True)
    return True
