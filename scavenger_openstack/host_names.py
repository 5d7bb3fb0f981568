# SPDX-License-Identifier: Apache-2.0

"""Which host a name means.

An agent reports by ``[agent] host``.  Nova calls the same machine by the name
of its compute service, Placement by its hypervisor's: one of them may have
the domain, the other not.
"""

from __future__ import annotations

from collections.abc import Mapping

STALE_S = 120.0
"""Of two hosts that one name may mean, the one that reported so much earlier
is what the other was called before."""


def short(name: str) -> str:
    """The name without its domain."""
    return name.partition('.')[0]


def same(one: str, two: str) -> bool:
    """Whether two names may be of one host: the domain may be missing."""
    return one == two or (short(one) == short(two)
                          and short(one) in (one, two))


class Index:
    """Finds the host that a name means.

    :param hosts: name to UNIX time of the last report, 0 for none
    """

    def __init__(self, hosts: Mapping[str, float]) -> None:
        self._hosts: dict[str, dict[str, float]] = {}
        for name, seen_s in hosts.items():
            self._hosts.setdefault(short(name), {})[name] = seen_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self._hosts == other._hosts

    def find(self, name: str) -> str | None:
        """The host of that name, ``None`` if there is none or it may be one
        of several."""
        hosts = self.find_all(name)
        return hosts[0] if len(hosts) == 1 else None

    def find_all(self, name: str) -> list[str]:
        """The hosts that a name may mean: one that reports before one that
        does not, then the one with exactly that name."""
        hosts = {host: seen_s for host, seen_s
                 in self._hosts.get(short(name), {}).items()
                 if same(name, host)}
        newest_s = max(hosts.values(), default=0.0)
        fresh = [host for host, seen_s in sorted(hosts.items())
                 if newest_s - seen_s <= STALE_S]
        return [name] if name in fresh else fresh
