# SPDX-License-Identifier: Apache-2.0

"""What operators set, and the audit of it."""

from __future__ import annotations

from openstack.resource import Body
from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


class Priority(resource.Resource):
    """A rule that says which workloads are background."""

    resources_key = 'priorities'
    resource_key = 'priority'
    base_path = '/priorities'
    allow_create = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('scope', 'target')

    id = Body('id', type=str)
    scope = Body('scope', type=str)
    target = Body('target', type=str)
    reason = Body('reason', type=str)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    value = Body('value', type=str)
    application = Body('application', type=str)
    followed = Body('followed', type=bool)
    why_not = Body('why_not', type=str)
    name = Body('name', type=str)
    workloads = Body('workloads', type=int)


class Exemption(resource.Resource):
    """What detectors never limit."""

    resources_key = 'exemptions'
    resource_key = 'exemption'
    base_path = '/exemptions'
    allow_create = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('scope', 'target')

    id = Body('id', type=str)
    scope = Body('scope', type=str)
    target = Body('target', type=str)
    reason = Body('reason', type=str)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    followed = Body('followed', type=bool)
    why_not = Body('why_not', type=str)
    name = Body('name', type=str)
    workloads = Body('workloads', type=int)


class Protection(resource.Resource):
    """Where limits may be set: the kill switch."""

    resources_key = 'protection'
    resource_key = 'protection'
    base_path = '/protection'
    allow_commit = True
    allow_list = True
    commit_method = 'PUT'
    requires_id = False

    _query_mapping = QueryParameters('enabled')

    scope = Body('scope', type=str)
    target = Body('target', type=str)
    enabled = Body('enabled', type=bool)
    reason = Body('reason', type=str)
    changed_by = Body('changed_by', type=str)
    changed_at = Body('changed_at', type=str)
    hosts = Body('hosts', type=int)
    silent = Body('silent', type=int)
    last_seen_at = Body('last_seen_at', type=str)


class Governor(resource.Resource):
    """How many new limits detectors may set in a minute."""

    resources_key = 'governor'
    resource_key = 'governor'
    base_path = '/governor'
    allow_commit = True
    allow_list = True
    commit_method = 'PUT'
    requires_id = False

    scope = Body('scope', type=str)
    target = Body('target', type=str)
    caps_per_minute = Body('caps_per_minute', type=int)
    #: From here on only in a request.
    reason = Body('reason', type=str)


class Audit(resource.Resource):
    """A change that an operator or an agent made."""

    resources_key = 'audit'
    resource_key = 'audit'
    base_path = '/audit'
    allow_list = True

    _query_mapping = QueryParameters(
        'action', 'target', 'actor', 'by_agent', 'since')

    id = Body('id', type=str)
    at = Body('at', type=str)
    actor = Body('actor', type=str)
    actor_name = Body('actor_name', type=str)
    by_agent = Body('by_agent', type=bool)
    project = Body('project', type=str)
    request_id = Body('request_id', type=str)
    action = Body('action', type=str)
    target = Body('target', type=str)
    before = Body('before')
    after = Body('after')
    reason = Body('reason', type=str)
