# SPDX-License-Identifier: Apache-2.0

"""Forms for changes by operators: overrides and the kill switch."""

from __future__ import annotations

from collections.abc import Sequence
import datetime
from typing import Any

from django import http
from django import urls
from django.utils.http import urlencode
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from scavenger_openstack.dashboard.admin.limits import NOT_SETTABLE
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import rows
from scavenger_openstack.text import iso
from scavenger_openstack import typed_amounts
from scavenger_openstack.types import Knob

SET_URL = 'horizon:admin:interference:cap_set'

EXPIRIES = (('1', _('1 hour')), ('2', _('2 hours')), ('8', _('8 hours')),
            ('24', _('1 day')), ('72', _('3 days')), ('168', _('7 days')))
"""Hours, and their names."""


def reason_field(help_text: Any) -> Any:
    return forms.CharField(
        label=_('Reason'), max_length=2000, help_text=help_text,
        widget=forms.TextInput(attrs={'autocomplete': 'off'}))


def uncertain(problem: client.Problem) -> str:
    """Return a sentence on a change that has no answer."""
    if isinstance(problem, client.Unavailable):
        return gettext('%s The change may have been made all the same: look '
                       'before you try again.') % problem
    return str(problem)


def sent(form: forms.SelfHandlingForm, request: Any, method: str,
         parts: Sequence[str], body: dict[str, Any] | None = None,
         **query: Any) -> dict[str, Any] | None:
    """Send a change; return the answer, ``None`` if there is none: then the
    form says why.

    :param parts: of the path
    """
    try:
        return client.send(request, method, client.path_of(*parts), body,
                           **query) or {}
    except client.Problem as problem:
        form.api_error(uncertain(problem))
        return None


class Choose(forms.SelfHandlingForm):
    """The choice of the workload that will have an override."""

    host = forms.CharField(
        label=_('Host'), max_length=255,
        help_text=_('As the tab Hosts has it.'))
    workload = forms.CharField(
        label=_('Workload'), max_length=255, strip=False,
        help_text=_('The UUID of an instance, or the path of a container.'))
    knob = forms.ChoiceField(
        label=_('What is limited'),
        choices=[(str(knob), str(knob)) for knob in Knob
                 if knob not in NOT_SETTABLE])

    def handle(self, request: Any, data: dict[str, Any]) -> Any:
        return http.HttpResponseRedirect(
            f'{urls.reverse(SET_URL)}?{urlencode(data)}')


class SetLimit(Choose):
    """An override of one knob of one workload."""

    host = forms.CharField(widget=forms.HiddenInput(), max_length=255)
    workload = forms.CharField(widget=forms.HiddenInput(), max_length=255,
                               strip=False)
    value = forms.CharField(
        label=_('Limit'), max_length=4096,
        help_text=_('With its unit, or the word none for no limit.'),
        widget=forms.TextInput(attrs={'autocomplete': 'off'}))
    hours = forms.ChoiceField(label=_('Expires in'), choices=EXPIRIES)
    reason = reason_field(_('Shown with the limit and kept in the audit.'))

    field_order = ('host', 'workload', 'knob', 'value', 'hours', 'reason')

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean()
        if data.get('value') and data.get('knob'):
            try:
                data['value'] = typed_amounts.parse(data['knob'],
                                                    data['value'])
            except ValueError as exc:
                self.add_error('value', f'{exc}.')
        return data

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        expires = timezone.now() + datetime.timedelta(
            hours=int(data['hours']))
        answer = sent(
            self, request, 'PUT',
            ('caps', data['host'], data['knob'], data['workload']),
            {'value': data['value'], 'reason': data['reason'],
             'expires_at': iso(expires.timestamp())})
        if answer is None:
            return False
        override = answer.get('override') or {}
        messages.success(request, gettext(
            '%(workload)s: %(limit)s (%(knob)s) is asked for; its host '
            'follows with its next report, within some 10 s.') % {
                'workload': override.get('name') or data['workload'],
                'knob': data['knob'],
                'limit': typed_amounts.human(data['knob'], data['value'])})
        return True


class UnsetLimit(forms.SelfHandlingForm):
    """The end of an override."""

    host = forms.CharField(widget=forms.HiddenInput(), max_length=255)
    workload = forms.CharField(widget=forms.HiddenInput(), max_length=255,
                               strip=False)
    knob = forms.CharField(widget=forms.HiddenInput(), max_length=32)
    reason = reason_field(_('Kept in the audit.'))

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        if sent(self, request, 'DELETE',
                ('caps', data['host'], data['knob'], data['workload']),
                reason=data['reason']) is None:
            return False
        messages.success(request, gettext(
            'The override ends; the host follows with its next report, '
            'within some 10 s.'))
        return True


class Protection(forms.SelfHandlingForm):
    """The kill switch of the cloud, an aggregate or a host."""

    scope = forms.ChoiceField(label=_('Where'), choices=(
        ('cloud', _('The whole cloud')),
        ('aggregate', _('An aggregate')), ('host', _('A host'))))
    target = forms.CharField(
        label=_('Name of the aggregate or host'), max_length=255,
        required=False, strip=False,
        help_text=_('Empty for the whole cloud.'))
    enabled = forms.ChoiceField(label=_('Protection'), choices=(
        ('off', _('Off: remove every limit, and set none')),
        ('on', _('On: limits may be set again'))))
    reason = reason_field(_('Shown on the hosts and kept in the audit.'))
    sure = forms.BooleanField(
        label=_('Background work may disturb foreground work without '
                'bounds while protection is off.'),
        required=False, help_text=_('Needed to turn it off.'))

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean()
        if data.get('enabled') == 'off' and not data.get('sure'):
            self.add_error('sure', gettext('Confirm that you mean it.'))
        if data.get('scope') == 'cloud' and data.get('target'):
            self.add_error('target', gettext('The whole cloud has no name.'))
        elif data.get('scope') in ('aggregate', 'host') and not data.get(
                'target'):
            self.add_error('target', gettext('Name it.'))
        return data

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        answer = sent(self, request, 'PUT', ('protection',), {
            'scope': data['scope'], 'target': data['target'],
            'enabled': data['enabled'] == 'on', 'reason': data['reason']})
        if answer is None:
            return False
        counts = answer.get('protection') or {}
        text = gettext('Protection is on again.') if data['enabled'] == 'on' \
            else gettext('Protection is off.')
        messages.success(request, gettext(
            '%(text)s %(hosts)s: each follows with its next report, within '
            'some 10 s.') % {
                'text': text,
                'hosts': rows.counted_hosts(counts.get('hosts', 0))})
        if counts.get('silent'):
            messages.warning(request, gettext(
                '%s silent: each follows when it reaches a conductor. On a '
                'host itself "scavenger-agent stop-all" works at once.')
                % rows.counted_hosts(counts['silent']))
        return True
