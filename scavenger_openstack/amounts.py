# SPDX-License-Identifier: Apache-2.0

"""Values of knobs as a person reads them: with their units."""

from __future__ import annotations

from decimal import Decimal

from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value


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
        return 'unlimited'
    if isinstance(value, str):
        return f'CPUs {value}' if knob == Knob.CPU_SET else value
    if knob == Knob.MEMORY_BYTES:
        return of_bytes(value)
    if knob.endswith('_bytes_per_s'):
        return of_bytes_per_s(value)
    return f'{of_number(value)}{_UNITS.get(knob, "")}'


_UNITS: dict[str, str] = {
    Knob.CPU_CORES: ' cores', Knob.IO_OPS_PER_S: ' operations/s',
    Knob.LLC_WAYS: ' ways'}
"""What stands after a plain number."""
