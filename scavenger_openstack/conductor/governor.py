# SPDX-License-Identifier: Apache-2.0

"""The fleet governor: how many new limits of detectors each host may set.

A scope's number is for each minute of the clock, and divided between its
hosts: no host has to ask before it sets a limit, and all together never set
more.  What cannot be divided goes to other hosts in the next minute.

A minute is divided once, with its first report, and the database has the
result: what changes later (the number, a host that joins, an aggregate)
counts from the next minute on, in every conductor.
Source: DESIGN, section 6 (fleet governor); not in the papers.
"""

from __future__ import annotations

from collections.abc import Iterable

from scavenger_openstack.algorithms import allowance
from scavenger_openstack.db import directives as rows
from scavenger_openstack.wire import report

Scopes = frozenset[tuple[str, str]]
"""Scope and target of each number."""


def minute_of(now: float) -> int:
    return int(now // allowance.LEASE_S)


def governed(wanted: rows.Wanted) -> Scopes:
    """Return the scopes that have a number of limits per minute."""
    return frozenset(key for key, switch in wanted.switches.items()
                     if switch.caps_per_minute is not None)


def divide(wanted: rows.Wanted, hosts: Iterable[str], minute: int
           ) -> dict[str, int]:
    """Return how many limits each host may set: the least of its parts in the
    numbers of the scopes that it is in.  A host in none of these is left out.

    :param hosts: those that share, in an order that stays
    """
    members: dict[tuple[str, str], list[str]] = {}
    for name in hosts:
        for key in wanted.scopes(name):
            members.setdefault(key, []).append(name)
    shares: dict[str, int] = {}
    for key, names in members.items():
        total = (wanted.switches[key].caps_per_minute
                 if key in wanted.switches else None)
        if total is not None:
            for place, name in enumerate(names):
                limits = part(total, place, len(names), minute)
                shares[name] = min(limits, shares.get(name, limits))
    return shares


def budget(limits: int, minute: int) -> report.Budget:
    return report.Budget(limits=limits,
                         until_s=(minute + 1) * allowance.LEASE_S)


def part(total: int, place: int, hosts: int, minute: int) -> int:
    """A host's part in a minute's ``total``, which all parts add up to.

    :param place: the host's, from 0, among ``hosts``
    """
    each, rest = divmod(total, hosts)
    return each + ((place - minute * rest) % hosts < rest)
