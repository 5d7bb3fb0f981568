# SPDX-License-Identifier: Apache-2.0



"""The fields of a restore action, and how it may end; standard library only.

Every kind of action in the closed set of :mod:`.actions` is made of these.
What a driver writes with a limit, and an action has to find again, stands here
once: drivers take it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

MAX_TEXT = 4096
MAX_CPU = 65535
"""No host has a CPU with a higher number; a text that names one is garbage
and must not fill the memory."""

RestoreAction = Mapping[str, Any]

MARK = 0x5ca0
"""What is ours on network devices: the handle ``5ca0:`` of a token bucket, the
preference of a filter and the group of an IFB (23712)."""
IFB = 'scv'
"""The IFB of a VM whose first tap has the index 7 is ``scv7``."""

URI = r'qemu(?:\+unix)?:///system(?:\?socket=(?:/[A-Za-z0-9_.@-]+)+)?'
"""What may be connected to as root: some transports of libvirt run
programs."""
UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
NAMESPACE = 'https://docs.scavenger-openstack.org/lease/1'
"""The namespace of a knob's record in a domain is below it."""
CPUS = ('[0-9]{1,5}(?:-[0-9]{1,5})?'
        '(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,999}')
"""A list of CPUs or nodes, as libvirt writes it."""
DISK = '[A-Za-z][A-Za-z0-9]{1,15}'
"""The name that libvirt knows a disk by, such as ``vda``."""
FREE_QUOTA_US = 2 ** 44 - 1
"""The longest CPU quota that libvirt (since 7.0) and the kernel take: no
limit.  On cgroup v2 libvirt sets ``max`` for it, and libvirt 8 takes no -1."""
MORE_TASKS = ('raise TasksMax= of the unit, the limit of processes of its '
              'user (ulimit -u) or pids.max of its cgroup')
"""What to do where no process and no thread can be started."""
_N = '[0-9]{1,18}'
_LIMIT = rf'{DISK}\.(?:total|read|write)_%s_sec(?:_max(?:_length)?)?={_N}'
DOMAIN: Mapping[str, str] = {
    'cpu_cores': f'vcpu_quota=(?:-1|{_N})|vcpu_period={_N}',
    'memory_bytes': f'balloon_kib={_N}',
    'io_bytes_per_s': _LIMIT % 'bytes',
    'io_ops_per_s': _LIMIT % 'iops',
    'paused': 'state=(?:running|paused)'}
"""Knob -> pattern of ``key=value``: what each sets through libvirt."""


def advice(exc: Exception, package: str) -> str:
    """Return what to do where a program of a package cannot be run."""
    if isinstance(exc, BlockingIOError):    # EAGAIN of fork()
        return MORE_TASKS
    return f'install {package}'


def goes_with(key: str) -> str:
    """The text that one is a part of, by its key: a quota is nothing without
    its period, nor is a limit of a disk without its burst."""
    return ('vcpu_quota' if key == 'vcpu_period'
            else re.sub('_max(?:_length)?$', '', key))


def after_change(before: Mapping[str, str], now: Mapping[str, str],
                 *ours: Mapping[str, str]) -> dict[str, str]:
    """Return what to restore after another program wrote some texts of a knob.

    One that still is one of ``ours`` is what it was ``before``, and so are
    those that go with it; any other is what it is now, with those.
    """
    values = {}
    for key, text in {**before, **now}.items():
        first = goes_with(key)
        if first not in now:
            continue        # of a disk that is gone
        if any(now[first] == written.get(first) for written in ours):
            values[key] = before.get(key, text if key == first else '0')
        elif key in now:
            values[key] = text
    return values


class RestoreError(Exception):
    """A knob is not back at its original yet; try again."""


class Gone(Exception):
    """What the action names has died, and the cap with it."""


class Refused(Exception):
    """This is no action of ours: it is not carried out."""


def only(action: RestoreAction, keys: set[str]) -> None:
    """Hold the names of the fields against what they may be.

    :raises Refused: there are others.
    """
    if set(action) - keys:
        raise Refused(f'unknown fields {sorted(set(action) - keys)!r:.99}')


def text(action: RestoreAction, key: str, pattern: str) -> None:
    """Hold a field against the pattern of its whole text.

    :raises Refused: it is something else.
    """
    value = action.get(key)
    if not (isinstance(value, str) and len(value) <= MAX_TEXT
            and re.fullmatch(pattern, value)):
        raise Refused(f'{key} {value!r:.99} is not allowed')


def number(action: RestoreAction, key: str) -> None:
    """Hold a field that is an identity.

    :raises Refused: it is not a number above 0.
    """
    if type(action.get(key)) is not int or action[key] <= 0:
        raise Refused(f'{key} {action.get(key)!r:.99} is not a number above 0')


def cpus(text: str) -> None:
    """Hold the text of a CPU set.

    :raises Refused: no host has such CPUs.
    """
    try:
        parse_cpus(text)
    except ValueError as exc:
        raise Refused(str(exc)) from None


def device_row(line: str) -> tuple[str, str]:
    """The device of a row ``DEVICE... KEY=VALUE...``, and the row's pairs.

    So are the rows of ``io.max`` and ``io.stat``.  Kernels were seen that
    write the name of a device without numbers before that of the next one.
    """
    names, equals, _ = line.partition('=')
    words = names.split()
    at = len(names)
    if equals and words:
        at -= len(words.pop())
    return words[-1] if words else '', line[at:]


def pairs(text: str) -> dict[str, str]:
    """The values in ``KEY=VALUE...``, by their keys."""
    return dict(word.split('=', 1) for word in text.split() if '=' in word)


def parse_cpus(text: str) -> frozenset[int]:
    """Read a kernel CPU list such as ``0-1,4``.

    :raises ValueError: the text is not a CPU list.
    """
    spans = []
    for part in text.strip().split(','):
        if not part:
            continue
        first, dash, last = part.partition('-')
        low = int(first)
        high = int(last) if dash else low
        if low < 0 or high < low or high > MAX_CPU:
            raise ValueError(f'not a CPU list: {text!r:.99}')
        spans.append((low, high))
    numbers: set[int] = set()
    end = -1
    for low, high in sorted(spans):     # each CPU once
        if high > end:
            numbers.update(range(max(low, end + 1), high + 1))
            end = high
    return frozenset(numbers)
