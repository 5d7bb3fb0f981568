# SPDX-License-Identifier: Apache-2.0

"""Texts and numbers of a host as the types of :mod:`.report` take them.

Names of cgroups need not be UTF-8, tenants choose names, and a number may be
none: the rest of an entry is worth having all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
import math
import re

from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Value
from scavenger_openstack.wire import patterns
from scavenger_openstack.wire.patterns import NAME
from scavenger_openstack.wire.patterns import PROJECT
from scavenger_openstack.wire.patterns import SENTENCE
from scavenger_openstack.wire.patterns import THREAD

_HASH = 16
_CPU_LIST = re.compile(patterns.CPU_LIST)
_HOST = re.compile(patterns.HOST)
_INCIDENT = re.compile(patterns.INCIDENT)
_UUID = re.compile(patterns.UUID)
_NO_ID = re.compile(f'(?!{patterns.WORD}).', re.DOTALL)

_NO_TEXT = '\ufffd'
"""What decoders make of bytes that are no text: the API refuses it."""


def name(text: str, most: int = NAME) -> str:
    """The name by which the control plane knows what a host calls ``text``.

    Whatever comes back under this name is compared with the same of what is
    there; it is also the name of itself.  It is printable, with an escape for
    blanks at its end, which are none to some databases.  The end of one that
    is too long is a digest, so that another is not taken for it.

    :param most: characters
    """
    shown = (text if text.isprintable() else printable(text)) or '?'
    if _NO_TEXT in shown:
        shown = shown.replace(_NO_TEXT, r'\ufffd')
    if shown.endswith(' '):
        kept = shown.rstrip(' ')
        shown = kept + r'\x20' * (len(shown) - len(kept))
    if len(shown) <= most:
        return shown
    digest = hashlib.sha256(text.encode('utf-8', 'surrogatepass'))
    return f'{shown[:most - _HASH - 1]}~{digest.hexdigest()[:_HASH]}'


def maybe_name(text: str | None) -> str:
    """As :func:`name`, and '' for none."""
    return name(text) if text else ''


def project(text: str | None) -> str:
    """The id of a project, '' for none: as long as Keystone's are."""
    return name(text, PROJECT) if text else ''


def thread(text: str) -> str:
    """The name of a thread of the host."""
    return name(text, THREAD)


def is_host(text: str) -> bool:
    """Whether that is the name of a host."""
    return _HOST.fullmatch(text) is not None


def is_uuid(text: str) -> bool:
    """Whether that is a UUID as Nova writes them."""
    return _UUID.fullmatch(text) is not None


def instance(text: str) -> str:
    """The UUID of an instance, '' for what is none."""
    return text if is_uuid(text) else ''


def incident(text: str) -> str:
    """The id of an incident, '' for what is none."""
    return text if _INCIDENT.fullmatch(text) else ''


def id_(text: str) -> str:
    """The id of a boot, a run or directives."""
    return _NO_ID.sub('_', text)[:patterns.ID] or '-'


def sentence(text: str) -> str:
    """A sentence, its end cut off where it is too long."""
    shown = text if text.isprintable() else printable(text)
    return shown if len(shown) <= SENTENCE else shown[:SENTENCE - 3] + '...'


def number(value: float | None) -> float | None:
    """A number that JSON has; ``None`` for any other."""
    return value if value is not None and math.isfinite(value) else None


def amount(value: float | None) -> float | None:
    """A number from 0 up; ``None`` for any other."""
    return value if value is not None and 0 <= value < math.inf else None


def share(value: float | None, least: float = 0.0) -> float | None:
    """A number up to 1, what is beyond by a rounding error cut off; ``None``
    for what is no number."""
    return (None if value is None or not math.isfinite(value)
            else min(max(least, value), 1.0))


def value(given: Value | None) -> Value | None:
    """Return what a knob holds; ``None`` for what is neither a number nor a
    CPU list of a length that is taken."""
    if isinstance(given, str):
        return given if _CPU_LIST.fullmatch(given) else None
    return number(given)


def time_s(given: float) -> float:
    """A UNIX time that calendars have."""
    return min(max(0.0, given), patterns.LAST_S)


def amounts(given: Mapping[Knob, float]) -> dict[Knob, float]:
    """Return the numbers that are finite and not negative."""
    return {knob: amount for knob, amount in given.items()
            if 0 <= amount < math.inf}
