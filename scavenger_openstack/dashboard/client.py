# SPDX-License-Identifier: Apache-2.0

"""Requests to the interference API, for the user of a page.

The calls that one page makes share a deadline: a slow API costs its reader
:data:`TIMEOUT_S`, however many calls the page needs.
"""

from __future__ import annotations

from concurrent import futures
import contextlib
import json
import socket
import time
from typing import Any
import urllib.parse

from django.conf import settings
from django.utils.translation import gettext as _
from horizon import exceptions
from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import session as auth_session
from keystoneauth1 import token_endpoint
from openstack_dashboard.api import base
import requests
from requests import adapters

from scavenger_openstack.types import printable

SERVICE_TYPE = 'interference'
API_VERSION = '1.0'
TIMEOUT_S = 2.0
ANSWER_BYTES = 16 * 1024 ** 2
"""Longer answers are refused: a page of 50 incidents has at most 10 MiB."""
_CHUNK_BYTES = 65536
DEADLINE = '_interference_deadline_s'

CALLS = 16
"""Number of calls at the same time in one process; others wait, and have no
answer in time."""

POOL = futures.ThreadPoolExecutor(CALLS, 'interference-call')
"""The threads of the calls, which make the wait for an answer bounded: neither
the look-up of a name nor an answer that comes byte by byte is bounded by the
timeout of a socket.  A thread is free again when its connection is shut down.
"""


class Problem(Exception):
    """A call that has no answer; the text is a sentence for the page."""


class Unavailable(Problem):
    """The API is slow, down, broken, or not in the catalogue."""


class Forbidden(Problem):
    """The user's role does not allow it."""


class NotFound(Problem):
    """The object does not exist (any more), or not for this user."""


class Refused(Problem):
    """The API refused the request, with a reason."""


class Expired(exceptions.NotAuthenticated):
    """The token is no longer valid: Horizon asks for a new login."""


def get(request: Any, path: str, **query: Any) -> dict[str, Any]:
    """Return the JSON object that the API has at a path.

    :param path: as :func:`path_of` makes it
    :param query: those that are ``None`` or empty are left out
    :raises Problem: there is no answer.
    :raises Expired: the token is no longer valid.
    """
    answer = _call(request, 'GET', path, query={
        name: _in_query(value) for name, value in query.items()
        if value not in (None, '')})
    if answer is None:
        raise Unavailable(_('The interference API did not answer with a '
                            'JSON object; check its endpoint.'))
    return answer


def send(request: Any, method: str, path: str,
         body: dict[str, Any] | None = None, **query: Any
         ) -> dict[str, Any] | None:
    """Send a change; return the answer of the API, ``None`` for an empty one.

    :raises Problem: there is no answer; with :class:`Unavailable` the
        change may have been made.
    :raises Expired: the token is no longer valid.
    """
    setattr(request, DEADLINE, None)   # a change has all the time there is
    return _call(request, method, path, query=query, body=body)


def path_of(*parts: str) -> str:
    """Return the path of a URL: ``/v1/hosts/a%20b`` of ``hosts, a b``.

    :raises NotFound: a part is no name.
    """
    for part in parts:
        if part in ('', '.', '..'):
            raise NotFound(_('That is not a name.'))
    return '/'.join(['/v1', *(urllib.parse.quote(part, safe='')
                              for part in parts)])


def _call(request: Any, method: str, path: str, *, query: dict[str, Any],
          body: dict[str, Any] | None = None) -> dict[str, Any] | None:
    try:
        endpoint = base.url_for(request, SERVICE_TYPE)
    except exceptions.ServiceCatalogException:
        raise Unavailable(_('The catalogue of this region has no service '
                            '"interference".')) from None
    url = endpoint.rstrip('/').removesuffix('/v1') + path
    remaining_s = _remaining_s(request)
    connections = Connections()
    call = POOL.submit(exchange, connections, token_endpoint.Token(
        endpoint, request.user.token.id), url, method, query, body,
        remaining_s)
    try:
        status, content = call.result(remaining_s)
    except (TimeoutError, auth_exceptions.ConnectTimeout):
        call.cancel()
        connections.end()
        raise _slow() from None
    except (auth_exceptions.ClientException, OSError):
        raise Unavailable(_('The interference API cannot be reached.')
                          ) from None
    return _outcome(status, content)


