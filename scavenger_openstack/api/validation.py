# SPDX-License-Identifier: Apache-2.0

"""What comes in, checked against the schema that is published."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import json
import math
from typing import Any

import jsonschema

from scavenger_openstack.api import faults
from scavenger_openstack.api.schemas import Schema
from scavenger_openstack.text import time_s

BODY_MOST_BYTES = 64 << 10
DEPTH_MOST = 16
"""Objects and arrays inside of each other."""

_ARTICLES = {'string': 'a ', 'number': 'a ', 'boolean': 'a ',
             'integer': 'an ', 'object': 'an ', 'array': 'an '}

FORMATS = jsonschema.FormatChecker(formats=())


@FORMATS.checks('date-time', raises=ValueError)
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or time_s(value) is not None


def query(pairs: Iterable[tuple[str, str]], schema: Schema
          ) -> dict[str, Any]:
    """The filters of a listing, as values of the types in ``schema``.

    :raises Fault: 400, which names the field and what is allowed.
    """
    properties = schema['properties']
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name in values:
            raise faults.bad(f'{faults.shown(name)} is there twice.',
                             faults.shown(name), 'one value')
        check_text(text, faults.shown(name))
        values[name] = _value(text, properties.get(name, {}).get('type'))
    check(values, schema)
    return values


def body(data: bytes, schema: Schema) -> dict[str, Any]:
    """Return what a body holds.

    :raises Fault: 400, which names the field and what is allowed.
    """
    try:
        value = json.loads(data.decode('utf-8'), parse_constant=_no_constant,
                           parse_float=_finite, object_pairs_hook=_once)
    except UnicodeDecodeError as exc:
        raise faults.bad(f'The body is not UTF-8: {exc.reason} at byte '
                         f'{exc.start}.') from exc
    except RecursionError as exc:
        raise _too_deep() from exc
    except json.JSONDecodeError as exc:
        raise faults.bad(f'The body is not JSON: {exc}.') from exc
    except ValueError as exc:
        raise faults.bad(f'The body holds what JSON has not: {exc}.') from exc
    _check_values(value)
    check(value, schema)
    return value


def check(value: Any, schema: Schema) -> None:
    """Check a value against its schema.

    :raises Fault: 400, which names the field and what is allowed.
    """
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=FORMATS)
    violations = sorted(validator.iter_errors(value),
                        key=lambda error: [str(part) for part in error.path])
    if violations:
        raise _fault(violations[0])


def _value(text: str, kind: Any) -> Any:
    """As the type says; as it is, if it is not of that type."""
    if kind == 'boolean':
        return {'true': True, 'false': False}.get(text.lower(), text)
    if kind == 'integer':
        plain = text.isascii() and text.isdigit() and len(text) < 20
        return int(text) if plain else text
    return text


def _fault(error: jsonschema.ValidationError) -> faults.Fault:
    path = [str(part) for part in error.path]
    schema = error.schema if isinstance(error.schema, dict) else {}
    rule, wanted = str(error.validator), error.validator_value
    if rule == 'required':
        name = next(name for name in wanted if name not in error.instance)
        field = '.'.join([*path, name])
        return faults.bad(f'{field} is missing.', field,
                          allowed(schema['properties'][name]))
    if rule == 'additionalProperties':
        names = sorted(schema.get('properties', ()))
        name = min(name for name in error.instance if name not in names)
        field = faults.shown('.'.join([*path, name]))
        return faults.bad(
            f'There is no field {field}{faults.proposal(name, names)}.',
            field, names)
    field = faults.shown('.'.join(path)) or 'body'
    wanted = allowed(schema)
    return faults.bad(
        f'{field} is {_quoted(error.instance)}, and has to be '
        + (_one_of(error.instance, wanted) if isinstance(wanted, list)
           else f'{_ARTICLES.get(wanted.split()[0], "")}{wanted}') + '.',
        field, wanted)


def check_word(word: str | None, field: str, words: Sequence[str],
               is_used: Callable[[str], bool]) -> None:
    """Check a filter without results: what nothing ever has is a mistake.

    :param words: those that there are in this release
    :param is_used: whether something that is stored has another
    :raises Fault: 400, with the words.
    """
    if word is not None and word not in words and not is_used(word):
        raise faults.bad(f'{field} is {_quoted(word)}, and has to be '
                         f'{_one_of(word, list(words))}.', field, list(words))


def _quoted(value: Any) -> str:
    """A value of a client in a message."""
    if isinstance(value, dict | list):
        return 'an object' if isinstance(value, dict) else 'an array'
    return faults.shown(json.dumps(value, ensure_ascii=False))


def _one_of(value: Any, wanted: list[Any]) -> str:
    words = ['null' if word is None else str(word).lower() if isinstance(
        word, bool) else str(word) for word in wanted]
    return (' or '.join((', '.join(words[:-1]), words[-1]) if words[1:]
                        else words)
            + (faults.proposal(value, words) if isinstance(value, str)
               else ''))


def allowed(schema: Schema) -> Any:
    """Return what a schema takes, as a list of values or a sentence."""
    if 'enum' in schema:
        return schema['enum']
    kinds = schema.get('type', 'any value')
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds == ['boolean']:
        return [True, False]
    if schema.get('format') == 'date-time':
        return ('a time in ISO 8601, such as 2026-01-31T12:00:00Z'
                + (', or null' if 'null' in kinds else ''))
    text = ' or '.join(kinds)
    if 'minimum' in schema and 'maximum' in schema:
        text += f' from {schema["minimum"]} to {schema["maximum"]}'
    elif 'minimum' in schema:
        text += f', at least {schema["minimum"]}'
    if 'maxLength' in schema:
        text += (f' of {schema.get("minLength", 0)} to '
                 f'{schema["maxLength"]} characters')
    if 'pattern' in schema:
        text += f' that matches {schema["pattern"]}'
    return text


def _no_constant(name: str) -> float:
    raise ValueError(f'{name} is not a number')


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f'{faults.shown(text)} is too large')
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError('a field is there twice')
    return made


def _check_values(value: Any) -> None:
    """Not too deep, and only text that a database takes."""
    todo = [(value, 1, '')]
    while todo:
        value, depth, field = todo.pop()
        if depth > DEPTH_MOST:
            raise _too_deep()
        if isinstance(value, dict):
            for name, inner in value.items():
                check_text(name, field or 'body')
                todo.append((inner, depth + 1,
                             f'{field}.{name}' if field else name))
        elif isinstance(value, list):
            todo += [(inner, depth + 1, field) for inner in value]
        elif isinstance(value, str):
            check_text(value, field)
        elif isinstance(value, int) and abs(value) > 2 ** 53:
            raise faults.bad(f'{faults.shown(field)} is too large a number.',
                             faults.shown(field), 'numbers up to 2^53')


def check_text(text: str, field: str) -> None:
    """Check that a text is one that the database takes.

    :raises Fault: it is not valid Unicode, or has the character NUL.
    """
    field = faults.shown(field)
    # Where the server decodes, this is what bytes become that are no UTF-8.
    if '\x00' in text or '\ufffd' in text:
        raise faults.bad(f'{field} holds NUL, or bytes that are not UTF-8.',
                         field, 'UTF-8 without NUL')
    try:
        text.encode('utf-8')
    except UnicodeEncodeError as exc:
        raise faults.bad(f'{field} holds half of a surrogate pair.',
                         field, 'valid Unicode') from exc


def _too_deep() -> faults.Fault:
    return faults.bad(f'The body is nested deeper than {DEPTH_MOST} levels.')
