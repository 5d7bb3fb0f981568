# SPDX-License-Identifier: Apache-2.0

"""The classes of the SDK are those of the API."""

from __future__ import annotations

from typing import Any

from openstack import fields
import testtools

from scavenger_openstack.api.routes import Route
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.sdk.v1 import _proxy
from scavenger_openstack.sdk.v1 import resource

KINDS = {kind.__name__.lower(): kind
         for kind in resource.Resource.__subclasses__()
         if kind.__module__.startswith(_proxy.__name__.rpartition('.')[0])}
TYPES = {'string': str, 'integer': int, 'number': float, 'boolean': bool,
         'array': list, 'object': dict}


def kind_of(route: Route) -> type[resource.Resource]:
    """Return the class of what a route answers."""
    if route.path == '/v1/summary':
        return KINDS['summary']
    [kind] = [kind for kind in KINDS.values() if kind is not KINDS['summary']
              and route.noun in (kind.resource_key, kind.resources_key)]
    return kind


def is_listing(route: Route) -> bool:
    return 'next' in (route.answer or {}).get('properties', ())


def shown(route: Route) -> dict[str, Any]:
    """Return the schemas of the fields of what is answered."""
    if not route.answer:
        return {}
    if route.path == '/v1/summary':
        return route.answer['properties']
    inner = route.answer['properties'][route.noun]
    return inner.get('items', inner)['properties']


def type_of(schema: dict[str, Any]) -> type | None:
    names = schema.get('type', [])
    names = [names] if isinstance(names, str) else names
    types = [TYPES[name] for name in names if name != 'null']
    return types[0] if len(types) == 1 else None


class Kinds(testtools.TestCase):

    def test_fields(self) -> None:
        expected: dict[Any, dict[str, Any]] = {}
        for route in ROUTES:
            body = route.body['properties'] if route.body else {}
            expected.setdefault(kind_of(route), {}).update({
                name: type_of(schema)
                for name, schema in {**body, **shown(route)}.items()})
        self.assertEqual(set(KINDS.values()), set(expected))
        for kind, types in expected.items():
            self.assertEqual(types, {
                component.name: component.data_type
                for name, component in vars(kind).items()
                if isinstance(component, fields.Body)}, kind.__name__)

    def test_names_are_those_of_the_api(self) -> None:
        """None hides a method, and none has another name."""
        for kind in KINDS.values():
            for name, component in vars(kind).items():
                if isinstance(component, fields.Body):
                    self.assertEqual(name, component.name)
                    if name not in ('id', 'name'):
                        self.assertFalse(hasattr(resource.Resource, name),
                                         f'{kind.__name__}.{name}')

    def test_listings(self) -> None:
        listed = set()
        for route in filter(is_listing, ROUTES):
            kind = kind_of(route)
            listed.add(kind)
            self.assertEqual((route.noun, route.path),
                             (kind.resources_key, f'/v1{kind.base_path}'))
            self.assertEqual(set(route.query['properties']),
                             set(kind._query_mapping._mapping))
        self.assertEqual(
            listed, {kind for kind in KINDS.values() if kind.allow_list})
