# SPDX-License-Identifier: Apache-2.0

"""Amounts with their units, as people type and read them.

The table of knobs is imported where it is used: the ``openstack`` command
loads all commands of a plug-in to run one.
"""

from __future__ import annotations

import math
import re

_FACTORS = {'': 1, 'k': 10 ** 3, 'M': 10 ** 6, 'G': 10 ** 9, 'T': 10 ** 12,
            'Ki': 2 ** 10, 'Mi': 2 ** 20, 'Gi': 2 ** 30, 'Ti': 2 ** 40}
_NUMBER = r'([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([kMGT]?i?)(B?)((?:/s)?)'

def how() -> str:
    """Return what may be typed, for the help of options."""
    from scavenger_openstack.knobs import KNOBS
    from scavenger_openstack.knobs import OVERRIDABLE
    return ', '.join(f'{knob} (such as {KNOBS[knob].example})'
                     for knob in OVERRIDABLE) + (
        '. k, M, G, T are powers of 1000, with i of 1024')


def parse(knob: str, text: str) -> float | str | None:
    """The value of a knob that a text means; ``None`` is "no limit".

    :raises ValueError: it means none; the message says what would.
    """
    if text == 'none':
        return None
    from scavenger_openstack import knobs
    from scavenger_openstack.types import Knob
    facts = knobs.KNOBS[Knob(knob)]
    if knob == Knob.CPU_SET:
        if mistake := knobs.mistake(Knob.CPU_SET, text):
            raise ValueError(f'{text!r} is not {mistake}')
        return text
    in_bytes = 'bytes' in knob
    # What human() writes may be typed again.
    match = re.fullmatch(_NUMBER, text if in_bytes else text.removesuffix(
        facts.unit[1]).rstrip(' '))
    if (match is None
            or any(match.groups()[1:]) and not (
                in_bytes or knob == Knob.IO_OPS_PER_S)
            or match[3] and not in_bytes
            or match[4] and knob == Knob.MEMORY_BYTES
            or match[2] not in _FACTORS):
        raise ValueError(f'{text!r} is not a value of {knob}, such as '
                         f'{facts.example} or none')
    value = float(match[1]) * _FACTORS[match[2]]
    return int(value) if value == math.floor(value) else value


_KNOBS = {'memory': 'memory_bytes', 'disk': 'io_bytes_per_s',
          'network': 'egress_bytes_per_s', 'cpu': 'cpu_cores'}
"""Resources, and the knob that has their unit."""


def human(name: str, value: object) -> str:
    """A value of a knob, a resource or a signal, with its unit.

    :param name: of the knob, resource or signal
    """
    if value is None:
        return 'no limit'
    from scavenger_openstack import amounts
    from scavenger_openstack import knobs
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return str(value)
    if not isinstance(value, str):
        if name in knobs.SWITCHES:
            return 'yes' if value else 'no'
        if name in ('io_wait', 'llc_misses_per_s'):
            return amounts.of_signal(name, value)
    return amounts.of_knob(_KNOBS.get(name, name), value)
