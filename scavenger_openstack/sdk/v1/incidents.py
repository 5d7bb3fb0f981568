# SPDX-License-Identifier: Apache-2.0

"""What was disturbed, by what, and what was done about it."""

from __future__ import annotations

from typing import Any

from openstack.resource import QueryParameters

from scavenger_openstack.sdk.v1 import resource


@resource.fields(str, 'id host victim victim_instance victim_name project '
                      'signal cause controller action outcome evidence_kind '
                      'begun_at changed_at ended_at')
@resource.fields(float, 'value threshold')
@resource.fields(list, 'antagonists suspects grounds evidence caps missing')
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


@resource.fields(str, 'workload instance name host project application '
                      'eviction_recommended_at')
@resource.fields(float, 'interference_s')
@resource.fields(int, 'incidents victims confirmed refuted')
@resource.fields(bool, 'limited disturbs_now foreground')
@resource.fields(list, 'causes history')
class Antagonist(resource.Resource):
    """A workload that disturbed others, with sums over a span."""

    resources_key = 'antagonists'
    resource_key = 'antagonist'
    base_path = '/antagonists'
    allow_list = True

    _query_mapping = QueryParameters(
        'since', 'until', 'host', 'project', 'victim_project', 'sort',
        'now', 'parts')


@resource.fields(str, 'id instance name host project how reason created_by '
                      'created_at state detail changed_at')
# Only in a request:
@resource.fields(bool, 'dry_run')
class Eviction(resource.Resource):
    """An instance that Nova was asked to take away."""

    resources_key = 'evictions'
    resource_key = 'eviction'
    base_path = '/evictions'
    allow_create = True
    allow_fetch = True
    allow_list = True

    _query_mapping = QueryParameters('instance', 'host', 'project', 'state')


@resource.fields(str, 'id host workload instance name project knob owner '
                      'reason why set_at removed_at override')
@resource.fields(list, 'incidents')
@resource.fields(None, 'value original')
class Cap(resource.Resource):
    """A limit that is or was in force on a workload."""

    resources_key = 'caps'
    resource_key = 'cap'
    base_path = '/caps'
    allow_list = True

    _query_mapping = QueryParameters(
        'host', 'project', 'instance', 'knob', 'in_force')


@resource.fields(str, 'id host workload instance knob reason created_by '
                      'created_at expires_at name why_not')
@resource.fields(bool, 'followed')
@resource.fields(None, 'value')
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

    def _path_names(self) -> tuple[str, ...]:
        return self.host, self.knob, self.workload

    def _prepare_request(self, **kwargs: Any) -> Any:
        return super()._prepare_request(**{**kwargs, 'base_path': '/caps'})


@resource.fields(str, 'project application cpu_model signal day')
@resource.fields(float, 'mean stddev cpu_cores')
@resource.fields(int, 'n')
class Spec(resource.Resource):
    """What an application measured on hosts where nothing disturbs it."""

    resources_key = 'specs'
    resource_key = 'spec'
    base_path = '/specs'
    allow_list = True

    _query_mapping = QueryParameters(
        'project', 'application', 'cpu_model', 'signal')
