# SPDX-License-Identifier: Apache-2.0



"""The lines of a recording as values: its header and its turns.

The format is a public interface; its page in the documentation is
``recordings``.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
from typing import Any
from typing import NamedTuple

from scavenger_openstack.decision.changes import Changed
from scavenger_openstack.decision.changes import IncidentChange
from scavenger_openstack.decision.orders import NO_ORDERS
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.recording import order_format
from scavenger_openstack import types
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import array
from scavenger_openstack.wire.json_fields import bad
from scavenger_openstack.wire.json_fields import Check
from scavenger_openstack.wire.json_fields import fields
from scavenger_openstack.wire.json_fields import flag
from scavenger_openstack.wire.json_fields import knob
from scavenger_openstack.wire.json_fields import mapping
from scavenger_openstack.wire.json_fields import number
from scavenger_openstack.wire.json_fields import quantity
from scavenger_openstack.wire.json_fields import text
from scavenger_openstack.wire.json_fields import texts

SCHEMA = 2
"""Version of the format; another one is refused."""

SHORTEST_S = 0.001
LONGEST_S = 1e6
"""Bounds of the time between two ticks: it divides."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecordedController:
    """A controller as it was recorded.

    ``params`` are all its parameters.  ``state`` is what it was given at
    the start, ``None`` if there was nothing.
    """

    name: str
    mode: types.Mode
    params: Mapping[str, Any]
    state: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """The first line.

    ``loaded_s`` is when the states were taken up; ``protect`` the only
    resources that limits were set on, empty for all.
    """

    host: str
    boot_id: str
    version: str
    time_s: float
    wall_time_s: float
    interval_s: float
    loaded_s: float
    controllers: tuple[RecordedController, ...]
    isolation: RecordedController
    protect: tuple[types.Resource, ...] = ()


class RecordedTick(NamedTuple):
    """One tick: what the agent saw, what came from outside, what it wanted.

    ``sample`` is ``None`` when the host could not be read.  ``reset``: the
    sample before does not count.  ``originals`` has those knobs that hold
    something without us.  ``fast_sets`` are groups whose CPU set only the
    fast loop wrote, ``floors`` what it asked for.  ``unmet`` and
    ``pending``: what refused memory limits were answered from.  ``written``
    has the value and what was read back; ``problems`` are errors.
    ``orders`` are those of operators, as far as :mod:`.order_format` knows
    them; ``params`` are parameters of controllers that changed, by section.
    """

    line: int
    time_s: float
    sample: types.HostSample | None
    stopped: bool
    unwatched: bool
    reset: bool
    originals: Mapping[types.KnobKey, types.Value]
    fast_sets: frozenset[str]
    floors: tuple[types.Cap, ...]
    unmet: Mapping[str, int]
    pending: frozenset[types.KnobKey]
    written: Mapping[types.KnobKey, tuple[types.Value, types.Value | None]]
    removed: tuple[types.KnobKey, ...]
    problems: tuple[str, ...]
    decided: Changed
    orders: Orders = NO_ORDERS
    params: Mapping[str, Mapping[str, Any]] = {}


def header(document: Any) -> Header:
    """The first line of a recording.

    :raises ValueError: which field is wrong, and how.
    """
    kind = mapping(document, 'line').get('type')
    if kind != 'header':
        raise bad('type', kind, "'header', so this is not a recording")
    schema = document.get('schema')
    if schema != SCHEMA or type(schema) is not int:
        raise bad('schema', schema, f'{SCHEMA}, the version that is read '
                  'here: replay it with the release that recorded it')
    plain = {name: value for name, value in document.items()
             if name not in ('type', 'schema')}
    checks: dict[str, Check] = {
        'host': text, 'boot_id': text, 'version': text, 'time_s': number,
        'wall_time_s': number, 'interval_s': _interval, 'loaded_s': number,
        'controllers': _controllers, 'isolation': _controller}
    return Header(**fields(plain, '', {**checks, 'protect': _resources},
                           tuple(checks)))


def _interval(value: Any, where: str) -> float:
    if not SHORTEST_S <= quantity(value, where) <= LONGEST_S:
        raise bad(where, value, f'from {SHORTEST_S} to {LONGEST_S:.0f}')
    return float(value)


def _controllers(value: Any, where: str) -> tuple[RecordedController, ...]:
    controllers = tuple(_controller(item, f'{where}[{place}]')
                        for place, item in enumerate(array(value, where)))
    names = [controller.name for controller in controllers]
    if len(set(names)) < len(names):
        raise bad(where, names, 'a list of different controllers')
    return controllers


def _controller(value: Any, where: str) -> RecordedController:
    return RecordedController(**fields(value, f'{where}: ', {
        'name': text, 'mode': json_fields.mode, 'params': mapping,
        'state': _state}, ('name', 'mode', 'params')))


