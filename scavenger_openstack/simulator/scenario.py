# SPDX-License-Identifier: Apache-2.0


"""Scenario files: short YAML that draws a machine and tenants by seed.

Wherever a number stands, a distribution may stand: ``{uniform: [2, 8]}``,
``{integer: [5, 60]}``, ``{lognormal: [median, sigma]}``,
``{loguniform: [0.05, 2]}`` or ``{choice: [a, b]}``.  ``$name`` stands for
what was drawn once under ``draws``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import math
import pathlib
import random
import reprlib
from typing import Any
from typing import NamedTuple

import yaml

from scavenger_openstack import errors
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.load import SHAPES
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.plant import FINE_S
from scavenger_openstack.simulator import safe_yaml
from scavenger_openstack.types import Priority

SCHEMA = 1

SHORTEST_STEP_S = 0.0001
LONGEST_FINE_S = 0.02
"""For a warm-up in longer steps, still of those that follow requests."""

SHORTEST_PHASE_S = 0.001
LONGEST_S = 1e7
LARGEST = 1e15
MOST_BYTES = 1 << 16
MOST_TENANTS = 500
MOST_PHASES = 100
MOST_CPUS = 1024

TOP = ('schema', 'about', 'duration_s', 'warmup_s', 'interval_s', 'step_s',
       'warmup_step_s', 'draws', 'machine', 'tenants')

DISTRIBUTIONS: Mapping[str, Callable[..., float]] = {
    'uniform': lambda r, low, high: r.uniform(low, high),
    'integer': lambda r, low, high: r.randint(int(low), int(high)),
    'lognormal': lambda r, median, sigma: median * math.exp(
        r.gauss(0.0, sigma)),
    'loguniform': lambda r, low, high: math.exp(
        r.uniform(math.log(low), math.log(high))),
}

GROUP_KEYS = {
    'count': 'how many tenants are made of one description',
    'alike': 'draw once for all of them; their noise still differs',
    'cores': 'mean CPU use of a service at load 1, instead of '
             'requests_per_s',
}
"""Keys of a tenant in a file that are no fields of a Tenant."""


class Drawn(NamedTuple):
    """One scenario with one seed: what to simulate, and for how long.

    The controllers turn every ``interval_s``, the plant every ``step_s``;
    nothing is judged before ``warmup_s``, until when the plant turns every
    ``warmup_step_s``.
    """

    name: str
    seed: int
    machine: Machine
    tenants: tuple[Tenant, ...]
    duration_s: float
    warmup_s: float
    interval_s: float
    step_s: float
    warmup_step_s: float


class Scenario:
    """A scenario file that was read and whose keys are known.

    :param path: where it is from, for messages
    :raises ConfigError: it is not YAML, or not a scenario.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self.name = pathlib.PurePath(path).stem
        try:
            document = yaml.load(text, safe_yaml.Loader)
        except (yaml.YAMLError, RecursionError, ValueError) as exc:
            raise errors.ConfigError(
                f'{path}: not YAML: {" ".join(str(exc).split())}') from exc
        if not isinstance(document, dict):
            raise errors.ConfigError(f'{path}: not a scenario: no keys')
        self._check_keys(document, TOP, '')
        if document.get('schema') != SCHEMA:
            raise self._wrong(
                'schema', f'{_short(document.get("schema"))}; this release '
                f'reads {SCHEMA}')
        self._document = document
        self._drawn: dict[str, Any] = {}
        self.about = ' '.join(self._text(document.get('about', ''),
                                         'about').split())
        self.draw(0)

    def draw(self, seed: int) -> Drawn:
        """The scenario of one seed; the same seed draws the same."""
        random_ = self._random(seed)
        document = self._document
        self._drawn = self._draws(document.get('draws') or {}, random_)
        machine = self._machine(document.get('machine') or {}, random_)
        groups = document.get('tenants')
        if not isinstance(groups, list) or not groups:
            raise self._wrong('tenants', 'none')
        tenants: list[Tenant] = []
        names: set[str] = set()
        for index, group in enumerate(groups):
            for tenant in self._tenants(group, f'tenants[{index}]', random_):
                if tenant.id in names:
                    raise self._wrong('tenants',
                                      f'{tenant.id} is there twice')
                if len(tenants) == MOST_TENANTS:
                    raise self._wrong('tenants',
                                      f'there are more than {MOST_TENANTS}')
                names.add(tenant.id)
                tenants.append(tenant)
        for tenant in tenants:
            if tenant.pinned and not tenant.pinned <= set(
                    range(machine.cpus)):
                raise self._wrong(f'{tenant.id}.pinned',
                                  f'the machine has {machine.cpus} CPUs')

        def top(key: str, default: float, least: float,
                most: float) -> float:
            return self._number(document.get(key, default), key, random_,
                                least=least, most=most)

        interval_s = top('interval_s', 1.0, 0.01, LONGEST_S)
        duration_s = top('duration_s', 600.0, interval_s, LONGEST_S)
        step_s = top('step_s', interval_s, SHORTEST_STEP_S, interval_s)
        longest_s = interval_s if step_s >= FINE_S else max(
            step_s, min(LONGEST_FINE_S, interval_s))
        return Drawn(
            self.name, seed, machine, tuple(tenants), duration_s,
            warmup_s=top('warmup_s', min(60.0, duration_s / 2), 0.0,
                         duration_s - interval_s),
            interval_s=interval_s,
            step_s=step_s,
            warmup_step_s=top('warmup_step_s', step_s, step_s, longest_s))

    def _draws(self, values: Any, random_: random.Random) -> dict[str, Any]:
        if not isinstance(values, dict):
            raise self._wrong('draws', 'not a mapping')
        draws: dict[str, Any] = {}
        for name, value in values.items():
            draws[f'${name}'] = self._number(value, f'draws.{name}', random_,
                                             least=-math.inf)
        return draws

    def _machine(self, values: Any, random_: random.Random) -> Machine:
        where = 'machine'
        machine = Machine(**self._fields(values, Machine, where, random_))
        if not (1 <= machine.cpus <= MOST_CPUS
                and machine.threads_per_core in (1, 2)
                and machine.cpus % machine.threads_per_core == 0
                and 1 <= machine.numa_nodes <= machine.llcs <= (
                    machine.cpus // machine.threads_per_core)):
            raise self._wrong(
                where, f'cpus (1 to {MOST_CPUS}), threads_per_core (1 or 2), '
                'llcs and numa_nodes do not fit together')
        for key in ('smt_yield', 'hertz', 'llc_bytes', 'memory_bytes_per_s',
                    'memory_bytes', 'disk_bytes_per_s', 'link_bytes_per_s'):
            if not 0 < getattr(machine, key) < math.inf:
                raise self._wrong(f'{where}.{key}',
                                  'must be above 0 and finite')
        return machine

    def _random(self, *parts: Any) -> random.Random:
        """The name of a file need not be UTF-8."""
        return random.Random(':'.join(map(str, (self.name, *parts))).encode(
            errors='surrogateescape'))

    def _tenants(self, group: Any, where: str,
                 random_: random.Random) -> Iterator[Tenant]:
        if not isinstance(group, dict) or 'id' not in group:
            raise self._wrong(where, 'needs an id')
        group = dict(group)
        several = 'count' in group
        count = int(self._number(group.pop('count', 1), f'{where}.count',
                                 random_, most=MOST_TENANTS))
        alike = self._flag(group.pop('alike', False), f'{where}.alike')
        # A stream of its own: another tenant more does not change these.
        own = self._random(random_.random(),
                           self._text(group['id'], f'{where}.id'))
        start = own.getstate()
        for number in range(count):
            if alike:
                own.setstate(start)
            yield self._tenant(group, where, own,
                               f'-{number + 1}' if several else '')

    def _tenant(self, group: dict[str, Any], where: str,
                random_: random.Random, suffix: str) -> Tenant:
        group = dict(group)
        cores = group.pop('cores', None)
        values = self._fields(group, Tenant, where, random_)
        values['id'] = f'{values["id"]}{suffix}'
        if cores is not None:
            if 'requests_per_s' in values or not values.get('cpu_s'):
                raise self._wrong(f'{where}.cores', 'needs cpu_s and stands '
                                  'instead of requests_per_s')
            values['requests_per_s'] = self._number(
                cores, f'{where}.cores', random_,
                most=MOST_CPUS) / values['cpu_s']
            if values['requests_per_s'] > LARGEST:
                raise self._wrong(
                    f'{where}.cpu_s', f'with {values["cpu_s"]:g} s each, '
                    f'more than {LARGEST:g} requests per second')
        tenant = Tenant(**values)
        if tenant.vcpus < 1 or tenant.io_bytes < 1 or tenant.cpi <= 0:
            raise self._wrong(
                where, 'vcpus and io_bytes must be at least 1, cpi above 0')
        if not max(tenant.miss_least, tenant.miss_most,
                   tenant.overlap) <= 1:
            raise self._wrong(where, 'miss_least, miss_most and overlap are '
                              'shares, at most 1')
        if tenant.is_service and tenant.cpu_s <= 0:
            raise self._wrong(
                where, 'a service (requests_per_s) needs cpu_s')
        if tenant.file_ops and not tenant.file_bytes:
            raise self._wrong(f'{where}.file_ops', 'needs file_bytes')
        return tenant

    def _fields(self, values: Any, kind: type, where: str,
                random_: random.Random) -> dict[str, Any]:
        if not isinstance(values, dict):
            raise self._wrong(where, 'not a mapping')
        fields = {field.name: field for field in dataclasses.fields(kind)}
        self._check_keys(values, [*fields, *(
            GROUP_KEYS if kind is Tenant else ())], where)
        parsed: dict[str, Any] = {}
        for key, value in values.items():
            place = f'{where}.{key}'
            default = fields[key].default
            if key in ('phases', 'cpi_phases', 'memory_phases'):
                parsed[key] = self._phases(value, place, random_)
            elif key == 'pinned':
                parsed[key] = self._cpus(value, place)
            elif key == 'priority':
                parsed[key] = self._priority(value, place)
            elif key in ('id', 'application', 'project', 'role',
                         'cpu_model', 'shape'):
                parsed[key] = self._text(self._choose(value, random_), place)
            elif isinstance(default, bool):
                parsed[key] = self._flag(self._choose(value, random_), place)
            elif isinstance(default, int):
                parsed[key] = self._whole(value, place, random_)
            else:
                parsed[key] = self._number(
                    value, place, random_,
                    most=math.inf if default == math.inf else LARGEST)
        return parsed

    def _text(self, value: Any, where: str) -> str:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self._wrong(where, f'{_short(value)} is not a text')
        return str(value)

    def _flag(self, value: Any, where: str) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(where, f'{_short(value)} is not true or false')
        return value

    def _whole(self, value: Any, where: str, random_: random.Random) -> int:
        number = self._number(value, where, random_, most=LONGEST_S)
        if number != int(number):
            raise self._wrong(where, f'{number:g} is not a whole number')
        return int(number)

    def _phases(self, values: Any, where: str,
                random_: random.Random) -> tuple[Phase, ...]:
        if not isinstance(values, list) or not values:
            raise self._wrong(where, 'not a list')
        if len(values) > MOST_PHASES:
            raise self._wrong(
                where, f'{len(values)} are more than {MOST_PHASES}')
        phases = []
        for index, value in enumerate(values):
            place = f'{where}[{index}]'
            phase = Phase(**self._fields(value, Phase, place, random_))
            if (phase.shape not in SHAPES
                    or not phase.for_s >= SHORTEST_PHASE_S
                    or not phase.period_s >= SHORTEST_PHASE_S):
                raise self._wrong(
                    place, f'shape is one of {", ".join(SHAPES)}; for_s and '
                    f'period_s are at least {SHORTEST_PHASE_S:g}')
            if phase.shape == 'ramp' and phase.for_s == math.inf:
                raise self._wrong(place, 'a ramp needs for_s')
            phases.append(phase)
        return tuple(phases)

    def _cpus(self, value: Any, where: str) -> frozenset[int]:
        if (not isinstance(value, list) or not value or not all(
                type(cpu) is int for cpu in value)):
            raise self._wrong(where, f'{_short(value)} is not a list of CPUs')
        return frozenset(value)

    def _priority(self, value: Any, where: str) -> Priority:
        try:
            return Priority(value)
        except ValueError:
            raise self._wrong(where, f'{_short(value)} is not foreground or '
                              'background') from None

    def _choose(self, value: Any, random_: random.Random) -> Any:
        if isinstance(value, dict) and set(value) == {'choice'}:
            options = value['choice']
            if isinstance(options, list) and options:
                return random_.choice(options)
        return value

    def _number(self, value: Any, where: str, random_: random.Random, *,
                least: float = 0.0, most: float = math.inf) -> float:
        value = self._choose(value, random_)
        if isinstance(value, str) and value in self._drawn:
            value = self._drawn[value]
        if isinstance(value, dict) and len(value) == 1:
            (name, arguments), = value.items()
            try:
                value = DISTRIBUTIONS[name](
                    random_, *(float(each) for each in arguments))
            except (KeyError, TypeError, ValueError, OverflowError) as exc:
                raise self._wrong(
                    where, f'{_short(value)} is no distribution; one of '
                    f'{", ".join(DISTRIBUTIONS)}, choice') from exc
        if isinstance(value, str):
            try:
                value = float(value)    # YAML takes 1e9 for a text
            except ValueError:
                pass
        if (isinstance(value, bool) or not isinstance(value, int | float)
                or not least <= value <= most):
            raise self._wrong(
                where, f'{_short(value)} is not a number from {least:g} up'
                + ('' if most == math.inf else f' to {most:g}'))
        return value

    def _check_keys(self, values: Mapping[Any, Any], names: Any,
                    where: str) -> None:
        for key in values:
            if key not in names:
                key = str(key)[:40]
                close = difflib.get_close_matches(key, list(names), 1)
                hint = f'; did you mean {close[0]}?' if close else ''
                place = f'{where}.{key}' if where else key
                raise self._wrong(place, f'no such key{hint}')

    def _wrong(self, where: str, why: str) -> errors.ConfigError:
        return errors.ConfigError(f'{self._path}: {where}: {why}')


def _short(value: Any) -> str:
    """A value in a message: one line, not endless."""
    short = reprlib.Repr()
    short.maxlevel = 2
    return short.repr(value)


def read(path: pathlib.Path) -> Scenario:
    """Read a scenario file.

    :raises ConfigError: it cannot be read, or is not a scenario.
    """
    try:
        with path.open('rb') as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise errors.ConfigError(
                f'{path}: not a scenario: more than {MOST_BYTES} bytes')
        return Scenario(data.decode(), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.ConfigError(f'{path}: cannot be read: {exc}') from exc
