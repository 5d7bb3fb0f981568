# SPDX-License-Identifier: Apache-2.0

"""The knobs: what each is for, what it can hold, and how people read it."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import NamedTuple

from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Resource

MOST = 2.0 ** 53
"""The largest number that a knob holds: all whole ones up to it are exact."""

CORES, MIB = (1.0, 'cores'), (2.0 ** 20, 'MiB')
MB_PER_S, OPERATIONS_PER_S = (1e6, 'MB/s'), (1.0, 'operations/s')


class KnobFacts(NamedTuple):
    """What holds of one knob on all hosts.

    :ivar resource: for whose sake it is limited
    :ivar words: of a limit in a narrow table; ``{}`` is its value
    :ivar unit: in which people read it: its size in the knob's own, its name
    :ivar floor: what a batch container keeps that has no floor of its own;
        ``None``: there is none, and it cannot be overridden unless it leaves
        a workload all CPU time that nothing else needs (``of_group``)
    :ivar of_group: it is set on the group of a workload
    :ivar is_switch: it holds 0 or 1, where 1 is tighter
    :ivar example: what people may type
    """

    resource: Resource
    words: str
    unit: tuple[float, str] = (1.0, '')
    floor: float | None = None
    of_group: bool = False
    is_switch: bool = False
    example: str = '1'


KNOBS: Mapping[Knob, KnobFacts] = {
    Knob.CPU_CORES: KnobFacts(Resource.CPU, '{}', CORES, 0.1, example='0.5'),
    Knob.CPU_SET: KnobFacts(Resource.CPU, '{}', of_group=True,
                            example='0-1,4'),
    Knob.CPU_IDLE: KnobFacts(Resource.CPU, 'CPU only when idle',
                             of_group=True, is_switch=True),
    # The memory floor of a VM is the RAM of its flavor.
    Knob.MEMORY_BYTES: KnobFacts(Resource.MEMORY, 'memory {}', MIB,
                                 64.0 * 2 ** 20, example='512MiB'),
    Knob.IO_BYTES_PER_S: KnobFacts(Resource.DISK, 'disk {}', MB_PER_S,
                                   1_000_000.0, example='20MB/s'),
    Knob.IO_OPS_PER_S: KnobFacts(Resource.DISK, 'disk {}', OPERATIONS_PER_S,
                                 10.0, example='200'),
    Knob.EGRESS_BYTES_PER_S: KnobFacts(Resource.NETWORK, 'sends {}', MB_PER_S,
                                       125_000.0, example='10MB/s'),
    Knob.INGRESS_BYTES_PER_S: KnobFacts(
        Resource.NETWORK, 'receives {}', MB_PER_S, 125_000.0,
        example='10MB/s'),
    Knob.LLC_WAYS: KnobFacts(Resource.CPU, '{} of cache', (1.0, 'ways')),
    Knob.PAUSED: KnobFacts(Resource.MEMORY, 'paused', is_switch=True)}
"""Source: DESIGN 7.6 (floors), 7.5 (what an operator may override)."""

RESOURCE_OF: Mapping[Knob, Resource] = {
    knob: facts.resource for knob, facts in KNOBS.items()}
DEFAULT_FLOORS: Mapping[Knob, float] = {
    knob: facts.floor for knob, facts in KNOBS.items()
    if facts.floor is not None}
OF_NETWORK = tuple(knob for knob, facts in KNOBS.items()
                   if facts.resource is Resource.NETWORK)
OF_GROUPS = frozenset(knob for knob, facts in KNOBS.items() if facts.of_group)
SWITCHES = frozenset(knob for knob, facts in KNOBS.items() if facts.is_switch)
OVERRIDABLE = tuple(knob for knob in KNOBS
                    if knob in OF_GROUPS or knob in DEFAULT_FLOORS)
"""Knobs that an operator may set."""


def mistake(knob: Knob, value: object) -> str:
    """Return what a knob's value has to be, '' if this is one."""
    if knob is Knob.CPU_SET:
        try:
            if isinstance(value, str) and parse_cpus(value):
                return ''
        except ValueError:
            pass
        return 'a CPU list such as 0-1,4'
    if knob in SWITCHES:
        return '' if value in (0, 1) and not isinstance(value, str) \
            else '0 or 1'
    if isinstance(value, int | float) and math.isfinite(value) \
            and 0 <= value <= MOST:
        return ''
    return 'a number from 0 to 2^53'
