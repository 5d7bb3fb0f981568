# SPDX-License-Identifier: Apache-2.0

"""What workloads tolerate and cause, and measuring it."""

from __future__ import annotations

from openstack.resource import Body
from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


class Profile(resource.Resource):
    """What a workload tolerates and causes, by source."""

    resources_key = 'profiles'
    resource_key = 'profile'
    base_path = '/profiles'
    allow_create = True
    allow_fetch = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('kind', 'target', 'project')

    id = Body('id', type=str)
    kind = Body('kind', type=str)
    target = Body('target', type=str)
    project = Body('project', type=str)
    source = Body('source', type=str)
    form = Body('form', type=str)
    measured_s = Body('measured_s', type=float)
    host = Body('host', type=str)
    qos = Body('qos', type=dict)
    tolerated = Body('tolerated', type=dict)
    caused = Body('caused', type=dict)
    missing = Body('missing', type=dict)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    stale_at = Body('stale_at', type=str)
    #: From here on only in a request.
    reason = Body('reason', type=str)


class Profiling(resource.Resource):
    """The measurement of a profile on a host."""

    resources_key = 'profilings'
    resource_key = 'profiling'
    base_path = '/profilings'
    allow_create = True
    allow_fetch = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('host', 'state')

    id = Body('id', type=str)
    host = Body('host', type=str)
    workload = Body('workload', type=str)
    kind = Body('kind', type=str)
    target = Body('target', type=str)
    project = Body('project', type=str)
    form = Body('form', type=str)
    seconds = Body('seconds', type=float)
    used_s = Body('used_s', type=float)
    reason = Body('reason', type=str)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    state = Body('state', type=str)
    detail = Body('detail', type=str)
    changed_at = Body('changed_at', type=str)
