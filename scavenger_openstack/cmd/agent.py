# SPDX-License-Identifier: Apache-2.0

"""``scavenger-agent``: run the agent, or look at and stop one.

What a command needs is imported when it is asked for: ``status`` and
``stop-all`` do not wait for what ``run`` needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import pathlib
import sys
import time
import traceback
from typing import Any
from typing import TYPE_CHECKING

from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack import text

if TYPE_CHECKING:
    from oslo_config import cfg

    from scavenger_openstack.cmd import places as agent_places

PROG = 'scavenger-agent'

LEASE_S = 15.0
"""By the default, a watcher that has not turned for 5 s does not count."""

CHECK_EPILOG = (
    'Exit code: 0; 1 when no agent runs, or it hangs; with --check 0 OK, 1 '
    'WARNING, 2 CRITICAL, 3 UNKNOWN.')

UNKNOWN = 3

WITH_A_HOST = 'run', 'sample'
"""Commands that need the whole configuration; the others work with a broken
one, too."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if '--check' in arguments:
        return ending.code(PROG, lambda: _monitored(arguments))
    return ending.code(PROG, lambda: _main(arguments), 'rpc')


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'The agent of one hypervisor: it keeps background work from '
              'disturbing the foreground. "COMMAND --help" shows the options '
              'of a command.')
    command_line.add_configuration(program, before=True)
    command_line.add_logging(program, before=True)
    add = command_line.add_commands(program)
    command = add('run', 'regulate this host until SIGTERM',
                  'SIGHUP reads the log levels and the modes of the '
                  'controllers again.')
    add_record(command)
    command_line.add_configuration(command)
    command_line.add_logging(command)
    command = add(
        'sample', 'print what is measured, and touch nothing',
        'A table of what workloads use, for each [agent] interval_s.')
    command.add_argument('--seconds', type=command_line.number(0), default=0.0,
                         metavar='N', help='go on for so many seconds '
                         '(default: 0, which prints one table)')
    command.add_argument('--json', action='store_true',
                         help='print one JSON line per sample, in SI units: '
                              'sums since each workload began')
    command_line.add_configuration(command)
    command_line.add_logging(command)
    command = add('status', 'print what the running agent does, and why',
                  epilog=CHECK_EPILOG)
    how = command.add_mutually_exclusive_group()
    how.add_argument('--json', action='store_true',
                     help='print JSON, in SI units')
    how.add_argument('--check', action='store_true',
                     help='print one line for a monitoring system (Nagios, '
                          'Icinga, ...), with its exit codes')
    command_line.add_configuration(command)
    command = add('metrics', 'print the metrics of the running agent as '
                             'Prometheus reads them')
    command_line.add_configuration(command)
    command = add('history', 'print the limits, incidents and kills as far '
                             'back as [agent] history_mib reaches, oldest '
                             'first')
    command.add_argument('--since', metavar='TIME',
                         help='only from then on: a duration before now (90m, '
                              '2h, 3d, 1w, 1h30m), or a time such as '
                              '2026-01-31T03:00, in UTC unless it has an '
                              'offset')
    command.add_argument('--json', action='store_true',
                         help='print one JSON object per line, in SI units')
    command_line.add_configuration(command)
    command = add('stop-all', 'the kill switch: remove every limit and set '
                              'none until "resume", also after a reboot',
                  'Exit code: 0 when no limit is left, 1 else.')
    command_line.add_configuration(command)
    command = add('resume', 'end "stop-all"; limits may be set again')
    command_line.add_configuration(command)
    return program


def add_record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--record', metavar='FILE', default=argparse.SUPPRESS,
        help='record the run: every sample and decision goes to this new '
             'file, for scavenger-replay; it grows with every tick')


def _main(arguments: Sequence[str]) -> int:
    options = command_line.parse(parser(), arguments)
    if options.command in WITH_A_HOST:
        from scavenger_openstack.agent import service
        from scavenger_openstack.cmd import configuration
        conf = configuration.load(PROG, options)
        service.set_up_log(conf)
        return (sample if options.command == 'sample' else run)(conf, options)
    return _with_places(options)


def run(conf: cfg.ConfigOpts, options: argparse.Namespace,
        call: Callable[[bytes], bytes] | None = None) -> int:
    """Run the agent until it is to end; return the exit code.

    :param options: with ``record``, a file, if the run is to be recorded
    :param call: see :class:`.service.Service`
    """
    from scavenger_openstack.agent import service
    record = getattr(options, 'record', None)
    return service.Service(
        conf, None if record is None else pathlib.Path(record), call).run()


