# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``scavenger-agent``: run the agent, or look at and stop one."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import json
import os
import pathlib
import sys
import time

from oslo_config import cfg

from scavenger_openstack.agent import history
from scavenger_openstack.agent import instances
from scavenger_openstack.agent import names
from scavenger_openstack.agent import ownership
from scavenger_openstack.agent import service
from scavenger_openstack.agent import status
from scavenger_openstack.cmd import exit as exit_
from scavenger_openstack.cmd import places as places_
from scavenger_openstack.cmd import stop
from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack.types import as_json

RECORD_OPT = cfg.StrOpt(
    'record', metavar='FILE',
    help='Record the run: every sample and decision goes to this new file, '
         'for scavenger-replay.  It grows with every tick; see "Recordings" '
         'in the documentation.')

CLI_OPTS = [
    cfg.StrOpt('command', positional=True,
               help='run: regulate this host until SIGTERM.  sample: print '
                    'what is measured, one JSON line per interval, and '
                    'touch nothing.  status: what the running agent does '
                    'and why.  history: the limits, incidents and kills '
                    'of the last days.  stop-all: the kill switch; remove '
                    'every limit and set none until resume, also after a '
                    'reboot.  resume: end stop-all.'),
    cfg.BoolOpt('json', default=False,
                help='status, history: print JSON.'),
    cfg.StrOpt('since', metavar='TIME',
               help='history: only from then on: a duration before now '
                    '(90m, 2h, 3d), or a time such as 2026-01-31T03:00.'),
    cfg.FloatOpt('seconds', default=0, min=0,
                 help='sample: go on for so many seconds; 0 prints one '
                      'line.'),
    RECORD_OPT,
]


PROG = 'scavenger-agent'

LEASE_S = 15.0
"""By the default, a watcher that has not turned for 5 s does not count."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_.code(PROG, lambda: _main(arguments))


def _main(arguments: Sequence[str]) -> int:
    conf = cfg.ConfigOpts()
    _register(conf)
    try:
        conf_.load(conf, arguments, PROG)
        places = places_.of(conf)
    except (errors.ConfigError, cfg.Error) as exc:
        conf, places = places_.read(arguments, PROG, _register)
        if conf.command not in WITH_PLACES:
            raise errors.ConfigError(*exc.args) from exc
        _warn('warning: the configuration cannot be used: '
              f'{"; ".join(map(str, exc.args)) or exc}. '
              f'{conf.command} goes on with state directory '
              f'{places.state_dir}'
              + (' (the default; it may be another)' if places.guessed
                 else '') + f' and stop file {places.stop_file}')
    if conf.command in WITH_PLACES:
        return WITH_PLACES[conf.command](conf, places)
    if conf.command not in WITH_A_HOST:
        raise errors.ConfigError(
            f'{conf.command!r} is no command; one of ' + ', '.join(COMMANDS))
    service.set_up_log(conf)
    return WITH_A_HOST[conf.command](conf)


def _register(conf: cfg.ConfigOpts) -> None:
    conf_.register(conf)
    conf.register_cli_opts(CLI_OPTS)


def run(conf: cfg.ConfigOpts,
        call: Callable[[bytes], bytes] | None = None) -> int:
    """
    :param call: see :class:`.service.Service`
    """
    return service.Service(
        conf, None if conf.record is None else pathlib.Path(conf.record),
        call).run()


def sample(conf: cfg.ConfigOpts) -> int:
    driver = service.load_driver(conf)
    try:
        until = time.monotonic() + conf.seconds
        while True:
            print(json.dumps(as_json(driver.sample())), flush=True)
            if time.monotonic() + conf.agent.interval_s > until:
                return 0
            time.sleep(conf.agent.interval_s)
    except BrokenPipeError:
        _to_nowhere()
        return 0
    finally:
        driver.close()


def show_status(conf: cfg.ConfigOpts, places: places_.Places) -> int:
    """Print the status; 1 when the agent has not turned for a while."""
    refused = stop.refused(places.state_dir)
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
    now = service.now()
    document.update(refused=refused, watcher=watcher)
    if conf.json:
        document['age_s'] = now - document['time_s']
        document['instances'] = instances.complete(document)
        names.complete(document)
        print(json.dumps(document, indent=1))
    else:
        print(status.table(document, now))
    return 1 if status.is_stale(document, now) else 0


def show_history(conf: cfg.ConfigOpts, places: places_.Places) -> int:
    """Print what happened, oldest first."""
    now_s = time.time()
    reader = history.Reader(places.history_file)
    since_s = history.since(conf.since, now_s) if conf.since else 0.0
    empty = True
    try:
        for event in reader.events(since_s):
            empty = False
            print(json.dumps(history.as_line(event, reader.names)) if conf.json
                  else history.line(event, reader.names))
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()
        return 0
    if empty:
        _warn(f'{places.history_file}: nothing'
              + (f' since {conf.since}' if conf.since else ' yet'))
    if reader.unreadable:
        _warn(f'{places.history_file}: {reader.unreadable} lines cannot be '
              'read and are left out')
    return 0


def _to_nowhere() -> None:
    """The reader of our output has ended: the rest is not wanted."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _warn(text: str) -> None:
    print(f'{PROG}:', status.shown(text).replace('\n', ' '),
          file=sys.stderr)


WITH_A_HOST = {'run': run, 'sample': sample}
"""Commands that need the whole configuration."""

WITH_PLACES = {'status': show_status, 'history': show_history,
               'stop-all': lambda _, places: stop.stop_all(places),
               'resume': lambda _, places: stop.resume(places)}
"""Commands that work with a broken one, too."""

COMMANDS = (*WITH_A_HOST, *WITH_PLACES)


if __name__ == '__main__':
    sys.exit(main())
