# SPDX-License-Identifier: Apache-2.0

"""Amounts with their units, as people type and read them."""

from __future__ import annotations

import math
import re

_FACTORS = {'': 1, 'k': 10 ** 3, 'M': 10 ** 6, 'G': 10 ** 9, 'T': 10 ** 12,
            'Ki': 2 ** 10, 'Mi': 2 ** 20, 'Gi': 2 ** 30, 'Ti': 2 ** 40}
_NUMBER = r'([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([kMGT]?i?)(B?)((?:/s)?)'

_BYTES = ('memory_bytes', 'io_bytes_per_s', 'egress_bytes_per_s')
_SCALED = (*_BYTES, 'io_ops_per_s')

HOW = ('cpu_cores: a number of cores (0.5). cpu_set: a CPU list (0-1,4). '
       'memory_bytes: bytes (512MiB). io_bytes_per_s and '
       'egress_bytes_per_s: bytes per second (20M, 20MB/s). io_ops_per_s: '
       'operations per second (200). cpu_idle: 0 or 1. k, M, G, T are '
       'powers of 1000, with i of 1024')
"""For the help of options."""


def parse(knob: str, text: str) -> float | str | None:
    """The value of a knob that a text means; ``None`` is "no limit".

    :raises ValueError: it means none; the message says what would.
    """
    if text == 'none':
        return None
    if knob == 'cpu_set':
        from scavenger_openstack.types import parse_cpus
        try:
            if parse_cpus(text):
                return text
        except ValueError:
            pass
        raise ValueError(f'{text!r} is not a CPU list such as 0-1,4')
    found = re.fullmatch(_NUMBER, text)
    if found is None or any(found.groups()[1:]) and knob not in _SCALED \
            or found[3] and knob not in _BYTES \
            or found[4] and knob == 'memory_bytes' \
            or found[2] not in _FACTORS:
        raise ValueError(f'{text!r} is not a value of {knob}, such as '
                         f'{_EXAMPLES.get(knob, "1")} or none')
    value = float(found[1]) * _FACTORS[found[2]]
    return int(value) if value == math.floor(value) else value


_EXAMPLES = {
    'cpu_cores': '0.5', 'memory_bytes': '512MiB',
    'io_bytes_per_s': '20MB/s', 'io_ops_per_s': '200',
    'egress_bytes_per_s': '10MB/s'}


_KNOBS = {'memory': 'memory_bytes', 'disk': 'io_bytes_per_s',
          'network': 'egress_bytes_per_s', 'cpu': 'cpu_cores'}
"""Resources, and the knob that has their unit."""


def human(name: str, value: object) -> str:
    """A value of a knob, a resource or a signal, with its unit.

    :param name: of the knob, resource or signal
    """
    if value is None:
        return 'no limit'
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return str(value)
    from scavenger_openstack import amounts
    if not isinstance(value, str):
        if name in ('cpu_idle', 'paused'):
            return 'yes' if value else 'no'
        if name in ('io_wait', 'llc_misses_per_s'):
            return amounts.of_signal(name, value)
    return amounts.of_knob(_KNOBS.get(name, name), value)
