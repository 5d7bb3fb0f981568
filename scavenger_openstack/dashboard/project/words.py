# SPDX-License-Identifier: Apache-2.0

"""What happened to the instances of a project, in words of its users.

Nothing of others is in them, whatever the API answers: an operator who looks
at a project may see more there than its readers.
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
from scavenger_openstack.dashboard import incident as incident_
from scavenger_openstack import typed_amounts
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Resource
from scavenger_openstack.types import RESOURCE_OF

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
    """An incident as a list of a project shows it."""
    begun, ended = (fragment.time(fields.get(name))
                    for name in ('begun_at', 'ended_at'))
    outcome = fields.get('outcome') or ''
    return {'id': fields.get('id'), 'begun': begun, 'ended': ended,
            'lasted': incident_.duration(begun, ended, now)
            if fields.get('signal') else '',
            'instance': fields.get('victim_instance') or '',
            'name': incident_.named(fields, 'victim', 'victim_name'),
            'what': harm(fields), 'label': LABELS.get(outcome, _('over')),
            'style': incident_.STYLES.get(outcome, 'default')
            if outcome != 'refuted' else 'default'}


def harm(fields: Fields) -> str:
    """What an instance suffered, in a few words."""
    signal = str(fields.get('signal') or '').partition(' ')[0]
    if not signal and fields.get('cause') == 'eviction':
        return _('may be taken away from its host')
    return str(HARM.get(signal, _('was disturbed')))


def verdict(fields: Fields, project: str) -> Iterator[str]:
    """What happened to an instance, in some sentences."""
    signal = fields.get('signal') or ''
    name = incident_.named(fields, 'victim', 'victim_name')
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
    own = [one for one in fields.get('antagonists') or ()
           if one.get('project') == project and project]
    others = len(own) < len(fields.get('antagonists') or ())
    if own:
        yield _('Disturbed by your own: %(names)s.') % {
            'names': ', '.join(map(incident_.named, own))}
    if others:
        yield _('Another workload on the same host used what it waited for.')
    if not own and not others:
        yield _('What disturbed it is not known.')


def anonymous(fields: Fields) -> dict[str, Any]:
    """The incident with the victim's measurements alone."""
    return {**{name: fields.get(name) for name in (
        *OWN, 'signal', 'threshold', 'begun_at', 'ended_at')},
        'suspects': (), 'caps': (), 'evidence': [
            one for one in fields.get('evidence') or ()
            if one.get('workload') == fields.get('victim')]}


def limits(workload: Fields) -> dict[str, Any]:
    """What limits a background instance now, and what did."""
    found = []
    for one in workload.get('limits') or ():
        knob = one.get('knob') or ''
        since = fragment.time(one.get('set_at'))
        found.append({
            'resource': RESOURCES.get(
                RESOURCE_OF[Knob(knob)] if knob in set(Knob) else '',
                incident_.shown(knob)),
            'share': 100 * (one.get('limited_s') or 0.0) / MONTH_S,
            'now': bool(one.get('in_force')), 'since': since,
            'value': typed_amounts.human(knob, one.get('value'))
            if one.get('in_force') else '',
            'why': why(one.get('owner') or '')
            if one.get('in_force') else ''})
    return {'name': incident_.shown(workload.get('name') or ''),
            'instance': workload.get('instance') or '', 'limits': found,
            'limited': any(one['now'] for one in found)}


def why(owner: str) -> str:
    """The kind of reason of a limit, without what it is for."""
    if owner == 'operator':
        return _('set by the operator')
    if owner in DETECTORS:
        return _('it disturbed another instance')
    return _('other instances need the capacity')


def eviction(fields: Fields) -> dict[str, Any]:
    """What becomes of an instance that is being taken away."""
    how, state = fields.get('how') or '', fields.get('state') or ''
    return {'name': incident_.shown(fields.get('name')
                                    or fields.get('instance') or ''),
            'instance': fields.get('instance') or '',
            'at': fragment.time(fields.get('created_at')),
            'how': HOWS.get(how, incident_.shown(how)),
            'state': STATES.get(state, incident_.shown(state))}
