# SPDX-License-Identifier: Apache-2.0

"""What all nouns of the API have in common: paths, bodies, pages."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
from typing import Any
from typing import Self
from typing import TypeVar
import urllib.parse

from keystoneauth1 import adapter
from openstack import exceptions
from openstack import resource
import requests

_Kind = TypeVar('_Kind', bound=type)

PAGE_ROWS = 1000
"""The API returns at most so many rows at once."""


def fields(kind: type | None, names: str) -> Callable[[_Kind], _Kind]:
    """Return a decorator that gives a class fields.

    :param kind: of their values, ``None`` for several
    :param names: as the API has them, with blanks between
    """
    def decorate(decorated: _Kind) -> _Kind:
        for name in names.split():
            setattr(decorated, name, resource.Body(name, type=kind))
        return decorated
    return decorate


class Resource(resource.Resource):
    """A noun; its fields are those of the API, by the same names."""

    # What follows is the same for each row, and slow to make.
    @classmethod
    @functools.cache
    def _get_mapping(cls, component: Any) -> Any:
        return super()._get_mapping(component)

    @classmethod
    @functools.cache
    def _components(cls, *kinds: Any) -> tuple[Any, ...]:
        return tuple(super()._attributes_iterator(*kinds))

    @classmethod
    def _attributes_iterator(cls, *kinds: Any    # type: ignore[override]
                             ) -> Iterator[Any]:
        return iter(cls._components(*kinds))

    def _path_names(self) -> tuple[str, ...]:
        """Return what follows ``base_path`` in the URL of one resource."""
        return (self.id or '',)

    def _prepare_request(self, *, requires_id: bool | None = None,
                         base_path: str | None = None,
                         **kwargs: Any) -> Any:
        # The API takes bodies without the noun around them.
        if requires_id is None:
            requires_id = self.requires_id
        names = self._path_names() if requires_id else ()
        try:
            path = path_of(base_path or self.base_path, *names)
            return super()._prepare_request(
                requires_id=False, base_path=path.replace('%', '%%'),
                **{**kwargs, 'prepend_key': False})
        except UnicodeEncodeError:
            raise not_unicode() from None

    def _translate_response(self, response: requests.Response,
                            has_body: bool | None = None,
                            *args: Any, **kwargs: Any) -> None:
        if has_body is not False and self.resource_key is not None:
            part(response, self.resource_key, dict)
        super()._translate_response(response, has_body, *args, **kwargs)

    @classmethod
    def pages(cls, session: adapter.Adapter, *, limit: int = PAGE_ROWS,
              max_items: int | None = None, marker: str | None = None,
              **filters: Any) -> Iterator[tuple[list[Self], str | None]]:
        """Yield the rows of each page, and the marker of those that follow.

        :param limit: so many rows on a page at most
        :param max_items: so many rows at most, ``None`` for all
        :param filters: those that are ``None`` are left out
        :raises InvalidResourceQuery: the listing has no such filter.
        :raises SDKException: the answer is not that of this API.
        """
        cls._query_mapping._validate(filters)
        query = {name: str(value).lower() if isinstance(value, bool)
                 else value for name, value in filters.items()
                 if value is not None}
        connection = getattr(session, '_connection', None)
        remaining = max_items
        while True:
            answer = session.get(cls.base_path, params={
                **query, 'marker': marker, 'limit': limit
                if remaining is None else min(limit, remaining)})
            rows = part(answer, cls.resources_key, list)
            before, marker = marker, answer.json().get('next')
            if not all(isinstance(row, dict) for row in rows) or (
                    marker is not None and marker == before):
                raise foreign(answer)
            yield [cls.existing(connection=connection, **row)
                   for row in rows], marker
            if remaining is not None:
                remaining -= len(rows)
            if marker is None or remaining is not None and remaining <= 0:
                return

    @classmethod
    def list(cls, session: adapter.Adapter,    # type: ignore[override]
             paginated: bool = True, base_path: None = None,
             **query: Any) -> Iterator[Self]:
        """Yield the rows of a listing; see :meth:`pages`."""
        for rows, _ in cls.pages(session, **query):
            yield from rows
            if not paginated:
                return


def path_of(base_path: str, *names: str) -> str:
    """Return the path of a URL: ``/hosts/a%20b`` of ``/hosts`` and ``a b``.

    :raises InvalidRequest: a part is no name.
    """
    for name in names:
        if name in ('', '.', '..'):
            raise exceptions.InvalidRequest(f'"{name}" is not a name.')
    return '/'.join([base_path, *(urllib.parse.quote(name, safe='')
                                  for name in names)])


def part(answer: requests.Response, name: str | None, kind: type) -> Any:
    """Return what an answer has under a name.

    :raises SDKException: it has nothing of that kind there.
    """
    try:
        value = answer.json()[name]
    except (ValueError, LookupError, TypeError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise foreign(answer)
    return value


def foreign(answer: requests.Response) -> exceptions.SDKException:
    """Return the error of an answer that is of another service."""
    url = urllib.parse.urlsplit(answer.url)
    return exceptions.SDKException(
        f'{url.scheme}://{url.netloc} did not answer like the interference '
        'API; check the endpoint.')


def not_unicode() -> exceptions.InvalidRequest:
    """Return the error of an argument that cannot be sent."""
    return exceptions.InvalidRequest('An argument is not valid Unicode.')
