# SPDX-License-Identifier: Apache-2.0

"""The part of a page that is loaded, and loaded again, by itself.

Each is one template that extends ``interference/_fragment.html``.  Its page
stays as it is when there is no answer for it.
"""

from __future__ import annotations

from collections.abc import Callable
import datetime
from typing import Any

from django.utils import dateparse
from django.utils import timezone
from horizon.utils import functions

from scavenger_openstack.dashboard import client

REFRESH_S = 15


def context(load: Callable[[], dict[str, Any]], *, request: Any = None,
            refresh_url: str = '',
            now: datetime.datetime | None = None,
            refresh_s: int = REFRESH_S) -> dict[str, Any]:
    """Return what the template of a fragment is rendered with.

    :param load: makes the calls; what it returns is in the context
    :param request: its user's zone is that of all times; Horizon does not
        set it where a script asks
    :param refresh_url: what has the fragment alone; '': it is loaded once
    :param refresh_s: after so long a page that is visible asks again
    """
    if request is not None:
        timezone.activate(functions.get_timezone(request))
    values: dict[str, Any] = {
        'loaded_at': now or timezone.now(), 'refresh_url': refresh_url,
        'refresh_s': refresh_s, 'problem': None}
    try:
        values.update(load())
    except client.Problem as problem:
        values.update(problem=str(problem),
                      forbidden=isinstance(problem, client.Forbidden),
                      missing=isinstance(problem, client.NotFound))
    return values


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
    """Return a time of the API, ``None`` for what is none; templates show it
    in the user's zone."""
    try:
        at = dateparse.parse_datetime(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at.replace(tzinfo=datetime.UTC) if at and not at.tzinfo else at
