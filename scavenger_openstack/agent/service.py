# SPDX-License-Identifier: Apache-2.0

"""The agent as a process: makes its parts, runs the loop, and ends cleanly."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import gc
import os
import pathlib
import resource
import time
from types import FrameType
from typing import Any

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.events import earlier
from scavenger_openstack.agent.events import steady_clock
from scavenger_openstack.agent.events import store
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import instances
from scavenger_openstack.agent.isolation.blind_isolation import BlindIsolation
from scavenger_openstack.agent.lease import claims
from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease.leases import Leases
from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.agent.loop import Tick
from scavenger_openstack.agent.metrics import publishing
from scavenger_openstack.agent import names
from scavenger_openstack.agent import parameters
from scavenger_openstack.agent import parts
from scavenger_openstack.agent import status
from scavenger_openstack.agent import unix_signals
from scavenger_openstack.agent import windows
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_package
from scavenger_openstack.decision import orders
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.events import Event
from scavenger_openstack import log_once
from scavenger_openstack.recording import writer
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import scheduling
from scavenger_openstack.types import Mode
from scavenger_openstack.types import printable
from scavenger_openstack.types import Priority
from scavenger_openstack.wire.json_fields import as_json

LOG = log.getLogger(__name__)

COST_SMOOTHING = 0.1
"""Weight of the last tick in the shown cost of the agent."""

STATE_EVERY_S = 5.0
"""Time between two writes of the controllers' windows to disk."""

NAMES = names.Names()
"""The names of the VMs on this host, for its log and history."""

MAX_REFUSED_LINES = 10
"""Most lines about refused orders that are logged at once."""

NOT_REAL_TIME = (
    'real-time priority 1 is refused: on a full host this agent may stand '
    'still for seconds, and its limits are restored meanwhile; allow it with '
    'LimitRTPRIO=1 in the unit, or CAP_SYS_NICE')


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def set_up_log(conf: cfg.ConfigOpts) -> None:
    conf_package.set_up_log(conf, NAMES.beside)


def log_missing(logged: log_once.LogOnce, missing: Sequence[str]) -> None:
    """Log the prerequisites that this host has not: each resource once.

    :param missing: sentences that begin with a resource and ``:``
    """
    resources = logged.all_due({
        sentence.partition(':')[0]: '' for sentence in missing})
    for sentence in missing:
        if sentence.partition(':')[0] in resources:
            LOG.warning('missing: %s', sentence)


def log_refused(logged: log_once.LogOnce, refused: Mapping[str, str]
                ) -> None:
    """Log the orders of the control plane that are not followed here: each
    once, and again when the reason has changed.

    :param refused: the reason by order
    """
    new = [f'{order}: {refused[order]}' for order in logged.all_due(refused)]
    for line in new[:MAX_REFUSED_LINES]:
        LOG.warning('the control plane asks for what is not followed '
                    'here: %s', printable(line))
    if len(new) > MAX_REFUSED_LINES:
        LOG.warning('more that the control plane asks for and that is '
                    'not followed here: %d', len(new) - MAX_REFUSED_LINES)


