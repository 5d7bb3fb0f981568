# SPDX-License-Identifier: Apache-2.0

"""The API for machines: OpenAPI 3.1 out of the table that also serves."""

from __future__ import annotations

from collections.abc import Iterable
import re
from typing import Any

from scavenger_openstack.api.routes import Route
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import Schema

ERRORS = {'400': 'The request is wrong; the answer names the field.',
          '401': 'The request is not authenticated.',
          '403': 'The policy does not allow it.',
          '404': 'There is no such thing, or the caller may not see it.',
          '405': 'The URL has no such method.',
          '406': 'There is no such version.',
          '409': 'What is there does not allow it.',
          '413': 'The body is too long.',
          '415': 'The body is not JSON.',
          '500': 'A fault; the log has the request id.',
          '503': 'The database cannot be used now.'}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """Return the description of the API.

    :param version: the newest microversion
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(
            route)
    return {
        'openapi': '3.1.0',
        'jsonSchemaDialect': schemas.DIALECT,
        'info': {'title': 'Interference', 'version': version,
                 'description': 'What disturbs foreground workloads, and '
                                'what is done about it.',
                 'license': {'name': 'Apache-2.0',
                             'identifier': 'Apache-2.0'}},
        'servers': [{'url': '/'}],
        'paths': paths,
        'components': {
            'schemas': {'Error': schemas.ERROR},
            'responses': {status: {
                'description': text,
                'content': {'application/json': {'schema': {
                    '$ref': '#/components/schemas/Error'}}}}
                for status, text in ERRORS.items()},
            'securitySchemes': {
                'token': {'type': 'apiKey', 'in': 'header',
                          'name': 'X-Auth-Token'},
                'password': {'type': 'http', 'scheme': 'basic'}}},
        'security': [{'token': []}, {'password': []}]}


def _operation(route: Route) -> dict[str, Any]:
    made: dict[str, Any] = {
        'operationId': route.id, 'summary': route.summary,
        'tags': [route.path.split('/')[2]],
        'parameters': [
            {'name': name, 'in': 'path', 'required': True,
             'schema': {'type': 'string', 'minLength': 1}}
            for name in re.findall('{(.*?)}', route.path)]
        + [_parameter(name, schema)
           for name, schema in route.query['properties'].items()],
        'responses': {**_success(route), **{
            status: {'$ref': f'#/components/responses/{status}'}
            for status in ERRORS}}}
    if route.body is not None:
        made['requestBody'] = {'required': True, 'content': {
            'application/json': {'schema': route.body}}}
    return made


def _parameter(name: str, schema: Schema) -> dict[str, Any]:
    made = {'name': name, 'in': 'query', 'schema': {
        key: value for key, value in schema.items() if key != 'description'}}
    if 'description' in schema:
        made['description'] = schema['description']
    return made


def _success(route: Route) -> dict[str, Any]:
    if route.answer is None:
        return {'204': {'description': 'It is gone.'}}
    return {'200': {'description': 'What was asked for, or is there now.',
                    'content': {'application/json': {
                        'schema': route.answer}}}}
