# SPDX-License-Identifier: Apache-2.0

"""The directive ``api-reference``: each URL of the API, out of its table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.util.nodes import nested_parse_with_titles

from scavenger_openstack.api import policies
from scavenger_openstack.api.routes import Route
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.api import validation


class ApiReference(Directive):

    def run(self) -> list[nodes.Node]:
        lines = StringList([line for route in ROUTES
                            for line in described(route)], 'routes.py')
        node = nodes.section()
        node.document = self.state.document
        nested_parse_with_titles(self.state, lines, node)
        return node.children


def described(route: Route) -> Iterator[str]:
    yield from (route.summary, '-' * len(route.summary), '',
                f'``{route.method} {route.path}``', '')
    rules = [rule.name for rule in policies.RULES
             if {'method': route.method, 'path': route.path}
             in rule.operations]
    yield from ('Policy: ' + ', '.join(f'``{rule}``' for rule in rules), '')
    yield from table('Filter', route.query)
    if route.body is not None:
        yield from table('Field of the body', route.body)
    if route.answer is None:
        yield from ('The answer is 204, without a body.', '')
        return
    inner = route.answer['properties'][route.noun]
    listing = inner.get('type') == 'array'
    yield from table(f'Field of each of ``{route.noun}``' if listing
                     else f'Field of ``{route.noun}``',
                     inner['items'] if listing else inner)


def table(title: str, schema: dict[str, Any]) -> Iterator[str]:
    properties = schema['properties']
    if not properties:
        return
    yield from ('.. list-table::', '   :header-rows: 1',
                '   :widths: 25 40 35', '', f'   * - {title}', '     - Is',
                '     -')
    needed = schema.get('required', ())
    for name, inner in properties.items():
        must = title.startswith('Field of the body') and name in needed
        yield f'   * - ``{name}``' + (' (required)' if must else '')
        yield f'     - {kind(inner)}'
        yield f'     - {escaped(inner.get("description", ""))}'
    yield ''


def kind(schema: dict[str, Any]) -> str:
    allowed = validation.allowed(schema)
    if isinstance(allowed, list):
        return ', '.join('null' if value is None else str(value).lower()
                         if isinstance(value, bool) else escaped(str(value))
                         for value in allowed)
    properties = list(schema.get('properties', ()))
    if len(properties) > 8:
        return (f'object of ``{properties[0]}`` and others: '
                ':doc:`/reference/configuration/index`')
    if properties:
        return escaped('object of ' + ', '.join(properties))
    return escaped(str(allowed))


def escaped(text: str) -> str:
    for sign in '\\*`|_':
        text = text.replace(sign, '\\' + sign)
    return text


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('api-reference', ApiReference)
    return {'parallel_read_safe': True}
