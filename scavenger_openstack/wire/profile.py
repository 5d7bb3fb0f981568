# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: what a workload tolerates and causes, by source.

A profile is one JSON object in files, in the API and in the database; its
numbers are SI.  It needs no codec but the standard library's: programs that
measure profiles, and Nova's scheduler, may have no other.

Source: iBench, sections IV and V-A.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
from typing import Any
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire import patterns

SOI_NAMES = (
    'memory_capacity', 'memory_bandwidth', 'storage_capacity',
    'storage_bandwidth', 'network_bandwidth', 'llc_capacity',
    'llc_bandwidth', 'l2_capacity', 'l2_bandwidth', 'l1i', 'l1d', 'tlb',
    'integer', 'floating_point', 'prefetcher', 'interconnect', 'vector')
"""The 17 sources of interference (SoIs), in the order of the paper."""

KINDS = ('application', 'flavor', 'image')
"""What a profile can be of; of a workload the first that has one counts."""
SOURCES = MEASURED, ESTIMATED = ('measured', 'estimated')
FORMS = ('long', 'short')

MAX_PROFILE_BYTES = 16 << 10


class Estimate(NamedTuple):
    """A value from 0 to 1, and the interval that repeats of it gave."""

    value: float
    low: float
    high: float


class Qos(NamedTuple):
    """The signal by which quality of service was judged: its value alone and
    the one at which the quality breaks, in its own unit."""

    signal: str
    alone: float
    bound: float


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """The profile of an application, a flavor or an image.

    ``target`` is the name of the application, the name or id of the flavor,
    or the id of the image; ``project`` '' where it is for all projects.
    ``qos`` is ``None`` where nothing was injected.  A SoI that was not
    measured is left out, and ``missing`` says why.
    """

    kind: str
    target: str
    source: str
    measured_s: float
    project: str = ''
    form: str = 'long'
    host: str = ''
    qos: Qos | None = None
    tolerated: Mapping[str, Estimate] = dataclasses.field(
        default_factory=dict)
    caused: Mapping[str, Estimate] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parse(data: bytes, **fields: Any) -> Document:
    """Return the profile that a JSON text holds.

    :param fields: in place of those in the text
    :raises WireError: it is longer than :data:`MAX_PROFILE_BYTES`, or not a
        profile; the message begins with the name of the field.
    """
    _check_size(len(data))
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError) as exc:
        raise errors.WireError(f'profile: not JSON: {exc}') from exc
    return of_json(value, **fields)


def of_json(value: Any, **fields: Any) -> Document:
    """Return the profile that JSON values hold, as :func:`parse`.

    :raises WireError: likewise.
    """
    try:
        document = Document(**json_fields.fields(
            {**json_fields.mapping(value, 'profile'), **fields}, '', _CHECKS,
            ('kind', 'target', 'source', 'measured_s')))
    except (ValueError, RecursionError) as exc:
        raise errors.WireError(str(exc)) from exc
    if not document.tolerated and not document.caused:
        raise errors.WireError('tolerated: it is empty, and so is caused; a '
                               'profile has one SoI at least')
    _check_size(len(json.dumps(as_json(document), ensure_ascii=False
                               ).encode()))
    return document


def as_json(document: Document) -> dict[str, Any]:
    """Return a profile as plain JSON values: every field, but ``qos`` where
    there is none."""
    values = {field.name: getattr(document, field.name)
              for field in dataclasses.fields(document)}
    return {name: json_fields.as_json(value)
            for name, value in values.items() if value is not None}


def estimates_as_json(estimates: Mapping[str, Estimate]
                      ) -> dict[str, dict[str, float]]:
    """Return estimates as they are in a document, with 4 decimals."""
    return {name: {field: round(number, 4)
                   for field, number in estimate._asdict().items()}
            for name, estimate in estimates.items()}


def _check_size(size_bytes: int) -> None:
    if size_bytes > MAX_PROFILE_BYTES:
        raise errors.WireError(f'profile: {size_bytes} bytes; at most '
                               f'{MAX_PROFILE_BYTES} are taken')


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError('a field is there twice')
    return value


def _word(words: tuple[str, ...], value: Any, where: str) -> str:
    if value not in words:
        raise json_fields.bad(where, value, f'one of {", ".join(words)}')
    return str(value)


def _name(value: Any, where: str) -> str:
    if json_fields.text(value, where) != fit.name(value):
        raise json_fields.bad(where, value, _NAME)
    return str(value)


def _project(value: Any, where: str) -> str:
    if json_fields.text(value, where) != fit.project(value):
        raise json_fields.bad(where, value, _PROJECT)
    return str(value)


def _host(value: Any, where: str) -> str:
    if json_fields.text(value, where) and not fit.is_host(value):
        raise json_fields.bad(where, value, 'the name of a host')
    return str(value)


def _sentence(value: Any, where: str) -> str:
    if json_fields.text(value, where) != fit.sentence(value):
        raise json_fields.bad(where, value, _SENTENCE)
    return str(value)


def _time_s(value: Any, where: str) -> float:
    if json_fields.quantity(value, where) > patterns.LAST_S:
        raise json_fields.bad(where, value, 'a time, in UNIX seconds')
    return float(value)


def _share(value: Any, where: str) -> float:
    if not 0 <= json_fields.number(value, where) <= 1:
        raise json_fields.bad(where, value, 'a number from 0 to 1')
    return float(value)


def _estimate(value: Any, where: str) -> Estimate:
    estimate = Estimate(**json_fields.fields(
        value, f'{where}.', dict.fromkeys(Estimate._fields, _share),
        Estimate._fields))
    if not estimate.low <= estimate.value <= estimate.high:
        raise ValueError(
            f'{where}: value {estimate.value:.6g} is not between low '
            f'{estimate.low:.6g} and high {estimate.high:.6g}')
    return estimate


def _qos(value: Any, where: str) -> Qos:
    return Qos(**json_fields.fields(
        value, f'{where}.', {'signal': _name, 'alone': json_fields.number,
                             'bound': json_fields.number}, Qos._fields))


def _by_soi(check: json_fields.Check, value: Any, where: str
            ) -> dict[str, Any]:
    for name in json_fields.mapping(value, where):
        if name not in SOI_NAMES:
            raise json_fields.bad(where, name, 'the name of a SoI: '
                                  'scavenger-ibench list shows the 17')
    return {name: check(item, f'{where}.{name}')
            for name, item in value.items()}


_NAME = (f'a name of 1 to {patterns.NAME} printable characters, without a '
         'blank at its end')
_PROJECT = (f'the id of a project, of at most {patterns.PROJECT} printable '
            'characters, or empty')
_SENTENCE = f'a sentence of at most {patterns.SENTENCE} printable characters'

_CHECKS: dict[str, json_fields.Check] = {
    'kind': functools.partial(_word, KINDS),
    'target': _name,
    'source': functools.partial(_word, SOURCES),
    'measured_s': _time_s,
    'project': _project,
    'form': functools.partial(_word, FORMS),
    'host': _host,
    'qos': json_fields.optional(_qos),
    'tolerated': functools.partial(_by_soi, _estimate),
    'caused': functools.partial(_by_soi, _estimate),
    'missing': functools.partial(_by_soi, _sentence)}
