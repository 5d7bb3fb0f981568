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
