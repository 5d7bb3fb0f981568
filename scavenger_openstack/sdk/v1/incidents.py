# SPDX-License-Identifier: Apache-2.0

"""What was disturbed, by what, and what was done about it."""

from __future__ import annotations

from typing import Any

from openstack.resource import Body
from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


class Incident(resource.Resource):
    """A workload that others disturbed."""

    resources_key = 'incidents'
    resource_key = 'incident'
    base_path = '/incidents'
    allow_fetch = True
    allow_list = True

    _query_mapping = QueryParameters(
        'host', 'project', 'victim', 'antagonist', 'cause', 'outcome',
        'evidence_kind', 'since', 'until')

    id = Body('id', type=str)
    host = Body('host', type=str)
    victim = Body('victim', type=str)
    victim_instance = Body('victim_instance', type=str)
    victim_name = Body('victim_name', type=str)
    project = Body('project', type=str)
    signal = Body('signal', type=str)
    value = Body('value', type=float)
    threshold = Body('threshold', type=float)
    cause = Body('cause', type=str)
    controller = Body('controller', type=str)
    antagonists = Body('antagonists', type=list)
    action = Body('action', type=str)
    outcome = Body('outcome', type=str)
    evidence_kind = Body('evidence_kind', type=str)
    begun_at = Body('begun_at', type=str)
    changed_at = Body('changed_at', type=str)
    ended_at = Body('ended_at', type=str)
    suspects = Body('suspects', type=list)
    grounds = Body('grounds', type=list)
    evidence = Body('evidence', type=list)
    caps = Body('caps', type=list)
    missing = Body('missing', type=list)


class Antagonist(resource.Resource):
    """A workload that disturbed others, with sums over a span."""

    resources_key = 'antagonists'
    resource_key = 'antagonist'
    base_path = '/antagonists'
    allow_list = True

    _query_mapping = QueryParameters(
        'since', 'until', 'host', 'project', 'victim_project', 'sort',
        'now', 'parts')

    workload = Body('workload', type=str)
    instance = Body('instance', type=str)
    name = Body('name', type=str)
    host = Body('host', type=str)
    project = Body('project', type=str)
    application = Body('application', type=str)
    incidents = Body('incidents', type=int)
    victims = Body('victims', type=int)
    interference_s = Body('interference_s', type=float)
    causes = Body('causes', type=list)
    confirmed = Body('confirmed', type=int)
    refuted = Body('refuted', type=int)
    limited = Body('limited', type=bool)
    disturbs_now = Body('disturbs_now', type=bool)
    foreground = Body('foreground', type=bool)
    eviction_recommended_at = Body('eviction_recommended_at', type=str)
    history = Body('history', type=list)


class Eviction(resource.Resource):
    """An instance that Nova was asked to take away."""

    resources_key = 'evictions'
    resource_key = 'eviction'
    base_path = '/evictions'
    allow_create = True
    allow_fetch = True
    allow_list = True

    _query_mapping = QueryParameters('instance', 'host', 'project', 'state')

    id = Body('id', type=str)
    instance = Body('instance', type=str)
    name = Body('name', type=str)
    host = Body('host', type=str)
    project = Body('project', type=str)
    how = Body('how', type=str)
    reason = Body('reason', type=str)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    state = Body('state', type=str)
    detail = Body('detail', type=str)
    changed_at = Body('changed_at', type=str)
    #: From here on only in a request.
    dry_run = Body('dry_run', type=bool)


class Cap(resource.Resource):
    """A limit that is or was in force on a workload."""

    resources_key = 'caps'
    resource_key = 'cap'
    base_path = '/caps'
    allow_list = True

    _query_mapping = QueryParameters(
        'host', 'project', 'instance', 'knob', 'in_force')

    id = Body('id', type=str)
    host = Body('host', type=str)
    workload = Body('workload', type=str)
    instance = Body('instance', type=str)
    name = Body('name', type=str)
    project = Body('project', type=str)
    knob = Body('knob', type=str)
    value = Body('value')
    original = Body('original')
    owner = Body('owner', type=str)
    reason = Body('reason', type=str)
    why = Body('why', type=str)
    incidents = Body('incidents', type=list)
    set_at = Body('set_at', type=str)
    removed_at = Body('removed_at', type=str)
    override = Body('override', type=str)


class Override(resource.Resource):
    """A limit that an operator set, until it expires."""

    resources_key = 'overrides'
    resource_key = 'override'
    base_path = '/caps/overrides'
    allow_commit = True
    allow_delete = True
    allow_list = True
    commit_method = 'PUT'

    _query_mapping = QueryParameters('host', 'workload')

    id = Body('id', type=str)
    host = Body('host', type=str)
    workload = Body('workload', type=str)
    instance = Body('instance', type=str)
    knob = Body('knob', type=str)
    value = Body('value')
    reason = Body('reason', type=str)
    created_by = Body('created_by', type=str)
    created_at = Body('created_at', type=str)
    expires_at = Body('expires_at', type=str)
    name = Body('name', type=str)
    followed = Body('followed', type=bool)
    why_not = Body('why_not', type=str)

    def _path_names(self) -> tuple[str, ...]:
        return self.host, self.knob, self.workload

    def _prepare_request(self, **kwargs: Any) -> Any:
        return super()._prepare_request(**{**kwargs, 'base_path': '/caps'})


class Spec(resource.Resource):
    """What an application measured on hosts where nothing disturbs it."""

    resources_key = 'specs'
    resource_key = 'spec'
    base_path = '/specs'
    allow_list = True

    _query_mapping = QueryParameters(
        'project', 'application', 'cpu_model', 'signal')

    project = Body('project', type=str)
    application = Body('application', type=str)
    cpu_model = Body('cpu_model', type=str)
    signal = Body('signal', type=str)
    mean = Body('mean', type=float)
    stddev = Body('stddev', type=float)
    n = Body('n', type=int)
    cpu_cores = Body('cpu_cores', type=float)
    day = Body('day', type=str)
