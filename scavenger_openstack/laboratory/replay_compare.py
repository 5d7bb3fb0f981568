# SPDX-License-Identifier: Apache-2.0



"""Two settings over the same recording or table, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from scavenger_openstack.decision import arbitrate
from scavenger_openstack.laboratory.replay import side_by_side
from scavenger_openstack.laboratory.replay import Source
from scavenger_openstack.laboratory.replay import Step
from scavenger_openstack.laboratory.replay_settings import Settings
from scavenger_openstack.text import columns
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import printable
from scavenger_openstack.types import Value

Place = tuple[str, str, Knob]
"""Host, workload and knob."""


@dataclasses.dataclass(slots=True)
class Limited:
    """The limits of one knob: ticks, values set, and their sum."""

    ticks: int = 0
    values: int = 0
    total: float = 0.0
    last: Value | None = None

    def add(self, value: Value) -> None:
        self.ticks += 1
        self.values += value != self.last
        self.last = value
        if not isinstance(value, str):
            self.total += value

    def as_json(self) -> dict[str, Any]:
        return {'limited_ticks': self.ticks, 'values': self.values,
                'mean': self.mean}

    @property
    def mean(self) -> Value | None:
        """While limited; a CPU set has no mean but a last value."""
        return (self.last if isinstance(self.last, str)
                else self.total / self.ticks if self.ticks else None)


@dataclasses.dataclass(slots=True)
class Tally:
    """The decisions of one setting, counted.

    ``set`` caps where there was none, ``changed`` ones that went on with
    another value, ``removed`` ones that ended.
    """

    ticks: int = 0
    set: int = 0
    changed: int = 0
    removed: int = 0
    incidents: int = 0
    knobs: dict[Place, Limited] = dataclasses.field(default_factory=dict)
    now: dict[str, Mapping[KnobKey, Value]] = dataclasses.field(
        default_factory=dict)

    def add(self, step: Step) -> Mapping[KnobKey, Value]:
        """Count a decision; what it limits, also where it only observes."""
        caps = limits(step)
        before = self.now.get(step.host, {})
        self.ticks += 1
        for key, value in caps.items():
            place = (step.host, *key)
            if place not in self.knobs:
                self.knobs[place] = Limited()
            self.knobs[place].add(value)
            self.set += key not in before
            self.changed += key in before and before[key] != value
        for key in before:
            if key not in caps:
                self.removed += 1
                self.knobs[step.host, *key].last = None
        self.incidents += sum(
            1 for change in step.changed.incidents if not change.ended
            and change.incident.time_s == step.time_s)
        self.now[step.host] = caps
        return caps


def limits(step: Step) -> dict[KnobKey, Value]:
    """Return what would be limited if all controllers of the setting
    enforced."""
    by_key: dict[KnobKey, Value] = {key: cap.value
                                    for key, cap in step.wanted.items()}
    claims: dict[KnobKey, list[Value]] = {}
    for (_, workload, knob), cap in step.would.items():
        if (workload, knob) not in by_key:
            claims.setdefault((workload, knob), []).append(cap.value)
    for key, values in claims.items():
        by_key[key] = arbitrate.tightest(key[1], values)
    return by_key


@dataclasses.dataclass(slots=True)
class Comparison:
    """Two tallies, what they are called, and where they first differ."""

    names: tuple[str, str]
    one: Tally
    two: Tally
    first: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        places = {**self.one.knobs, **self.two.knobs}
        return {
            'type': 'comparison', 'settings': [
                {'name': name, **{field: getattr(tally, field)
                                  for field in COUNTS}}
                for name, tally in zip(self.names, (self.one, self.two),
                                       strict=True)],
            'caps': [
                {'host': host, 'workload': workload, 'knob': knob,
                 'settings': [
                     tally.knobs.get((host, workload, knob),
                                     Limited()).as_json()
                     for tally in (self.one, self.two)]}
                for host, workload, knob in places],
            'first_difference': self.first}

    def lines(self) -> Iterator[str]:
        """Yield the comparison as lines for people."""
        yield from columns(('', *self.names), (
            (title, str(getattr(self.one, field)),
             str(getattr(self.two, field)))
            for field, title in COUNTS.items()))
        places = {**self.one.knobs, **self.two.knobs}
        if places:
            yield ''
            several = len({place[0] for place in places}) > 1
            yield from columns(
                ('CAP', 'TICKS', 'TICKS', 'VALUES', 'VALUES', 'MEAN', 'MEAN'),
                (self._row(place, several) for place in places))
        yield ''
        first = self.first
        if first is None:
            yield 'no difference: both settings decide the same'
            return
        first_value, second_value = first['values']
        yield printable(
            f'first difference at {first["time_s"]:.3f} s on '
            f'{first["host"]}: {first["workload"]} {first["knob"]}: '
            f'{_text(first_value)} against {_text(second_value)}')

    def _row(self, place: Place, several: bool) -> tuple[str, ...]:
        first, second = (tally.knobs.get(place, Limited())
                         for tally in (self.one, self.two))
        return (' '.join(place if several else place[1:]),
                str(first.ticks), str(second.ticks), str(first.values),
                str(second.values), _text(first.mean), _text(second.mean))


COUNTS = {'ticks': 'ticks', 'set': 'caps set', 'changed': 'values changed',
          'removed': 'caps removed', 'incidents': 'incidents'}


def compare(source: Source, first: Settings, second: Settings,
            names: tuple[str, str]) -> Comparison:
    """Run both settings over a source.

    :raises DriverError: a line of the source is wrong.
    """
    comparison = Comparison(names, Tally(), Tally())
    for step_one, step_two in side_by_side(source, first, second):
        caps_one = comparison.one.add(step_one)
        caps_two = comparison.two.add(step_two)
        if comparison.first is None and caps_one != caps_two:
            key = next(key for key in (*caps_one, *caps_two)
                       if caps_one.get(key) != caps_two.get(key))
            comparison.first = {
                'time_s': step_one.time_s, 'host': step_one.host,
                'workload': key[0], 'knob': key[1],
                'values': [caps_one.get(key), caps_two.get(key)]}
    return comparison


def _text(value: Value | None) -> str:
    if value is None:
        return '-'
    return f'{value:.10g}' if isinstance(value, float) else str(value)
