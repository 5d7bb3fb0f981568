# SPDX-License-Identifier: Apache-2.0

"""The 17 sources of interference (SoIs), in the order of the paper.

Source: iBench, section III-B; SoI6' and SoI7' are ``6a`` and ``7a``.
"""

from __future__ import annotations

from collections.abc import Iterable
import difflib
import enum
import re
from typing import NamedTuple

from scavenger_openstack import errors


class Kind(enum.StrEnum):
    """The quantity that the intensity is a share of."""

    CAPACITY = 'capacity'
    BANDWIDTH = 'bandwidth'
    RATE = 'rate'


class Meter(enum.StrEnum):
    """The meter of an SoI's effect, apart from the SoI itself."""

    RESIDENT = 'resident memory'
    BLOCKS = 'blocks of the file'
    STORAGE = 'storage bytes of the process'
    LINK = 'bytes of the link'
    PROBE = 'slow-down of a probe'
    SIBLING = 'slow-down of a probe on the same core'
    RATE = 'own rate'


class Soi(NamedTuple):
    """One source of interference.

    :ivar name: of its kernel, and of its C file
    :ivar whole: what 100 % is of
    :ivar unit: of its operations
    """

    number: str
    name: str
    title: str
    kind: Kind
    whole: str
    intensity: str
    unit: str
    meter: Meter


SOIS = (
    Soi('1', 'memory_capacity', 'memory capacity', Kind.CAPACITY,
        'the memory of the host, or the limit of the cgroup',
        'share of it that is held and touched in random order',
        'accesses', Meter.RESIDENT),
    Soi('2', 'memory_bandwidth', 'memory bandwidth', Kind.BANDWIDTH,
        'the rate that its CPUs reach alone',
        'access rate, streaming over a small footprint beyond the LLC',
        'accesses', Meter.PROBE),
    Soi('3', 'storage_capacity', 'storage capacity', Kind.CAPACITY,
        'the free space of the file system, or the device',
        'share of it that is written, or read of a device, in random order',
        'accesses', Meter.BLOCKS),
    Soi('4', 'storage_bandwidth', 'storage bandwidth', Kind.BANDWIDTH,
        'the serial rate of the file system or device when alone',
        'rate of serial accesses', 'accesses', Meter.STORAGE),
    Soi('5', 'network_bandwidth', 'network bandwidth', Kind.BANDWIDTH,
        'the rate of the link to the remote end when alone',
        'size and frequency of requests', 'requests', Meter.LINK),
    Soi('6', 'llc_capacity', 'LLC capacity', Kind.CAPACITY,
        'the last-level cache',
        'share of it that is touched, ways and sets covered evenly, past '
        'L1 and L2', 'accesses', Meter.PROBE),
    Soi('7', 'llc_bandwidth', 'LLC bandwidth', Kind.BANDWIDTH,
        'the rate that its CPUs reach alone',
        'access rate, streaming over a part of the LLC',
        'accesses', Meter.PROBE),
    Soi('6a', 'l2_capacity', 'L2 capacity', Kind.CAPACITY, 'the L2 cache',
        'share of it that is touched, ways and sets covered evenly',
        'accesses', Meter.SIBLING),
    Soi('7a', 'l2_bandwidth', 'L2 bandwidth', Kind.BANDWIDTH,
        'the rate that its CPUs reach alone',
        'access rate, streaming over a part of the L2', 'accesses',
        Meter.SIBLING),
    Soi('8', 'l1i', 'L1 instruction cache', Kind.CAPACITY,
        'the L1 instruction cache',
        'share of it that is executed, in random order', 'calls',
        Meter.SIBLING),
    Soi('9', 'l1d', 'L1 data cache', Kind.CAPACITY, 'the L1 data cache',
        'share of it that is touched, ways and sets covered evenly',
        'accesses', Meter.SIBLING),
    Soi('10', 'tlb', 'TLB', Kind.CAPACITY, 'the entries of the TLB',
        'share of them that is occupied', 'accesses', Meter.SIBLING),
    Soi('11', 'integer', 'integer units', Kind.RATE,
        'the issue rate that its CPUs reach alone',
        'issue rate of integer instructions', 'instructions', Meter.RATE),
    Soi('12', 'floating_point', 'floating-point units', Kind.RATE,
        'the issue rate that its CPUs reach alone',
        'issue rate of floating-point instructions', 'instructions',
        Meter.RATE),
    Soi('13', 'prefetcher', 'prefetchers', Kind.RATE,
        'time that it is not idle',
        'share of the time in interleaved code of a part of L1i', 'calls',
        Meter.SIBLING),
    Soi('14', 'interconnect', 'interconnect', Kind.RATE,
        'the message rate that its CPUs reach alone',
        'number and fan-out of messages between CPUs', 'messages',
        Meter.RATE),
    Soi('15', 'vector', 'vector units', Kind.RATE,
        'the issue rate that its CPUs reach alone',
        'issue rate of SIMD instructions on a small data set',
        'instructions', Meter.RATE))


def find_soi(word: str) -> Soi:
    """Return the SoI of a number (``6``, ``6a``, ``6'``) or a name.

    :raises ConfigError: there is none.
    """
    plain = re.sub(r'^soi(?=[0-9])', '', word.strip().lower())
    plain = plain.replace("'", 'a').replace('-', '_').replace(' ', '_')
    for soi in SOIS:
        if plain in (soi.number, soi.name):
            return soi
    close = difflib.get_close_matches(plain, [soi.name for soi in SOIS], 1)
    raise errors.ConfigError(
        f'there is no source of interference {word!r}'
        + (f'; did you mean {close[0]}?' if close
           else ': scavenger-ibench list shows the 17'))


def find_sois(words: str) -> list[Soi]:
    """Return several SoIs, with commas between; each once, as in the paper.

    :raises ConfigError: one of them does not exist.
    """
    return in_order(find_soi(word) for word in words.split(','))


def in_order(sois: Iterable[Soi]) -> list[Soi]:
    """Return each SoI once, in the order of the paper."""
    chosen = set(sois)
    return [soi for soi in SOIS if soi in chosen]
