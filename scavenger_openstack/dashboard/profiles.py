# SPDX-License-Identifier: Apache-2.0

"""Interference profiles as pages show them: rows, sentences and a heat map.

Names of applications are of tenants.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import datetime
from typing import Any

from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import names
from scavenger_openstack.plot import heat
from scavenger_openstack.types import printable

Fields = Mapping[str, Any]

PAGE = 30

KINDS: Mapping[str, Any] = {
    'application': gettext_lazy('application'),
    'flavor': gettext_lazy('flavor'), 'image': gettext_lazy('image')}

SOURCES: Mapping[str, Any] = {
    'measured': gettext_lazy('measured'),
    'estimated': gettext_lazy('estimated')}


def load(request: Any, *, marker: str | None, **filters: str | None
         ) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a page of a list, and the marker of the next page.
    """
    answer = client.get(request, client.path_of('profiles'), limit=PAGE,
                        marker=marker, **filters)
    return [row(fields) for fields in answer['profiles']], answer['next']


def row(fields: Fields) -> dict[str, Any]:
    """Return a profile as a list shows it."""
    rows = heat.rows(fields)
    return {
        'id': fields['id'], 'name': names.shown(fields['target']),
        'kind': KINDS.get(fields['kind'], fields['kind']),
        'project': names.shown(fields.get('project') or ''),
        'source': SOURCES.get(fields['source'], fields['source']),
        'is_estimate': fields['source'] == 'estimated',
        'host': names.shown(fields.get('host') or ''),
        'measured': _time(fields['measured_s']),
        'known': sum((tolerated, caused) != (None, None)
                     for _label, tolerated, caused in rows),
        'all': len(rows),
        'tolerates_least': _extreme(min, (
            (label, tolerated) for label, tolerated, _caused in rows)),
        'causes_most': _extreme(max, (
            (label, caused) for label, _tolerated, caused in rows))}


def show(request: Any, pk: str) -> dict[str, Any]:
    """Return the context of the page of a profile."""
    fields = client.get(request, client.path_of('profiles', pk))['profile']
    shown, rows = row(fields), heat.rows(fields)
    missing = fields.get('missing') or {}
    return {'profile': shown, 'sentences': list(_sentences(fields, shown)),
            'picture': mark_safe(heat.svg(
                f'{shown["kind"]} {shown["name"]}', rows)),
            'rows': [(label, heat.amount(tolerated), heat.amount(caused),
                      printable(missing.get(soi) or ''))
                     for soi, (label, tolerated, caused) in zip(
                         heat.LABELS, rows, strict=True)]}


def _sentences(fields: Fields, shown: Mapping[str, Any]) -> Iterator[str]:
    if shown['is_estimate']:
        yield _('Estimated from incidents: nothing was injected beside it.')
    elif fields.get('form') == 'short':
        yield _('Measured in the short form: each source of interference '
                'for some 10 ms.')
    else:
        yield _('Measured: each source of interference was injected beside '
                'it, several times.')
    qos = fields.get('qos')
    if qos:
        alone, bound = (amounts.of_signal(qos['signal'], qos[name])
                        for name in ('alone', 'bound'))
        yield _('Its quality of service is %(signal)s: %(alone)s alone; '
                'it breaks at %(bound)s.') % {
                    'signal': printable(qos['signal']), 'alone': alone,
                    'bound': bound}


def _extreme(choose: Any, estimates: Iterable[tuple[str, heat.Estimate | None]]
             ) -> str:
    """Return the least or the most of what was measured, and of which source;
    '' where nothing was measured."""
    values = [(estimate[0], label) for label, estimate in estimates
              if estimate is not None]
    if not values:
        return ''
    value, label = choose(values, key=lambda pair: pair[0])
    return f'{100 * value:.0f} %: {label}'


def _time(seconds: float) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return None
