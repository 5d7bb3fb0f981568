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
from typing import Any

from nova.scheduler import filters
from nova.scheduler import utils
from oslo_log import log

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.algorithms import placing
from scavenger_openstack.algorithms import resource_classes
from scavenger_openstack.nova import summary
from scavenger_openstack.types import Priority

LOG = log.getLogger(__name__)


class BackgroundFilter(filters.BaseHostFilter):
    """Passes the foreground everywhere, and everything when there is no
    summary of the hosts."""

    RUN_ON_REBUILD = False

    def __init__(self) -> None:
        super().__init__()
        self._summary = summary.shared()

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any
                   ) -> Iterator[Any]:
        """Of hosts that are looked at together most is the same."""
        states = list(filter_obj_list)
        hosts: summary.Hosts = {}
        try:
            wanted = wanted_of(spec_obj)
            if wanted.background and not utils.request_is_rebuild(spec_obj):
                hosts = self._summary.hosts()
            passed = [state for state in states
                      if _passes(state, hosts, wanted)] if hosts else states
        except Exception:
            LOG.exception('all hosts pass: BackgroundFilter failed')
            passed = states
        yield from passed

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(list(self.filter_all([host_state], spec_obj)))


def _passes(state: Any, hosts: summary.Hosts, wanted: placing.Wanted
            ) -> bool:
    why = placing.fits(hosts.get(state.host), wanted)
    if why:
        LOG.debug('%s takes no background work: %s', state, why)
    return not why


def wanted_of(spec_obj: Any) -> placing.Wanted:
    """What a RequestSpec of Nova asks for."""
    kind = spec_obj.flavor
    specs = (kind.extra_specs if 'extra_specs' in kind else {}) or {}
    return placing.Wanted(
        flavor.read(specs).priority is Priority.BACKGROUND,
        _amount(specs, resource_classes.VCPU, kind.vcpus),
        _amount(specs, resource_classes.MEMORY_MIB, kind.memory_mb))


def _amount(specs: Mapping[str, str], resource_class: str, has: int) -> int:
    """What a flavor asks Placement for, else what it has."""
    asked = resource_classes.asked(specs, resource_class)
    return has if asked is None else asked
