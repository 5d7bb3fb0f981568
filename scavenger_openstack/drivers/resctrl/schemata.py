# SPDX-License-Identifier: Apache-2.0

"""The parts that groups of resctrl have of caches and memory buses: what the
kernel writes into ``schemata``, and reads from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Parts = Mapping[str, Mapping[str, str]]
"""By resource and by the number of a cache: a mask in hexadecimal digits, or
a percentage."""


class Layout(NamedTuple):
    """What the group may have of each cache.

    :ivar masks: of the default group, by resource and cache
    :ivar least: ways that a group has at least
    :ivar busy: ways that devices fill, too
    :ivar bandwidth: of the default group, in percent, by cache; empty where
        the bus is not limited
    :ivar least_percent: of the bus
    :ivar step_percent: of the bus
    """

    masks: Mapping[str, Mapping[str, int]]
    least: int
    busy: int
    bandwidth: Mapping[str, int] = {}
    least_percent: int = 0
    step_percent: int = 1

    @property
    def ways(self) -> int:
        """The ways that the default group has of each cache, at least."""
        return min(mask.bit_count() for masks in self.masks.values()
                   for mask in masks.values())

    def parts(self, ways: int) -> dict[str, dict[str, str]]:
        """Return the part of a group with so many ways, by resource and
        cache."""
        ways = max(ways, self.least)
        parts = {name: {cache: f'{window(mask, ways, self.busy):x}'
                        for cache, mask in masks.items()}
                 for name, masks in self.masks.items()}
        if self.bandwidth:
            parts['MB'] = {
                cache: str(self._percent(percent * ways / self.ways, percent))
                for cache, percent in self.bandwidth.items()}
        return parts

    def _percent(self, wanted: float, most: int) -> int:
        steps = max(0, int(wanted - self.least_percent) // self.step_percent)
        return min(most, self.least_percent + steps * self.step_percent)


def window(mask: int, ways: int, busy: int) -> int:
    """Return so many neighbouring bits of a mask, with as few of ``busy`` as
    possible, the lowest of these; all of a mask that has no more."""
    runs = [run for first in range(mask.bit_length())
            if (run := (1 << ways) - 1 << first) & ~mask == 0]
    return min(runs, key=lambda run: ((run & busy).bit_count(), run),
               default=mask)


def parse(text: str) -> dict[str, dict[str, str]]:
    """Return the parts of a group, by resource and cache.

    :raises ValueError: it is something else.
    """
    parts: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        name, _, values = line.partition(':')
        parts[name.strip()] = {}
        for value in filter(None, values.split(';')):
            cache, equals, part = value.partition('=')
            if not equals:
                raise ValueError(f'schemata {line!r:.99}')
            parts[name.strip()][cache.strip()] = part.strip()
    return parts


def numbers(parts: Parts) -> dict[str, dict[str, int]]:
    """Return parts as numbers, of which the kernel writes the digits in its
    own way."""
    return {name: {cache: int(text, 16 if name.startswith('L') else 10)
                   for cache, text in caches.items()}
            for name, caches in parts.items()}


def changes(before: Parts, wanted: Parts) -> str:
    """Return the lines of those parts that are others than before, as the
    kernel reads them; '' for none."""
    now = numbers(before)
    return ''.join(
        f'{name}:' + ';'.join(f'{cache}={value}' for cache, value
                              in values.items()) + '\n'
        for name, values in wanted.items()
        if numbers({name: values})[name] != now.get(name))
