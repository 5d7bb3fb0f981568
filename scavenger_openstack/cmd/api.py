# SPDX-License-Identifier: Apache-2.0

"""``scavenger-api``: the API on loopback, for one host and for trying it.

In production a WSGI server runs ``scavenger_openstack.wsgi.api``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import os
import signal
import sys
import threading
from types import FrameType

from scavenger_openstack.cmd import ending
from scavenger_openstack.cmd import privileges
from scavenger_openstack import command_line
from scavenger_openstack import errors

PROG = 'scavenger-api'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: run(
        command_line.parse(parser(), arguments)))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'The API of one host, on 127.0.0.1. In production a WSGI '
              'server runs scavenger_openstack.wsgi.api instead. SIGTERM ends '
              'it, SIGHUP reads the log levels again, SIGUSR2 prints a report '
              'of its state.')
    program.add_argument('--user', metavar='NAME',
                         help='answer requests as this user, without any '
                            'privilege; files are loaded before; it takes '
                            'root')
    program.add_argument('--parent', metavar='PID', help=argparse.SUPPRESS,
                         type=command_line.number(1, whole=True))
    command_line.add_configuration(program, host=False, before=True)
    command_line.add_logging(program)
    return program


def run(options: argparse.Namespace) -> int:
    """Serve the API until SIGTERM.

    :raises ScavengerError: what stopped it, in one line
    """
    # Here, so that "--help" and what is wrong are there at once.
    from oslo_config import cfg
    from oslo_log import log

    from scavenger_openstack.api import app
    from scavenger_openstack.api import server as api_server
    from scavenger_openstack import cloud_metrics
    from scavenger_openstack.cmd import configuration
    from scavenger_openstack import conf as conf_package
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import schema
    from scavenger_openstack import state_report
    conf = cfg.ConfigOpts()
    conf_package.register(conf)
    state_report.register(conf)
    conf_package.load(conf, command_line.configuration(options), PROG)
    if options.parent is not None:
        # An agent that started it may have given it its real-time priority.
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        _end_with(options.parent)
    conf_package.set_up_log(conf)
    engine = connect.engine_of(conf)
    served = cloud_metrics.Served(conf.api.metrics_listen,
                                  cloud_metrics.Database(
                                      engine, conf.api.silent_s))
    application = app.create(engine, conf)
    server = api_server.Server(application, conf.api.port,
                               cloud_metrics.Api(application, served))
    server.warm_up()
    engine.dispose()
    if options.user is not None:
        privileges.become(options.user)
    elif os.geteuid():
        privileges.drop()
    if options.parent is not None:
        _end_with(options.parent)      # a change of user has ended that
    with connect.reading(engine) as connection:
        schema.check(connection)

    def stop(signum: int, frame: FrameType | None) -> None:
        server.stop()

    def read_again(signum: int, frame: FrameType | None) -> None:
        # A handler may not log: the thread that it interrupts may hold a lock.
        threading.Thread(target=configuration.read_again, args=(conf,),
                         name='read-again').start()

    signal.signal(signal.SIGHUP, read_again)
    state_report.on_sigusr2(conf, PROG)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    log.getLogger(__name__).info(
        'the API answers at http://%s:%d, as user %d', api_server.ADDRESS,
        server.port, os.geteuid())
    served.start()
    server.run()
    served.stop()
    engine.dispose()
    return 0


def _end_with(parent: int) -> None:
    """Be killed when the parent ends, however it does."""
    privileges.prctl(privileges.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise errors.ScavengerError(f'process {parent} has ended')


if __name__ == '__main__':
    sys.exit(main())
