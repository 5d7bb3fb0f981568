# SPDX-License-Identifier: Apache-2.0

"""What the extra specs of a flavor say about its instances.

Only operators write them, so they decide priority and floors (DESIGN,
section 6, trust).  The agent reads them in the XML of a domain, nova-compute
in a notification, and Nova's API checks them by the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
import re
from typing import NamedTuple

from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Priority
from scavenger_openstack.wire import fit

PREFIX = 'scavenger:'
PRIORITY = 'scavenger:priority'
APPLICATION = 'scavenger:application'
PROTECT = 'scavenger:protect'

YES, NO = 'true', 'false'

BYTES_PER_MIB = 1024 ** 2

FLOORS: Mapping[str, tuple[Knob, float]] = {
    'scavenger:floor_cpu_cores': (Knob.CPU_CORES, 1),
    'scavenger:floor_memory_mb': (Knob.MEMORY_BYTES, BYTES_PER_MIB),
    'scavenger:floor_io_bytes_per_s': (Knob.IO_BYTES_PER_S, 1),
    'scavenger:floor_io_ops_per_s': (Knob.IO_OPS_PER_S, 1),
    'scavenger:floor_egress_bytes_per_s': (Knob.EGRESS_BYTES_PER_S, 1),
    'scavenger:floor_ingress_bytes_per_s': (Knob.INGRESS_BYTES_PER_S, 1),
}
"""Extra specs that set a floor, and what one of their units is in ours."""

KEYS = PRIORITY, APPLICATION, PROTECT, *FLOORS

NUMBER = r'[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?'
APPLICATION_CHARS = 128

_FLAVOR_CHARS = 80


class Wrong(NamedTuple):
    """An extra spec that is ignored, and why."""

    key: str
    value: str
    why: str


class Flavor(NamedTuple):
    """The content of extra specs; ``priority`` is ``None`` when they do not
    set it.

    ``application`` is the name without the project.  ``protect``: others may
    be limited when the instance, if it is foreground, is disturbed.
    """

    priority: Priority | None = None
    application: str | None = None
    floor: Mapping[Knob, float] = {}
    protect: bool = True
    wrong: tuple[Wrong, ...] = ()


def read(specs: Mapping[str, str]) -> Flavor:
    """Read all our extra specs of a flavor; those of others are passed
    over."""
    priority, application = None, None
    floor: dict[Knob, float] = {}
    protect = True
    wrong = []
    for key, value in specs.items():
        if not key.startswith(PREFIX):
            continue
        why = mistake(key, value)
        if why:
            wrong.append(Wrong(key, value, why))
        elif key == PRIORITY:
            priority = Priority(value)
        elif key == APPLICATION:
            application = value
        elif key == PROTECT:
            protect = value == YES
        else:
            knob, unit = FLOORS[key]
            floor[knob] = float(value) * unit
    return Flavor(priority, application, floor, protect, tuple(wrong))


def mistake(key: str, value: str) -> str:
    """Why an extra spec of ours is ignored, '' when it is not."""
    if key == PRIORITY:
        return ('' if value in tuple(Priority)
                else 'it has to be foreground or background')
    if key == APPLICATION:
        return '' if is_application(value) else (
            f'a name has 1 to {APPLICATION_CHARS} printable characters')
    if key == PROTECT:
        return '' if value in (YES, NO) else f'it has to be {YES} or {NO}'
    if key in FLOORS:
        number = (float(value) * FLOORS[key][1]
                  if re.fullmatch(NUMBER, value) else math.nan)
        return '' if 0 < number < math.inf else (
            'it has to be a number above 0')
    return 'there is no such key; there are ' + ', '.join(KEYS)


def is_made_of_image(application: str) -> bool:
    """Whether :func:`application` made this name, for want of another: such
    instances have statistics together, and need not do the same."""
    _, sign, image = application.rpartition('@')
    return bool(sign) and fit.is_uuid(image)


def application(*names: str | None, image: str = '', flavor: str = '') -> str:
    """What an instance does, without its project: the first of the names that
    can be one, else what it is made of; '' where nothing tells.

    :param names: of its flavor's extra specs, its server group, its stack or
        cluster, the property of its image, in this order
    :param image: the UUID of its image; '' for one that boots from a volume,
        which has none
    :param flavor: the name of its flavor
    """
    for name in names:
        if name and is_application(name):
            return name
    if not flavor.strip() or not fit.is_uuid(image):
        return ''
    return f'{printable(flavor.strip())[:_FLAVOR_CHARS]}@{image}'


def is_application(name: str) -> bool:
    """Whether a workload's application may be called that."""
    return 0 < len(name) <= APPLICATION_CHARS and name.isprintable()
