# SPDX-License-Identifier: Apache-2.0

"""What is asked for and not followed, by the last reports of agents."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack.amounts import counted
from scavenger_openstack.api import schemas
from scavenger_openstack.api.schemas import described
from scavenger_openstack.decision import orders
from scavenger_openstack.text import iso
from scavenger_openstack.types import Mode
from scavenger_openstack.wire.report import MAX_REFUSED

Row = Mapping[str, Any]

MOST_NAMED = 3
"""Hosts that are named where some do not follow a setting."""

FIELDS = {
    'followed': described(schemas.maybe(schemas.FLAG),
                          'Whether its host follows it; null: not known.'),
    'why_not': described(schemas.TEXT, 'Why it is not followed, or not known '
                                       'to be; empty if it is.')}


def of_parts(host: Row | None, field: str, parts: Iterable[str],
             generation: int, *, limit: bool = False) -> dict[str, Any]:
    """The :data:`FIELDS` of what was asked for.

    :param host: its ``name``, ``facts`` and ``last_seen_s``; ``None``: no
        host reports the workload that it is for
    :param field: of the directives, where it is
    :param parts: what agents call it in ``refused``
    :param generation: the number by which conductors see it
    :param limit: it is a limit, and there are none on a host that is stopped
    """
    if host is None:
        return _state(None, 'no host reports this instance now')
    facts = host['facts'] or {}
    refused = facts.get('refused', {})
    reasons = [refused[part] for part in (field, *parts) if part in refused]
    if limit and facts.get('stopped'):
        reasons.append(f'no limit is set on {host["name"]} now: '
                       f'{facts["stopped"]}')
    if reasons:
        return _state(False, '; '.join(reasons))
    if facts.get('followed', -1) < generation:
        return _state(None, not_yet(host))
    if f'more {field}' in refused:
        return _state(None, f'{host["name"]} does not get all {field}: '
                            + refused[f'more {field}'])
    if len(refused) >= MAX_REFUSED:
        return _state(None, f'{host["name"]} does not follow more things '
                            'than it can report')
    return _state(True, '')


def not_yet(host: Row) -> str:
    """Return why a host does not follow what it has not got."""
    return (f'{host["name"]} gets it with its next report; the last one came '
            f'at {iso(host["last_seen_s"])}')


def _state(followed: bool | None, why_not: str) -> dict[str, Any]:
    return {'followed': followed, 'why_not': why_not}


def refused_settings(host: Row, settings: Row) -> Iterator[tuple[str, str]]:
    """Yield the modes and parameters that a host does not follow, and why.

    :param settings: ``modes`` and ``parameters`` that are set for it
    """
    facts = host['facts'] or {}
    if facts.get('own_modes'):
        yield from orders.refused_modes(
            {name: Mode(mode) for name, mode in facts['own_modes'].items()
             if mode in set(Mode)},     # an agent may be of a later release
            {name: Mode(mode) for name, mode in settings['modes'].items()}
        ).items()
    refused = facts.get('refused', {})
    for name in settings['parameters']:
        part = f'parameter {name}'
        why = refused.get(part) or refused.get('parameters')
        if why:
            yield part, why


def of_host(host: Row, settings: Row, protection: tuple[bool, str]
            ) -> dict[str, str]:
    """Return all that a host does not follow, as it reported, and why.

    :param settings: modes and parameters that are set for it
    :param protection: whether it may set limits, and why not
    """
    facts = host['facts'] or {}
    allowed, why = protection
    reasons = {}
    if not allowed and host['enforcing']:
        reasons['protection'] = f'{why}; {not_yet(host)}'
    return {**reasons, **facts.get('refused', {}),
            **dict(refused_settings(host, settings))}


def of_hosts(hosts: Sequence[Row], settings: Row) -> dict[str, str]:
    """Return how many of these hosts do not follow each setting, and the
    reason of the first."""
    by_part: dict[str, list[tuple[str, str]]] = {}
    for host in hosts:
        for part, why in refused_settings(host, settings):
            by_part.setdefault(part, []).append((host['name'], why))
    return {part: f'{len(rows)} of {counted(len(hosts), "host")}: '
                  + ', '.join(name for name, _ in rows[:MOST_NAMED])
                  + (', ...' if len(rows) > MOST_NAMED else '')
                  + f': {rows[0][1]}' for part, rows in by_part.items()}
