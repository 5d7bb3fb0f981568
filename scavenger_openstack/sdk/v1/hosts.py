# SPDX-License-Identifier: Apache-2.0

"""Hosts and what is set for them, workloads, and sums over them."""

from __future__ import annotations

from openstack.resource import Body
from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


@resource.fields(str, 'version stopped grade last_seen_at followed_at')
@resource.fields(bool, 'enforcing silent')
@resource.fields(list, 'missing suffering remembered')
@resource.fields(dict, 'modes headroom used capacity precision settings '
                       'not_followed facts')
# Only in a request:
@resource.fields(str, 'reason')
@resource.fields(dict, 'parameters')
class Host(resource.Resource):
    """A hypervisor, as its agent reports it."""

    resources_key = 'hosts'
    resource_key = 'host'
    base_path = '/hosts'
    allow_fetch = True
    allow_commit = True
    allow_list = True
    commit_method = 'PATCH'

    _query_mapping = QueryParameters('aggregate', 'enforcing')

    name = Body('name', type=str, alternate_id=True)


@resource.fields(list, 'hosts')
@resource.fields(dict, 'settings not_followed')
# Only in a request:
@resource.fields(str, 'reason')
@resource.fields(bool, 'profiling')
@resource.fields(dict, 'modes parameters')
class Aggregate(resource.Resource):
    """Modes and parameters of many hosts."""

    resource_key = 'aggregate'
    base_path = '/aggregates'
    allow_fetch = True
    allow_commit = True
    commit_method = 'PATCH'

    name = Body('name', type=str, alternate_id=True)


@resource.fields(str, 'id host name kind instance display_name flavor project '
                      'application priority source since_at until_at')
@resource.fields(float, 'vcpus')
@resource.fields(list, 'limits')
@resource.fields(dict, 'floor')
class Workload(resource.Resource):
    """An instance or a container on a host."""

    resources_key = 'workloads'
    resource_key = 'workload'
    base_path = '/workloads'
    allow_list = True

    _query_mapping = QueryParameters(
        'host', 'name', 'project', 'instance', 'application',
        'priority', 'gone', 'limits')


@resource.fields(list, 'hosts profiles')
class Summary(resource.Resource):
    """What a scheduler needs of all hosts, in one answer."""

    base_path = '/summary'
    allow_fetch = True


@resource.fields(float, 'background_cores')
@resource.fields(int, 'incidents_open overrides')
@resource.fields(list, 'spans hours victims')
@resource.fields(dict, 'hosts limits precision')
class Overview(resource.Resource):
    """What is open and in force in the cloud."""

    resource_key = 'overview'
    base_path = '/overview'
    allow_fetch = True


@resource.fields(str, 'since_at until_at')
@resource.fields(float, 'interference_s background_core_s background_byte_s')
@resource.fields(int, 'incidents')
@resource.fields(list, 'projects hosts antagonists precision')
class Report(resource.Resource):
    """Sums of interference and background work over a span."""

    resource_key = 'report'
    base_path = '/report'
    allow_fetch = True
