# SPDX-License-Identifier: Apache-2.0

"""Stamps: what tells that a row of :mod:`.tables` is another one."""

from __future__ import annotations

from collections.abc import Mapping
import hashlib
from typing import Any

from scavenger_openstack import text


def of_tag(row: Mapping[str, Any]) -> int:
    """Return 48 bits that differ when what a flavor says of an instance, or
    the instance's host, does."""
    parts = [row['instance'], row['host'], row['priority'], row['source'],
            row['application'], row['protect'], sorted(row['floor'].items())]
    return int.from_bytes(hashlib.sha256(text.json_line(
        parts).encode()).digest()[:6], 'big')
