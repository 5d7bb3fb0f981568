# SPDX-License-Identifier: Apache-2.0

"""Hosts and what is set for them, workloads, and sums over them."""

from __future__ import annotations

from openstack.resource import Body
from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


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
    version = Body('version', type=str)
    enforcing = Body('enforcing', type=bool)
    stopped = Body('stopped', type=str)
    grade = Body('grade', type=str)
    modes = Body('modes', type=dict)
    last_seen_at = Body('last_seen_at', type=str)
    silent = Body('silent', type=bool)
    headroom = Body('headroom', type=dict)
    used = Body('used', type=dict)
    capacity = Body('capacity', type=dict)
    precision = Body('precision', type=dict)
    missing = Body('missing', type=list)
    suffering = Body('suffering', type=list)
    remembered = Body('remembered', type=list)
    settings = Body('settings', type=dict)
    not_followed = Body('not_followed', type=dict)
    followed_at = Body('followed_at', type=str)
    facts = Body('facts', type=dict)
    #: From here on only in a request.
    parameters = Body('parameters', type=dict)
    reason = Body('reason', type=str)


class Aggregate(resource.Resource):
    """Modes and parameters of many hosts."""

    resource_key = 'aggregate'
    base_path = '/aggregates'
    allow_fetch = True
    allow_commit = True
    commit_method = 'PATCH'

    name = Body('name', type=str, alternate_id=True)
    hosts = Body('hosts', type=list)
    settings = Body('settings', type=dict)
    not_followed = Body('not_followed', type=dict)
    #: From here on only in a request.
    profiling = Body('profiling', type=bool)
    modes = Body('modes', type=dict)
    parameters = Body('parameters', type=dict)
    reason = Body('reason', type=str)


class Workload(resource.Resource):
    """An instance or a container on a host."""

    resources_key = 'workloads'
    resource_key = 'workload'
    base_path = '/workloads'
    allow_list = True

    _query_mapping = QueryParameters(
        'host', 'name', 'project', 'instance', 'application',
        'priority', 'gone', 'limits')

    id = Body('id', type=str)
    host = Body('host', type=str)
    name = Body('name', type=str)
    kind = Body('kind', type=str)
    instance = Body('instance', type=str)
    display_name = Body('display_name', type=str)
    flavor = Body('flavor', type=str)
    project = Body('project', type=str)
    application = Body('application', type=str)
    priority = Body('priority', type=str)
    source = Body('source', type=str)
    vcpus = Body('vcpus', type=float)
    floor = Body('floor', type=dict)
    since_at = Body('since_at', type=str)
    until_at = Body('until_at', type=str)
    limits = Body('limits', type=list)


class Summary(resource.Resource):
    """What a scheduler needs of all hosts, in one answer."""

    base_path = '/summary'
    allow_fetch = True

    hosts = Body('hosts', type=list)
    profiles = Body('profiles', type=list)


class Overview(resource.Resource):
    """What is open and in force in the cloud."""

    resource_key = 'overview'
    base_path = '/overview'
    allow_fetch = True

    hosts = Body('hosts', type=dict)
    incidents_open = Body('incidents_open', type=int)
    limits = Body('limits', type=dict)
    overrides = Body('overrides', type=int)
    background_cores = Body('background_cores', type=float)
    precision = Body('precision', type=dict)
    spans = Body('spans', type=list)
    hours = Body('hours', type=list)
    victims = Body('victims', type=list)


class Report(resource.Resource):
    """Sums of interference and background work over a span."""

    resource_key = 'report'
    base_path = '/report'
    allow_fetch = True

    since_at = Body('since_at', type=str)
    until_at = Body('until_at', type=str)
    incidents = Body('incidents', type=int)
    interference_s = Body('interference_s', type=float)
    background_core_s = Body('background_core_s', type=float)
    background_byte_s = Body('background_byte_s', type=float)
    projects = Body('projects', type=list)
    hosts = Body('hosts', type=list)
    antagonists = Body('antagonists', type=list)
    precision = Body('precision', type=list)
