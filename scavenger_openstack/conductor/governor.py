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

"""The fleet governor: how many new limits of detectors each host may set.

A scope's number is for each minute of the clock, and divided between its
hosts: no host has to ask before it sets a limit, and all together never set
more.  What cannot be divided goes to other hosts in the next minute.
Source: DESIGN, section 6 (fleet governor); not in the papers.
"""

from __future__ import annotations

from scavenger_openstack.db import directives as rows
from scavenger_openstack.wire import report

MINUTE_S = 60

Places = dict[tuple[str, str], dict[str, int]]
"""By scope and target: the hosts that share, and the place of each."""


def places(wanted: rows.Wanted) -> Places:
    """The hosts that share in each number, where there is a governor."""
    found: Places = {}
    for (scope, target), switch in wanted.switches.items():
        if switch.caps_per_minute is not None:
            found[scope, target] = {name: place for place, name in enumerate(
                name for name in wanted.places
                if (scope, target) in wanted.scopes(name))}
    return found


def budget(wanted: rows.Wanted, shared: Places, host: str, now: float
           ) -> report.Budget | None:
    """What a host may set in this minute: the least of its parts in what
    each scope that it is in may set; ``None`` without a governor."""
    if not shared:
        return None
    minute = int(now // MINUTE_S)
    parts = []
    for key in wanted.scopes(host):
        if key in shared:
            hosts = shared[key]
            parts.append(part(
                wanted.switches[key].caps_per_minute or 0, hosts[host],
                len(hosts), minute) if host in hosts else 0)
    if not parts:
        return None
    return report.Budget(limits=min(parts),
                         until_s=float((minute + 1) * MINUTE_S))


def part(total: int, place: int, hosts: int, minute: int) -> int:
    """A host's part in a minute's ``total``, which all parts add up to.

    :param place: the host's, from 0, among ``hosts``
    """
    each, rest = divmod(total, hosts)
    return each + ((place - minute * rest) % hosts < rest)
