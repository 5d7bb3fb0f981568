# SPDX-License-Identifier: Apache-2.0

"""CPU blind isolation between the slow loop and the fast one.

The slow loop says which groups there are and which CPUs they may use; the
fast loop moves the set inside those bounds and is then its only writer.
This module starts and stops the fast loop and keeps its leases.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import logging
from typing import Any

from oslo_log import log

from scavenger_openstack.agent.base import Leaser
from scavenger_openstack.agent.base import Leases
from scavenger_openstack.agent.isolation import fast_loop
from scavenger_openstack.agent.isolation import group_sets
from scavenger_openstack.agent.isolation import preview
from scavenger_openstack.algorithms import back_off
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger.pins import of
from scavenger_openstack.algorithms.scavenger.pins import usable
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack import errors
from scavenger_openstack import types

LOG = log.getLogger(__name__)

RETRY_S, LONGEST_RETRY_S = 10.0, 3600.0
"""Where the kernel does not let us see what runs, it is asked again after so
long, then after twice as long each time."""

WRITE_RETRY_S, LONGEST_WRITE_RETRY_S = 0.5, 30.0
"""The same where it takes no CPU set, which may pass at any time."""


def pins_of_vms(workloads: Iterable[types.WorkloadRates]
                ) -> dict[str, frozenset[int]]:
    """Return the CPUs that others have pinned each VM to, by its group."""
    return {rated.workload.group_id: rated.workload.allowed_cpus
            for rated in workloads
            if rated.workload.instance and rated.workload.allowed_cpus}


class BlindIsolation:
    """Runs the fast loop while there is something for it to do."""

    def __init__(self, driver: base.CpuSets, leases: Leases,
                 params: perfiso.Params, mode: types.Mode) -> None:
        self._leases = leases
        self.params = params
        self.mode = mode
        self.exempt: frozenset[str] = frozenset()
        """Groups that are left alone."""
        self._fast: fast_loop.FastLoop | None = None
        self._sets = group_sets.GroupSets(driver, leases)
        self._topology: Mapping[int, types.Cpu] = {}
        self._preview = preview.Preview(params)
        self._observing = False
        self._wait_s = self._retry_s = 0.0
        self._failing = False       # each start since it was said
        self._state = 'off'

    at_start: frozenset[str] = frozenset()

    def tune(self, params: perfiso.Params) -> None:
        """Go on with other parameters: the next turn starts it again."""
        self.stop()
        self.params = params
        self._preview = preview.Preview(params)

    def owns(self, key: types.KnobKey) -> bool:
        """Whether the fast loop is the one writer of this knob."""
        return (key[1] is types.Knob.CPU_SET and self._fast is not None
                and key[0] in self._sets)

    def follow(self, wishes: Sequence[types.Cap], rates: types.Rates,
               held_back: bool, leaser: Leaser) -> settle.FastLoopState:
        """Bring the fast loop up to date; return what it does from now on."""
        self._observing = False
        enforce = self.mode is types.Mode.ENFORCE and not held_back
        if not enforce:
            self._failing = False
            self._wait_s = self._retry_s = 0.0
        if self._end_without_buffer(len(usable(rates.topology))):
            return self._does()
        groups = [group for group in scavenger.groups(
            rated for rated in rates.workloads
            if rated.workload.priority is types.Priority.BACKGROUND)
            if group not in self.exempt]
        if self._end_if_hindered(rates.time_s, bool(groups)):
            return self._does()
        try:
            bounds, due = self._bounds(wishes, rates, groups,
                                       leaser if enforce else None)
            if not enforce:
                self._observe(rates, bounds)
                return self._does()
            self._start(bounds, rates.topology, rates.time_s, due)
        except errors.ScavengerError as exc:
            self.stop(f'off: {exc}')
            return self._does()
        return self._does(self._floors(rates))

    def _does(self, floors: tuple[types.Cap, ...] = ()
              ) -> settle.FastLoopState:
        return (settle.NO_FAST_LOOP if self._fast is None
                else settle.FastLoopState(self._sets.groups, floors))

    def _end_without_buffer(self, cpus: int) -> bool:
        """End the fast loop if there is no buffer on this host; return whether
        that is so.

        :param cpus: number of those that the host has
        """
        off = self.mode is types.Mode.OFF
        if not off and perfiso.buffer_cores(self.params, cpus):
            return False
        self._failing = False
        self.stop('off' if off else f'off: buffer_cores is 0 on {cpus} CPUs, '
                  'cpu.idle is used instead')
        return True

    def _end_if_hindered(self, now: float, has_groups: bool) -> bool:
        """End the fast loop if it cannot run now, nor be previewed; return
        whether that is so."""
        problem = self._problem()
        failed = self._fast is not None and bool(self._fast.problem)
        if has_groups and not problem and now >= self._retry_s:
            return False
        self.stop(problem or ('' if has_groups else 'off'))
        if failed and self._fast is None:
            self._failing = True
            self._rest(now, WRITE_RETRY_S, LONGEST_WRITE_RETRY_S)
        return True

    def _bounds(self, wishes: Sequence[types.Cap], rates: types.Rates,
                groups: Sequence[str], leaser: Leaser | None
                ) -> tuple[perfiso.Bounds, bool]:
        """Return the bounds of the fast loop, and whether some set has to be
        written though they stay.

        :param leaser: leases the sets of the groups; ``None`` to lease none
        """
        cpus = usable(rates.topology)
        # Whatever mode the controller is in that says the same.
        pins = of(rates.workloads, cpus)
        allowed = pins.allowed or frozenset((max(cpus),))
        for cap in wishes:
            if cap.knob is types.Knob.CPU_SET and cap.workload in groups:
                allowed &= types.parse_cpus(str(cap.value))
        if not allowed:
            raise errors.DriverError(group_sets.NO_CPU_LEFT)
        due = False
        if leaser is not None:
            vm_pins = pins_of_vms(rates.workloads)
            due = self._sets.lease(groups, vm_pins, allowed, leaser)
            allowed, is_new = self._sets.confine(allowed, vm_pins,
                                                 rates.topology)
            due |= is_new
        return perfiso.bounds(
            allowed, pins.shared or allowed, perfiso.buffer_cores(
                self.params, len(cpus)), rates.topology), due

    def _observe(self, rates: types.Rates, bounds: perfiso.Bounds) -> None:
        """Preview what the fast loop does, by this tick's sample."""
        self.stop()
        self._preview.update(rates, bounds)
        self._observing = True
        self._log('observing on CPUs '
                  + types.format_cpus(bounds.allowed | bounds.beside))

    def stop(self, state: str = '') -> settle.FastLoopState:
        """End the fast loop; its limits are removed by the next diff.

        While a write of its hangs in the kernel it stays the writer.

        :param state: why, for the status
        :return: what it does from now on
        """
        if self._fast is not None:
            try:
                self._fast.stop()
            except errors.DriverError as exc:
                self._log(f'off: {exc}')
                return self._does()
            self._fast = None
            state = state or 'off'
        if state:
            self._log(state)
        self._sets.clear()
        return settle.NO_FAST_LOOP

    def facts(self) -> dict[str, Any]:
        """Return the state for the status, as plain JSON."""
        document: dict[str, Any] = {'mode': self.mode, 'state': self._state}
        if self._observing:
            document.update(self._preview.facts())
        if self._fast is not None:
            document.update(self._fast.facts(),
                            **self._sets.facts(self._fast.cpus))
        return document

    def _floors(self, rates: types.Rates) -> tuple[types.Cap, ...]:
        if self._fast is None or not self._fast.short():
            return ()
        return perfiso.quota_floors(rates)

    def _problem(self) -> str:
        """Return why the fast loop that runs has to end; '' if it has not."""
        if self._fast is None:
            return ''
        if self._fast.problem:
            return 'off: ' + self._fast.problem
        return 'off: a write of a CPU set hangs' if self._fast.stopping else ''

    def _start(self, bounds: perfiso.Bounds, topology: Mapping[int, types.Cpu],
               now: float, due: bool) -> None:
        current = bounds.allowed
        if self._fast is not None:
            self._wait_s = 0.0      # it has turned since the last tick
            if self._failing:
                self._failing = False
                LOG.info('blind isolation: %s', self._state)
            if topology is self._topology or topology == self._topology:
                if due or bounds != self._fast.bounds:
                    self._fast.bounds = bounds
                return
            # CPUs came or went: another buffer, other cores and caches.
            current = self._fast.cpus or current
            self._fast.stop()
            self._fast = None
        self._topology = topology
        try:
            self._fast = fast_loop.FastLoop(
                sched_switch.SchedSwitch(),
                perfiso.Controller(
                    self.params, topology=topology, current=current),
                self._sets.write, self._leases.check, bounds,
                self.params.poll_interval_ms / 1000, quiet=self._failing)
            self._fast.start()
        except errors.DriverError as exc:
            self._rest(now, RETRY_S, LONGEST_RETRY_S)
            raise errors.DriverError(
                f'{exc}; tried again after {RETRY_S:g} s, then after twice '
                'as long each time') from exc
        self._log('running on CPUs '
                  + types.format_cpus(bounds.allowed | bounds.beside))

    def _rest(self, now: float, first_s: float, most_s: float) -> None:
        self._wait_s = back_off.longer(self._wait_s, first=first_s,
                                       most=most_s)
        self._retry_s = now + self._wait_s

    def _log(self, state: str) -> None:
        if state != self._state:
            LOG.log(logging.DEBUG if self._failing else logging.INFO,
                    'blind isolation: %s', state)
            self._state = state
