# SPDX-License-Identifier: Apache-2.0

"""The interference profiles of a project, and those for every project.

No host is in them, whatever the API answers.
"""

from __future__ import annotations

from typing import Any

from django import urls
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy

from scavenger_openstack.dashboard import client
from scavenger_openstack.dashboard import fragment
from scavenger_openstack.dashboard import profiles


class Index(fragment.View):
    """The list."""

    template_name = 'interference/project/profiles.html'
    part_name = 'interference/project/_profiles.html'
    page_title = gettext_lazy('Interference profiles')

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                'index': urls.reverse('horizon:project:disturbances:index'),
                **self.fragment(self._load)}

    def _load(self) -> dict[str, Any]:
        marker = self.request.GET.get('marker')
        rows, next_marker = profiles.load(self.request, marker=marker)
        # To operators the API shows those of other projects, too.
        return {'profiles': [row for row in rows
                             if _may_see(self.request, row)],
                'first_url': '?' if marker else '',
                'of_profile': 'horizon:project:disturbances:profile',
                'next_url': f'?{urlencode({"marker": next_marker})}'
                if next_marker else ''}


class Show(fragment.Detail):
    """One profile, of the project or for every project."""

    part_name = 'interference/_profile.html'
    page_title = gettext_lazy('Interference profile')
    index_words = gettext_lazy('All profiles of this project')
    missing_words = gettext_lazy('There is no such profile, or no longer.')

    def index(self) -> str:
        return urls.reverse('horizon:project:disturbances:profiles')

    def load(self, pk: str) -> dict[str, Any]:
        """Return the context of the part.

        :raises client.NotFound: there is none, or it is of another project.
        """
        shown = profiles.show(self.request, pk)
        if not _may_see(self.request, shown['profile']):
            raise client.NotFound(gettext('There is no such profile.'))
        return shown


def _may_see(request: Any, row: dict[str, Any]) -> bool:
    return row['project'] in ('', request.user.project_id)
