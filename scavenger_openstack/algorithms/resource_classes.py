# SPDX-License-Identifier: Apache-2.0

"""Placement's resource classes of background work, and what a flavor asks of
them."""

from __future__ import annotations

from collections.abc import Mapping

VCPU = 'CUSTOM_BACKGROUND_VCPU'
MEMORY_MIB = 'CUSTOM_BACKGROUND_MEMORY_MB'
"""Placement and Nova say MB and mean MiB."""


def asked(specs: Mapping[str, str], resource_class: str) -> int | None:
    """How much, ``None`` when the extra specs do not say."""
    value = specs.get(f'resources:{resource_class}', '')
    return int(value) if value.isdecimal() else None
