# SPDX-License-Identifier: Apache-2.0

"""What hosts of ``/v1/hosts`` can detect, measure and limit, counted.

For an empty listing, which says whether nothing happened or nothing could be
measured: the commands and the panel have their own sentences for these.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections import Counter
from typing import Any
from typing import NamedTuple

from scavenger_openstack.types import Resource

DETECTORS = ('attribution', 'cpi2', 'perfcloud')
WITH_COUNTERS = ('A', 'B')
OTHER = 'other'

Host = Mapping[str, Any]


class Coverage(NamedTuple):
    """Names of hosts by what they lack, and counts.

    ``silent``: no report for long.  ``undetecting``: no detector runs.
    ``incomplete``: not all is measured or limited.  ``causes``: by resource,
    or :data:`OTHER`, the number of such hosts, the highest first.
    ``enforcing`` and ``with_counters``: numbers of hosts that may set limits,
    and that read hardware counters.
    """

    hosts: int
    silent: tuple[str, ...]
    undetecting: tuple[str, ...]
    incomplete: tuple[str, ...]
    causes: Mapping[str, int]
    enforcing: int
    with_counters: int

    @property
    def counted_causes(self) -> str:
        """``cpu 2, disk 1``"""
        return ', '.join(f'{cause} {count}'
                         for cause, count in self.causes.items())


def of_hosts(hosts: Sequence[Host]) -> Coverage:
    """Count what these hosts lack."""
    return Coverage(
        len(hosts), _names(host for host in hosts if host.get('silent')),
        _names(host for host in hosts if not detects(host)),
        _names(host for host in hosts if host.get('missing')),
        count_causes(hosts),
        sum(bool(host.get('enforcing')) for host in hosts),
        sum(host.get('grade') in WITH_COUNTERS for host in hosts))


def count_causes(hosts: Iterable[Host]) -> dict[str, int]:
    """Return, by resource or :data:`OTHER`, on how many of these hosts not
    all of it is measured or limited, the highest first.

    :param hosts: or their facts: what has ``missing``
    """
    causes = Counter(cause for host in hosts for cause in causes_of(host))
    return dict(sorted(causes.items(), key=lambda item: (-item[1], item[0])))


def detects(host: Host) -> bool:
    """Return whether a detector runs there.

    :param host: or its facts: what has ``modes``
    """
    modes = host.get('modes') or {}
    return any(modes.get(name, 'off') != 'off' for name in DETECTORS)


def causes_of(host: Host) -> set[str]:
    """Return the resources of which not all is measured or limited."""
    return {resource if resource in set(Resource) else OTHER
            for sentence in host.get('missing') or ()
            for resource in (str(sentence).partition(':')[0],)}


def _names(hosts: Iterable[Host]) -> tuple[str, ...]:
    return tuple(str(host.get('name')) for host in hosts)
