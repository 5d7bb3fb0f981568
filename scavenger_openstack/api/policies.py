# SPDX-License-Identifier: Apache-2.0

"""Who may do what; operators may say otherwise in policy.yaml.

The rules are in code and documented with the URLs that they are for, so that
oslopolicy-sample-generator prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from oslo_config import cfg
from oslo_policy import opts
from oslo_policy import policy

from scavenger_openstack.api.call import Caller
from scavenger_openstack.api import faults

POLICY_FILE = '/etc/scavenger/policy.yaml'
POLICY_DIR = '/etc/scavenger/policy.d'

ADMIN = 'rule:admin_api'
READER = 'rule:cloud_reader'
VICTIM = 'rule:cloud_reader or rule:victim_reader'
OWN = 'rule:cloud_reader or rule:project_reader'

INCIDENTS_LIST = 'interference:incidents:list'
INCIDENTS_SHOW = 'interference:incidents:show'
INCIDENTS_ALL = 'interference:incidents:all'
WORKLOADS_LIST = 'interference:workloads:list'
WORKLOADS_ALL = 'interference:workloads:all'
CAPS_LIST = 'interference:caps:list'
CAPS_ALL = 'interference:caps:all'
EVICTIONS_LIST = 'interference:evictions:list'
EVICTIONS_ALL = 'interference:evictions:all'
PROFILES_LIST = 'interference:profiles:list'
PROFILES_SHOW = 'interference:profiles:show'
PROFILES_ALL = 'interference:profiles:all'
PROFILES_CREATE = 'interference:profiles:create'
PROFILES_DELETE = 'interference:profiles:delete'


def _rule(name: str, check: str, text: str, *urls: str
          ) -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        f'interference:{name}', check, text, scope_types=['project'],
        operations=[{'method': method, 'path': path} for method, path in (
            url.split(' ') for url in urls)])


BASE = [
    policy.RuleDefault('admin_api', 'role:admin',
                       'May see and change everything.'),
    policy.RuleDefault(
        'cloud_reader',
        'rule:admin_api or role:service or '
        '(role:reader and operator_project:True)',
        'May see the whole cloud: administrators, services, and readers in '
        'a project of [api] operator_projects.'),
    policy.RuleDefault(
        'victim_reader', 'role:reader and project_id:%(project_id)s',
        'A reader of the project whose instance is the victim.'),
    policy.RuleDefault(
        'project_reader', 'role:reader and project_id:%(project_id)s',
        'A reader of the project that the instance belongs to.'),
]

RULES = [
    _rule('hosts:list', READER, 'List hosts.', 'GET /v1/hosts'),
    _rule('hosts:show', READER, 'Show a host.', 'GET /v1/hosts/{name}'),
    _rule('hosts:update', ADMIN, 'Set modes and parameters of a host.',
          'PATCH /v1/hosts/{name}'),
    _rule('aggregates:show', READER, 'Show what is set for an aggregate.',
          'GET /v1/aggregates/{aggregate}'),
    _rule('aggregates:update', ADMIN,
          'Set modes and parameters of the hosts of an aggregate.',
          'PATCH /v1/aggregates/{aggregate}'),
    _rule('summary:show', READER, 'Show all hosts, and the cloud, at a '
          'glance.', 'GET /v1/summary', 'GET /v1/overview'),
    _rule('report:show', READER, 'Report what a span of time was like.',
          'GET /v1/report'),
    _rule('workloads:list', OWN, 'List the instances of one\'s project.',
          'GET /v1/workloads'),
    _rule('workloads:all', READER,
          'See the workloads of all projects, and where they are.',
          'GET /v1/workloads'),
    _rule('incidents:list', VICTIM, 'List the incidents of one\'s project.',
          'GET /v1/incidents'),
    _rule('incidents:show', VICTIM, 'Show an incident.',
          'GET /v1/incidents/{id}'),
    _rule('incidents:all', READER,
          'See the incidents of all projects, and both sides of each.',
          'GET /v1/incidents', 'GET /v1/incidents/{id}'),
    _rule('antagonists:list', READER, 'Rank what disturbs most.',
          'GET /v1/antagonists'),
    _rule('evictions:list', OWN,
          'List the evictions of the instances of one\'s project.',
          'GET /v1/evictions'),
    _rule('evictions:all', READER,
          'See the evictions of all projects, who asked for each, and why.',
          'GET /v1/evictions'),
    _rule('evictions:show', READER, 'Show an eviction.',
          'GET /v1/evictions/{id}'),
    _rule('evictions:create', ADMIN,
          'Have Nova take a background instance away from its host.',
          'POST /v1/evictions'),
    _rule('caps:list', OWN,
          'List the limits of the instances of one\'s project, in force and '
          'past.', 'GET /v1/caps'),
    _rule('caps:all', READER,
          'See the limits of all projects, and the reason of each.',
          'GET /v1/caps'),
    _rule('overrides:list', READER, 'List overrides.',
          'GET /v1/caps/overrides'),
    _rule('overrides:set', ADMIN, 'Override a limit.',
          'PUT /v1/caps/{host}/{knob}/{workload}'),
    _rule('overrides:delete', ADMIN, 'End an override.',
          'DELETE /v1/caps/{host}/{knob}/{workload}'),
    _rule('priorities:list', READER, 'List priorities.',
          'GET /v1/priorities'),
    _rule('priorities:set', ADMIN, 'Set a priority.', 'POST /v1/priorities'),
    _rule('priorities:delete', ADMIN, 'Remove a priority.',
          'DELETE /v1/priorities/{id}'),
    _rule('exemptions:list', READER, 'List exemptions.',
          'GET /v1/exemptions'),
    _rule('exemptions:set', ADMIN, 'Exempt from all limits but overrides.',
          'POST /v1/exemptions'),
    _rule('exemptions:delete', ADMIN, 'Remove an exemption.',
          'DELETE /v1/exemptions/{id}'),
    _rule('profiles:list', OWN,
          'List the interference profiles of one\'s project, and those for '
          'all projects.', 'GET /v1/profiles'),
    _rule('profiles:show', OWN, 'Show an interference profile.',
          'GET /v1/profiles/{id}'),
    _rule('profiles:all', READER,
          'See the interference profiles of all projects, and where each was '
          'measured.', 'GET /v1/profiles', 'GET /v1/profiles/{id}'),
    _rule('profiles:create', ADMIN,
          'Store an interference profile in place of an older one.',
          'POST /v1/profiles'),
    _rule('profiles:delete', ADMIN, 'Remove an interference profile.',
          'DELETE /v1/profiles/{id}'),
    _rule('profilings:list', READER,
          'List the profiles that hosts were asked to measure.',
          'GET /v1/profilings'),
    _rule('profilings:show', READER,
          'Show what came of a profile that a host was asked to measure.',
          'GET /v1/profilings/{id}'),
    _rule('profilings:create', ADMIN,
          'Have the profile of a workload measured on its host, by '
          'injection.', 'POST /v1/profilings'),
    _rule('profilings:delete', ADMIN,
          'End the measurement of a profile.',
          'DELETE /v1/profilings/{id}'),
    _rule('specs:list', READER, 'List what signals usually are.',
          'GET /v1/specs'),
    _rule('protection:list', READER, 'Show the kill switches.',
          'GET /v1/protection'),
    _rule('protection:set', ADMIN, 'Turn a kill switch on or off.',
          'PUT /v1/protection'),
    _rule('governor:list', READER, 'Show how many new limits are allowed.',
          'GET /v1/governor'),
    _rule('governor:set', ADMIN, 'Set how many new limits are allowed.',
          'PUT /v1/governor'),
    _rule('audit:list', READER, 'List who changed what.', 'GET /v1/audit'),
]


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules, for oslopolicy-sample-generator."""
    return [*BASE, *RULES]


