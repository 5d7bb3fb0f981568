# SPDX-License-Identifier: Apache-2.0

"""Requests to the API: pages, and errors as one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import json
from typing import Any
import urllib.parse

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import session as auth_session
from osc_lib import clientmanager
from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc import plugin
from scavenger_openstack.osc.terminal import printable

SERVICE_TYPE = 'interference'
TIMEOUT_S = 60
MOST_ALLOWED = 12
"""So many of the values that a field takes are in a sentence."""
PAGE_ROWS = 1000
"""The API returns at most so many rows at once."""


class Client:
    """The API at one endpoint, with the session of ``openstack``."""

    def __init__(self, session: auth_session.Session, endpoint: str) -> None:
        self._session = session
        self.url = endpoint.rstrip('/').removesuffix('/v1')

    def request(self, method: str, path: str, *,
                query: Mapping[str, Any] | None = None,
                body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object of the answer, empty when there is none.

        :param path: as :func:`path_of` makes it
        :raises CommandError: with one sentence, for whatever goes wrong.
        """
        url = self.url + path
        try:
            json.dumps([query, body], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise exceptions.CommandError(
                'An argument is not valid Unicode.') from None
        try:
            answer = self._session.request(
                url, method, params=query, json=body, raise_exc=False,
                timeout=TIMEOUT_S, headers={'Accept': 'application/json'})
        except auth_exceptions.ClientException as exc:
            raise exceptions.CommandError(_unreachable(self.url, exc)) from exc
        if answer.status_code >= 400:
            raise exceptions.CommandError(explain(
                f'HTTP {answer.status_code} {answer.reason}', answer.text))
        if not answer.content:
            return {}
        try:
            document = answer.json()
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise exceptions.CommandError(self.foreign())
        return document

    def resource(self, noun: str, method: str, path: str,
                 body: Mapping[str, Any] | None = None, *,
                 query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The thing that an answer holds under its noun.

        :raises CommandError: see :meth:`request`.
        """
        return self._field(self.request(method, path, body=body, query=query),
                           noun, dict)

    def listing(self, noun: str, path: str, filters: Mapping[str, Any], *,
                limit: int | None = None, marker: str | None = None
                ) -> tuple[list[dict[str, Any]], str | None]:
        """Rows of a listing, and the marker of those that follow, if any.

        :param limit: so many rows at most, ``None`` for all
        :raises CommandError: see :meth:`request`.
        """
        query = {name: _in_query(value) for name, value in filters.items()
                 if value is not None}
        all_rows: list[dict[str, Any]] = []
        while True:
            rows = PAGE_ROWS
            if limit is not None:
                rows = min(rows, limit - len(all_rows))
            page = self.request('GET', path, query={
                **query, 'limit': rows, 'marker': marker})
            rows_of_page = self._field(page, noun, list)
            all_rows += rows_of_page
            marker = page.get('next')
            if not all(isinstance(row, dict) for row in rows_of_page) or (
                    marker is not None and not rows_of_page):
                raise exceptions.CommandError(self.foreign())
            if marker is None or limit is not None and len(all_rows) >= limit:
                return all_rows, marker

    def _field(self, answer: Mapping[str, Any], noun: str, kind: type) -> Any:
        field = answer.get(noun)
        if not isinstance(field, kind):
            raise exceptions.CommandError(self.foreign())
        return field

    def foreign(self) -> str:
        """Return what to say of an answer that is of something else."""
        return (f'{self.url} did not answer like the interference API; check '
                'the endpoint.')


def of(app: shell.OpenStackShell) -> Client:
    """The client of a running ``openstack``.

    :raises CommandError: see :func:`connect`.
    """
    client: Client = getattr(app.client_manager, plugin.API_NAME)
    return client


def connect(instance: clientmanager.ClientManager) -> Client:
    """The client for the endpoint of the catalog, or of the options.

    :raises CommandError: there is no endpoint.
    """
    region = instance.region_name
    try:
        endpoint = instance.get_endpoint_for_service_type(
            SERVICE_TYPE, region_name=region, interface=instance.interface)
    except auth_exceptions.CatalogException:
        endpoint = None
    if not endpoint:
        raise exceptions.CommandError(
            f'There is no {instance.interface or "public"} endpoint of the '
            f'service "{SERVICE_TYPE}"{f" in region {region}" * bool(region)}'
            ': add it to the catalog with "openstack endpoint create", or '
            f'set {SERVICE_TYPE}_endpoint_override in clouds.yaml; without '
            'Keystone use --os-auth-type http_basic and --os-endpoint.')
    return Client(instance.session, endpoint)


def path_of(*parts: str) -> str:
    """The path of a URL: ``path_of('hosts', 'a b')`` is ``/v1/hosts/a%20b``.

    :raises CommandError: a part is no name.
    """
    for part in parts:
        if part in ('', '.', '..'):
            raise exceptions.CommandError(f'"{part}" is not a name.')
    try:
        return '/'.join(['/v1', *(urllib.parse.quote(part, safe='')
                                  for part in parts)])
    except UnicodeEncodeError:
        raise exceptions.CommandError(
            'An argument is not valid Unicode.') from None


def delete_each(client: Client, noun: str, ids: Iterable[str], reason: str
                ) -> None:
    """Delete things of a noun; those that follow one that failed, too.

    :raises CommandError: some were not deleted: a line for each.
    """
    failed = []
    for id_ in ids:
        try:
            client.request('DELETE', path_of(noun, id_),
                           query={'reason': reason})
        except exceptions.CommandError as exc:
            failed.append(str(exc))
    if failed:
        raise exceptions.CommandError('\n'.join(failed))


def explain(status: str, text: str) -> str:
    """Return one sentence of the body of an error.

    :param status: what stands for a body that is not from the API
    """
    try:
        error = json.loads(text)['error']
        title = error.get('title') or status
        detail = error.get('detail') or error.get('message') or ''
    except (ValueError, LookupError, TypeError, AttributeError,
            RecursionError):
        return f'{printable(status)}.'
    message = ': '.join(str(part).rstrip('.')
                        for part in (title, detail) if part)
    rest = '; '.join(_rest(error))
    return printable(f'{message} ({rest}).' if rest else f'{message}.')


def _rest(error: Mapping[str, Any]) -> Iterator[str]:
    if error.get('field'):
        yield f'field {error["field"]}'
    if error.get('allowed') not in (None, '', []):
        yield f'allowed: {_allowed(error["allowed"])}'
    if error.get('request_id'):
        yield f'request {error["request_id"]}'


def _allowed(value: Any) -> str:
    if isinstance(value, list):
        more = len(value) - MOST_ALLOWED
        return ', '.join(map(_allowed, value[:MOST_ALLOWED])) + (
            f' and {more} more' if more > 0 else '')
    return value if isinstance(value, str) else json.dumps(value)


def _in_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _unreachable(url: str, exc: BaseException) -> str:
    if isinstance(exc, auth_exceptions.ConnectTimeout):
        return f'{url} did not answer within {TIMEOUT_S} s.'
    if not isinstance(exc, auth_exceptions.ConnectionError):
        return printable(str(exc))
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return printable(f'{url} cannot be reached: {cause.strerror}.')
        cause = cause.__cause__ or cause.__context__
    return printable(f'{url} cannot be reached: {exc}')
