# SPDX-License-Identifier: Apache-2.0



"""Typed values into JSON and out of it, or an error that names the field."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import enum
from typing import Any
from typing import TypeVar

from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import MAX_CPU
from scavenger_openstack.types import Mode
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import SCHEMA
from scavenger_openstack.types import Value
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

T = TypeVar('T')

LARGEST = 2.0 ** 64
"""No number is as large; those of many can be added up."""

Check = Callable[[Any, str], Any]
"""Takes a JSON value and the name of its field; returns ours.

:raises ValueError: the message begins with the name of the field.
"""


def as_json(value: Any) -> Any:
    """Plain JSON values of anything in :mod:`.types`.

    Sets become sorted lists and mappings get text keys.  Fields that are
    ``None`` stay out of the objects, and so do those that are empty by
    default.
    """
    if isinstance(value, dict) or isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if hasattr(value, '_asdict'):
        return _object(value._asdict(), value._field_defaults)
    if dataclasses.is_dataclass(value):
        every = dataclasses.fields(value)
        return _object({field.name: getattr(value, field.name)
                        for field in every},
                       {field.name: field.default_factory()
                        if callable(field.default_factory)
                        else field.default for field in every})
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value


def _object(values: Mapping[str, Any], defaults: Mapping[str, Any]
            ) -> dict[str, Any]:
    empty: tuple[Any, ...] = ((), {}, '')
    return {name: as_json(value) for name, value in values.items()
            if value is not None
            and not (any(value == e for e in empty)
                     and value == defaults.get(name))}


def bad(where: str, value: Any, wanted: str) -> ValueError:
    return ValueError(f'{where}: {value!r:.60} is not {wanted}')


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise bad(where, value, 'a text')
    return value


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise bad(where, value, 'true or false')
    return value


def number(value: Any, where: str) -> float:
    """A number; one without a fraction stays an ``int``."""
    if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
        raise bad(where, value, 'a number')
    checked: float = value
    return checked


def quantity(value: Any, where: str) -> float:
    """A number from 0 up."""
    if not (type(value) in (int, float) and 0 <= value < LARGEST):
        raise bad(where, value, 'a number from 0 up')
    checked: float = value
    return checked


def whole(value: Any, where: str) -> int:
    """A whole number from 0 up."""
    if type(value) is not int or not 0 <= value < LARGEST:
        raise bad(where, value, 'a whole number from 0 up')
    return value


def mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise bad(where, value, 'an object')
    return value


def array(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad(where, value, 'a list')
    return value


def texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(text(item, where) for item in array(value, where))


def knob(value: Any, where: str) -> Knob:
    try:
        return Knob(value)
    except ValueError:
        raise bad(where, value, 'a knob') from None


def mode(value: Any, where: str) -> Mode:
    return _of(Mode, value, where)


Words = TypeVar('Words', bound=enum.StrEnum)


def _of(words: type[Words], value: Any, where: str) -> Words:
    try:
        return words(value)
    except ValueError:
        raise bad(where, value, 'one of ' + ', '.join(words)) from None


def knob_value(value: Any, where: str, of: Knob) -> Value:
    """Return what a knob can hold: a CPU list, or a number from 0 up."""
    if of is not Knob.CPU_SET:
        return quantity(value, where)
    try:
        parse_cpus(text(value, where))
    except ValueError:
        raise bad(where, value, 'a CPU list') from None
    return str(value)


def optional(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def by_name(check: Check) -> Check:
    """An object whose values all pass ``check``; ``None`` is empty."""
    return lambda value, where: {} if value is None else {
        name: check(item, f'{where}: {name}')
        for name, item in mapping(value, where).items()}


def by_cpu(check: Check) -> Check:
    def checked(value: Any, where: str) -> dict[int, Any]:
        if value is None:
            return {}
        return {_cpu(name, where): check(item, f'{where}: {name}')
                for name, item in mapping(value, where).items()}
    return checked


def _cpu(name: str, where: str) -> int:
    if not (name.isascii() and name.isdecimal() and int(name) <= MAX_CPU):
        raise bad(where, name, 'the number of a CPU')
    return int(name)


def fields(value: Any, where: str, checks: Mapping[str, Check],
           required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The checked fields of an object; unknown ones are errors.

    ``where`` is what the names of its fields begin with, such as
    ``sample: ``.
    """
    values = {}
    for name, item in mapping(value, where.rstrip(':. ') or 'line').items():
        check = checks.get(name)
        if check is None:
            raise ValueError(f'{where}{name:.60}: no such field')
        values[name] = check(item, where + name)
    for name in required:
        if name not in values:
            raise ValueError(f'{where}{name}: missing')
    return values


