# SPDX-License-Identifier: Apache-2.0

"""Texts and numbers of a host as the types of :mod:`.report` take them.

Names of cgroups need not be UTF-8, tenants choose names, and a number may be
none: the rest of an entry is worth having all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
import math

from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Value

NAME = 255
SENTENCE = 2000
CPU_LIST = 4096
_HASH = 16


def name(text: str) -> str:
    """A name: printable, and one of its own also where it is too long, or
    has blanks at its end, which are none to some databases."""
    shown = (text if text.isprintable() else printable(text)) or '?'
    if shown.endswith(' '):
        kept = shown.rstrip(' ')
        shown = kept + r'\x20' * (len(shown) - len(kept))
    if len(shown) <= NAME:
        return shown
    digest = hashlib.sha256(text.encode('utf-8', 'surrogatepass'))
    return f'{shown[:NAME - _HASH - 1]}~{digest.hexdigest()[:_HASH]}'


def maybe_name(text: str | None) -> str:
    """As :func:`name`, and '' for none."""
    return name(text) if text else ''


def sentence(text: str) -> str:
    """A sentence, its end cut off where it is too long."""
    shown = text if text.isprintable() else printable(text)
    return shown if len(shown) <= SENTENCE else shown[:SENTENCE - 3] + '...'


def number(value: float | None) -> float | None:
    """A number that JSON has; ``None`` for any other."""
    return value if value is not None and math.isfinite(value) else None


def value(given: Value | None) -> Value | None:
    """What a knob holds; ``None`` for what is neither a number nor a CPU
    list of a length that is taken."""
    if isinstance(given, str):
        return given if len(given) <= CPU_LIST and given.isprintable() \
            else None
    return number(given)


def amounts(given: Mapping[Knob, float]) -> dict[Knob, float]:
    """The numbers that are finite and not negative."""
    return {knob: one for knob, one in given.items() if 0 <= one < math.inf}
