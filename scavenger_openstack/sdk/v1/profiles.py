# SPDX-License-Identifier: Apache-2.0

"""What workloads tolerate and cause, and measuring it."""

from __future__ import annotations

from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


@resource.fields(str, 'id kind target project source form host created_by '
                      'created_at stale_at')
@resource.fields(float, 'measured_s')
@resource.fields(dict, 'qos tolerated caused missing')
# Only in a request:
@resource.fields(str, 'reason')
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


@resource.fields(str, 'id host workload kind target project form reason '
                      'created_by created_at state detail changed_at')
@resource.fields(float, 'seconds used_s')
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
