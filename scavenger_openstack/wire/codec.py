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

"""Values to JSON and back, by the types of :mod:`.report`."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from scavenger_openstack import errors

T = TypeVar('T')


def encode(value: msgspec.Struct) -> bytes:
    """The JSON of a value.

    :raises WireError: a text in it is not valid Unicode.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as exc:
        raise errors.WireError(f'not valid Unicode: {exc}') from exc


def decode(data: bytes, kind: type[T], most_bytes: int) -> T:
    """The value that ``data`` holds, checked against its type.

    :raises WireError: it is longer than ``most_bytes``, or not of that type;
        the message names the field.
    """
    if len(data) > most_bytes:
        raise errors.WireError(
            f'{len(data)} bytes; at most {most_bytes} are taken')
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError,
            RecursionError) as exc:
        raise errors.WireError(str(exc)) from exc
