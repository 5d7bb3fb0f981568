# SPDX-License-Identifier: Apache-2.0

"""``scavenger-conductor``: takes the reports of agents, answers them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import logging
import queue
import signal
import sys
import time
from types import FrameType
from typing import Any
from typing import TYPE_CHECKING
from typing import TypeVar
import warnings

from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.restore import messages

if TYPE_CHECKING:
    from oslo_config import cfg

    from scavenger_openstack import cloud_metrics
    from scavenger_openstack.conductor import leader
    from scavenger_openstack.conductor import service
    from scavenger_openstack.db import connect
    from scavenger_openstack import rpc

LOG = logging.getLogger(__name__)

P = TypeVar('P')

PROG = 'scavenger-conductor'

LEADERS = 7
"""Threads that do what one of all conductors does, with a connection each."""

CHECK_S = 10.0
"""So often systemd hears of this process, within its WatchdogSec."""

STOP_S = 75.0
"""So long work goes on after SIGTERM: a request to Nova that is under way may
take 60 s.  What lasts longer ends with the process, before TimeoutStopSec."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: run(
        command_line.parse(parser(), arguments)))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'Takes the reports of agents, keeps them in the database, and '
              'answers with what operators ask for. SIGTERM ends it, SIGHUP '
              'reads the log levels again, SIGUSR2 prints a report of its '
              'state.')
    command_line.add_configuration(program, host=False, before=True)
    command_line.add_logging(program)
    return program


def run(options: argparse.Namespace) -> int:
    """Take reports until SIGTERM.

    :raises ScavengerError: what stopped it, in one line
    """
    # That it is there, where another service needs it, is not our matter.
    warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')
    # Here, so that "--help" and what is wrong are there at once.
    from oslo_config import cfg

    from scavenger_openstack import cloud_metrics
    from scavenger_openstack.conductor import leader
    from scavenger_openstack.conductor import notifications
    from scavenger_openstack.conductor import service
    from scavenger_openstack.conductor import silence
    from scavenger_openstack import conf as conf_package
    from scavenger_openstack.conf import control as conf_control
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import enrollment
    from scavenger_openstack.db import schema
    from scavenger_openstack import rpc
    from scavenger_openstack import state_report
    conf = cfg.ConfigOpts()
    conf_package.register(conf)
    rpc.register(conf)
    state_report.register(conf)
    conf_package.load(conf, command_line.configuration(options), PROG)
    engine = connect.engine_of(conf)
    of_leaders = connect.engine_of(conf, statement_s=leader.STATEMENT_S,
                                   connections=LEADERS)
    with connect.reading(engine) as connection:
        schema.check(connection)
        without = enrollment.without_token(connection)
    conf_package.set_up_log(conf)
    if without:
        LOG.warning('hosts without a token: %d; %s; see "scavenger-manage '
                    'host enroll"', without, 'their reports are refused'
                    if conf.conductor.require_token else 'any client that '
                    'the broker lets in may report in their names')
    served = cloud_metrics.Served(
        conf.conductor.metrics_listen,
        cloud_metrics.Database(engine, conf.api.silent_s))
    metrics = cloud_metrics.Conductor(served)
    conductor = service.Conductor(
        engine, require_token=conf.conductor.require_token,
        reported=metrics.report, **conf_control.keeping(conf))
    signals = Signals(conf)
    server = rpc.Server(
        conf, conductor.answer, conductor.signed_answer, conductor.name,
        conductor.tag, signals.fail)
    leaders = [
        silence.make_leader(of_leaders, conf.api.silent_s, conductor.name),
        *leaders_of(conf, of_leaders, conductor.name, metrics)]
    if conf.notifications.topics:
        leaders.append(notifications.make_leader(
            of_leaders, rpc.Notifier(conf, conductor.name), conductor.name,
            time.time))
    metrics.follow(leaders)
    works: list[leader.Leader | service.Conductor] = [*leaders, conductor]
    state_report.on_sigusr2(conf, PROG)
    server.start()
    conductor.start()
    for each in leaders:
        each.start()
    served.start()
    LOG.info('%s starts', conductor.name)
    messages.notify(b'READY=1')
    try:
        def check() -> None:
            served.start()      # unless it could, and has
            _report_state(server, works, conductor.fault)

        signals.wait(check)
    finally:
        messages.notify(b'STOPPING=1')
        LOG.info('%s ends: no new reports, those at hand are answered',
                 conductor.name)
        until = time.monotonic() + STOP_S
        for work in works:
            work.stop_soon()
        server.stop()
        served.stop()
        for work in works:
            work.stop(until - time.monotonic())
        engine.dispose()
        of_leaders.dispose()
    return 0


