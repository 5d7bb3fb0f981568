# SPDX-License-Identifier: Apache-2.0

"""JSON Schema: the words that the nouns are described with."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import copy
from typing import Any

from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.text import iso
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.wire import patterns

Schema = dict[str, Any]

DIALECT = 'https://json-schema.org/draft/2020-12/schema'
LIMIT_MOST = 1000
LIMIT_DEFAULT = 100


def described(schema: Schema, text: str) -> Schema:
    return {**copy.deepcopy(schema), 'description': text}


def maybe(schema: Schema) -> Schema:
    """Return a schema that takes null as well."""
    made = copy.deepcopy(schema)
    if 'enum' in made:
        made['enum'] = [*made['enum'], None]
    made['type'] = [made['type'], 'null']
    return made


def one_of(values: Any) -> Schema:
    return {'type': 'string', 'enum': [str(value) for value in values]}


def items(schema: Schema) -> Schema:
    return {'type': 'array', 'items': schema}


def mapping(schema: Schema) -> Schema:
    return {'type': 'object', 'additionalProperties': schema}


def fields(properties: dict[str, Schema], *optional: str) -> Schema:
    """An object with these fields and no others."""
    return {'type': 'object', 'additionalProperties': False,
            'properties': properties,
            'required': [name for name in properties
                         if name not in optional]}


def listing(noun: str, properties: dict[str, Schema]) -> Schema:
    """The answer of a listing."""
    return fields({noun: items(fields(properties)), 'next': described(
        MAYBE_TEXT, 'The marker of the next page; null on the last.')})


def thing(noun: str, properties: dict[str, Schema]) -> Schema:
    return fields({noun: fields(properties)})


def shape(properties: Iterable[str], row: Mapping[str, Any], **given: Any
          ) -> dict[str, Any]:
    """A row as an answer: of each property what is given, else the column
    of that name; of a time, ``..._at``, the column ``..._s``."""
    return {name: given[name] if name in given
            else iso(row[f'{name[:-3]}_s']) if name.endswith('_at')
            else row[name] for name in properties}


TEXT: Schema = {'type': 'string'}
MAYBE_TEXT = maybe(TEXT)
NAME: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255}
SHORT: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 64}
UUID: Schema = {'type': 'string', 'maxLength': 36, 'pattern':
                f'^{patterns.UUID}$'}
REASON: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 2000,
                  'pattern': '[^ \\t\\r\\n]'}
TIME: Schema = {'type': 'string', 'format': 'date-time'}
MAYBE_TIME = maybe(TIME)
NUMBER: Schema = {'type': 'number'}
MAYBE_NUMBER = maybe(NUMBER)
COUNT: Schema = {'type': 'integer', 'minimum': 0}
FLAG: Schema = {'type': 'boolean'}
KNOBS = one_of(Knob)
MODES = one_of(Mode)
PRIORITIES = one_of(Priority)
OUTCOMES = one_of(Outcome)
VALUE: Schema = {'type': ['number', 'string', 'null']}
"""A limit: a number in its knob's unit, or a CPU list; null for none."""

PAGE: dict[str, Schema] = {
    'limit': {'type': 'integer', 'minimum': 1, 'maximum': LIMIT_MOST,
              'default': LIMIT_DEFAULT,
              'description': 'So many at most.'},
    'marker': {'type': 'string', 'minLength': 1, 'maxLength': 2048,
               'description': 'What "next" of the page before was.'}}

SUMS: dict[str, Schema] = {
    'incidents': described(COUNT, 'Incidents that began then.'),
    'interference_s': described(
        NUMBER, 'How long workloads were disturbed by others, each for '
                'itself.')}
WORK: dict[str, Schema] = {
    'background_core_s': described(
        NUMBER, 'CPU time that background work got.'),
    'background_byte_s': described(
        NUMBER, 'Memory that it had, times how long.')}
"""What is summed up over a span."""

ERROR = fields({'error': fields({
    'code': {'type': 'integer'}, 'title': TEXT, 'detail': TEXT,
    'request_id': TEXT, 'field': TEXT, 'allowed': {}},
    'field', 'allowed')})
