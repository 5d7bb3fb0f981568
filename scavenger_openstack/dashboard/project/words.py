# SPDX-License-Identifier: Apache-2.0

"""The disturbances of the instances of a project, in words for its users.

Nothing of other projects is in them, whatever the API answers: to an operator
the API shows more than the users of a project may see.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard.incident import duration
from scavenger_openstack.dashboard.incident import STYLES
from scavenger_openstack.dashboard import names
from scavenger_openstack.knobs import RESOURCE_OF
from scavenger_openstack import typed_amounts
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Resource

Fields = Mapping[str, Any]

MONTH_S = 30 * 86400.0

OWN = ('victim', 'victim_instance', 'victim_name', 'project')

DETECTORS = ('attribution', 'cpi2', 'perfcloud')
"""Controllers that limit a workload because another suffers."""

HARM = {
    'run_delay': gettext_lazy('had to wait for a CPU'),
    'cpi': gettext_lazy('ran more slowly than usual, while it had its CPUs'),
    'io_wait': gettext_lazy('had to wait for the disk'),
    'throttled_share': gettext_lazy('was held back by its own CPU limit')}

CAUSES = {
    'own_limit': gettext_lazy('It reached a limit of its own flavor; a '
                              'larger flavor may help.'),
    'overcommitted': gettext_lazy('Its host had less to give than was '
                                  'promised; the operator sees that.'),
    'eviction': gettext_lazy('This background instance disturbs others, and '
                             'the operator is advised to take it away from '
                             'its host. Save what you need, and expect that '
                             'it is moved, paused or stopped.')}

OUTCOMES = {
    'open': gettext_lazy('It goes on, and is being looked into.'),
    'confirmed': gettext_lazy('What disturbed it was limited, and it '
                              'recovered.'),
    'refuted': gettext_lazy('A limit on another workload was tried and did '
                            'not help; it was removed.'),
    'unclear': gettext_lazy('A limit on another workload was tried, and made '
                            'no clear difference; it was removed.'),
    'ended': gettext_lazy('It ended by itself.')}

LABELS = {
    'open': gettext_lazy('going on'), 'confirmed': gettext_lazy('recovered'),
    'refuted': gettext_lazy('not explained'),
    'unclear': gettext_lazy('not explained'),
    'ended': gettext_lazy('over'), 'recommended': gettext_lazy('notice')}

STATES = {
    'asked': gettext_lazy('will be carried out soon'),
    'sending': gettext_lazy('is being carried out'),
    'doing': gettext_lazy('is being carried out'),
    'done': gettext_lazy('is done'), 'failed': gettext_lazy('failed')}

HOWS = {
    'live-migrate': gettext_lazy('move to another host while it runs'),
    'pause': gettext_lazy('pause'), 'stop': gettext_lazy('shut down'),
    'shelve': gettext_lazy('shut down and take off its host')}

RESOURCES: Mapping[str, Any] = {
    Resource.CPU: gettext_lazy('CPU'),
    Resource.MEMORY: gettext_lazy('memory'),
    Resource.DISK: gettext_lazy('disk'),
    Resource.NETWORK: gettext_lazy('network')}


def row(fields: Fields, now: datetime.datetime) -> dict[str, Any]:
    """Return an incident as a list of a project shows it."""
    begun, ended = (fragment.time(fields.get(name))
                    for name in ('begun_at', 'ended_at'))
    outcome = fields.get('outcome') or ''
    return {'id': fields.get('id'), 'begun': begun, 'ended': ended,
            'lasted': duration(begun, ended, now)
            if fields.get('signal') else '',
            'instance': fields.get('victim_instance') or '',
            'name': names.of_workload(fields, 'victim', 'victim_name'),
            'what': harm(fields), 'label': LABELS.get(outcome, _('over')),
            'style': STYLES.get(outcome, 'default')
            if outcome != 'refuted' else 'default'}


def harm(fields: Fields) -> str:
    """Return the harm to an instance in a few words."""
    signal = str(fields.get('signal') or '').partition(' ')[0]
    if not signal and fields.get('cause') == 'eviction':
        return _('may be taken away from its host')
    return str(HARM.get(signal, _('was disturbed')))


def verdict(fields: Fields, project: str) -> Iterator[str]:
    """Yield the sentences that sum up the incident of an instance."""
    signal = fields.get('signal') or ''
    name = names.of_workload(fields, 'victim', 'victim_name')
    yield f'{name} {harm(fields)}.'
    if signal and None not in (fields.get('value'), fields.get('threshold')):
        yield _('Measured: %(value)s; up to %(threshold)s is usual for '
                'it.') % {
                    'value': amounts.of_signal(signal, fields['value']),
                    'threshold': amounts.of_signal(signal,
                                                   fields['threshold'])}
    cause = CAUSES.get(fields.get('cause', ''))
    if cause:
        yield str(cause)
    elif signal:
        yield from _other_side(fields, project)
    outcome = OUTCOMES.get(fields.get('outcome', ''))
    if outcome and fields.get('cause') != 'own_limit':
        yield str(outcome)


def _other_side(fields: Fields, project: str) -> Iterator[str]:
    own = [antagonist for antagonist in fields.get('antagonists') or ()
           if antagonist.get('project') == project and project]
    others = len(own) < len(fields.get('antagonists') or ())
    if own:
        yield _('Disturbed by your own: %(names)s.') % {
            'names': ', '.join(map(names.of_workload, own))}
    if others:
        yield _('Another workload on the same host used what it waited for.')
    if not own and not others:
        yield _('What disturbed it is not known.')


def anonymous(fields: Fields) -> dict[str, Any]:
    """Return the incident with the victim's measurements alone."""
    return {**{name: fields.get(name) for name in (
        *OWN, 'signal', 'threshold', 'begun_at', 'ended_at')},
        'suspects': (), 'caps': (), 'evidence': [
            points for points in fields.get('evidence') or ()
            if points.get('workload') == fields.get('victim')]}


