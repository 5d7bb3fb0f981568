# SPDX-License-Identifier: Apache-2.0

"""Actions of operators on an instance, exempt or evict it, and on a profile.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import messages

from scavenger_openstack.dashboard.admin import forms as admin_forms
from scavenger_openstack.dashboard.admin import views
from scavenger_openstack.dashboard import names

CHECK, DO = 'check', 'do'


class Exempt(forms.SelfHandlingForm):
    """An exemption of one instance from all limits but overrides."""

    instance = forms.CharField(widget=forms.HiddenInput(), max_length=36)
    reason = admin_forms.reason_field(_('Shown with the exemption and kept in '
                                   'the audit.'))

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        if admin_forms.sent(
                self, request, 'POST', ('exemptions',), {
                    'scope': 'instance', 'target': data['instance'],
                    'reason': data['reason']}) is None:
            return False
        messages.success(request, gettext(
            '%(instance)s is exempt: its limits are removed with the next '
            'report of its host, within some 10 s.') % {
                'instance': data['instance']})
        return True


class Evict(forms.SelfHandlingForm):
    """The eviction of a background instance: first only checked."""

    instance = forms.CharField(widget=forms.HiddenInput(), max_length=36)
    how = forms.ChoiceField(label=_('How'), choices=(
        ('live-migrate', _('Move it to another host while it runs')),
        ('pause', _('Pause it')), ('stop', _('Shut it down')),
        ('shelve', _('Shut it down and take it off its host'))))
    what = forms.ChoiceField(label=_('What to do'), choices=(
        (CHECK, _('Only check, and change nothing')),
        (DO, _('Have Nova do it'))))
    reason = admin_forms.reason_field(_('Kept with the eviction and in the '
                                   'audit.'))

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        answer = admin_forms.sent(
            self, request, 'POST', ('evictions',), {
                'instance': data['instance'], 'how': data['how'],
                'reason': data['reason'], 'dry_run': data['what'] == CHECK})
        if answer is None:
            return False
        if data['what'] == CHECK:
            # The form stays: the same may be done next.
            detail = (answer.get('eviction') or {}).get('detail')
            self.api_error(gettext('Checked: %(detail)s.') % {
                'detail': names.shown(detail or gettext('it can be '
                                                            'done'))})
            return False
        messages.success(request, gettext(
            'A conductor has Nova take %(instance)s away.') % {
                'instance': data['instance']})
        return True


class Delete(forms.SelfHandlingForm):
    """The end of a profile."""

    profile = forms.CharField(widget=forms.HiddenInput(), max_length=64)
    reason = admin_forms.reason_field(_('Kept in the audit.'))

    def handle(self, request: Any, data: dict[str, Any]) -> bool:
        if admin_forms.sent(
                self, request, 'DELETE', ('profiles', data['profile']),
                reason=data['reason']) is None:
            return False
        messages.success(request, gettext('The profile is deleted.'))
        return True


class _OfInstance(views.PolicyForm):
    """A form about the instance that the URL names."""

    tab = 'incidents'

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = self.request.POST or self.request.GET
        return {**super().get_context_data(**kwargs),
                'instance': names.shown(query.get('instance', '')),
                'name': names.shown(self.request.GET.get('name', ''))}


class SetExemption(_OfInstance):
    """Exempt an instance."""

    name = 'exempt'
    rule = 'interference:exemptions:set'
    form_class = Exempt
    page_title = _('Exempt an instance')
    submit_label = _('Exempt')


class CreateEviction(_OfInstance):
    """Evict an instance."""

    name = 'evict'
    rule = 'interference:evictions:create'
    form_class = Evict
    page_title = _('Evict an instance')
    submit_label = _('Go on')


class DeleteProfile(views.PolicyForm):
    """Delete a profile."""

    name = 'profile_delete'
    rule = 'interference:profiles:delete'
    tab = 'profiles'
    form_class = Delete
    page_title = _('Delete a profile')
    submit_label = _('Delete')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                'name': names.shown(self.request.GET.get('name', ''))}
