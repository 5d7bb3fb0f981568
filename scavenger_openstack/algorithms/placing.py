# SPDX-License-Identifier: Apache-2.0

"""How well an instance fits a host: for filter and weigher of the scheduler,
and for the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms import profiles

VCPU = 'CUSTOM_BACKGROUND_VCPU'
MEMORY_MIB = 'CUSTOM_BACKGROUND_MEMORY_MB'
"""Placement and Nova say MB and mean MiB."""


BYTES_PER_MIB = 2 ** 20


def asked(specs: Mapping[str, str], resource_class: str) -> int | None:
    """Return how much a flavor asks for, ``None`` when the extra specs do not
    say."""
    value = specs.get(f'resources:{resource_class}', '')
    return int(value) if value.isdecimal() else None


class Host(NamedTuple):
    """A host: cores and bytes that background work could use besides what
    it has, and all that there are, ``None`` where that is not known;
    incidents that are open; virtual CPUs of background work; whether it sets
    limits; what its workloads tolerate and cause together, ``None`` where
    none of them has a profile."""

    silent: bool = True
    free_cores: float | None = None
    free_bytes: float | None = None
    cores: float | None = None
    incidents: int = 0
    background_vcpus: float = 0.0
    enforcing: bool = True
    residents: profiles.Levels | None = None


class Wanted(NamedTuple):
    """What an instance asks for: of a background instance, what is to be
    free on its host."""

    background: bool
    vcpus: int
    memory_mib: int


def of_facts(row: Mapping[str, Any], silent: bool) -> Host:
    """A host as the control plane knows it.

    :param row: whether it is ``enforcing``, and its ``facts``
    """
    headroom = (row['facts'] or {}).get('headroom', {})
    return Host(silent, headroom.get('cpu'), headroom.get('memory'),
                enforcing=row['enforcing'])


def fits(host: Host | None, wanted: Wanted) -> str:
    """Why a host does not take a background instance, '' when it does.

    :param host: ``None`` for one that has never reported
    """
    if host is None:
        return 'no agent has reported by this name'
    if host.silent:
        return 'its agent is silent'
    if not host.enforcing:
        return 'its agent sets no limits'
    if host.free_cores is None or host.free_bytes is None:
        return 'its headroom is not known'
    if host.free_cores < wanted.vcpus:
        return (f'headroom of {host.free_cores:.1f} cores is less than '
                f'{wanted.vcpus}')
    free_mib = host.free_bytes / BYTES_PER_MIB
    if free_mib < wanted.memory_mib:
        return (f'headroom of {free_mib:.0f} MiB is less than '
                f'{wanted.memory_mib} MiB')
    return ''


def weight(host: Host | None, background: bool, harm: float = 0.0
           ) -> float:
    """Return how good a host is, from -3 to 1; more is better.

    An open incident counts 1 against it.  The foreground goes where there is
    little background, the background where most is free.  A host that is
    silent or not known counts as one that is neither good nor bad.

    Harm counts ``harm / (1 + harm)`` against it (ours): more is always
    worse, little counts as much as it is, and none as much as an incident,
    which is harm that was measured.  Without it the weight is from -2 to 1.

    :param harm: of :func:`profiles.harm`, 0 where something has no profile
    """
    if host is None or host.silent:
        return 0.0
    total = -1.0 if host.incidents else 0.0
    if host.cores:
        if background:
            total += min(1.0, (host.free_cores or 0.0) / host.cores)
        else:
            total -= min(1.0, host.background_vcpus / host.cores)
    return total - harm / (1.0 + harm)
