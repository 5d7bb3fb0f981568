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

"""What a controller kept over a restart, and whether it still holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNREADABLE = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What may be raised for a state that is damaged."""


def saved_s(state: Mapping[str, Any], now: float) -> float | None:
    """When a state was saved; ``None``: that is unreadable, or later than
    ``now`` (another boot).  Both in seconds of one clock."""
    found = state.get('saved_s')
    if not isinstance(found, int | float) or not 0 <= found <= now:
        return None
    return found
