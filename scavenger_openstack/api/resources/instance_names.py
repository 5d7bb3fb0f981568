# SPDX-License-Identifier: Apache-2.0

"""What instances are called, beside or in place of their UUIDs."""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any

from scavenger_openstack.db.resources import workloads
from scavenger_openstack.wire import patterns

_UUID = re.compile(patterns.UUID)

MOST_CHARS = 32
"""Of a name in a sentence: tenants choose it."""

Names = Mapping[str, str]
"""UUID -> the name that its project gave it."""


def of(connection: Any, *texts: str) -> Names:
    """The names of all instances whose UUIDs are in these texts."""
    return workloads.names_of(connection, {
        uuid for text in texts for uuid in _uuids(text)})


def beside(text: str, names: Names) -> str:
    """The text, with ``web-1 (UUID)`` for the UUID of an instance."""
    return _UUID.sub(lambda match: (
        f'{names[match[0]][:MOST_CHARS]} ({match[0]})'
        if names.get(match[0]) else match[0]), text)


def _uuids(text: str) -> list[str]:
    return [match[0] for match in _UUID.finditer(text)]
