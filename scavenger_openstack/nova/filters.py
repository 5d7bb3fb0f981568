# SPDX-License-Identifier: Apache-2.0

"""A filter of nova-scheduler: background only where there is headroom.

::

    [filter_scheduler]
    available_filters = nova.scheduler.filters.all_filters
    available_filters = scavenger_openstack.nova.filters.BackgroundFilter
    enabled_filters = ..., BackgroundFilter
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import time
from typing import Any

from nova.scheduler import filters
from nova.scheduler import utils
from oslo_log import log

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.algorithms import placing
from scavenger_openstack import log_once
from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary
from scavenger_openstack.types import printable
from scavenger_openstack.types import Priority

LOG = log.getLogger(__name__)


EVERY_S = 60.0
"""Why no host takes a background instance is logged once in so long."""
MOST_REASONS, MOST_HOSTS = 5, 3
"""So many are in such a line, and so many hosts for each."""


class BackgroundFilter(filters.BaseHostFilter):
    """Passes the foreground everywhere, and everything when there is no
    summary of the hosts."""

    RUN_ON_REBUILD = False
    clock = staticmethod(time.monotonic)

    def __init__(self) -> None:
        super().__init__()
        self._summary = summary.shared()
        self._placed = placed.shared()
        self._logged = log_once.LogOnce()
        self._refused = 0

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any
                   ) -> Iterator[Any]:
        """Of hosts that are looked at together most is the same."""
        states = list(filter_obj_list)
        hosts = summary.Hosts()
        try:
            wanted = wanted_of(spec_obj)
            if wanted.background and not utils.request_is_rebuild(spec_obj):
                hosts = self._summary.hosts()
            lowered = self._placed.lowered(hosts, states)
            passed = self._passing(states, lowered, wanted) if (
                hosts) else states
        except Exception:
            LOG.exception('all hosts pass: BackgroundFilter failed')
            passed = states
        yield from passed

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(list(self.filter_all([host_state], spec_obj)))

    def _passing(self, states: Sequence[Any],
                 hosts: Sequence[placing.Host | None],
                 wanted: placing.Wanted) -> list[Any]:
        hosts_of: dict[str, list[str]] = {}
        passed = []
        for state, host in zip(states, hosts, strict=True):
            reason = placing.fits(host, wanted)
            if reason:
                LOG.debug('%s takes no background work: %s', state, reason)
                hosts_of.setdefault(reason, []).append(state.host)
            else:
                passed.append(state)
        if hosts_of and not passed:
            self._refused += 1
            self._log(hosts_of, wanted)
        return passed

    def _log(self, hosts_of: Mapping[str, Sequence[str]],
             wanted: placing.Wanted) -> None:
        """Log why no host takes an instance: to its user no valid host was
        found, and to Nova a filter returned none."""
        if not self._logged.due('hosts', now_s=self.clock(), every_s=EVERY_S):
            return
        LOG.info('no host takes a background instance of %d vCPUs and %d MiB '
                 '(%d requests since the last such line): %s', wanted.vcpus,
                 wanted.memory_mib, self._refused,
                 printable(_listed(hosts_of)))
        self._refused = 0


def _listed(hosts_of: Mapping[str, Sequence[str]]) -> str:
    """The reasons of most hosts, each with some of these."""
    ordered = sorted(hosts_of.items(), key=lambda item: -len(item[1]))
    reasons = [f'{reason}: {", ".join(hosts[:MOST_HOSTS])}' + (
        f' and {len(hosts) - MOST_HOSTS} more'
        if len(hosts) > MOST_HOSTS else '')
        for reason, hosts in ordered[:MOST_REASONS]]
    if len(ordered) > MOST_REASONS:
        reasons.append(f'and {len(ordered) - MOST_REASONS} other reasons')
    return '; '.join(reasons)


def wanted_of(spec_obj: Any) -> placing.Wanted:
    """Return what a RequestSpec of Nova asks for."""
    kind = spec_obj.flavor
    specs = (kind.extra_specs if 'extra_specs' in kind else {}) or {}
    return placing.Wanted(
        flavor.read(specs).priority is Priority.BACKGROUND,
        _amount(specs, placing.VCPU, kind.vcpus),
        _amount(specs, placing.MEMORY_MIB, kind.memory_mb))


def _amount(specs: Mapping[str, str], resource_class: str, has: int) -> int:
    """Return what a flavor asks Placement for, else what it has."""
    asked = placing.asked(specs, resource_class)
    return has if asked is None else asked
