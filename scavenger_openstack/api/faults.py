# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What a request can be refused with."""

from __future__ import annotations

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


def missing(what: str) -> Fault:
    """The same for what is not there and for what the caller may not see."""
    return Fault(HTTPStatus.NOT_FOUND, f'There is no such {what}.')


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
