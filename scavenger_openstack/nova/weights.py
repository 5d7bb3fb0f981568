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

from scavenger_openstack.algorithms import placing
from scavenger_openstack.nova import filters
from scavenger_openstack.nova import options
from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary

LOG = log.getLogger(__name__)


class InterferenceWeigher(weights.BaseHostWeigher):
    """The foreground away from hosts with open incidents or full of
    background, the background to where most is free; all the same when there
    is no summary of the hosts."""

    # Without these a small difference would count as much as a large one.
    minval = -2.0
    maxval = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._summary = summary.shared()
        self._placed = placed.shared()

    def weight_multiplier(self, host_state: Any) -> float:
        found: float = utils.get_weight_multiplier(
            host_state, 'interference_weight_multiplier',
            nova.conf.CONF[options.SECTION].interference_weight_multiplier)
        return found

    def weigh_objects(self, weighed_obj_list: Any, weight_properties: Any
                      ) -> list[float]:
        try:
            hosts = self._summary.hosts()
            background = filters.wanted_of(weight_properties).background
            return [placing.weight(host, background)
                    for host in self._placed.lowered(
                        hosts, [one.obj for one in weighed_obj_list])]
        except Exception:
            LOG.exception('all hosts weigh the same: InterferenceWeigher '
                          'failed')
            return [0.0] * len(weighed_obj_list)

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        """Never called: all are weighed at once."""
        return 0.0