def limits(workload: Fields) -> dict[str, Any]:
    """Return the limits of a background instance, now and past, by resource.

    Several limits on a resource are one row: the longest of them counts.
    """
    rows: dict[str, dict[str, Any]] = {}
    for limit in workload.get('limits') or ():
        knob = limit.get('knob') or ''
        resource = RESOURCE_OF[Knob(knob)] if knob in set(Knob) else knob
        shown = rows.setdefault(resource, {
            'resource': RESOURCES.get(resource, names.shown(knob)),
            'share': 0.0, 'now': False, 'since': None, 'values': [],
            'reasons': []})
        shown['share'] = max(shown['share'], 100 * (
            limit.get('limited_s') or 0.0) / MONTH_S)
        if limit.get('in_force'):
            since = fragment.time(limit.get('set_at'))
            shown['now'] = True
            shown['values'].append(str(
                VALUES.get(knob) or typed_amounts.human(knob,
                                                        limit.get('value'))))
            if shown['since'] is None or since and since < shown['since']:
                shown['since'] = since
            reason = why(limit.get('owner') or '')
            if reason not in shown['reasons']:
                shown['reasons'].append(reason)
    return {'name': names.shown(workload.get('name') or ''),
            'instance': workload.get('instance') or '',
            'limits': list(rows.values())}


VALUES: Mapping[str, Any] = {
    Knob.CPU_IDLE: gettext_lazy('what others leave idle'),
    Knob.PAUSED: gettext_lazy('nothing: it is paused')}
"""Words for limits that are no amount."""


def why(owner: str) -> str:
    """Return the kind of reason of a limit, without naming the victim."""
    if owner == 'operator':
        return _('set by the operator')
    if owner in DETECTORS:
        return _('it disturbed another instance')
    return _('other instances need the capacity')


def eviction(fields: Fields) -> dict[str, Any]:
    """Return the eviction of an instance as a notice shows it."""
    how, state = fields.get('how') or '', fields.get('state') or ''
    return {'name': names.shown(fields.get('name')
                                    or fields.get('instance') or ''),
            'instance': fields.get('instance') or '',
            'at': fragment.time(fields.get('created_at')),
            'how': HOWS.get(how, names.shown(how)),
            'state': STATES.get(state, names.shown(state))}
