# SPDX-License-Identifier: Apache-2.0

"""A proxy of openstacksdk that calls a WSGI application in this process."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from typing import TypeVar

from keystoneauth1 import http_basic
from keystoneauth1 import session
from openstack import connection
import requests
from requests import adapters
from werkzeug import test

from scavenger_openstack import sdk
from scavenger_openstack.sdk.v1 import _proxy

URL = 'http://api.example'

_Proxy = TypeVar('_Proxy', bound=_proxy.Proxy)


class Wsgi(adapters.BaseAdapter):
    """A transport of requests; it has no socket."""

    def __init__(self, application: Any) -> None:
        super().__init__()
        self.client = test.Client(application)

    def send(self, request: requests.PreparedRequest,    # type: ignore
             **options: Any) -> requests.Response:
        """Return the answer of the application."""
        answer = self.client.open(
            request.path_url, base_url=URL, method=str(request.method),
            headers=dict(request.headers), data=request.body)
        response = requests.Response()
        response.status_code = answer.status_code
        response.reason = answer.status.partition(' ')[2]
        response.headers.update(answer.headers)
        response._content = answer.data
        response.url, response.request = str(request.url), request
        return response

    def close(self) -> None:
        """There is nothing to close."""


def connect(application: Any, *, endpoint: str = URL,
            headers: MutableMapping[str, str] | None = None,
            **options: Any) -> connection.Connection:
    """Return a connection whose session reaches the application.

    :param options: of the connection
    """
    http = requests.Session()
    http.mount('http://', Wsgi(application))
    return connection.Connection(session=session.Session(
        session=http, additional_headers=headers, auth=(
            http_basic.HTTPBasicAuth(endpoint=endpoint, username='admin',
                                     password='secret'))), **options)


def proxy(kind: type[_Proxy], application: Any, **options: Any) -> _Proxy:
    """Return a proxy of a class; see :func:`connect`."""
    cloud = connect(application, **options)
    sdk.register(cloud, kind)
    made: _Proxy = getattr(cloud, _proxy.SERVICE_TYPE)
    return made
