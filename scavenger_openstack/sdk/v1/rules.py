# SPDX-License-Identifier: Apache-2.0

"""What operators set, and the audit of it."""

from __future__ import annotations

from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


@resource.fields(str, 'id scope target reason created_by created_at value '
                      'application why_not name')
@resource.fields(int, 'workloads')
@resource.fields(bool, 'followed')
class Priority(resource.Resource):
    """A rule that says which workloads are background."""

    resources_key = 'priorities'
    resource_key = 'priority'
    base_path = '/priorities'
    allow_create = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('scope', 'target')


@resource.fields(str, 'id scope target reason created_by created_at why_not '
                      'name')
@resource.fields(int, 'workloads')
@resource.fields(bool, 'followed')
class Exemption(resource.Resource):
    """What detectors never limit."""

    resources_key = 'exemptions'
    resource_key = 'exemption'
    base_path = '/exemptions'
    allow_create = True
    allow_delete = True
    allow_list = True

    _query_mapping = QueryParameters('scope', 'target')


@resource.fields(str, 'scope target reason changed_by changed_at last_seen_at')
@resource.fields(int, 'hosts silent')
@resource.fields(bool, 'enabled')
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


@resource.fields(str, 'scope target')
@resource.fields(int, 'caps_per_minute')
# Only in a request:
@resource.fields(str, 'reason')
class Governor(resource.Resource):
    """How many new limits detectors may set in a minute."""

    resources_key = 'governor'
    resource_key = 'governor'
    base_path = '/governor'
    allow_commit = True
    allow_list = True
    commit_method = 'PUT'
    requires_id = False


@resource.fields(str, 'id at actor actor_name project request_id action '
                      'target reason')
@resource.fields(bool, 'by_agent')
@resource.fields(None, 'before after')
class Audit(resource.Resource):
    """A change that an operator or an agent made."""

    resources_key = 'audit'
    resource_key = 'audit'
    base_path = '/audit'
    allow_list = True

    _query_mapping = QueryParameters(
        'action', 'target', 'actor', 'by_agent', 'since')
