# SPDX-License-Identifier: Apache-2.0

"""What a request can be refused with."""

from __future__ import annotations

from collections.abc import Iterable
import difflib
from http import HTTPStatus
from typing import Any

from scavenger_openstack import errors


class Fault(errors.ScavengerError):
    """An answer that is an error.

    ``field`` is the one that is at fault, and ``allowed`` what may be there:
    a list of values, or a sentence.
    """

    def __init__(self, status: HTTPStatus, detail: str,
                 field: str | None = None, allowed: Any = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.allowed = allowed


def bad(detail: str, field: str | None = None, allowed: Any = None) -> Fault:
    return Fault(HTTPStatus.BAD_REQUEST, detail, field, allowed)


def missing(what: str, name: str, names: Iterable[str] = ()) -> Fault:
    """Return the fault of what is not there, or not for the caller.

    :param names: those that are there, of which one is proposed
    """
    return Fault(HTTPStatus.NOT_FOUND,
                 f'There is no {what} {shown(name)}{proposal(name, names)}.')


def proposal(name: str, names: Iterable[str]) -> str:
    """``; did you mean X?``, or nothing where none is like it."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f'; did you mean {near[0]}?' if near else ''


def shown(text: str) -> str:
    """A text of a client in a message: short, and only valid Unicode."""
    text = text.encode('utf-8', 'replace').decode('utf-8')
    return text if len(text) <= 100 else text[:100] + '…'


def conflict(detail: str, field: str | None = None) -> Fault:
    return Fault(HTTPStatus.CONFLICT, detail, field)


def document(status: int, detail: str, request_id: str,
             field: str | None = None, allowed: Any = None
             ) -> dict[str, Any]:
    """The body of an error."""
    error: dict[str, Any] = {
        'code': int(status), 'title': HTTPStatus(status).phrase,
        'detail': detail, 'request_id': request_id}
    if field is not None:
        error['field'] = field
    if allowed is not None:
        error['allowed'] = allowed
    return {'error': error}
