# SPDX-License-Identifier: Apache-2.0

"""Parameters of controllers that operators may set for a host.

They are the options of the same ``Params`` that the agent's file is checked
by, as ``section.option``.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from scavenger_openstack.api.schemas import Schema
from scavenger_openstack import conf

CONTROLLERS = tuple(conf.PARAMS)

_TYPES = {'bool': 'boolean', 'int': 'integer', 'float': 'number',
          'str': 'string'}


def _schema(field: dataclasses.Field[Any]) -> Schema:
    kind = _TYPES[getattr(field.type, '__name__', str(field.type))]
    made: Schema = {'type': [kind, 'null'],
                    'description': field.metadata['help']}
    if kind == 'string':
        made['maxLength'] = 255
    for name, rule in (('min', 'minimum'), ('max', 'maximum')):
        if field.metadata.get(name) is not None:
            made[rule] = field.metadata[name]
    choices = field.metadata.get('choices')
    if choices is not None:
        made['enum'] = [*choices, None]
    return made


SCHEMAS: dict[str, Schema] = {
    f'{section}.{field.name}': _schema(field)
    for section, params in conf.PARAMS.items()
    for field in dataclasses.fields(params)}


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as they are stored and sent: yes and no are ``true`` and
    ``false``, as in a configuration file."""
    return {name: str(value).lower() if isinstance(value, bool) else value
            for name, value in values.items()}
