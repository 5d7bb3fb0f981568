# SPDX-License-Identifier: Apache-2.0

"""All URLs, in one table: what each needs, takes and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from scavenger_openstack.api.cached import Encoded
from scavenger_openstack.api.call import Call
from scavenger_openstack.api.resources import aggregates
from scavenger_openstack.api.resources import antagonists
from scavenger_openstack.api.resources import audit
from scavenger_openstack.api.resources import caps
from scavenger_openstack.api.resources import evictions
from scavenger_openstack.api.resources import hosts
from scavenger_openstack.api.resources import incidents
from scavenger_openstack.api.resources import overview
from scavenger_openstack.api.resources import profiles
from scavenger_openstack.api.resources import report
from scavenger_openstack.api.resources import rules
from scavenger_openstack.api.resources import specs
from scavenger_openstack.api.resources import summary
from scavenger_openstack.api.resources import switches
from scavenger_openstack.api.resources import workloads
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import Schema


class Route(NamedTuple):
    """One method of one URL.

    ``noun`` is what the answer has: it is also what a marker is of.
    ``policy`` is enforced before ``handle`` runs; '' when ``handle`` does
    it, because the rule depends on what is in the database.  ``answer`` is
    ``None`` for an empty one.
    """

    method: str
    path: str
    noun: str
    policy: str
    handle: Callable[[Call, Any], dict[str, Any] | Encoded | None]
    summary: str
    query: Schema
    body: Schema | None
    answer: Schema | None

    @property
    def rule(self) -> str:
        return f'interference:{self.policy}'

    @property
    def id(self) -> str:
        """The name of the operation, such as ``list_hosts``."""
        return self.summary.split('.')[0].lower().replace(' ', '_')


def _list(path: str, noun: str, policy: str, handle: Any, summary: str,
          fields: dict[str, Schema], filters: dict[str, Schema] | None = None
          ) -> Route:
    query = {**(filters or {}), **schemas.PAGE}
    return Route('GET', path, noun, policy, handle, summary,
                 schemas.fields(query, *query), None,
                 schemas.listing(noun, fields))


def _thing(method: str, path: str, noun: str, policy: str, handle: Any,
           summary: str, fields: dict[str, Schema],
           body: Schema | None = None, query: Schema | None = None) -> Route:
    return Route(method, path, noun, policy, handle, summary,
                 query or _NOTHING, body, schemas.thing(noun, fields))


def _gone(path: str, noun: str, policy: str, handle: Any, summary: str
          ) -> Route:
    return Route('DELETE', path, noun, policy, handle, summary,
                 schemas.fields({'reason': schemas.REASON}, 'reason'),
                 None, None)


_NOTHING = schemas.fields({})

ROUTES: tuple[Route, ...] = (
    _list('/v1/hosts', 'hosts', 'hosts:list', hosts.list_, 'List hosts',
          hosts.FIELDS, hosts.FILTERS),
    _thing('GET', '/v1/hosts/{name}', 'host', 'hosts:show', hosts.show,
           'Show host', hosts.SHOWN),
    _thing('PATCH', '/v1/hosts/{name}', 'host', 'hosts:update',
           hosts.change, 'Update host', hosts.SHOWN, hosts.CHANGES),
    _thing('GET', '/v1/aggregates/{aggregate}', 'aggregate', 'aggregates:show',
           aggregates.show, 'Show aggregate', aggregates.FIELDS),
    _thing('PATCH', '/v1/aggregates/{aggregate}', 'aggregate',
           'aggregates:update', aggregates.change, 'Update aggregate',
           aggregates.FIELDS, hosts.CHANGES),
    Route('GET', '/v1/summary', 'hosts', 'summary:show', summary.show,
          'Show summary', _NOTHING, None, summary.ANSWER),
    _thing('GET', '/v1/overview', 'overview', 'summary:show', overview.show,
           'Show overview', overview.FIELDS),
    _thing('GET', '/v1/report', 'report', 'report:show', report.show,
           'Show report', report.FIELDS,
           query=schemas.fields(report.FILTERS, *report.FILTERS)),
    _list('/v1/workloads', 'workloads', '', workloads.list_,
          'List workloads', workloads.FIELDS, workloads.FILTERS),
    _list('/v1/incidents', 'incidents', '', incidents.list_,
          'List incidents', incidents.FIELDS, incidents.FILTERS),
    _thing('GET', '/v1/incidents/{id}', 'incident', '', incidents.show,
           'Show incident', incidents.SHOWN),
    _list('/v1/antagonists', 'antagonists', 'antagonists:list',
          antagonists.list_, 'List antagonists', antagonists.FIELDS,
          antagonists.FILTERS),
    _list('/v1/evictions', 'evictions', '', evictions.list_,
          'List evictions', evictions.FIELDS, evictions.FILTERS),
    _thing('POST', '/v1/evictions', 'eviction', 'evictions:create',
           evictions.create, 'Create eviction', evictions.FIELDS,
           evictions.WISH),
    _thing('GET', '/v1/evictions/{id}', 'eviction', 'evictions:show',
           evictions.show, 'Show eviction', evictions.FIELDS),
    _list('/v1/caps', 'caps', '', caps.list_, 'List caps',
          caps.FIELDS, caps.FILTERS),
    _list('/v1/caps/overrides', 'overrides', 'overrides:list',
          caps.overrides, 'List overrides', caps.OVERRIDE,
          caps.OVERRIDE_FILTERS),
    _thing('PUT', '/v1/caps/{host}/{knob}/{workload}', 'override',
           'overrides:set', caps.put, 'Set override', caps.OVERRIDE,
           caps.WISH),
    _gone('/v1/caps/{host}/{knob}/{workload}', 'override',
          'overrides:delete', caps.delete, 'Delete override'),
    _list('/v1/priorities', 'priorities', 'priorities:list',
          rules.priorities, 'List priorities', rules.PRIORITY_LISTED,
          rules.FILTERS),
    _thing('POST', '/v1/priorities', 'priority', 'priorities:set',
           rules.set_priority, 'Set priority', rules.PRIORITY_SET,
           rules.PRIORITY_WISH),
    _gone('/v1/priorities/{id}', 'priority', 'priorities:delete',
          rules.delete_priority, 'Delete priority'),
    _list('/v1/exemptions', 'exemptions', 'exemptions:list',
          rules.exemptions, 'List exemptions', rules.EXEMPTION_LISTED,
          rules.FILTERS),
    _thing('POST', '/v1/exemptions', 'exemption', 'exemptions:set',
           rules.set_exemption, 'Set exemption', rules.EXEMPTION_SET,
           rules.EXEMPTION_WISH),
    _gone('/v1/exemptions/{id}', 'exemption', 'exemptions:delete',
          rules.delete_exemption, 'Delete exemption'),
    _list('/v1/profiles', 'profiles', '', profiles.list_, 'List profiles',
          profiles.FIELDS, profiles.FILTERS),
    _thing('POST', '/v1/profiles', 'profile', '', profiles.create,
           'Create profile', profiles.FIELDS, profiles.WISH),
    _thing('GET', '/v1/profiles/{id}', 'profile', '', profiles.show,
           'Show profile', profiles.FIELDS),
    _gone('/v1/profiles/{id}', 'profile', '', profiles.delete,
          'Delete profile'),
    _list('/v1/specs', 'specs', 'specs:list', specs.list_, 'List specs',
          specs.FIELDS, specs.FILTERS),
    _list('/v1/protection', 'protection', 'protection:list',
          switches.protection, 'List protection', switches.PROTECTION,
          switches.PROTECTION_FILTERS),
    _thing('PUT', '/v1/protection', 'protection', 'protection:set',
           switches.set_protection, 'Set protection',
           switches.PROTECTION_SET, switches.PROTECTION_WISH),
    _list('/v1/governor', 'governor', 'governor:list', switches.governor,
          'List governor', switches.GOVERNOR),
    _thing('PUT', '/v1/governor', 'governor', 'governor:set',
           switches.set_governor, 'Set governor', switches.GOVERNOR,
           switches.GOVERNOR_WISH),
    _list('/v1/audit', 'audit', 'audit:list', audit.list_, 'List audit',
          audit.FIELDS, audit.FILTERS),
)
