# SPDX-License-Identifier: Apache-2.0

"""The control plane of ``--keep``, and its last screen.

The standalone of the demo has its control plane: database, conductor and
API.  The real ``openstack`` commands list the incidents.
"""

from __future__ import annotations

from collections.abc import Mapping
import importlib.util
import json
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from scavenger_openstack import errors
from scavenger_openstack.ibench.interrupt import Interrupt

NEEDED = ('alembic', 'bcrypt', 'flask', 'sqlalchemy', 'openstackclient')
MARK = 'kept'
"""A file in the directory of a stage that is kept."""

READY_S = 120.0
COMMAND_S = 120.0
POLL_S = 0.2
SYNC_S = 1.0
COLUMNS = '110'

CONFIG = """\
[conductor]
enabled = true
sync_s = {sync_s:g}
[api]
port = {port}
"""


def check() -> None:
    """Check that the packages of the control plane are installed.

    :raises DriverError: a package is missing.
    """
    missing = [name for name in NEEDED
               if importlib.util.find_spec(name) is None]
    if missing:
        raise errors.DriverError(
            f'--keep needs packages of the control plane ({missing[0]} is '
            'missing): .venv/bin/pip install -e ".[control,osc]"')


def free_port() -> int:
    """Return a port of loopback that no program listens on."""
    with socket.socket() as server:
        server.bind(('127.0.0.1', 0))
        port: int = server.getsockname()[1]
        return port


class Plane:
    """The control plane of a stage.

    :param directory: that of the stage
    :param config: the file with the configuration of its agent
    """

    def __init__(self, directory: pathlib.Path,
                 config: str = 'agent.conf') -> None:
        self._directory = directory
        self._config = config
        self._port = free_port()

    @property
    def config(self) -> str:
        """Lines for the configuration of the agent."""
        return CONFIG.format(sync_s=SYNC_S, port=self._port)

    def open(self) -> None:
        """Let the API's user, which has no rights, reach the database."""
        self._directory.chmod(0o711)

    def mark(self) -> None:
        """Mark the stage as one that ``--clean`` ends."""
        (self._directory / MARK).touch()

    @property
    def environment_command(self) -> list[str]:
        return [sys.executable, '-P', '-m',
                'scavenger_openstack.cmd.standalone', 'env',
                '--config-file', str(self._directory / self._config),
                '--state-dir', str(self._directory / 'state')]

    def wait(self, interrupt: Interrupt) -> None:
        """Wait until the API answers.

        :raises DriverError: it does not.
        :raises Interrupted: a signal asks to stop.
        """
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(
                        f'http://127.0.0.1:{self._port}/healthcheck',
                        timeout=5):
                    return
            except (urllib.error.URLError, OSError) as exc:
                if time.monotonic() > deadline_s:
                    raise errors.DriverError(
                        f'the API does not answer within {READY_S:g} s '
                        f'({exc}); {self._directory}/agent.log says why'
                    ) from exc
            interrupt.wait_until(time.monotonic() + POLL_S)

    def screen(self) -> str:
        """Return the output of the commands that list the incidents.

        :raises DriverError: a command fails.
        """
        variables = self._variables()
        screens = [self._shown(variables, 'antagonist', 'list')]
        incidents = json.loads(self._run(
            variables, 'interference', 'incident', 'list', '-f', 'json'))
        chosen = next((incident for incident in incidents
                       if incident['antagonists']),
                      incidents[0] if incidents else None)
        if chosen is None:
            screens.append('No incident was reported.\n')
        else:
            screens.append(self._shown(variables, 'interference', 'incident',
                                     'show', chosen['id']))
        return '\n'.join(screens)

    def help(self) -> str:
        """Return the commands that an operator may try."""
        program = pathlib.Path(sys.executable).with_name(
            'scavenger-standalone')
        command = shlex.join([
            str(program) if program.exists() else program.name,
            *self.environment_command[4:]])
        return ('Services, batch jobs and the standalone go on.  In another '
                'shell, as root:\n\n'
                f'    eval "$({command})"\n'
                '    openstack antagonist list\n'
                '    openstack interference cap list\n\n'
                'Ctrl-C here, or scavenger-demo --clean, ends and removes '
                'all of it.')

    def _variables(self) -> dict[str, str]:
        """Return the environment of ``openstack``, without the user's."""
        done = subprocess.run(self.environment_command, timeout=COMMAND_S,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise errors.DriverError(done.stderr.strip().rpartition('\n')[2])
        return {**{name: value for name, value in os.environ.items()
                   if not name.startswith('OS_')},
                'COLUMNS': os.environ.get('COLUMNS', COLUMNS),
                'OS_CLIENT_CONFIG_FILE': os.devnull, **dict(
                    word.partition('=')[::2]
                    for line in done.stdout.splitlines()
                    if line.startswith('export ')
                    for word in shlex.split(line)[1:])}

    def _shown(self, variables: Mapping[str, str], *words: str) -> str:
        return (f'$ openstack {" ".join(words)}\n'
                + self._run(variables, *words))

    def _run(self, variables: Mapping[str, str], *words: str) -> str:
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', 'openstackclient.shell',
             *words], env=dict(variables), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=COMMAND_S, check=False)
        if done.returncode:
            raise errors.DriverError(
                f'openstack {" ".join(words)} ended with {done.returncode}: '
                + done.stderr.strip().rpartition('\n')[2])
        return done.stdout


def kept(directory: pathlib.Path) -> bool:
    """Return whether the demo of that directory runs until it is ended."""
    return (directory / MARK).exists()
