# SPDX-License-Identifier: Apache-2.0

"""An incident in words, steps and series, out of the API's answer.

Pure: names are of tenants, times are aware, and templates show both.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from scavenger_openstack import amounts
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import names
from scavenger_openstack.dashboard import plots
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack import typed_amounts
from scavenger_openstack.types import printable

Fields = Mapping[str, Any]

SKEW_S = 60.0
"""A clock of a host that is further ahead is shown as a fault."""


class Step(NamedTuple):
    """One event of an incident; ``at`` may be unknown."""

    at: datetime.datetime | None
    what: str
    detail: str


def duration(begun: datetime.datetime | None,
             ended: datetime.datetime | None, now: datetime.datetime) -> str:
    """Return how long an incident lasted; '' where that is not known."""
    if begun is None:
        return ''
    lasted_s = ((ended or now) - begun).total_seconds()
    if lasted_s < -SKEW_S:
        return _('begins in the future: the clock of its host is ahead')
    lasted = amounts.of_duration(max(0.0, lasted_s))
    return lasted if ended else _('%(lasted)s so far') % {'lasted': lasted}


def row(fields: Fields, now: datetime.datetime) -> dict[str, Any]:
    """Return an incident as a list shows it."""
    begun, ended = fragment.time(fields.get('begun_at')), fragment.time(
        fields.get('ended_at'))
    texts = {name: names.shown(fields.get(name) or '') for name in TEXTS}
    return {**fields, **texts, 'begun': begun, 'ended': ended,
            'host_shown': names.shown(fields.get('host') or ''),
            'lasted': duration(begun, ended, now),
            'victim_shown': names.of_workload(fields, 'victim', 'victim_name'),
            'named': [names.of_workload(antagonist) + (
                _(' (earlier)') if antagonist.get('earlier') else '')
                for antagonist in fields.get('antagonists') or ()],
            'outcome_words': OUTCOMES.get(texts['outcome'],
                                          texts['outcome']),
            'outcome_style': STYLES.get(texts['outcome'], 'default')}


TEXTS = ('cause', 'controller', 'signal', 'evidence_kind', 'project',
         'outcome')
"""Fields that are shown unchanged."""

STYLES = {'open': 'warning', 'confirmed': 'success', 'refuted': 'danger',
          'recommended': 'info'}
"""The style of the label of each outcome."""


OUTCOMES = {
    'open': gettext_lazy('open'), 'confirmed': gettext_lazy('confirmed'),
    'refuted': gettext_lazy('refuted'), 'unclear': gettext_lazy('unclear'),
    'ended': gettext_lazy('ended'),
    'recommended': gettext_lazy('recommended')}

KINDS = {
    GroundKind.DIRECT: (gettext_lazy('Direct evidence'), gettext_lazy(
        'The kernel recorded which workload held the resource while the '
        'victim waited for it.')),
    GroundKind.SHARE: (gettext_lazy('Shares of use'), gettext_lazy(
        'What used the resource while the victim waited; the kernel does '
        'not record here what held it.')),
    GroundKind.TIMING: (gettext_lazy('Timing'), gettext_lazy(
        'The signal of the victim rises and falls with what the workload '
        'uses.')),
    GroundKind.EXPERIMENT: (gettext_lazy('Experiment'), gettext_lazy(
        'The workload was limited for some seconds at a time, and the '
        'signal with and without a limit was compared.'))}
"""Title and explanation of each kind of evidence, the strongest first."""

JUDGED = {
    'open': gettext_lazy('No limit has been judged yet.'),
    'confirmed': gettext_lazy(
        'Confirmed: with the limit the signal was better by more than it '
        'usually varies.'),
    'refuted': gettext_lazy(
        'Refuted: with the limit the signal was worse by more than it '
        'usually varies, so the limit was removed.'),
    'unclear': gettext_lazy(
        'Unclear: with the limit the signal changed by less than it usually '
        'varies, so the limit was removed.'),
    'ended': gettext_lazy('It ended before a limit was judged.'),
    'recommended': gettext_lazy(
        'It is a recommendation: nothing is done until an operator asks for '
        'it.')}


def verdict(incident: Fields, now: datetime.datetime) -> Iterator[str]:
    """Yield the sentences that sum up an incident."""
    victim = names.of_workload(incident, 'victim', 'victim_name')
    signal = incident.get('signal') or ''
    if signal:
        value, threshold = (
            _('unknown') if incident.get(name) is None
            else amounts.of_signal(signal, incident[name])
            for name in ('value', 'threshold'))
        yield _('%(victim)s suffered: %(signal)s was %(value)s; the '
                'threshold is %(threshold)s.') % {
                    'victim': victim, 'signal': amounts.name_of_signal(signal),
                    'value': value, 'threshold': threshold}
    else:
        yield _('It is about %(victim)s.') % {'victim': victim}
    rows = incident.get('antagonists') or ()
    antagonists = [row for row in rows if not row.get('earlier')]
    if antagonists:
        yield _('Named: %(names)s.') % {'names': ', '.join(
            names.of_workload(antagonist)
            + (_(' (foreground: never limited)')
               if antagonist.get('foreground') else '')
            for antagonist in antagonists)}
    elif any(ground.get('workload') == ''
             for ground in incident.get('grounds') or ()):
        yield _('The host itself is named; it is never limited.')
    elif signal:
        yield _('No workload is named: the evidence is not strong enough.')
    earlier = [row for row in rows if row.get('earlier')]
    if earlier:
        yield _('Disturbed it earlier, and no more: %(names)s.') % {
            'names': ', '.join(map(names.of_workload, earlier))}
    if incident.get('action'):
        yield _('Done: %(action)s.') % {
            'action': printable(incident['action'].rstrip('.'))}
    caps = incident.get('caps') or ()
    in_force = sum(not cap.get('removed_at') for cap in caps)
    if in_force:
        yield _('In force now: %(limits)s.') % {
            'limits': amounts.counted(in_force, 'limit')}
    elif caps:
        yield _('No limit of it is in force any more.')
    judged = JUDGED.get(incident.get('outcome', ''))
    if judged:
        yield str(judged)
    begun = fragment.time(incident.get('begun_at'))
    if begun is not None and (begun - now).total_seconds() > SKEW_S:
        yield _('Its times are in the future: the clock of its host is '
                'ahead.')


def evidence(incident: Fields) -> list[dict[str, Any]]:
    """Return the grounds by kind, the strongest first: title, explanation
    and sentences."""
    kinds = []
    for kind, (title, explanation) in KINDS.items():
        sentences = [sentence(ground, incident)
                     for ground in incident.get('grounds') or ()
                     if ground.get('kind') == kind]
        if sentences:
            kinds.append({'title': title, 'explanation': explanation,
                          'sentences': sentences})
    return kinds


def sentence(ground: Fields, incident: Fields) -> str:
    """Return a ground as a sentence."""
    words = amounts.of_incident_ground(ground, incident)
    for name in {ground.get('name') or '',
                 incident.get('victim_name') or ''}:
        if names.is_right_to_left(name):
            words = words.replace(printable(name), names.shown(name))
    return f'{words[:1].upper()}{words[1:]}.'


def steps(incident: Fields) -> list[Step]:
    """Return the events of an incident, with their numbers, in order."""
    events = [Step(fragment.time(incident.get('begun_at')),
                   _('The harm began'), '')]
    for cap in incident.get('caps') or ():
        events += _of_limit(cap)
    if incident.get('ended_at'):
        events.append(Step(fragment.time(incident['ended_at']),
                          _('The incident ended'), ''))
    last = datetime.datetime.max.replace(tzinfo=datetime.UTC)
    return sorted(events, key=lambda step: step.at or last)


def _of_limit(cap: Fields) -> Iterator[Step]:
    name, knob = names.of_workload(cap), cap.get('knob') or ''
    original = typed_amounts.human(knob, cap.get('original'))
    (set_at, value), *changes = _values(cap)
    yield Step(set_at, _('Limit set'), _(
        '%(name)s: %(knob)s = %(value)s, %(original)s before; by '
        '%(owner)s: %(reason)s') % {
            'name': name, 'knob': knob, 'original': original,
            'value': typed_amounts.human(knob, value),
            'owner': printable(cap.get('owner') or ''),
            'reason': printable(cap.get('reason') or '')})
    before = value
    for at, value in changes:
        yield Step(at, _('Limit changed'), _(
            '%(name)s: %(knob)s = %(value)s, %(before)s before') % {
                'name': name, 'knob': knob,
                'value': typed_amounts.human(knob, value),
                'before': typed_amounts.human(knob, before)})
        before = value
    if cap.get('removed_at'):
        yield Step(fragment.time(cap['removed_at']), _('Limit removed'), _(
            '%(name)s: %(knob)s = %(original)s again, %(value)s '
            'before%(why)s') % {
                'name': name, 'knob': knob, 'original': original,
                'value': typed_amounts.human(knob, before),
                'why': f': {printable(cap["why"])}' if cap.get('why')
                else ''})


def _values(cap: Fields) -> list[tuple[datetime.datetime | None, Any]]:
    return [(fragment.time(step.get('at')), step.get('value'))
            for step in cap.get('steps') or ()] or [
                (fragment.time(cap.get('set_at')), cap.get('value'))]


def series(incident: Fields) -> list[plots.Series]:
    """Return the curves of a picture: the victim's signal first, then what
    suspects used, the most suspected first."""
    suspects = {suspect.get('workload'): suspect
                for suspect in incident.get('suspects') or ()}
    curves = []
    for measured in incident.get('evidence') or ():
        points = [(at.timestamp(), value) for at, value in zip(
            map(fragment.time, measured.get('times_at') or ()),
            measured.get('values') or (), strict=False) if at is not None]
        workload, signal = measured.get('workload'), measured.get('signal')
        suspect = suspects.get(workload)
        is_victim = workload == incident.get('victim')
        order = (not (is_victim and signal == incident.get('signal')),
                 not is_victim, -((suspect or {}).get('score') or 0.0))
        name = (incident.get('victim_name') if is_victim
                else (suspect or {}).get('name')) or workload or ''
        curves.append((order, plots.Series(
            name, _role(is_victim, suspect), signal or '', points,
            () if is_victim else _limits(incident, workload))))
    return [curve for _order, curve in sorted(
        curves, key=lambda ranked: ranked[0])]


def _role(is_victim: bool, suspect: Fields | None) -> str:
    if is_victim:
        return _('victim')
    if suspect is None:
        return ''
    role = _('antagonist') if suspect.get('antagonist') else _('suspect')
    score = suspect.get('score')
    return role if score is None else _('%(role)s, score %(score).2f') % {
        'role': role, 'score': score}


def _limits(incident: Fields, workload: object) -> Sequence[plots.Limit]:
    limits = []
    for cap in incident.get('caps') or ():
        begin, end = fragment.time(cap.get('set_at')), fragment.time(
            cap.get('removed_at'))
        if cap.get('workload') == workload and begin is not None:
            limits.append(plots.Limit(
                cap.get('knob') or '', begin.timestamp(),
                None if end is None else end.timestamp(),
                [(at.timestamp(), value) for at, value in _values(cap)
                 if at is not None]))
    return limits


def picture(incident: Fields, zone: datetime.tzinfo) -> dict[str, Any]:
    """Return the picture of an incident, and the same numbers as a table."""
    drawn = series(incident)
    begun, ended = (fragment.time(incident.get(name))
                    for name in ('begun_at', 'ended_at'))
    titles, rows = plots.table(drawn, zone)
    return {'picture': plots.incident(
                drawn, threshold=incident.get('threshold'),
                begun_s=begun.timestamp() if begun else None,
                ended_s=ended.timestamp() if ended else None, zone=zone),
            'titles': titles, 'rows': rows}
