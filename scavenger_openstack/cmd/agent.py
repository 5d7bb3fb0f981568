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

from collections.abc import Sequence
import json
import os
import pathlib
import sys
import time

from oslo_config import cfg

from scavenger_openstack.agent import restore
from scavenger_openstack.agent import service
from scavenger_openstack.agent import status
from scavenger_openstack.cmd import exit as exit_
from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack.types import as_json

STOP_WAIT_S = 10.0

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
                    'and why.  stop-all: the kill switch; take every limit '
                    'back and set none until resume, also after a reboot.  '
                    'resume: end stop-all.'),
    cfg.BoolOpt('json', default=False, help='status: print JSON.'),
    cfg.FloatOpt('seconds', default=0, min=0,
                 help='sample: go on for so many seconds; 0 prints one '
                      'line.'),
    RECORD_OPT,
]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_.code('scavenger-agent', lambda: _main(arguments))


def _main(arguments: Sequence[str]) -> int:
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf.register_cli_opts(CLI_OPTS)
    conf_.load(conf, arguments, 'scavenger-agent')
    if conf.command not in COMMANDS:
        raise errors.ConfigError(
            f'{conf.command!r} is no command; one of ' + ', '.join(COMMANDS))
    service.set_up_log(conf)
    return COMMANDS[conf.command](conf)


def run(conf: cfg.ConfigOpts) -> int:
    return service.Service(
        conf, None if conf.record is None else pathlib.Path(conf.record)
    ).run()


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        driver.close()


def show_status(conf: cfg.ConfigOpts) -> int:
    """Print the status; 1 when the agent has not turned for a while."""
    document = status.read(conf_.state_dir(conf) / 'status.json')
    now = service.now()
    if conf.json:
        document['age_s'] = now - document['time_s']
        print(json.dumps(document, indent=1))
    else:
        print(status.table(document, now))
    return 1 if status.is_stale(document, now) else 0


def stop_all(conf: cfg.ConfigOpts) -> int:
    """Make the stop file and wait until nothing is limited any more.

    The agent takes its limits back at its next tick, the watcher does when
    the agent hangs, and we do when neither of them lives.
    """
    stop_file = conf_.stop_file(conf)
    stop_file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(stop_file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
                     | os.O_NONBLOCK, 0o644))
    _sync(stop_file.parent)
    leases = conf_.state_dir(conf) / 'leases'
    print(f'stop file made: {stop_file}')
    deadline = time.monotonic() + STOP_WAIT_S
    while _count(leases):
        if time.monotonic() > deadline:
            code = restore.main(['--all', '--state-dir', conf.state_dir,
                                 '--stop-file', str(stop_file)])
            left = _count(leases)
            print(f'the agent did not answer within {STOP_WAIT_S:.0f} s; '
                  + ('every limit was taken back for it' if code == 0 else
                     f'{left} limits could not be taken back, see above'))
            return code
        time.sleep(0.1)
    print('no limit is in force; scavenger-agent resume ends this')
    return 0


def resume(conf: cfg.ConfigOpts) -> int:
    stop_file = conf_.stop_file(conf)
    try:
        stop_file.unlink()
    except FileNotFoundError:
        print('nothing was stopped')
        return 0
    _sync(stop_file.parent)
    print('limits may be set again')
    return 0


def _count(leases: pathlib.Path) -> int:
    return len(list(leases.glob('*.json')))


def _sync(directory: pathlib.Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


COMMANDS = {'run': run, 'sample': sample, 'status': show_status,
            'stop-all': stop_all, 'resume': resume}


if __name__ == '__main__':
    sys.exit(main())
