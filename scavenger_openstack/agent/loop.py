# SPDX-License-Identifier: Apache-2.0

"""The slow loop: sample, decide, arbitrate, apply, report; once per interval.

The loop is level-triggered: everything is decided again from the present
sample, so there is nothing to undo but the leases.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import time
from typing import Any

from oslo_log import log

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.apply.actuator import Outcome
from scavenger_openstack.agent.base import Isolation
from scavenger_openstack.agent.base import Leases
from scavenger_openstack.agent.stop_file import StopFile
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import amounts
from scavenger_openstack.decision import changes
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision.controller import Tunable
from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders as operator_orders
from scavenger_openstack.decision import settle
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.decision import tags
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Floor
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

LOG = log.getLogger(__name__)

RECENT = 50
"""Actions that the status remembers."""

KILL_S = 1.0
"""Most time that one tick spends on kills."""


@dataclasses.dataclass(slots=True)
class Tick:
    """The sample, decision and outcome of one tick.

    ``reset``: there was no sample before this one to compare it with.
    ``stopped``: nothing may be limited, ``why_stopped`` has the reason.
    ``unmet`` and ``pending``: the refused and late limits before this tick.
    ``unwatched``: no watcher runs, or it is restoring limits of ours;
    ``lost``: the limits that it cannot restore, so they are removed.
    ``orders``: those of operators; ``refused``: those that do not count, and
    why.
    """

    time_s: float
    sample: HostSample | None = None
    rates: Rates | None = None
    decided: Decided | None = None
    reset: bool = False
    unmet: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pending: frozenset[KnobKey] = frozenset()
    outcome: Outcome = dataclasses.field(
        default_factory=Outcome)
    stopped: bool = False
    why_stopped: str = ''
    unwatched: bool = False
    lost: Collection[KnobKey] = ()
    orders: operator_orders.Orders = operator_orders.NO_ORDERS
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cost_s: float = 0.0

    @property
    def decisions(self) -> Mapping[str, Decision]:
        return self.decided.decisions if self.decided else {}

    @property
    def would(self) -> Sequence[Cap]:
        return self.decided.would if self.decided else ()

    @property
    def incidents(self) -> Mapping[tuple[str, str], Incident]:
        """Return the incidents for operators, by controller and id."""
        return changes.reported_incidents(self.decided) if self.decided else {}

    @property
    def problems(self) -> Sequence[str]:
        return self.outcome.problems


class Loop:
    """One host's slow loop.

    :param controllers: each with the mode it runs in
    :param stop_file: no cap while it exists, nor in the tick after it did
    :param require_watcher: no cap while no watcher would restore after us
    :param limited: the knobs that may be set
    :param orders: returns the orders of operators
    """

    def __init__(self, driver: base.Driver,
                 controllers: Sequence[tuple[Controller, Mode]],
                 leases: Leases, actuator: Actuator,
                 stop_file: pathlib.Path, require_watcher: bool = True,
                 isolation: Isolation | None = None,
                 limited: Collection[Knob] = tuple(Knob),
                 orders: Callable[[], operator_orders.Orders] = (
                     lambda: operator_orders.NO_ORDERS)) -> None:
        self._driver = driver
        self._leases = leases
        self._actuator = actuator
        self._stop_file = StopFile(stop_file)
        self._stop_path = stop_file
        self._require_watcher = require_watcher
        self._enforcing = any(
            mode is Mode.ENFORCE for _, mode in controllers) or (
                isolation is not None and isolation.mode is Mode.ENFORCE)
        # An agent that only observes has no claims and needs no watcher.
        self.limited = frozenset(limited if self._enforcing else ())
        self._decider = decider.Decider(controllers, self.limited)
        self._isolation = isolation
        self._own_mode = isolation.mode if isolation else Mode.OFF
        self._read_orders = orders
        self._orders = operator_orders.NO_ORDERS
        self._tags = tags.Tags()
        self._allowed: Mapping[str, Floor] = {}
        self._fast = settle.NO_FAST_LOOP
        self._unmet: Mapping[str, int] = {}
        self._logged = log_once.LogOnce()
        self._restoring = False
        self.actions: collections.deque[tuple[float, Action, int]]
        self.actions = collections.deque(maxlen=RECENT)
        self.counters = {'ticks': 0, 'writes': 0, 'removals': 0, 'kills': 0,
                         'refusals': 0, 'problems': 0, 'blind_ticks': 0}

    def tick(self, now: float) -> Tick:
        """Run one tick; ``now`` is CLOCK_BOOTTIME in seconds."""
        began = time.thread_time()
        tick = Tick(now)
        if self._leases.expired():
            self._start_over()
        else:
            self._restoring = False
        orders = tick.orders = self._orders = self._read_orders()
        tick.why_stopped = (
            orders.stopped if not self._stop_file.appeared()
            else 'the stop file is there' if self._stop_file.exists()
            else 'the stop file was made and is removed again')
        tick.stopped = bool(tick.why_stopped)
        tick.unwatched = self._restoring or (
            self._require_watcher and self._enforcing
            and not self._leases.watched())
        self._log_held_back(tick)
        try:
            if orders.background != self._allowed:
                self._allowed = orders.background
                self._driver.allow(self._allowed)
            tick.sample = self._driver.sample()
        except errors.DriverError as exc:
            self._log_blind(str(exc))
            self._driver.ask(())
            if tick.stopped or tick.unwatched:
                # Else the fast loop would set its limits again, without a
                # lease.
                if self._isolation:
                    self._fast = self._isolation.stop()
                tick.outcome = self._actuator.reconcile(
                    {}, fast_keys=self._fast.keys)
        else:
            self._log_blind('')
            tick.sample = self._tags.apply(tick.sample, orders)
            self._decide(tick, tick.sample)
            tick.refused = {**self._tags.refused, **(
                tick.decided.refused if tick.decided else {})}
        if self._leases.expired():
            self._start_over()
        self._count(tick)
        tick.cost_s = time.thread_time() - began
        return tick

    @property
    def tunable(self) -> dict[str, Tunable]:
        """See :attr:`.decider.Decider.tunable`."""
        return self._decider.tunable

    def state(self) -> dict[str, Any]:
        return self._decider.state()

    def load(self, state: Mapping[str, Any], now: float) -> None:
        self._decider.load(state, now)

    def close(self) -> list[str]:
        """Remove every limit; return what could not be removed, and why."""
        self._driver.ask(())
        if self._isolation:
            self._isolation.stop()
        self._stop_file.close()
        return self._leases.remove_all()

    def _decide(self, tick: Tick, sample: HostSample) -> None:
        """Decide on limits from a sample, and apply them."""
        tick.unmet, tick.pending = self._unmet, self._actuator.pending
        proposal = self._decider.propose(
            sample, held_back=tick.stopped or tick.unwatched,
            orders=self._orders, taken=self._fast.keys, unmet=tick.unmet,
            pending=tick.pending)
        tick.reset, tick.rates = proposal.reset, proposal.rates
        self._log_faults(proposal.faults)
        self._driver.ask(() if tick.stopped else proposal.asks)
        fast = self._fast = self._follow(proposal)
        reading = self._actuator.read([*proposal.caps, *fast.floors])
        decided = tick.decided = settle.settle(proposal, reading.originals,
                                               fast)
        lost = tick.lost = self._leases.lost()
        wanted = decided.wanted if not lost else {
            key: cap for key, cap in decided.wanted.items()
            if key not in lost}
        tick.outcome = self._actuator.reconcile(wanted, reading, fast.keys)
        self._unmet = dict(tick.outcome.unmet)
        self._report_unmet(tick.outcome, decided)
        self._kill(tick, proposal.kills)

    def _log_faults(self, faults: Mapping[str, Exception]) -> None:
        for name, fault in faults.items():
            LOG.error('%s failed; its limits are removed, it runs again in '
                      '%.0f s; please report this', name,
                      decider.FAULT_REST_S, exc_info=fault)

    def _follow(self, proposal: settle.Proposal) -> settle.FastLoopState:
        """Bring the fast loop up to date."""
        isolation = self._isolation
        if isolation is None:
            return settle.NO_FAST_LOOP
        isolation.mode = operator_orders.mode(perfiso.Controller.name,
                                              self._own_mode, self._orders)
        isolation.exempt = operator_orders.exempt(
            (rated.workload for rated in proposal.rates.workloads),
            self._orders)
        return isolation.follow(proposal.wishes, proposal.rates,
                                proposal.held_back, self._actuator)

    def _report_unmet(self, outcome: Outcome, decided: Decided
                      ) -> None:
        """Report an operator's memory limit that is not met: no workload is
        paused or killed for it."""
        outcome.problems.extend(
            f'{cap.workload}: memory limit of '
            f'{amounts.of_knob(cap.knob, cap.value)} '
            f'not in force, {amounts.of_bytes(self._unmet[cap.workload])} '
            'more are in use and cannot be reclaimed; it is not paused for '
            'an operator\'s limit: raise that, or end the workload: '
            f'{cap.reason}'
            for cap in decided.wanted.values()
            if cap.workload in self._unmet and cap.knob is Knob.MEMORY_BYTES
            and cap.owner == operator_orders.OWNER)

    def _kill(self, tick: Tick, kills: Sequence[Action]) -> None:
        """Kill, which needs the consent of the workload's parent cgroup; see
        killable_parents."""
        until = time.monotonic() + KILL_S
        for action in kills:
            if time.monotonic() > until:
                break       # the next tick goes on
            try:
                # A kill freezes first: the lease thaws it after a crash.
                self._actuator.hold(action.workload, Knob.PAUSED)
                count = self._driver.kill(action.workload)
            except errors.ScavengerError as exc:
                tick.outcome.problems.append(str(exc))
                LOG.warning('%s: not killed: %s', action.workload, exc)
                continue
            self.actions.append((tick.time_s, action, count))
            self.counters['kills'] += 1
            LOG.warning('AUDIT killed %s of %s: %s (%s)',
                        amounts.counted(count, 'process', 'processes'),
                        action.workload, action.reason, action.owner)

    def _start_over(self) -> None:
        """Begin again without limits, after the leases ran out while the
        process was stopped."""
        if not self._restoring:
            LOG.warning('the leases ran out while the agent stood still: all '
                        'limits are removed, and decided on again')
        self._driver.ask(())
        if self._isolation:
            self._fast = self._isolation.stop()
        self._unmet = {}
        self._leases.reopen()
        self._restoring = self._leases.expired()
        self._actuator.reset('the agent stood still for too long')
        self._decider.forget_sample()

    def _log_held_back(self, tick: Tick) -> None:
        why = ''
        if tick.stopped:
            why = (f'stopped by {self._stop_path}; scavenger-agent resume '
                   'ends that' if self._stop_file.exists() else
                   tick.why_stopped)
        elif self._restoring:
            why = 'scavenger-restore is restoring limits at this moment'
        elif tick.unwatched:
            why = ('no scavenger-restore --watch works on this state '
                   'directory (none runs, or it is stopped or stuck), and '
                   'limits would outlive a crash; start it, or set [agent] '
                   'require_watcher = false')
        if why and self._logged.due('limits', why):
            LOG.warning('no limits are set: %s', why)
        elif not why and self._logged.over('limits'):
            LOG.info('limits are set again')

    def _log_blind(self, why: str) -> None:
        if not why:
            if self._logged.over('host'):
                LOG.info('the host can be read again')
            return
        self.counters['blind_ticks'] += 1
        if self._logged.due('host', why):
            LOG.warning('the host cannot be read, limits stay as they are: %s',
                        why)

    def _count(self, tick: Tick) -> None:
        outcome = tick.outcome
        self.counters['ticks'] += 1
        self.counters['writes'] += outcome.written
        self.counters['removals'] += outcome.removed
        self.counters['refusals'] += len(outcome.unmet)
        self.counters['problems'] += len(outcome.problems)