def _schema(value: Any, where: str) -> int:
    if value != SCHEMA or type(value) is not int:
        raise bad(where, value, f'{SCHEMA}, the version that is known here')
    return SCHEMA


def _place(value: Any, where: str) -> Cpu:
    checks: dict[str, Check] = dict.fromkeys(Cpu._fields, whole)
    checks['isolated'] = flag
    return Cpu(**fields(value, f'{where}: ', checks, Cpu._fields[:3]))


def _priority(value: Any, where: str) -> Priority:
    try:
        return Priority(value)
    except ValueError:
        raise bad(where, value, ' or '.join(Priority)) from None


def _floor(value: Any, where: str) -> dict[Knob, float]:
    return {knob(name, where): quantity(item, f'{where}: {name}')
            for name, item in mapping(value, where).items()}


def _cpus(value: Any, where: str) -> frozenset[int]:
    return frozenset(whole(item, where) for item in array(value, where))


def _caps(value: Any, where: str) -> dict[Knob, Value]:
    return {knob(name, where): knob_value(item, f'{where}: {name}',
                                          Knob(name))
            for name, item in mapping(value, where).items()}


def _grounds(value: Any, where: str) -> tuple[Ground, ...]:
    return tuple(Ground(**fields(item, f'{where}[{place}]: ', {
        'workload': text, 'kind': _ground_kind, 'share': optional(number),
        'waited_s': optional(quantity), 'window_s': optional(quantity),
        'threads': texts, 'chance': optional(number),
        'before': optional(number), 'after': optional(number)},
        ('workload', 'kind'))) for place, item in enumerate(
            array(value, where)))


def _ground_kind(value: Any, where: str) -> GroundKind:
    return _of(GroundKind, value, where)


def _direct(value: Any, where: str) -> tuple[DirectEvidence, ...]:
    return tuple(DirectEvidence(**fields(item, f'{where}[{place}]: ', {
        'workload': text, 'resource': lambda item, at: _of(Resource, item, at),
        'window_s': quantity, 'waited_s': quantity,
        'holders': by_name(quantity), 'threads': by_name(quantity),
        'idle_s': quantity, 'shared': flag, 'by_share': texts},
        DirectEvidence._fields[:4]))
        for place, item in enumerate(array(value, where)))


def incident(value: Any, where: str) -> Incident:
    """Return what :func:`as_json` made of an incident.

    :raises ValueError: which field is wrong, and how.
    """
    return Incident(**{'value': None, 'threshold': None, **fields(
        value, f'{where}: ', {
            'id': text, 'time_s': number, 'host': text, 'victim': text,
            'signal': text, 'value': optional(number),
            'threshold': optional(number), 'cause': text,
            'suspects': _suspects, 'antagonists': texts, 'action': text,
            'outcome': text, 'grounds': _grounds, 'named_earlier': texts},
        ('id', 'time_s', 'host', 'victim', 'signal', 'cause'))})


def _suspects(value: Any, where: str) -> tuple[tuple[str, float], ...]:
    suspects = []
    for item in array(value, where):
        if len(array(item, where)) != 2:
            raise bad(where, item, '[workload, score]')
        suspects.append((text(item[0], where), number(item[1], where)))
    return tuple(suspects)


