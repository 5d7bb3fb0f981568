# SPDX-License-Identifier: Apache-2.0

"""``scavenger-standalone``: agent, watcher and control plane of one host.

For a look, a demo or an embedded host.  The watcher is a process of its
own, so that it outlives the agent and gives every limit back; so is the API,
which has no privileges.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from importlib import util
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from scavenger_openstack.cmd import agent
from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import errors

if TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

PROG = 'scavenger-standalone'

WATCHER_START_S = 10.0

KEEP_ROWS = 200_000
"""What stays in the database of one host, which has no administrator."""

NEEDED = ('alembic', 'bcrypt', 'flask', 'jsonschema', 'microversion_parse',
          'oslo_middleware', 'oslo_policy', 'sqlalchemy')
"""Packages of the control plane."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: _main(arguments))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'Agent, watcher, conductor and API of one host, in one go: for '
              'a look, a demo or an embedded host. Without a command it is '
              '"run".')
    agent.add_record(program)
    command_line.add_configuration(program, before=True)
    command_line.add_logging(program, before=True)
    add = command_line.add_commands(program, required=False)
    command = add('run', 'regulate this host until SIGTERM, with the API on '
                         'loopback')
    agent.add_record(command)
    command_line.add_configuration(command)
    command_line.add_logging(command)
    command = add('env', 'print what "openstack" needs to use that API, for a '
                         'shell',
                  'Type, as root and with the options of the one that runs: '
                  'eval "$(scavenger-standalone env)". What an openrc file '
                  'has set in that shell is kept, and set again by '
                  'eval "$(scavenger-standalone env --undo)".')
    command.add_argument('--undo', action='store_true',
                         help='print what sets the shell back')
    command_line.add_configuration(command)
    return program


def _main(arguments: Sequence[str]) -> int:
    options = command_line.parse(parser(), arguments)
    if options.command == 'env' and options.undo:
        from scavenger_openstack.cmd import standalone_shell
        print(standalone_shell.UNDO, end='')
        return 0
    from scavenger_openstack.cmd import configuration
    conf = configuration.load(PROG, options)
    return (environment if options.command == 'env' else run)(conf, options)


def environment(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    """Print what "openstack" needs, and how to go back."""
    from scavenger_openstack.cmd import standalone_shell
    print(standalone_shell.environment(conf), end='')
    ending.print_line(
        PROG, f'"openstack" in this shell uses the API of this host, '
        f'{conf.agent.host}, and knows no other service; to go back type '
        'eval "$(scavenger-standalone env --undo)"')
    return 0


def run(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    """Run the agent with its watcher, and the control plane if wanted.

    :raises AlreadyRunning: another agent has the state directory; nothing
        was started.
    """
    from scavenger_openstack.agent.lease import ownership
    from scavenger_openstack.agent import service
    from scavenger_openstack import conf as conf_package
    ownership.Ownership(conf_package.state_dir(conf)).check_free()
    service.set_up_log(conf)
    with Watcher(conf), _control_plane(conf) as call:
        return agent.run(conf, options, call)


@contextlib.contextmanager
def _control_plane(conf: cfg.ConfigOpts
                   ) -> Iterator[Callable[[bytes], bytes] | None]:
    """The conductor of this host, ``None`` where it is not in this process.

    :raises ConfigError: packages are missing, and it is to be here.
    """
    from scavenger_openstack.conf import check as conf_check
    wanted = conf_check.is_set(conf, 'conductor', 'enabled')
    if wanted and not conf.conductor.enabled or conf.conductor.url or any(
            'transport_url' in sections.get('DEFAULT', ())
            for _, sections in conf_check.files(conf)):
        yield None
        return
    missing = ', '.join(name for name in NEEDED
                        if util.find_spec(name) is None)
    if missing and wanted:
        raise errors.ConfigError(f'[conductor] enabled: {missing} missing; '
                                 'install scavenger_openstack[control]')
    if missing:
        LOG.info('no API here, %s missing: install '
                 'scavenger_openstack[control], or set [conductor] enabled = '
                 'false', missing)
        yield None
        return
    try:
        from scavenger_openstack.cmd import embedded
    except ImportError as exc:
        if wanted:
            raise errors.ConfigError(
                f'[conductor] enabled: a package cannot be used: {exc}'
            ) from exc
        LOG.warning('no API here: a package cannot be used: %s', exc)
        yield None
        return
    conf.set_override('enabled', True, 'conductor')
    # Only users who may read the password that root made may ask for it.
    conf.set_default('allow_background', True, 'conductor')
    conf.set_default('keep_rows', KEEP_ROWS, 'database')
    with embedded.Embedded(conf) as cloud:
        yield cloud.answer


class Watcher:
    """Keeps one ``scavenger-restore --watch`` alive while the agent runs.

    It has a session of its own, so that a Ctrl-C reaches only the agent.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        from scavenger_openstack.agent.lease import ownership
        from scavenger_openstack import conf as conf_package
        self._command = [
            sys.executable, '-P', '-m', 'scavenger_openstack.restore.program',
            '--watch', '--with-parent', str(os.getpid()),
            '--state-dir', conf.state_dir,
            '--stop-file', str(conf_package.stop_file(conf))]
        self._stop = threading.Event()
        state_dir = conf_package.state_dir(conf)
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._process = self._start()
        self._state = ownership.Ownership(state_dir)
        self._thread = threading.Thread(target=self._keep, daemon=True,
                                        name='watcher-restart')

    def __enter__(self) -> Watcher:
        self._thread.start()
        deadline = time.monotonic() + WATCHER_START_S
        while self._state.watched(WATCHER_START_S) is None:
            if time.monotonic() > deadline:
                LOG.warning('the watcher does not come up; no limit is set '
                            'until it does')
                break
            time.sleep(0.02)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._process.terminate()
        try:
            self._process.wait(WATCHER_START_S)
        except subprocess.TimeoutExpired:
            LOG.warning('the watcher (process %s) does not end; it still '
                        'restores limits', self._process.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL,
                                start_new_session=True)

    def _keep(self) -> None:
        failed = False
        while not self._stop.wait(0.5):
            if self._process.poll() is None:
                continue
            if not failed:
                LOG.warning('the watcher ended with %s, starting another',
                            self._process.returncode)
            time.sleep(0.5)
            try:
                self._process = self._start()
            except OSError as exc:
                if not failed:
                    LOG.warning('the watcher cannot be started, no limit is '
                                'set until it is: %s', exc)
                failed = True
            else:
                failed = False


if __name__ == '__main__':
    sys.exit(main())
