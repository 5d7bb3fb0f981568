# SPDX-License-Identifier: Apache-2.0

"""The part of a page that is loaded, and loaded again, by itself.

Each is one template that extends ``interference/_fragment.html``.  Its page
stays as it is when there is no answer for it.
"""

from __future__ import annotations

from collections.abc import Callable
import datetime
import logging
from typing import Any

from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext as _
from horizon import tabs
from horizon.utils import functions
from horizon.utils import http as http_utils
from horizon import views

from scavenger_openstack.dashboard import client
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

REFRESH_S = 15
"""After so long a page that is visible asks again."""


def context(load: Callable[[], dict[str, Any]], *, request: Any = None,
            refresh_url: str = '') -> dict[str, Any]:
    """Return what the template of a fragment is rendered with.

    :param load: makes the calls; what it returns is in the context
    :param request: its user's zone is that of all times; Horizon does not
        set it where a script asks
    :param refresh_url: what has the fragment alone; '': it is loaded once
    """
    if request is not None:
        timezone.activate(functions.get_timezone(request))
    values: dict[str, Any] = {
        'loaded_at': timezone.now(), 'refresh_url': refresh_url,
        'refresh_s': REFRESH_S, 'problem': None}
    try:
        values.update(load())
    except client.Problem as problem:
        values.update(problem=str(problem),
                      forbidden=isinstance(problem, client.Forbidden),
                      missing=isinstance(problem, client.NotFound))
    except errors.MISREAD:
        LOG.exception('an answer of the interference API has another shape')
        values['problem'] = _('The interference API answered in a way that '
                              'this panel does not understand: their '
                              'versions differ. Upgrade the older one.')
    return values


class Tab(tabs.Tab):
    """A tab of operators, which is loaded when it is opened."""

    preload = False

    def values(self, request: Any) -> dict[str, Any]:
        """Return the context of the tab; see :func:`context`."""
        raise NotImplementedError

    def get_template_name(self, request: Any) -> str:
        return f'interference/admin/{self.slug}.html'

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        return context(lambda: self.values(request), request=request,
                       refresh_url=tab_url(request, self.get_id()))


class View(views.HorizonTemplateView):
    """A page with one fragment, ``part_name``."""

    part_name = ''

    def get_template_names(self) -> list[str]:
        return [self.part_name if http_utils.is_ajax(self.request)
                else self.template_name]

    def render_to_response(self, context: dict[str, Any]) -> Any:
        response = super().render_to_response(context)
        if context.get('missing'):
            response.status_code = 404
        elif context.get('forbidden'):
            response.status_code = 403
        return response

    def fragment(self, load: Callable[[], dict[str, Any]]
                 ) -> dict[str, Any]:
        """Return what the part is rendered with; see :func:`context`."""
        return context(load, request=self.request,
                       refresh_url=self.request.get_full_path())


class Detail(View):
    """A page of one thing, ``kwargs['pk']``, that leads back to a list."""

    template_name = 'interference/detail.html'
    index_words: Any = ''
    missing_words: Any = ''
    """A sentence for an object that does not exist."""

    def index(self) -> str:
        """Return the URL of the list."""
        raise NotImplementedError

    def load(self, pk: str) -> dict[str, Any]:
        """Return the context of the part; see :func:`context`."""
        raise NotImplementedError

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs),
                'part_name': self.part_name, 'index': self.index(),
                'index_words': self.index_words,
                'missing_words': self.missing_words,
                **self.fragment(lambda: self.load(self.kwargs['pk']))}


def tab_url(request: Any, tab: str, **changes: Any) -> str:
    """Return the URL of a tab with the filters that the page has.

    :param tab: its id, such as ``interference__limits``
    :param changes: what differs; ``None`` or empty: it is left out
    """
    query = request.GET.copy()
    for name, value in {**changes, 'tab': tab}.items():
        query.pop(name, None)
        if value not in (None, ''):
            query[name] = value
    return f'?{query.urlencode()}'


def time(text: object) -> datetime.datetime | None:
    """Return a time of the API, ``None`` for what is none in each zone;
    templates show it in the user's zone."""
    try:
        at = dateparse.parse_datetime(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if at is None or not datetime.MINYEAR < at.year < datetime.MAXYEAR:
        return None
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)
