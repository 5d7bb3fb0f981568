# SPDX-License-Identifier: Apache-2.0

"""The stack or cluster that an instance is part of.

Heat, Senlin, OpenShift and Gardener write it into the metadata or tags of the
instances that they make.  Tenants may write there as well, so it groups
instances of one project, and says nothing of their priority.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping

from scavenger_openstack.algorithms import flavor

KEYS = (
    'metering.AutoScalingGroupName',
    'metering.groupname',
    'metering.server_group',
    'metering.stack',
    'cluster_id',
    'openshiftClusterID',
)
"""Metadata whose value is the name; the first that is there counts.

Heat writes the first two into instances of AWS::AutoScaling::AutoScalingGroup
and OS::Heat::InstanceGroup; templates write the next two for the alarms of
OS::Heat::AutoScalingGroup, with the id of the stack.  cluster_id is Senlin's,
the last OpenShift's.
"""

TAGS = ('openshiftClusterID=',)
"""What tags begin with that go on with the name."""

NAMES = ('kubernetes.io-cluster-',)
"""What keys of metadata begin with that go on with the name: Gardener's."""


def name(metadata: Mapping[str, str], tags: Iterable[str] = ()) -> str:
    """The name of the stack or cluster, '' without one that can be the name
    of an application."""
    return next(filter(flavor.is_application, _names(metadata, tags)), '')


def _names(metadata: Mapping[str, str], tags: Iterable[str]
           ) -> Iterator[str]:
    for key in KEYS:
        yield metadata.get(key, '')
    for there, prefixes in ((tags, TAGS), (metadata, NAMES)):
        for text in sorted(there):
            for prefix in prefixes:
                if text.startswith(prefix):
                    yield text.removeprefix(prefix)
