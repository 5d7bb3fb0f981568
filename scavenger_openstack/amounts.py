# SPDX-License-Identifier: Apache-2.0

"""Values of knobs and signals, and the evidence of an incident, as a person
reads them: with their units."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
import math
from typing import Any

from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.knobs import KNOBS
from scavenger_openstack.knobs import MB_PER_S
from scavenger_openstack.knobs import RESOURCE_OF
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import Value


HOUR_S = 3600
DAY_S = 24 * HOUR_S


def counted(count: int, noun: str, plural: str = '') -> str:
    """``1 host``, ``2 hosts``.

    :param plural: where it is not the noun with an s
    """
    return f'{count:,} {noun if count == 1 else plural or f"{noun}s"}'


def of_bytes(value: float) -> str:
    return f'{value / 2 ** 20:,.0f} MiB'


def of_bytes_per_s(value: float) -> str:
    return f'{of_number(value / 1e6)} MB/s'


def of_number(value: float, figures: int = 3) -> str:
    """So many figures, or all before the point: 0.00123, 12.3, 12,345; with
    an exponent what is too large or small to be read otherwise."""
    text = f'{value:.{figures}g}'
    if not (1e-9 < abs(value) < 1e18):
        return text
    if 'e' not in text:
        return text if abs(value) < 1000 else f'{value:,.0f}'
    return f'{Decimal(text):f}' if abs(value) < 1 else f'{value:,.0f}'


def of_knob(knob: str, value: Value | None) -> str:
    """A value with its unit.

    :param knob: or another name that ends with its unit
    """
    if value is None:
        return 'no limit'
    if isinstance(value, str):
        return f'CPUs {value}' if knob == Knob.CPU_SET else value
    if knob == Knob.MEMORY_BYTES:
        return of_bytes(value)
    return _in_unit(value, *_unit_of_knob(knob))


def of_signal(signal: str, value: float) -> str:
    """A value of a signal with its unit, or of the knob of that name."""
    name = signal.partition(' ')[0]     # of a device, perhaps
    return _in_unit(value, *_SIGNAL_UNITS[name]) if name in _SIGNAL_UNITS \
        else of_knob(name, value)


def name_of_signal(signal: str) -> str:
    """Return what a signal measures, to be read in a sentence."""
    name, _, device = signal.partition(' ')
    return printable(_SIGNAL_NAMES.get(name, name)
                     + (f' ({device})' if device else ''))


def unit(name: str) -> tuple[float, str]:
    """Return (size, name) of the unit in which a signal or a knob is read."""
    return _SIGNAL_UNITS.get(name) or _unit_of_knob(name)


def _unit_of_knob(knob: str) -> tuple[float, str]:
    if knob in set(Knob):
        return KNOBS[Knob(knob)].unit
    if knob.endswith('_bytes_per_s'):
        return MB_PER_S
    if knob.endswith('_s') and not knob.endswith('_per_s'):
        return 1e-3, 'ms'
    return 1.0, ''


def _in_unit(value: float, size: float, words: str) -> str:
    return f'{of_number(value / size)} {words}'.rstrip()


_SIGNAL_UNITS: dict[str, tuple[float, str]] = {
    'run_delay': (1.0, 's waited per s of CPU time'),
    'cpi': (1.0, 'cycles/instruction'), 'io_wait': (1e-3, 'ms/operation'),
    'llc_misses_per_s': (1e6, 'M misses/s'),
    'link_use': (1.0, 'of what the link can send'),
    'memory_wait': (1.0, 's waited for memory per s')}


_SIGNAL_NAMES = {
    'run_delay': 'the CPU wait', 'cpi': 'the CPI',
    'io_wait': 'the disk wait', 'throttled_share': 'the throttled share',
    'llc_misses_per_s': 'the rate of cache misses',
    'link_use': 'the link use', 'memory_wait': 'the memory wait'}


def of_duration(seconds: float) -> str:
    """Two figures of a duration: ``45 s``, ``3 min``, ``1.5 h``, ``12 d``."""
    for unit_name, unit_s in (('d', 86400), ('h', 3600), ('min', 60)):
        if seconds >= unit_s:
            count = seconds / unit_s
            return f'{count:.0f} {unit_name}' if count >= 9.95 \
                else f'{count:.2g} {unit_name}'
    return f'{seconds:.0f} s' if seconds >= 9.95 else f'{seconds:.2g} s'


def of_incident_ground(fields: Mapping[str, Any],
                       incident: Mapping[str, Any]) -> str:
    """Why a workload is named, in one sentence, out of the API's answer.

    :param fields: one of the grounds of the incident; its workload is
        ``None`` where it may not be named
    """
    workload = fields.get('workload')
    known = {name: fields[name] for name in Ground._fields
             if fields.get(name) is not None}
    known.setdefault('workload', 'another workload or the host itself')
    return of_ground(
        Ground(**known), incident['victim'], incident['signal'], {
            str(workload): fields.get('name') or '',
            incident['victim']: incident.get('victim_name') or ''})


def of_ground(ground: Ground, victim: str, signal: str,
              names: Mapping[str, str] | None = None) -> str:
    """Why a workload is named, in one sentence.

    :param signal: of the incident; says which resource the evidence is of
    :param names: id of a workload -> what operators call it
    """
    names = names or {}
    workload = names.get(ground.workload) or (
        'the host itself' if ground.workload == THE_HOST else ground.workload)
    holder = printable(workload + (
        f' ({", ".join(ground.threads)})' if ground.threads else ''))
    waiter = printable(names.get(victim) or victim)
    held, what, use = _WORDS[
        Resource.CACHE if (signal, ground.kind) == ('cpi', GroundKind.SHARE)
        else _resource_of(signal)]
    share, waited_s, window_s, chance = (
        None if value is None or not math.isfinite(value) else value
        for value in (ground.share, ground.waited_s, ground.window_s,
                      ground.chance))
    part = 'part' if share is None else f'{of_number(100 * share, 2)} %'
    waited = 'time' if waited_s is None else f'{of_number(waited_s)} s'
    waited = f'the {waited} that {waiter} {what}' + (
        '' if window_s is None else f' (within {of_number(window_s)} s)')
    if ground.kind == GroundKind.DIRECT:
        return f'{held.format(holder)} during {part} of {waited}'
    if ground.kind == GroundKind.SHARE:
        return (f'{holder} used {part} of {use} in {waited}: taken from '
                'shares of use')
    if ground.kind == GroundKind.TIMING:
        return (f'{name_of_signal(signal)} of {waiter} follows what {holder} '
                f'uses of {use}'
                + ('' if share is None else f': r = {of_number(share)}')
                + ('' if chance is None else
                   '; an innocent workload seems so guilty with a '
                   f'probability of {of_number(chance)}'))
    if ground.kind == GroundKind.EXPERIMENT:
        before, after = (
            'unknown' if value is None or not math.isfinite(value)
            else of_signal(signal, value)
            for value in (ground.before, ground.after))
        if ground.before is None and ground.after is None:
            return (f'{holder} is limited for some seconds at a time, to '
                    f'see whether {name_of_signal(signal)} of {waiter} falls')
        return (f'{name_of_signal(signal)} of {waiter} was {before} without a '
                f'limit on {holder}, and {after} with one')
    return f'{holder}: evidence of the kind {printable(ground.kind)}'


_WORDS: dict[Resource | None, tuple[str, str, str]] = {
    Resource.CPU: ('{} ran', 'waited for a CPU', 'the CPU time'),
    Resource.DISK: ('the disk served {}', 'waited for the disk', 'the disk'),
    Resource.NETWORK: ('the link sent data of {}', 'sent over the full link',
                       'the link'),
    Resource.MEMORY: ('{} took memory', 'waited for memory',
                      'the memory that was taken'),
    Resource.CACHE: ('{} filled the last-level cache', 'ran',
                     'the last-level cache and the memory bus'),
    None: ('{} held the resource', 'waited for the resource',
           'the resource')}
"""What a workload did that held a resource, what a victim did meanwhile, and
what another workload uses."""


_RESOURCES: Mapping[str, Resource] = {
    'run_delay': Resource.CPU, 'cpi': Resource.CPU,
    'throttled_share': Resource.CPU, 'io_wait': Resource.DISK,
    'link_use': Resource.NETWORK, 'memory_wait': Resource.MEMORY}


def _resource_of(signal: str) -> Resource | None:
    """What a victim waits for; ``None`` where that is not known."""
    name = signal.partition(' ')[0]     # of a device, perhaps
    if name in _RESOURCES:
        return _RESOURCES[name]
    return RESOURCE_OF[Knob(name)] if name in set(Knob) else None
