# SPDX-License-Identifier: Apache-2.0

"""A weigher of nova-scheduler: away from interference.

::

    [filter_scheduler]
    weight_classes = nova.scheduler.weights.all_weighers
    weight_classes = scavenger_openstack.nova.weights.InterferenceWeigher
"""

from __future__ import annotations

from typing import Any

import nova.conf
from nova.scheduler import utils
from nova.scheduler import weights
from oslo_log import log

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.algorithms import placing
from scavenger_openstack.algorithms import profiles
from scavenger_openstack.nova import filters
from scavenger_openstack.nova import options
from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary

LOG = log.getLogger(__name__)


class InterferenceWeigher(weights.BaseHostWeigher):
    """The foreground away from hosts with open incidents or full of
    background, the background to where most is free, and both away from what
    they would harm or be harmed by, where profiles tell; all the same when
    there is no summary of the hosts."""

    # Without these a small difference would count as much as a large one.
    # Those of a weight without profiles, which keeps its scale beside other
    # weighers; the harm that profiles tell of may go below, to -3.
    minval = -2.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._summary = summary.shared()
        self._placed = placed.shared()

    def weight_multiplier(self, host_state: Any) -> float:
        multiplier: float = utils.get_weight_multiplier(
            host_state, 'interference_weight_multiplier',
            nova.conf.CONF[options.SECTION].interference_weight_multiplier)
        return multiplier

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any
                      ) -> list[float]:
        try:
            hosts = self._summary.hosts()
            background = filters.wanted_of(weight_properties).background
            states = [weighed.obj for weighed in weighed_obj_list]
            lowered = self._placed.lowered(hosts, states)
            newcomer = profile_of(weight_properties, hosts)
            if newcomer is None:
                return [placing.weight(host, background) for host in lowered]
            harms = hosts.harms(newcomer, [state.host for state in states])
            # Instances of the same request, or of those just before: what
            # they are is not known here, so they count as more of the same.
            own = hosts.profiles[newcomer]
            again = profiles.harm(own, own)
            return [placing.weight(host, background, harm + again * fresh)
                    for host, harm, fresh in zip(
                        lowered, harms, self._placed.fresh(states),
                        strict=True)]
        except Exception:
            LOG.exception('all hosts weigh the same: InterferenceWeigher '
                          'failed')
            return [0.0] * len(weighed_obj_list)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Never called: all are weighed at once."""
        return 0.0


def profile_of(spec_obj: Any, hosts: summary.Hosts
               ) -> summary.Key | None:
    """Return which profile of the summary is that of what a RequestSpec of
    Nova asks for, ``None`` without one."""
    if not hosts.profiles:
        return None
    kind = spec_obj.flavor
    image = _value(spec_obj, 'image')
    keys = profiles.keys(
        project=_value(spec_obj, 'project_id') or '',
        application=flavor.application(flavor.read(
            _value(kind, 'extra_specs') or {}).application) or '',
        flavors=[_value(kind, 'name') or '', _value(kind, 'flavorid') or ''],
        image=(_value(image, 'id') if image else '') or '')
    return next((key for key in keys if key in hosts.profiles), None)


def _value(source: Any, field: str) -> Any:
    """A field of an object of Nova, ``None`` where it is not set."""
    return getattr(source, field) if field in source else None
