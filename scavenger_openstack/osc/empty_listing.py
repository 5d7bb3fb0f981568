# SPDX-License-Identifier: Apache-2.0

"""Why a listing is empty: nothing happened, or nothing could be seen."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from osc_lib import exceptions

from scavenger_openstack import amounts
from scavenger_openstack.osc import http
from scavenger_openstack.osc.terminal import printable

WORDS = {'audit': 'change', 'antagonists': 'antagonist', 'caps': 'limit',
         'evictions': 'eviction', 'exemptions': 'exemption', 'hosts': 'host',
         'incidents': 'incident', 'overrides': 'override',
         'priorities': 'priority', 'profiles': 'profile', 'specs': 'spec',
         'workloads': 'workload'}
"""What each listing is of."""

OF_HOSTS = ('antagonists', 'caps', 'incidents', 'specs', 'workloads')
"""Listings of what only agents report."""

DETECTED = ('antagonists', 'incidents')
DETECTORS = ('attribution', 'cpi2', 'perfcloud')
REGULATED = ('caps',)

LOOKED_AT = 100
NAMED = 3


def explanation(client: http.Client, noun: str, filtered: bool,
                now: bool = False) -> str:
    """Sentences for people.

    :param noun: of the listing
    :param filtered: not all was asked for
    :param now: only what is so now
    """
    first = (f'No {WORDS[noun]}' + ' fits these filters' * filtered
             + ' now; add --earlier for those before' * now + '.')
    if noun not in OF_HOSTS:
        return first
    try:
        hosts, marker = client.listing('hosts', '/v1/hosts', {},
                                       limit=LOOKED_AT)
    except exceptions.CommandError:     # readers of a project see no host
        return first
    if not hosts:
        return f'{first} No host has reported yet.'
    return ' '.join((
        first, f'Of the {LOOKED_AT} hosts that came last:' if marker else
        f'Of {amounts.counted(len(hosts), "host")}:',
        f'{"; ".join(_facts(noun, hosts))}.'))


def _facts(noun: str, hosts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    silent = [host for host in hosts if host.get('silent')]
    yield f'{len(hosts) - len(silent)} report now'
    if silent:
        yield f'no report from {_names(silent)}'
    if noun in DETECTED:
        blind = [host for host in hosts if all(
            (host.get('modes') or {}).get(name, 'off') == 'off'
            for name in DETECTORS)]
        if blind:
            yield f'no detector runs on {_names(blind)}'
    if noun in REGULATED:
        yield (f'{sum(bool(host.get("enforcing")) for host in hosts)} may '
               'set limits')
    lacking: dict[str, list[Mapping[str, Any]]] = {}
    for host in hosts:
        for sentence in host.get('missing') or ():
            lacking.setdefault(sentence, []).append(host)
    for sentence, some in lacking.items():
        yield f'on {_names(some)} {printable(sentence)}'


def _names(hosts: Sequence[Mapping[str, Any]]) -> str:
    more = len(hosts) - NAMED
    return ', '.join(printable(str(host.get('name')))
                     for host in hosts[:NAMED]) + (
        f' and {amounts.counted(more, "other")}' if more > 0 else '')
