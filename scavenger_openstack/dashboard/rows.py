# SPDX-License-Identifier: Apache-2.0

"""Rows of the API as a page shows them: with units, times and names."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import names
from scavenger_openstack.dashboard import plots
from scavenger_openstack import typed_amounts

Row = dict[str, Any]


def hours(seconds: float) -> str:
    """Return core-hours or hours of a sum of seconds."""
    return amounts.of_number(round(seconds / 3600, 3))


def minutes(seconds: float) -> str:
    return amounts.of_number(seconds / 60)


def limit(row: Mapping[str, Any]) -> Row:
    """Return a limit or an override as it is shown."""
    knob = row['knob']
    return {
        **row, 'title': names.of_workload(row),
        'limit': typed_amounts.human(knob, row['value']),
        'without': typed_amounts.human(knob, row['original'])
        if 'original' in row else '',
        **{name: fragment.time(row[name]) for name in (
            'set_at', 'removed_at', 'created_at') if name in row},
        'key': f'{row["host"]}/{knob}/{row["workload"]}'}


def host(row: Mapping[str, Any]) -> Row:
    """Return a host as it is shown."""
    state, sentence = _state(row)
    return {
        **row, 'state': state, 'state_text': sentence,
        'last_seen_at': fragment.time(row['last_seen_at']),
        'modes': [f'{name}: {mode}'
                  for name, mode in sorted(row['modes'].items())],
        'bars': list(_bars(row)),
        'suffering': [{'name': names.of_workload(workload),
                       'why': workload['why']}
                      for workload in row['suffering']]}


def _state(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return a host's state, and what it means."""
    if row['silent']:
        return _('silent'), _('it has not reported for long; it goes on with '
                              'what it knew then')
    if row['stopped']:
        return _('stopped'), row['stopped']
    if row['enforcing']:
        return _('enforcing'), _('it may set limits')
    if 'observe' in row['modes'].values():
        return _('observing'), _('it detects, and sets no limits')
    return _('off'), _('no controller is on')


RESOURCES = (('cpu_cores', 'CPU'), ('memory_bytes', 'memory'),
             ('network_bytes_per_s', 'network'))


def _bars(row: Mapping[str, Any]) -> Iterable[Row]:
    """Yield a bar for each resource whose capacity is known."""
    for resource, title in RESOURCES:
        capacity = row['capacity'].get(resource)
        if not capacity:
            continue
        used, free = (row[name].get(resource)
                      for name in ('used', 'headroom'))
        words = ', '.join(
            _('%(what)s %(amount)s') % {
                'what': label, 'amount': _('not known') if amount is None
                else _amount(resource, amount)}
            for label, amount in ((_('background uses'), used),
                                  (_('headroom'), free),
                                  (_('of'), capacity)))
        yield {'title': title, 'words': words, 'svg': plots.bar(
            [(_('background'), used), (_('headroom'), free)], capacity,
            f'{title}: {words}')}


def _amount(resource: str, amount: float) -> str:
    return amounts.of_knob(
        'egress_bytes_per_s' if resource.startswith('network') else resource,
        amount)


def antagonist(row: Mapping[str, Any], part: str) -> Row:
    """Return an antagonist as it is shown.

    :param part: how long each part of its history is, in words
    """
    tried = row['confirmed'] + row['refuted']
    return {
        **row, 'title': names.of_workload(row),
        'minutes': minutes(row['interference_s']),
        'trials': _('%(confirmed)d of %(tried)d') % {
            'confirmed': row['confirmed'], 'tried': tried}
        if tried else _('none yet'),
        'eviction_recommended_at': fragment.time(
            row.get('eviction_recommended_at')),
        'sparkline': plots.sparkline(
            row['history'], _(
                'Minutes of interference by %(part)s, the latest last: '
                '%(minutes)s') % {'part': part, 'minutes': ', '.join(
                    map(minutes, row['history']))})
        if row['history'] else ''}


def victim(row: Mapping[str, Any]) -> Row:
    return {**row, 'title': names.of_workload(row),
            'minutes': minutes(row['interference_s'])}


def protection(row: Mapping[str, Any]) -> Row:
    """Return a kill switch as it is shown."""
    where = {'cloud': _('the whole cloud'),
             'aggregate': _('the aggregate %s'),
             'host': _('the host %s')}[row['scope']]
    if row['scope'] != 'cloud':
        where %= names.shown(row['target'])
    return {**row, 'where': where,
            'changed_at': fragment.time(row['changed_at'])}


def precision(counts: Mapping[str, Mapping[str, int]]) -> list[Row]:
    """Return the trials of each controller, and its precision."""
    controllers = []
    for name, ended in sorted(counts.items()):
        confirmed, refuted = (ended.get(outcome, 0)
                              for outcome in ('confirmed', 'refuted'))
        controllers.append({
            'controller': name, 'confirmed': confirmed, 'refuted': refuted,
            'unclear': ended.get('unclear', 0),
            'share': f'{100 * confirmed / (confirmed + refuted):.0f} %'
            if confirmed + refuted else _('not known yet')})
    return controllers


def counted_hosts(count: int) -> str:
    return ngettext('%(count)d host', '%(count)d hosts', count) % {
        'count': count}
