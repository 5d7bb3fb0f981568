# SPDX-License-Identifier: Apache-2.0

"""The options of section ``[eviction]``, and when they let none go."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from scavenger_openstack.amounts import HOUR_S
from scavenger_openstack.db.rows import Row
from scavenger_openstack import errors

NONE = 'none'
POLICIES = (NONE, 'pause', 'stop', 'shelve', 'live-migrate')


@dataclasses.dataclass(frozen=True)
class Params:
    """The options of section ``[eviction]``.

    :param policy: where no aggregate of a host has another
    :param aggregate_policies: by the name of the aggregate; the first by
        name counts
    :param confirmed: so often within ``window_h`` hours an antagonist was
    :param cool_down_s: seconds between two evictions from one host
    :param per_hour: evictions in the whole cloud, those of operators too
    :param shortage_s: seconds for which a host has to be short of CPU; 0:
        a shortage does not count
    """

    policy: str
    aggregate_policies: Mapping[str, str]
    confirmed: int
    window_h: float
    cool_down_s: float
    per_hour: int
    shortage_s: float

    def of(self, aggregates: Sequence[str]) -> str:
        """The policy of a host in these aggregates."""
        for name in sorted(aggregates):
            if name in self.aggregate_policies:
                return self.aggregate_policies[name]
        return self.policy


def check(params: Params) -> None:
    """Check the options that oslo.config cannot check.

    :raises ConfigError: a policy does not exist.
    """
    for name, policy in params.aggregate_policies.items():
        if policy not in POLICIES:
            raise errors.ConfigError(
                f'[eviction] aggregate_policies: {name}:{policy}: it has to '
                f'be one of {", ".join(POLICIES)}')


def hold(instance: Row, recent: Sequence[Row], params: Params, now: float
         ) -> bool:
    """Return whether an instance must stay for now: an eviction of it or of
    another one of its host was asked for a short time ago, or enough were in
    this hour.

    :param instance: the row, with ``instance`` and ``host``
    :param recent: evictions of the last hours
    :param now: UNIX time in seconds
    """
    return (
        any(row['instance'] == instance['instance'] for row in recent)
        or any(row['host'] == instance['host']
               and now - row['created_s'] < params.cool_down_s
               for row in recent)
        or sum(now - row['created_s'] < HOUR_S for row in recent
               ) >= params.per_hour)