class Service:
    """The agent of one host, which runs until it is stopped.

    :param record: a new file to write all ticks to
    :param call: calls the conductor, instead of HTTPS or RPC
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 record: pathlib.Path | None = None,
                 call: Callable[[bytes], bytes] | None = None) -> None:
        self._conf = conf
        self._stop = unix_signals.StopRequest()
        self._state_dir = conf_package.state_dir(conf)
        self._interval_s: float = conf.agent.interval_s
        self._ticked_s = now()
        self._cpu_s = self._measured_s = self._cpu_share = 0.0
        self._scheduled = 'normal'
        earlier.warn(conf_package.history_dir(conf),
                     conf_package.sync_dir(conf))
        self._store = store.Store(
            conf_package.history_dir(conf), conf.agent.history_mib * 2 ** 20,
            conf.conductor.spool_mib * 2 ** 20
            if conf.conductor.enabled else None, NAMES)
        self._rows = instances.InstanceRows()
        self._limits = status.Limits()
        self._logged_missing = log_once.LogOnce()
        self._logged_refused = log_once.LogOnce()
        self._clock = steady_clock.SteadyClock(now(), time.time())
        self._sync = parts.load_sync(conf, call, self._store, self._clock)
        self._parameters = parameters.Parameters(conf)
        if self._sync:      # those on disk hold from the start
            self._parameters.begin(self._sync.orders.parameters)
        self._controllers = parts.load_controllers(conf, self._parameters.of)
        self._driver = parts.load_driver(conf)
        modes = {'perfiso': conf_package.mode(conf, 'perfiso'), **{
            controller.name: mode for controller, mode in self._controllers}}
        self._signals = unix_signals.Signals(conf, modes)
        self._enforcing = Mode.ENFORCE in modes.values()
        self._leases = Leases(
            self._state_dir, conf.agent.lease_s,
            claims.Claims([*conf.cgroups.background_groups,
                           *conf.cgroups.background_parents],
                          parts.uris(conf))
            if self._enforcing else None)
        # Tried before the first limit.
        self._leases.want(parts.kinds(conf))
        self._recorder = (writer.Recorder(record, self._driver)
                          if record else None)
        self._actuator = Actuator(
            self._recorder.knobs if self._recorder else self._driver,
            self._leases, conf.agent.write_deadline_s)
        self._isolation = BlindIsolation(
            self._driver, self._leases,
            self._parameters.of('perfiso', perfiso.Params),
            modes['perfiso'])
        self._tick_events = tick_events.TickEvents(
            self._leases, self._actuator, self._isolation,
            self._driver.ended, self._add_events,
            self._store.add_reports,
            # Only the control plane gets measurements.
            parts.evidence(self._controllers if self._sync else ()),
            self._clock.time_s)
        self._metrics = publishing.Metrics(
            self._state_dir, conf.agent.lease_s,
            [controller.name for controller, _ in self._controllers],
            file=conf.agent.metrics_file, listen=conf.agent.metrics_listen,
            instances=conf.agent.metrics_instances)
        stop_file = conf_package.stop_file(conf)
        self._stop_file = os.path.abspath(stop_file)
        self._loop = Loop(
            self._driver, self._controllers, self._leases, self._actuator,
            stop_file, conf.agent.require_watcher,
            self._isolation, conf_package.limited_knobs(conf.agent.protect),
            self._orders)
        self._profiling = parts.load_profiling(conf, self._controllers)
        self._tunable = {'perfiso': self._isolation, **{
            controller.name: controller
            for controller, _ in self._controllers}, **self._loop.tunable}

    def stop(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """End after the present tick; may be a signal handler."""
        self._stop.request()

    def run(self) -> int:
        """Run until :meth:`stop`; return the process's exit code.

        :raises AlreadyRunning: another agent has the state directory, or
            enforces limits on workloads of this one.
        :raises ScavengerError: the state directory cannot be used.
        """
        self._leases.open()
        failed = False
        try:
            loaded_s = now()
            state = windows.load(self._windows, self._loop, loaded_s)
            if self._recorder:
                self._recorder.start(writer.header(
                    self._conf, self._controllers, self._parameters.of,
                    state, loaded_s))
            renewer = heartbeat.Renewer(self._leases, lambda: self._ticked_s,
                                        self._interval_s)
            renewer.begin()
            try:
                self._run_ticks(renewer)
            finally:
                renewer.stop()
        except (errors.ScavengerError, OSError):
            raise
        except Exception:
            # Logged now: the end of the parts may take long, and fail, too.
            LOG.exception('the agent ends: unexpected failure')
            failed = True
        finally:
            try:
                problems = self._loop.close()
                windows.save(self._windows, self._loop)
                self._tick_events.add(self._profiling.close(now()))
                self._tick_events.end(now(), len(problems))
                self._metrics.end(problems)
                if self._sync:
                    self._sync.stop(failed or not self._stop.requested)
            finally:
                self._leases.close()
                self._driver.close()
                if self._recorder:
                    self._recorder.close()
                self._store.close()
                (self._state_dir / 'status.json').unlink(missing_ok=True)
        for fault in problems:
            LOG.error('not removed, scavenger-restore tries again: %s', fault)
        return 1 if failed or problems else 0

    def _run_ticks(self, renewer: heartbeat.Renewer) -> None:
        self._signals.install(self.stop)
        modes = ', '.join(f'{controller.name} {mode}'
                          for controller, mode in self._controllers)
        LOG.info('started: %s', modes or 'no controller')
        if self._enforcing:
            self._scheduled = scheduling.process()
            if self._scheduled == 'normal':
                LOG.warning(NOT_REAL_TIME)
        self._tick_events.begin(modes)
        if self._sync:
            self._sync.start()
        # A tick makes thousands of tuples and no cycles: looking for some
        # after every 700 of them took a tenth of its time.
        gc.set_threshold(100_000)
        gc.freeze()
        messages.notify(b'READY=1')
        saved_s, due = now(), time.monotonic()
        while not self._stop.requested:
            began = time.monotonic()
            renewer.begin()
            self._signals.act(self._loop.counters['ticks'],
                              now() - self._ticked_s)
            self._parameters.follow(self._orders().parameters, self._tunable)
            tick = self._loop.tick(now())
            self._ticked_s = now()
            self._count_cpu()
            self._report(tick)
            if self._recorder:
                self._recorder.tick(tick, list(self._actuator.in_force),
                                    self._parameters.now)
            messages.notify(b'WATCHDOG=1')
            if tick.time_s - saved_s >= STATE_EVERY_S:
                windows.save(self._windows, self._loop)
                saved_s = tick.time_s
            # A late tick is not made up for: rates over a very short time
            # mean nothing, and counters that are read seldom would jump.
            due = max(due + self._interval_s, began + self._interval_s / 2)
            self._stop.wait(max(0.0, due - time.monotonic()))
        messages.notify(b'STOPPING=1')

    def _count_cpu(self) -> None:
        """Smooth the share of one CPU that all our threads use."""
        used_s, now_s = time.process_time(), time.monotonic()
        if self._cpu_s:
            share = (used_s - self._cpu_s) / (now_s - self._measured_s)
            self._cpu_share += (share - self._cpu_share) * (
                COST_SMOOTHING if self._cpu_share else 1)
        self._cpu_s, self._measured_s = used_s, now_s

    def _report(self, tick: Tick) -> None:
        state = (tick_events.STOPPED + tick.why_stopped if tick.stopped else
                 'holding back: no watcher' if tick.unwatched else
                 'cannot read the host' if tick.sample is None else
                 tick_events.RUNNING)
        isolation, facts = self._isolation.facts(), self._driver.facts()
        log_missing(self._logged_missing, facts.missing)
        NAMES.follow(facts.instances)
        self._tick_events.tick(tick, state, isolation.get('groups', {}),
                               self._loop.actions)
        document = self._document(tick, state, isolation, facts)
        self._tick_events.add(self._profiling.follow(
            tick.time_s, tick.orders.profiling, document, tick.sample))
        if self._sync:
            self._sync.start()      # if it could not be yet
            refused = {**orders.refused_modes(self._signals.modes,
                                              self._sync.orders.modes),
                       **tick.refused}
            log_refused(self._logged_refused,
                        {**self._sync.directives.refused, **refused})
            self._sync.update(tick.sample, document, facts.instances,
                              {**self._parameters.refused, **refused})
        try:
            status.write(
                self._state_dir / 'status.json', document,
                caps=self._limits.encoded(list(
                    self._actuator.in_force.values())),
                instances=self._rows.encoded(tick.time_s, facts.instances,
                                             tick.rates),
                metrics=self._metrics.tick(tick, self._tick_events.in_force,
                                           document))
        except OSError as exc:
            LOG.warning('%s: status not written: %s', self._state_dir, exc)

    def _document(self, tick: Tick, state: str,
                  isolation: dict[str, Any], facts: base.Facts
                  ) -> dict[str, Any]:
        rates = tick.rates
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            'schema': status.SCHEMA, 'time_s': tick.time_s,
            'wall_time_s': time.time(), 'host': self._conf.agent.host,
            'pid': os.getpid(), 'interval_s': self._interval_s,
            'state': state, 'stopped': tick.stopped,
            'stop_file': self._stop_file,
            'history': {'directory': str(self._store.path),
                        'fault': self._store.fault},
            'conductor': self._sync and self._sync.facts(),
            'grade': facts.grade,
            'libvirt': facts.libvirt,
            'protect': self._conf.agent.protect,
            'limited': sorted(self._loop.limited),
            'own_modes': dict(self._signals.modes),
            'missing': facts.missing,
            'scheduled': self._scheduled,
            'tick_cpu_s': tick.cost_s,
            'cpu_share': self._cpu_share,
            'peak_rss_bytes': usage.ru_maxrss * 1024,
            'controllers': {
                controller.name: {
                    'mode': orders.mode(controller.name, mode,
                                        self._orders()),
                    'facts': (tick.decisions[controller.name].facts
                              if controller.name in tick.decisions else {}),
                    'asks': status.asked(
                        tick.decisions.get(controller.name))}
                for controller, mode in self._controllers},
            'isolation': isolation,
            'counters': self._loop.counters,
            'memory_total_bytes': rates and rates.memory_total_bytes,
            'memory_available_bytes': rates and rates.memory_available_bytes,
            # Only their number: rows for all of them in each tick would cost
            # as much as deciding.  "sample" prints rows.
            'workloads': self._count(tick),
            'would': [cap._asdict() for cap in tick.would],
            'unmet_bytes': tick.outcome.unmet,
            'actions': [{'time_s': time_s, **action._asdict(),
                         'processes': count}
                        for time_s, action, count in self._loop.actions],
            'incidents': [as_json(incident)
                          for incident in tick.incidents.values()],
            'problems': tick.outcome.problems,
        }

    def _add_events(self, events: Sequence[Event]) -> None:
        """Store and count events that were logged."""
        self._store.add(events)
        self._metrics.happened(events)

    @staticmethod
    def _count(tick: Tick) -> dict[str, int]:
        counts = dict.fromkeys(map(str, Priority), 0)
        if tick.rates:
            for rated in tick.rates.workloads:
                counts[rated.workload.priority] += 1
        return counts

    def _orders(self) -> orders.Orders:
        """Return the orders of operators that hold now."""
        return self._profiling.orders(self._signals.orders(
            self._sync.orders if self._sync else orders.NO_ORDERS))

    @property
    def _windows(self) -> pathlib.Path:
        return self._state_dir / 'windows.json'