def _state(value: Any, where: str) -> Any:
    """Whatever a controller said, with numbers that can be added up."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _state(item, where)
    elif (isinstance(value, int | float)
          and json_fields.LARGEST <= abs(value) < math.inf):
        raise bad(where, value, 'a number of a state')
    return value


def _resources(value: Any, where: str) -> tuple[types.Resource, ...]:
    try:
        return tuple(types.Resource(item) for item in array(value, where))
    except ValueError:
        raise bad(where, value,
                  'some of ' + ', '.join(types.Resource)) from None


def turn(document: Any, line: int, samples: json_fields.Samples,
         above: RecordedTick | None) -> RecordedTick:
    """A line after the first.

    :param line: its number
    :param samples: remembers what the lines above said of the host
    :param above: the line above, ``None`` for the header
    :raises ValueError: which field is wrong, and how.
    """
    kind = mapping(document, 'line').get('type')
    if kind == 'header':
        raise ValueError('type: a second header: one recording per file')
    if kind != 'tick':
        raise bad('type', kind, "'tick'")
    plain = {name: value for name, value in document.items()
             if name != 'type'}
    orders = above.orders if above else NO_ORDERS
    values = fields(plain, '', {
        **_TURN, 'sample': lambda value, where: samples.read(
            value, f'{where}: '),
        'orders': lambda value, where: order_format.read(
            value, where, orders)}, ('time_s',))
    fast = values.pop('fast', {})
    return RecordedTick(
        line=line, time_s=values['time_s'], sample=values.get('sample'),
        stopped=values.get('stopped', False),
        unwatched=values.get('unwatched', False),
        reset=values.get('reset', False),
        originals=values.get('originals', above.originals if above else {}),
        fast_sets=fast.get('sets', frozenset()),
        floors=fast.get('floors', ()), unmet=values.get('unmet', {}),
        pending=values.get('pending', frozenset()),
        written=values.get('written', {}),
        removed=values.get('removed', ()),
        problems=values.get('problems', ()),
        decided=Changed(
            {(key[1], key[2]): cap
             for key, cap in values.get('wanted', {}).items()},
            values.get('would', {}), values.get('incidents', ())),
        orders=values.get('orders', orders), params=values.get('params', {}))


def _fast(value: Any, where: str) -> dict[str, Any]:
    return fields(value, f'{where}: ', {
        'sets': lambda v, w: frozenset(texts(v, w)),
        'floors': lambda v, w: tuple(
            cap for cap in _caps(v, w).values() if cap is not None)})


def _caps(value: Any, where: str
          ) -> dict[tuple[str, str, types.Knob], types.Cap | None]:
    """Caps with the same knob, owner and reason stand together."""
    caps: dict[tuple[str, str, types.Knob], types.Cap | None] = {}
    for place, item in enumerate(array(value, where)):
        here = f'{where}[{place}]: '
        group = fields(item, here, {
            'knob': knob, 'owner': text, 'reason': text, 'values': mapping},
            ('knob', 'owner', 'values'))
        for workload, limit in group['values'].items():
            key = (group['owner'], workload, group['knob'])
            caps[key] = None if limit is None else types.Cap(
                workload, group['knob'], json_fields.knob_value(
                    limit, f'{here}values: {workload}', group['knob']),
                group['owner'], group.get('reason', ''))
    return caps


def _originals(value: Any, where: str) -> dict[types.KnobKey, types.Value]:
    originals: dict[types.KnobKey, types.Value] = {}
    for name, values in mapping(value, where).items():
        which = knob(name, where)
        for workload, original in mapping(values, f'{where}: {name}').items():
            originals[workload, which] = json_fields.knob_value(
                original, f'{where}: {name}: {workload}', which)
    return originals


def _keys(value: Any, where: str) -> tuple[types.KnobKey, ...]:
    keys = []
    for item in array(value, where):
        if len(array(item, where)) != 2:
            raise bad(where, item, '[workload, knob]')
        keys.append((text(item[0], where), knob(item[1], where)))
    return tuple(keys)


def _written(value: Any, where: str
             ) -> dict[types.KnobKey, tuple[types.Value, types.Value | None]]:
    written = {}
    for item in array(value, where):
        if len(array(item, where)) != 4:
            raise bad(where, item, '[workload, knob, value, read back]')
        which = knob(item[1], where)
        written[text(item[0], where), which] = (
            json_fields.knob_value(item[2], where, which),
            None if item[3] is None else json_fields.knob_value(
                item[3], where, which))
    return written


def _incidents(value: Any, where: str) -> tuple[IncidentChange, ...]:
    return tuple(_incident(item, f'{where}[{place}]: ')
                 for place, item in enumerate(array(value, where)))


def _incident(value: Any, where: str) -> IncidentChange:
    values = fields(value, where, {
        'controller': text, 'ended': flag, 'incident': json_fields.incident},
        ('controller', 'incident'))
    return IncidentChange(values['controller'], values['incident'],
                          values.get('ended', False))


_TURN: Mapping[str, Check] = {
    'time_s': number, 'stopped': flag, 'unwatched': flag,
    'reset': flag, 'originals': _originals, 'fast': _fast,
    'unmet': json_fields.by_name(number), 'pending': lambda v, w: frozenset(
        _keys(v, w)), 'written': _written, 'removed': _keys,
    'problems': texts, 'wanted': _caps, 'would': _caps,
    'incidents': _incidents, 'params': json_fields.by_name(mapping)}
