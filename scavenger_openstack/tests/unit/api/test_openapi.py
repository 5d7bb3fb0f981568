# SPDX-License-Identifier: Apache-2.0

"""The document that describes the API, against the API."""

from __future__ import annotations

import jsonschema

from scavenger_openstack.api import parameters
from scavenger_openstack.api import policies
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.tests.unit.api import cloud


class Document(cloud.Api):

    def setUp(self) -> None:
        super().setUp()
        self.document = self.ok('GET', '/v1/openapi.json')

    def test_each_route_is_in_it(self) -> None:
        there = [(method.upper(), path)
                 for path, methods in self.document['paths'].items()
                 for method in methods]
        self.assertEqual([(route.method, route.path) for route in ROUTES],
                         there)
        ids = [operation['operationId']
               for methods in self.document['paths'].values()
               for operation in methods.values()]
        self.assertEqual(sorted(set(ids)), sorted(ids))

    def test_each_schema_is_one(self) -> None:
        for route in ROUTES:
            for schema in (route.query, route.body, route.answer):
                if schema is not None:
                    jsonschema.Draft202012Validator.check_schema(schema)

    def test_errors_are_of_their_schema(self) -> None:
        schema = self.document['components']['schemas']['Error']
        for method, url in (('GET', '/v1/nothing'), ('PUT', '/v1/audit'),
                            ('GET', '/v1/hosts?limit=x'),
                            ('POST', '/v1/priorities')):
            jsonschema.validate(self.call(method, url).json, schema)

    def test_parameters_are_those_of_the_agents(self) -> None:
        body = self.document['paths']['/v1/hosts/{name}']['patch'][
            'requestBody']['content']['application/json']['schema']
        self.assertEqual(sorted(parameters.SCHEMAS), sorted(
            body['properties']['parameters']['properties']))
        self.assertIn('scavenger.memory_c', parameters.SCHEMAS)

    def test_each_policy_is_of_a_route(self) -> None:
        named = {(operation['method'], operation['path'])
                 for rule in policies.RULES for operation in rule.operations}
        self.assertEqual({(route.method, route.path) for route in ROUTES},
                         named)
        rules = {rule.name for rule in policies.RULES}
        self.assertEqual(set(), {route.rule for route in ROUTES
                                 if route.policy} - rules)
