# SPDX-License-Identifier: Apache-2.0


"""One private server: its directory, its processes, and their end."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

USER = 'nobody'
"""Runs the servers where the tests run as root."""

START_S = 90.0
STOP_S = 30.0

REMOVE = ('cat >/dev/null; for turn in 1 2 3 4 5 6 7 8 9 10; do '
          'rm -rf "$1" 2>/dev/null && exit; sleep 0.5; done')
"""Waits for the end of the process that holds the other end of its pipe."""


class Missing(Exception):
    """A program that is needed is not installed."""


class Server:
    """A directory that goes with this process, and processes in it.

    ``/tmp`` and no other place: the servers' user has to reach it, and the
    path of a socket has at most 107 bytes.  ``crash`` is the signal that ends
    this server as a crash does; ``user`` runs it where the tests run as root,
    ``None`` for root itself.  A server also ends with the thread that
    started it: start it in the main thread.
    """

    crash = signal.SIGKILL
    user: str | None = USER
    start_s = START_S

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.directory = pathlib.Path(tempfile.mkdtemp(
            prefix=f'scv-{kind}-', dir='/tmp'))
        self._remover = subprocess.Popen(
            ['/bin/sh', '-c', REMOVE, 'sh', str(self.directory)],
            # It may outlive the tests, whose output ends before.
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.directory.chmod(0o711)
        self.own(self.directory)
        atexit.register(self.close)

    def close(self) -> None:
        """End the processes and remove the directory."""
        atexit.unregister(self.close)
        self.kill()
        assert self._remover.stdin is not None
        self._remover.stdin.close()
        self._remover.wait(STOP_S)

    def own(self, path: pathlib.Path) -> None:
        """Give a file to the user of the servers."""
        if os.geteuid() == 0 and self.user:
            user = pwd.getpwnam(self.user)
            os.chown(path, user.pw_uid, user.pw_gid)

    def make_directory(self, name: str) -> pathlib.Path:
        path = self.directory / name
        path.mkdir(mode=0o700)
        self.own(path)
        return path

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.directory / name
        path.write_text(text)
        self.own(path)
        return path

    def run(self, command: Sequence[str],
            environment: Mapping[str, str] | None = None) -> None:
        """A command that ends by itself.

        :raises RuntimeError: it failed; with its last lines.
        """
        log = self.directory / f'{pathlib.Path(command[0]).name}.log'
        with open(log, 'wb') as out:
            done = subprocess.run(
                self._wrapped(command, signal.SIGKILL), stdout=out,
                stdin=subprocess.DEVNULL, stderr=out, timeout=START_S,
                env=self._environment(environment), cwd=self.directory)
        if done.returncode:
            raise RuntimeError(f'{command[0]} ended with {done.returncode}: '
                               f'{_tail(log)}')

    def start(self, command: Sequence[str], ready: Callable[[], bool],
              environment: Mapping[str, str] | None = None,
              end: signal.Signals = signal.SIGKILL) -> None:
        """Start a server and wait until it is ready.

        :param end: what it gets when this process is gone
        :raises RuntimeError: it ended, or is not ready in time.
        """
        log = self.directory / f'{pathlib.Path(command[0]).name}.log'
        with open(log, 'ab') as out:
            process = subprocess.Popen(
                self._wrapped(command, end), stdin=subprocess.DEVNULL,
                stdout=out, stderr=out, start_new_session=True,
                env=self._environment(environment), cwd=self.directory)
        self._processes.append(process)
        deadline = time.monotonic() + self.start_s
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f'{command[0]} does not come up: '
                                   f'{_tail(log)}')
            time.sleep(0.05)

    def stop(self, end: signal.Signals = signal.SIGTERM) -> None:
        """End the processes, the youngest first, and wait for them."""
        while self._processes:
            process = self._processes[-1]
            process.send_signal(end)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)
            self._processes.remove(process)

    def kill(self) -> None:
        """End the processes as a crash does."""
        self.stop(self.crash)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def _wrapped(self, command: Sequence[str], end: signal.Signals
                 ) -> list[str]:
        wrapped = ['setpriv', '--pdeathsig', end.name.removeprefix('SIG')]
        if os.geteuid() == 0 and self.user:
            wrapped += ['--reuid', self.user, '--regid',
                        str(pwd.getpwnam(self.user).pw_gid),
                        '--clear-groups']
        return [*wrapped, '--', *command]

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C.UTF-8',
                'HOME': str(self.directory), 'TMPDIR': str(self.directory),
                **(more or {})}


def program(name: str, *places: str) -> str:
    """Where a program is.

    :raises Missing: nowhere.
    """
    found = shutil.which(name, path=':'.join(
        [*places, '/usr/sbin', '/usr/bin', '/usr/local/bin']))
    if found is None or shutil.which('setpriv') is None:
        raise Missing(f'{name if found is None else "setpriv"} is not '
                      'installed: tools/setup.sh installs it')
    return found


def free_port() -> int:
    """A TCP port of loopback that nobody has, for a moment at least."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def answers(family: socket.AddressFamily, address: str | tuple[str, int]
            ) -> bool:
    """Whether something accepts connections there."""
    with socket.socket(family) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(address)
        except OSError:
            return False
        return True


def _tail(log: pathlib.Path) -> str:
    return log.read_text(errors='replace')[-2000:]
