# SPDX-License-Identifier: Apache-2.0

"""What a controller kept over a restart, and whether it still holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNREADABLE = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What may be raised for a state that is damaged."""


def saved_s(state: Mapping[str, Any], now: float) -> float | None:
    """Return when a state was saved; ``None``: that is unreadable, or later
    than ``now`` (another boot).  Both in seconds of one clock."""
    value = state.get('saved_s')
    if not isinstance(value, int | float) or not 0 <= value <= now:
        return None
    return value