def _report_state(server: rpc.Server,
                  works: Sequence[leader.Leader | service.Conductor],
                  fault: str) -> None:
    """Tell systemd that this process works, and what it waits for.

    :param fault: why reports are not stored, or ''
    :raises Unreachable: a part of it has ended
    """
    for work in works:
        if not work.is_alive:
            raise errors.Unreachable(
                'a thread has ended that does work of the conductor; please '
                'report this, with the log')
    state = (fault or 'takes reports' if server.wait(0) else
             'waits for the message broker')
    messages.notify(f'WATCHDOG=1\nSTATUS={state}'.encode())


def leaders_of(conf: cfg.ConfigOpts, engine: connect.Engine, name: str,
               metrics: cloud_metrics.Conductor | None = None
               ) -> list[leader.Leader]:
    """Return what one of all conductors does in other services of OpenStack.

    :param metrics: of this process
    :raises ConfigError: that is enabled and cannot work.
    """
    if not (conf.placement.enabled or conf.nova.enabled):
        return []
    from scavenger_openstack.conductor import leader
    from scavenger_openstack.conductor.nova import aggregates
    from scavenger_openstack.conductor.nova import evicting
    from scavenger_openstack.conductor.nova import eviction_params
    from scavenger_openstack.conductor.nova import eviction_policy
    from scavenger_openstack.conductor.nova import reconciling
    from scavenger_openstack.conductor import placement
    from scavenger_openstack.conductor import placement_api
    from scavenger_openstack.conductor import placement_writer
    from scavenger_openstack.conductor import sessions
    from scavenger_openstack.db import evictions
    session, clock, leaders = sessions.make_session(conf), time.time, []

    def lead(claim: str, turn: Callable[[Callable[[], None]], object],
             every_s: float, what: str, **more: Any) -> leader.Leader:
        leaders.append(leader.Leader(engine, claim, name, clock, turn,
                                     every_s=every_s, what=what, **more))
        return leaders[-1]

    if conf.placement.enabled:
        writer = placement_writer.Writer(
            engine, placement_api.Placement(sessions.make_placement(
                conf, session)),
            _params(placement.Params, conf.placement), clock, time.monotonic)
        writes = lead(
            placement_writer.CLAIM, writer.turn, placement_writer.EVERY_S,
            'Placement is not told what background work hosts may have',
            taken=writer.distrust)
        if metrics is not None:
            metrics.follow_placement(
                lambda: writer.background_vcpus() if writes.leads else {})
    if conf.nova.enabled:
        params = _params(eviction_params.Params, conf.eviction)
        eviction_params.check(params)
        # A client each: these are threads.
        reader, follower, evicter = (
            sessions.make_nova(conf, session) for _ in range(3))
        lead(reconciling.CLAIM,
             reconciling.Reconciler(engine, reader, clock).turn,
             conf.nova.interval_s,
             'what instances are is not read from Nova')
        lead(aggregates.CLAIM,
             aggregates.Follower(engine, follower, clock).turn,
             conf.nova.interval_s, 'host aggregates are not read from Nova')
        lead(evictions.CLAIM, evicting.Evicting(
            engine, evicter, clock, moved=metrics.eviction
            if metrics is not None else lambda how, state: None).turn,
            evicting.EVERY_S, 'instances are not evicted')
        lead(eviction_policy.CLAIM,
             eviction_policy.Policy(engine, params, clock).turn,
             eviction_policy.EVERY_S,
             'no policy looks at antagonists and shortages of CPU')
    return leaders


def _params(kind: Callable[..., P], group: Any) -> P:
    """Return the options of a section as its ``Params``."""
    return kind(**{field: group[field] for field in kind.__annotations__})


class Signals:
    """SIGTERM and SIGINT end, SIGHUP reads the options that may change while
    it runs (log levels) again; a failure of a thread ends, too."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._queue: queue.SimpleQueue[int | str] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._arrived)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self._queue.put(number)

    def fail(self, why: str) -> None:
        """Have :meth:`wait` raise this; from any thread."""
        self._queue.put(why)

    def wait(self, check: Callable[[], None]) -> None:
        """Return when the process is to end.

        :param check: called each :data:`CHECK_S`
        :raises Unreachable: something failed that does not pass
        """
        from scavenger_openstack.cmd import configuration
        while True:
            check()
            try:
                arrived = self._queue.get(timeout=CHECK_S)
            except queue.Empty:
                continue
            if isinstance(arrived, str):
                raise errors.Unreachable(arrived)
            if arrived != signal.SIGHUP:
                return
            configuration.read_again(self._conf)


if __name__ == '__main__':
    sys.exit(main())
