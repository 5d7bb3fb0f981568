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

"""A status as an agent writes it."""

from __future__ import annotations

from typing import Any


def document(**differing: Any) -> dict[str, Any]:
    return {
        'time_s': 9.0, 'host': 'h', 'pid': 1, 'state': 'enforcing',
        'workloads': {}, 'controllers': {}, 'cpu_share': 0.001,
        'peak_rss_bytes': 2**20, 'counters': {}, 'caps': [], 'would': [],
        'unmet_bytes': {}, 'actions': [], 'incidents': [], 'problems': [],
        **differing}