class Connections(adapters.HTTPAdapter):
    """Connections that another thread may end, whatever they wait for."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self._sockets: list[socket.socket] = []
        self._is_ended = False
        pools: dict[str, Any] = self.poolmanager.pool_classes_by_scheme
        self.poolmanager.pool_classes_by_scheme = {
            scheme: type('Pool', (pool,), {'ConnectionCls': self._noting(
                pool.ConnectionCls)}) for scheme, pool in pools.items()}

    def _noting(self, kind: Any) -> type:
        class Connection(kind):
            def _new_conn(this) -> Any:
                made = super()._new_conn()
                # A socket of TLS takes the place of the first.
                self._sockets.append(made.dup())
                if self._is_ended:
                    self.end()
                return made
        return Connection

    def end(self) -> None:
        """Shut them down, also those to come."""
        self._is_ended = True
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        for connection in self._sockets:
            connection.close()


def exchange(connections: Connections, token: token_endpoint.Token,
              url: str, method: str, query: dict[str, Any],
              body: dict[str, Any] | None, timeout_s: float
              ) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    sender = requests.Session()
    for scheme in ('http://', 'https://'):
        sender.mount(scheme, connections)
    session = auth_session.Session(
        session=sender,
        auth=token, app_name='scavenger-dashboard',
        verify=False if settings.OPENSTACK_SSL_NO_VERIFY
        else settings.OPENSTACK_SSL_CACERT or True)
    try:
        answer = session.request(
            url, method, params=query, json=body, raise_exc=False,
            redirect=False, log=False, stream=True, timeout=timeout_s,
            headers={'Accept': 'application/json', 'OpenStack-API-Version':
                     f'{SERVICE_TYPE} {API_VERSION}'})
        return answer.status_code, _content(answer, timeout_s)
    finally:
        sender.close()


def _remaining_s(request: Any) -> float:
    """Return what is left of the time of this page.

    :raises Unavailable: nothing is.
    """
    now_s = time.monotonic()
    deadline_s = getattr(request, DEADLINE, None)
    if deadline_s is None:
        deadline_s = now_s + TIMEOUT_S
        setattr(request, DEADLINE, deadline_s)
    if deadline_s <= now_s:
        raise _slow()
    return float(deadline_s - now_s)


def _slow() -> Unavailable:
    return Unavailable(_('The interference API did not answer within '
                         '%(seconds)d s.') % {'seconds': TIMEOUT_S})


def _content(answer: Any, timeout_s: float) -> bytes:
    """Return the whole body, if it ends in time and is not too long."""
    content, end_s = bytearray(), time.monotonic() + timeout_s
    for chunk in answer.iter_content(_CHUNK_BYTES):
        content += chunk
        if len(content) > ANSWER_BYTES:
            raise Unavailable(_('The answer of the interference API is too '
                                'long.'))
        if time.monotonic() > end_s:
            raise _slow()
    return bytes(content)


def _outcome(status: int, content: bytes) -> dict[str, Any] | None:
    if status == 401:
        raise Expired(_('The session has expired.'))
    try:
        document = json.loads(content) if content else None
    except (ValueError, RecursionError):
        document = content
    if status < 300 and (document is None or isinstance(document, dict)):
        return document
    error = document.get('error') if isinstance(document, dict) else None
    detail = error.get('detail') if isinstance(error, dict) else None
    detail = printable(detail) if isinstance(detail, str) else ''
    if status == 403:
        raise Forbidden(detail or _('Your role does not allow this.'))
    if status == 404:
        raise NotFound(detail or _('There is no such thing.'))
    if 400 <= status < 500:
        raise Refused(detail or _('The interference API refused the '
                                  'request (HTTP %(status)d).')
                      % {'status': status})
    raise Unavailable(_('The interference API failed (HTTP %(status)d).')
                      % {'status': status})


def _in_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