def enforcer(conf: cfg.ConfigOpts | None = None) -> policy.Enforcer:
    """The rules as ``policy.yaml`` changes them."""
    if conf is None:    # oslopolicy-policy-generator
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
    opts.set_defaults(conf, policy_file=POLICY_FILE,
                      policy_dirs=[POLICY_DIR])
    made = policy.Enforcer(conf)
    made.register_defaults(list_rules())
    return made


def allows(enforcer: policy.Enforcer, operator_projects: Collection[str]
           ) -> Callable[[str, Caller, Mapping[str, Any]], bool]:
    """Return what decides whether a caller may; it raises a Fault, 403, for a
    token that is for no project.

    :param operator_projects: projects whose readers see the whole cloud
    """
    def decide(rule: str, caller: Caller, target: Mapping[str, Any]) -> bool:
        credentials = {
            'user_id': caller.user, 'project_id': caller.project,
            'domain_id': caller.domain, 'system': caller.system,
            'roles': list(caller.roles),
            'operator_project': caller.project in operator_projects}
        try:
            return bool(enforcer.authorize(rule, dict(target), credentials,
                                           do_raise=True))
        except policy.PolicyNotAuthorized:
            return False
        except policy.InvalidScope as exc:
            scope = 'the system' if caller.system else 'a domain'
            raise faults.Fault(
                HTTPStatus.FORBIDDEN,
                f'The token is for {scope}, and the policy {rule} takes '
                'those for a project: ask Keystone for one.') from exc
    return decide
