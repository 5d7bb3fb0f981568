# SPDX-License-Identifier: Apache-2.0

"""Measures the interference profile of a workload where the control plane
asks for it, with a process that injects.

A profile is not begun, and ends at once, while limits may not be set here,
while an incident is open, and while another workload suffers.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import pathlib
import signal
import time
from typing import Any
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent.profiling import budget
from scavenger_openstack.agent.profiling import process
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision.orders import ProfilingOrder
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Workload
from scavenger_openstack.wire import fit
from scavenger_openstack.wire.profile import FORMS
from scavenger_openstack.wire.profile import MAX_PROFILE_BYTES
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

END_S = 8.0
"""So long the process may take to end what it made, before it is killed."""
KILLED_S, CLEANED_S = 1.0, 2.0
"""So long an agent that ends waits for a process that it has killed, and for
what that left to be removed; the next agent removes the rest."""

MOST_DONE = 100


class Situation(NamedTuple):
    """The facts of a tick that decide whether a profile is measured.

    ``why_not``: why no limits may be set, '' when they may.  ``detectors``:
    the modes of those that name antagonists.  ``incidents``: the victims of
    those that are open; ``suffering``: the workloads that suffer without
    one.
    """

    why_not: str = ''
    enforcing: bool = True
    detectors: Collection[Mode] = (Mode.ENFORCE,)
    incidents: Collection[str] = ()
    suffering: Collection[str] = ()
    workloads: Mapping[str, Workload] = {}


class Profiling:
    """The measuring of at most one profile at a time; for the thread of the
    ticks.

    :param seconds_per_day: of injection, 0 for none
    :param stop_file: the kill switch, which the process watches, too
    :param lease_s: so long it goes on without a sign of life of the agent
    :param detectors: the controllers that name antagonists
    :param path: of the file with what was used of the day
    """

    def __init__(self, seconds_per_day: float, stop_file: str,
                 lease_s: float, detectors: Collection[str] = (),
                 path: pathlib.Path | None = None) -> None:
        self._detectors = detectors
        self._budget = budget.Budget(seconds_per_day, path)
        self._is_loaded = False
        self._stop_file = stop_file
        self._lease_s = lease_s
        self._done: list[str] = []
        self._order: ProfilingOrder | None = None
        self._process: process.Process | None = None
        self._cleaner: process.Process | None = None
        self._waiting: list[report.Profiling] = []
        self._began_s = self._stopped_s = 0.0
        self._limit_s = 0.0
        self._why = self._instance = ''

    def follow(self, now: float, order: ProfilingOrder | None,
               document: Mapping[str, Any], sample: HostSample | None
               ) -> list[report.Profiling]:
        """Do as :meth:`tick` with what a tick saw.

        :param document: the status without limits and VMs
        """
        if order is None and self._process is None and self._cleaner is None \
                and self._is_loaded:
            return []
        return self.tick(now, time.time(), order, situation_of(
            document, sample, self._detectors))

    def orders(self, orders: Orders) -> Orders:
        """Return the orders while a profile is measured: no detector limits
        others for the sake of the VM that is injected beside."""
        if self._process is None or not self._instance:
            return orders
        return orders._replace(
            unprotected=orders.unprotected | {self._instance})

    def tick(self, now: float, wall_s: float,
             order: ProfilingOrder | None, situation: Situation
             ) -> list[report.Profiling]:
        """Begin, go on with or end what is ordered.

        :param now: CLOCK_BOOTTIME in seconds
        :param wall_s: UNIX time
        :param order: what is to be measured, ``None`` for nothing
        :return: what happened; that it has ended when nothing is left
        """
        if not self._is_loaded:
            self._is_loaded = True
            if self._budget.load(now):
                self._clean()
        if self._cleaner is not None:
            return self._cleaned()
        if self._order is not None and self._process is not None:
            return self._go_on(now, wall_s, order, situation)
        if order is None or order.id in self._done:
            return []
        self._done = [*self._done[-MOST_DONE:], order.id]
        left_s = self._budget.left_s(now)
        why = why_not(now, order, situation, left_s)
        if not why:
            self._limit_s = min(order.seconds, left_s)
            why = self._begin(now, order, situation)
        return [_event(wall_s, 'ended' if why else 'began', order,
                       detail=why)]

    def close(self, now: float) -> list[report.Profiling]:
        """End what is being measured: the agent ends."""
        events: list[report.Profiling] = []
        if self._process is not None:
            self._stop(now, 'the agent ends')
            if not self._process.wait(END_S):
                self._process.kill()
                self._process.wait(KILLED_S)
            events = self._end(now, time.time())
        if self._cleaner is not None:
            self._cleaner.wait(CLEANED_S)
            events += self._cleaned() or self._waiting
        return events

    def _cleaned(self) -> list[report.Profiling]:
        """Return what waits for what was left to be removed, once it is."""
        if self._cleaner is None or self._cleaner.status() is None:
            return []
        if self._cleaner.status() == 0:
            self._budget.cleaned()
        else:
            LOG.warning('what a profile left is not removed: %s; '
                        'scavenger-ibench run removes it',
                        fit.sentence(self._cleaner.texts()[1]))
        self._cleaner.close()
        self._cleaner = None
        events, self._waiting = self._waiting, []
        return events

    def _begin(self, now: float, order: ProfilingOrder,
               situation: Situation) -> str:
        """Start the process; why that failed, '' if it did not."""
        workload = situation.workloads[order.workload]
        target = (['--instance', workload.instance] if workload.instance
                  else ['--cgroup', workload.id])
        try:
            self._budget.begin(now, self._limit_s)
        except OSError as exc:
            return f'what is used of the day cannot be written: {exc}'
        try:
            self._process = process.Process([
                *target, '--form', order.form, '--seconds',
                f'{self._limit_s:g}', '--stop-file', self._stop_file,
                '--lease', f'{self._lease_s:g}'])
        except OSError as exc:
            self._budget.end(now, 0.0, clean=True)
            return f'the program that measures cannot be started: {exc}'
        self._order, self._began_s, self._why = order, now, ''
        self._instance = workload.instance
        self._process.beat()
        return ''

    def _go_on(self, now: float, wall_s: float,
               order: ProfilingOrder | None, situation: Situation
               ) -> list[report.Profiling]:
        assert self._process is not None and self._order is not None
        if self._process.status() is not None:
            return self._end(now, wall_s)
        if not self._why:
            why = self._why_end(now, order, situation)
            if why:
                self._stop(now, why)
            else:
                self._process.beat()
        elif now - self._stopped_s > END_S:
            self._process.kill()
        return []

    def _why_end(self, now: float, order: ProfilingOrder | None,
                 situation: Situation) -> str:
        assert self._order is not None
        if order is None or order.id != self._order.id:
            return 'it is not asked for any more'
        if now - self._began_s >= self._limit_s:
            return f'its {self._limit_s:g} s are over'
        return why_unsafe(self._order.workload, situation)

    def _stop(self, now: float, why: str) -> None:
        assert self._process is not None
        self._why, self._stopped_s = self._why or why, now
        self._process.stop()

    def _end(self, now: float, wall_s: float) -> list[report.Profiling]:
        assert self._process is not None and self._order is not None
        status = self._process.status()
        profile, complaint = self._process.texts()
        self._process.close()
        order, self._order, self._process = self._order, None, None
        seconds = max(0.0, now - self._began_s)
        is_clean = status is not None and status >= 0
        self._budget.end(now, seconds, clean=is_clean)
        if not is_clean:
            complaint = 'the program that measures ' + (
                'does not end' if status is None else
                f'was ended by {signal.Signals(-status).name}')
            self._clean()
        is_measured = status == 0 and not self._why and bool(profile)
        if is_measured and len(profile) > MAX_PROFILE_BYTES:
            is_measured = False
            complaint = f'a profile of more than {MAX_PROFILE_BYTES} bytes'
        events = [_event(
            wall_s, 'measured' if is_measured else 'ended', order, seconds,
            '' if is_measured else
            self._why or complaint or 'it wrote no profile',
            profile if is_measured else '')]
        if self._cleaner is None:
            return events
        self._waiting = events
        return []

    def _clean(self) -> None:
        """Have removed what a killed process left."""
        try:
            self._cleaner = process.Process(['--clean'])
        except OSError as exc:
            LOG.warning('what a profile left is not removed: %s; '
                        'scavenger-ibench run removes it', exc)
        else:
            self._cleaner.stop()


def _event(wall_s: float, what: str, order: ProfilingOrder,
           seconds: float = 0.0, detail: str = '', profile: str = ''
           ) -> report.Profiling:
    return report.Profiling(
        sequence=1, time_s=fit.time_s(wall_s), id=order.id,
        what=what,                          # type: ignore[arg-type]
        workload=fit.name(order.workload),
        seconds=fit.amount(seconds) or 0.0, detail=fit.sentence(detail),
        profile=profile)


def situation_of(document: Mapping[str, Any], sample: HostSample | None,
                 detectors: Collection[str]) -> Situation:
    """Return what decides whether a profile is measured.

    :param document: the status without limits and VMs
    """
    controllers = document['controllers']
    modes = {name: Mode(controller['mode'])
             for name, controller in controllers.items()}
    isolation = Mode(document['isolation'].get('mode', Mode.OFF))
    state = document['state']
    return Situation(
        why_not=('' if state == tick_events.RUNNING else
                 f'no limits are set here: {state}'),
        enforcing=Mode.ENFORCE in (*modes.values(), isolation),
        detectors=[modes[name] for name in detectors if name in modes],
        incidents=[incident['victim'] for incident in document['incidents']],
        suffering=[
            name for controller in controllers.values()
            for name in controller['facts'].get('suffering', ())],
        workloads={fit.name(each.workload.id): each.workload
                   for each in (sample.workloads if sample else ())})


def why_not(now: float, order: ProfilingOrder, situation: Situation,
            left_s: float) -> str:
    """Return why an order is not begun, '' if it may be.

    :param left_s: of the budget
    """
    if now >= order.until_s:
        return 'the request came too late, it is no longer valid'
    if order.form not in FORMS:
        return f'this agent measures no form {order.form!a:.80}'
    workload = situation.workloads.get(order.workload)
    if workload is None or (order.instance
                            and workload.instance != order.instance):
        return 'no such workload on this host'
    if left_s <= 0:
        return ('no time for profiles is left on this host today; see '
                '[agent] profile_seconds_per_day')
    return why_unsafe(order.workload, situation)


def why_unsafe(workload: str, situation: Situation) -> str:
    """Return why nothing may be injected now, '' if it may.

    :param workload: whose profile it is
    """
    if situation.why_not:
        return situation.why_not
    if workload not in situation.workloads:
        return 'the workload has ended'
    if not situation.enforcing:
        return ('this host only observes; a profile is measured where '
                'limits are enforced')
    if all(mode is Mode.OFF for mode in situation.detectors):
        return ('no detector runs on this host: harm to other workloads '
                'is not noticed')
    if situation.incidents:
        return ('an incident is open: its victim is '
                + sorted(situation.incidents)[0])
    others = sorted({*situation.suffering} - {workload})
    if others:
        return f'another workload suffers: {others[0]}'
    return ''
