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

"""The result of the second act as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.demo import table
from scavenger_openstack.demo.table import number
from scavenger_openstack.demo.table import percent
from scavenger_openstack.demo.who.result import ALONE
from scavenger_openstack.demo.who.result import DISTURBED
from scavenger_openstack.demo.who.result import LIMITED

TITLES = ('service', 'suffers from', 'by', 'named after', 'mean ms alone',
          'disturbed', 'limited', 'P99 ms alone', 'disturbed', 'limited',
          'batch work left')


def rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row per victim, below :data:`TITLES`."""
    return [(
        name, f'{one["signal"]} ({one["cause"]})',
        one['antagonist'] if one['named_s'] is not None else '-',
        f'{number(one["named_s"], 0)} s, {number(one["worked_s"], 0)} '
        'of them at work',
        *(number(one[key][state], digits)
          for key, digits in (('mean_ms', 2), ('p99_ms', 1))
          for state in (ALONE, DISTURBED, LIMITED)),
        percent(one['work_left'])) for name, one in result['victims'].items()]


def text(result: Mapping[str, Any]) -> str:
    """The table, the criteria and the verdict."""
    return table.text(result, [
        f'Who did it? {result["seconds"]:g} s on {result["cpus"]} CPUs, in '
        f'samples of {result["sample_s"]:g} s.'], TITLES, rows(result))
