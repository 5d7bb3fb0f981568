# SPDX-License-Identifier: Apache-2.0

"""Why a listing is empty: nothing happened, or nothing could be seen."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import typing
from typing import Any

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions

from scavenger_openstack import amounts
from scavenger_openstack import host_coverage
from scavenger_openstack.osc.terminal import printable

if typing.TYPE_CHECKING:
    from scavenger_openstack.osc.client import Client

WORDS = {'audit': 'change', 'antagonists': 'antagonist', 'caps': 'limit',
         'evictions': 'eviction', 'exemptions': 'exemption', 'hosts': 'host',
         'governor': 'bound', 'incidents': 'incident',
         'overrides': 'override', 'priorities': 'priority',
         'profiles': 'profile', 'profilings': 'profiling',
         'protection': 'switch', 'specs': 'spec', 'workloads': 'workload'}
"""What each listing is of."""

OF_HOSTS = ('antagonists', 'caps', 'incidents', 'specs', 'workloads')
"""Listings of what only agents report."""

DETECTED = ('antagonists', 'incidents')
REGULATED = ('caps',)
COUNTED = ('specs',)
"""Made from hardware counters."""

BEGIN = {
    'hosts': 'Start scavenger-agent on a hypervisor, with [conductor] enabled '
             'in its configuration.',
    'profiles': 'Measure one with "scavenger-ibench profile", store it with '
                '"openstack interference profile create".'}
"""What makes the first row of a listing that no agent fills by itself."""

LOOKED_AT = 100
NAMED = 3


def explanation(client: Client, noun: str, filtered: bool,
                now: bool = False, host: str | None = None) -> str:
    """Sentences for people.

    :param noun: of the listing
    :param filtered: not all was asked for
    :param now: only what is so now
    :param host: the only one that was asked for
    """
    first = (f'No {WORDS[noun]}' + ' fits these filters' * filtered
             + ' now; add --earlier for those before' * now + '.')
    if noun not in OF_HOSTS:
        return first if filtered or noun not in BEGIN else (
            f'{first} {BEGIN[noun]}')
    try:
        hosts, marker = client.listing('hosts', limit=LOOKED_AT)
    except (exceptions.CommandError, sdk_exceptions.SDKException):
        # Readers of a project see no host.
        return first
    hosts = [row for row in hosts if row.get('name') == host] or hosts
    if not hosts:
        return f'{first} No host has reported yet. {BEGIN["hosts"]}'
    return ' '.join((
        first, f'Of the {LOOKED_AT} hosts that came last:'
        if len(hosts) == LOOKED_AT and marker else
        f'Of {amounts.counted(len(hosts), "host")}:',
        f'{"; ".join(_facts(noun, hosts))}.'))


def _facts(noun: str, hosts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    coverage = host_coverage.of_hosts(hosts)
    yield f'{coverage.hosts - len(coverage.silent)} report now'
    if coverage.silent:
        yield f'no report from {_names(coverage.silent)}'
    if noun in DETECTED and coverage.undetecting:
        yield f'no detector runs on {_names(coverage.undetecting)}'
    if noun in REGULATED:
        yield f'{coverage.enforcing} may set limits'
        if stopped := [host for host in hosts if host.get('stopped')]:
            name, why = (str(stopped[0][field])
                         for field in ('name', 'stopped'))
            yield (f'{len(stopped)} may not, {printable(name)}: '
                   f'{printable(why)}')
    if noun in COUNTED:
        yield f'{coverage.with_counters} read hardware counters'
    if coverage.incomplete:
        yield (f'not all is measured or limited on {len(coverage.incomplete)} '
               f'({coverage.counted_causes}), for the cure type "openstack '
               f'interference host show {printable(coverage.incomplete[0])}"')


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ', '.join(map(printable, names[:NAMED])) + (
        f' and {amounts.counted(more, "other")}' if more > 0 else '')
