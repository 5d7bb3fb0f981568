# SPDX-License-Identifier: Apache-2.0

"""The pages of operators."""

from __future__ import annotations

from typing import Any

from django.core import exceptions
from django import urls
from django.utils.translation import gettext_lazy as _
from horizon import forms
from horizon import tabs
from openstack_dashboard import policy

from scavenger_openstack.dashboard.admin import forms as admin_forms
from scavenger_openstack.dashboard.admin import tabs as admin_tabs
from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import names
from scavenger_openstack import typed_amounts

INDEX = urls.reverse_lazy('horizon:admin:interference:index')


class Index(tabs.TabView):
    """The page with the tabs."""

    tab_group_class = admin_tabs.Interference
    template_name = 'interference/admin/index.html'
    page_title = _('Interference')


OF_URL = ('host', 'workload', 'knob', 'instance', 'profile', 'scope',
          'target', 'enabled')
"""Fields that a link may fill: the objects of a form.  Reasons, amounts and
confirmations are typed by the operator."""


class PolicyForm(forms.ModalFormView):
    """A form that one policy allows; it leads back to one of the tabs.

    ``name`` is that of its URL, and with an underscore that of its template.
    """

    name = ''
    rule = ''
    tab = ''
    template_name = 'interference/admin/form.html'

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ajax_template_name = f'interference/admin/_{self.name}.html'
        self.form_id = self.modal_id = f'{self.name}_form'
        self.modal_header = self.page_title

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not policy.check((('interference', self.rule),), request):
            raise exceptions.PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get_success_url(self) -> str:
        return f'{INDEX}?tab=interference__{self.tab}'

    def get_cancel_url(self) -> str:
        return self.get_success_url()

    def get_initial(self) -> dict[str, Any]:
        return {name: self.request.GET[name] for name in OF_URL
                if name in self.get_form_class().base_fields
                and name in self.request.GET}

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                'part_name': self.ajax_template_name,
                'submit_url': urls.reverse(
                    f'horizon:admin:interference:{self.name}')}


class SetLimit(PolicyForm):
    """Set an override; without a host and a workload, choose them first."""

    name = 'cap_set'
    rule = 'interference:overrides:set'
    tab = 'limits'
    form_class = admin_forms.SetLimit
    page_title = _('Override a limit')
    submit_label = _('Set')

    def get_form_class(self) -> type:
        query = self.request.POST if self.request.method == 'POST' \
            else self.request.GET
        if 'value' not in query and not (
                self.request.method == 'GET' and query.get('host')
                and query.get('workload')):
            return admin_forms.Choose
        return admin_forms.SetLimit

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        query = self.request.POST or self.request.GET
        if self.get_form_class() is admin_forms.Choose:
            return {**context, 'submit_label': _('Next')}
        return {**context, 'how': typed_amounts.how().split('. '),
                'host': query.get('host', ''),
                **self._floors(query.get('host', ''),
                               query.get('workload', ''))}

    def _floors(self, host: str, workload: str) -> dict[str, Any]:
        """Return the context of the form before a value is typed."""
        try:
            answer = client.get(self.request, client.path_of('workloads'),
                               host=host, name=workload, limit=1)
        except client.Problem as problem:
            return {'workload': workload, 'problem': str(problem)}
        if not answer['workloads']:
            return {'workload': workload, 'problem': _(
                'This host reports no such workload now.')}
        (row,) = answer['workloads']
        return {'workload': names.of_workload(row, 'id'),
                'foreground': row['priority'] == 'foreground',
                'floors': [(knob, typed_amounts.human(knob, floor))
                           for knob, floor in sorted(row['floor'].items())]}


class UnsetLimit(PolicyForm):
    """Remove an override."""

    name = 'cap_unset'
    rule = 'interference:overrides:delete'
    tab = 'limits'
    form_class = admin_forms.UnsetLimit
    page_title = _('Remove an override')
    submit_label = _('Remove')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query = self.request.POST or self.request.GET
        return {**super().get_context_data(**kwargs), **{
            name: query.get(name, '')
            for name in ('host', 'workload', 'knob')}}


class Protection(PolicyForm):
    """Turn protection off or on."""

    name = 'protection'
    rule = 'interference:protection:set'
    tab = 'overview'
    form_class = admin_forms.Protection
    page_title = _('Protection')
    submit_label = _('Change')