def cap(value: Any, where: str) -> Cap:
    """Return what :func:`as_json` made of a cap.

    :raises ValueError: which field is wrong, and how.
    """
    values = fields(value, f'{where}: ', {
        'workload': text, 'knob': knob, 'value': lambda item, _: item,
        'owner': text, 'reason': text}, Cap._fields)
    values['value'] = knob_value(values['value'], f'{where}: value',
                                 values['knob'])
    return Cap(**values)


WORKLOAD: Mapping[str, Check] = {
    'instance': text,
    'id': text, 'priority': _priority, 'source': text, 'project': text,
    'application': text, 'vcpus': quantity, 'group': text, 'floor': _floor,
    'memory_allotment_bytes': quantity, 'allowed_cpus': _cpus,
    'disks': texts, 'interfaces': texts, 'killable': flag, 'protected': flag,
    'created_s': number, 'dedicated_cpus': _cpus, 'memory_kept': text}

MEASURED: Mapping[str, Check] = {
    **dict.fromkeys(WorkloadSample._fields[1:], quantity),
    'caps_in_force': _caps}
"""What is measured of a workload; missing: not measurable."""

HOST: Mapping[str, Check] = {
    'schema': _schema, 'host': text, 'boot_id': text,
    'cpu_model': optional(text), 'topology': by_cpu(_place),
    'links': by_name(quantity), 'link_of': by_name(text),
    'llc_ways': optional(whole), 'memory_limit_ends': flag}
"""What rarely changes about a host; missing: as it was before."""

GAUGES: Mapping[str, Check] = {
    'time_s': number, 'wall_time_s': number, 'cpu_busy_s': by_cpu(quantity),
    'memory_total_bytes': quantity, 'memory_available_bytes': quantity,
    'memory_free_bytes': quantity, 'refault_bytes': quantity,
    'link_tx_bytes': by_name(quantity), 'link_rx_bytes': by_name(quantity),
    'direct': _direct}


class Samples:
    """Turns the JSON form of samples back, one after the other.

    It remembers which workloads there are and what rarely changes about the
    host: a line of a recording says that only when it changes.
    """

    def __init__(self) -> None:
        self._host: dict[str, Any] = {}
        self._known: dict[str, Workload] = {}

    def read(self, value: Any, where: str) -> HostSample:
        """The next sample.

        :raises ValueError: which field is wrong, and how.
        """
        plain = dict(mapping(value, where.rstrip(': ')))
        workloads = array(plain.pop('workloads', []), f'{where}workloads')
        values = fields(plain, where, {**HOST, **GAUGES},
                        ('time_s', 'wall_time_s'))
        for name in HOST:
            if name in values:
                self._host[name] = values.pop(name)
        for name in ('schema', 'host', 'boot_id'):
            if name not in self._host:
                raise ValueError(f'{where}{name}: missing')
        samples: dict[str, WorkloadSample] = {}
        for place, item in enumerate(workloads):
            sample = self._workload(item, f'{where}workloads[{place}]: ')
            if sample.workload.id in samples:
                raise ValueError(f'{where}workloads[{place}]: '
                                 f'{sample.workload.id!r} is there twice')
            samples[sample.workload.id] = sample
        return HostSample(**self._host, **values,
                          workloads=tuple(samples.values()))

    def _workload(self, value: Any, where: str) -> WorkloadSample:
        measured = {}
        workload: Workload | None = None
        for name, item in mapping(value, where.rstrip(': ')).items():
            check = MEASURED.get(name)
            if check is not None:
                measured[name] = check(item, where + name)
            elif name == 'workload':
                workload = Workload(**fields(
                    item, f'{where}workload: ', WORKLOAD,
                    ('id', 'priority')))
                self._known[workload.id] = workload
            elif name == 'id':
                workload = self._known.get(text(item, where + name))
                if workload is None:
                    raise ValueError(f'{where}id: {item!r:.60} is not known '
                                     'from a line above')
            else:
                raise ValueError(f'{where}{name:.60}: no such field')
        if workload is None:
            raise ValueError(f'{where}id: missing')
        return WorkloadSample(workload, **measured)