def sample(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.agent import parts
    from scavenger_openstack.agent import sample_table
    from scavenger_openstack.wire.json_fields import as_json
    driver, before = parts.load_driver(conf), None
    try:
        until = time.monotonic() + options.seconds
        while True:
            now = driver.sample()
            if options.json:
                print(text.json_line(as_json(now)), flush=True)
            elif before is not None:
                print(*sample_table.lines(before, now, driver.facts()),
                      sep='\n', flush=True)
            if (time.monotonic() + conf.agent.interval_s > until
                    and (options.json or before is not None)):
                return 0
            before = now
            time.sleep(conf.agent.interval_s)
    except BrokenPipeError:
        return ending.unread()
    finally:
        driver.close()


def _with_places(options: argparse.Namespace) -> int:
    """The commands that look at an agent or stop it: also with a
    configuration that nothing else can work with, as far as it says where
    the agent keeps its state.
    """
    from oslo_config import cfg

    from scavenger_openstack.cmd import configuration
    from scavenger_openstack.cmd import places as agent_places
    from scavenger_openstack.cmd import stop
    words = command_line.configuration(options)
    unusable = ''
    try:
        places = agent_places.of(configuration.load(PROG, options))
    except (errors.ConfigError, cfg.Error) as exc:
        places = agent_places.read(words, PROG)
        unusable = '; '.join(map(str, exc.args)) or str(exc)
    if options.command == 'status' and options.check:
        return check(places, unusable)
    if unusable:
        ending.print_line(PROG, 'warning: the configuration cannot be used: '
                          f'{unusable}. {options.command} uses state '
                          f'directory {places.state_dir}'
                          + (' (the default; it may be another)'
                             if places.guessed else '')
                          + f' and stop file {places.stop_file}')
    if options.command == 'status':
        return show_status(places, as_json=options.json)
    if options.command == 'metrics':
        return show_metrics(places)
    if options.command == 'history':
        return show_history(places, options.since,
                            as_json=options.json)
    return (stop.stop_all if options.command == 'stop-all'
            else stop.resume)(places)


def show_status(places: agent_places.Places, *, as_json: bool) -> int:
    """Print the status; 1 when the agent has not turned for a while."""
    from scavenger_openstack.agent import instances
    from scavenger_openstack.agent import names
    from scavenger_openstack.agent import status
    document, now = _document(places)
    if as_json:
        with status.understood():
            document['age_s'] = now - document['time_s']
            document['instances'] = instances.complete(document)
            names.complete(document)
        print(text.json_page(document))
    else:
        print(status.table(document, now))
    return 1 if status.is_stale(document, now) else 0


def show_metrics(places: agent_places.Places) -> int:
    """Print the metrics; 1 when the agent has not turned for a while."""
    from scavenger_openstack.agent.metrics import page
    from scavenger_openstack.agent import status
    document, now = _document(places)
    print(page.page(document).decode(), end='')
    return 1 if status.is_stale(document, now) else 0


def check(places: agent_places.Places, unusable: str) -> int:
    """Print one line for a monitoring system; its exit code.

    :param unusable: what is wrong in the configuration
    """
    from scavenger_openstack.agent import check as agent_check
    if places.guessed:
        raise errors.ScavengerError(
            f'the configuration cannot be read: {unusable}; correct it, or '
            'give --state-dir')
    try:
        document, now = _document(places)
    except errors.NoStatus as exc:
        findings = [agent_check.Finding(agent_check.CRITICAL, str(exc))]
        document, now = {}, 0.0
    else:
        findings = agent_check.findings(document, now)
    if unusable:
        findings.append(agent_check.Finding(
            agent_check.WARNING, f'the configuration cannot be used, and the '
                            f'agent would not start again: {unusable}'))
    code, line = agent_check.line(findings, document, now)
    print(line)
    return code


def _document(places: agent_places.Places) -> tuple[dict[str, Any], float]:
    """Return the status with the leases and the watcher, and the time of that.

    :raises ScavengerError: there is none, or it cannot be read.
    """
    from scavenger_openstack.agent.lease import ownership
    from scavenger_openstack.agent import status
    from scavenger_openstack.cmd import stop
    from scavenger_openstack.restore.records import now_s
    refused = ownership.refused(places.state_dir)
    kinds = ownership.Ownership(places.state_dir).watched(LEASE_S)
    watcher = {'running': kinds is not None, 'cannot_restore': {
        kind: why for kind, why in (kinds or {}).items() if why}}
    try:
        document = status.read(places.state_dir / 'status.json')
    except errors.ScavengerError as exc:
        raise type(exc)('; '.join((
            str(exc), *stop.elsewhere(places),
            *(f'refused lease: {name}' for name in refused),
            'the watcher runs' if watcher['running'] else
            'no watcher runs'))) from exc
    return {**document, 'refused': refused, 'watcher': watcher}, now_s()


def show_history(places: agent_places.Places, since: str | None, *,
                 as_json: bool) -> int:
    """Print what happened, oldest first."""
    from scavenger_openstack.agent.events import history
    from scavenger_openstack.agent.events import sentences
    wall_s = time.time()
    reader = history.Reader(places.history_dir)
    since_s = history.since(since, wall_s) if since else 0.0
    empty = True
    try:
        for event in reader.events(since_s):
            empty = False
            print(history.as_json(event, reader.names)
                  if as_json else sentences.line(event, reader.names))
        sys.stdout.flush()
    except BrokenPipeError:
        return ending.unread()
    if empty:
        ending.print_line(PROG, f'{places.history_dir}: nothing'
                          + (f' since {since}' if since else ' yet'))
    if reader.unreadable:
        ending.print_line(
            PROG, f'{places.history_dir}: {reader.unreadable} lines cannot '
            'be read and are left out')
    return 0


def _monitored(arguments: Sequence[str]) -> int:
    """Return UNKNOWN for every failure, wrong usage too: to a monitoring
    system the other exit codes say how the agent is."""
    try:
        return _main(arguments)
    except Exception as exc:
        if not isinstance(exc, errors.ScavengerError | OSError):
            traceback.print_exc()
        print('SCAVENGER UNKNOWN -', ending.sentence(exc).replace('|', '/'))
        return UNKNOWN


if __name__ == '__main__':
    sys.exit(main())
