# SPDX-License-Identifier: Apache-2.0

"""The product, as the demo uses it: a process and its status file."""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from scavenger_openstack.demo.stage.stage import Stage
from scavenger_openstack import errors
from scavenger_openstack.ibench.interrupt import Interrupt

START_S = 120.0
END_S = 30.0
AGAIN_S = 3.0
"""Time after which a signal is sent again: on a full host another thread than
the main one may get it, and then nothing wakes that up."""

CONFIG = """\
[libvirt]
uri =
[cgroups]
background_parents = {background}
foreground_parents = {foreground}
{more}"""


def config(*, background: str, foreground: str, more: str = '') -> str:
    """Return a configuration of the agent: as shipped, on cgroups below two.

    The VMs of the host are left out.

    :param more: further lines
    """
    return CONFIG.format(background=background, foreground=foreground,
                         more=more)


def command(directory: pathlib.Path, text: str) -> list[str]:
    """Write the configuration; return the command that starts the product.

    It has no control plane, unless ``text`` configures one.
    """
    file = directory / 'agent.conf'
    file.write_text(f'[conductor]\nenabled = false\n{text}')
    state = directory / 'state'
    state.mkdir(mode=0o700, exist_ok=True)
    return [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.standalone',
            '--config-file', str(file), '--state-dir', str(state)]


class Status:
    """The product's status file, read again when it was replaced."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory / 'state' / 'status.json'
        self._inode: int | None = None
        self.last: dict[str, Any] = {}

    def refresh(self) -> bool:
        """Read the file; return false if it is missing or was read already."""
        try:
            inode = self._path.stat().st_ino
            if inode == self._inode:
                return False
            document = json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return False
        self._inode = inode
        if not isinstance(document, dict):
            return False
        self.last = document
        return True

    def caps(self, key: str = 'caps') -> list[Mapping[str, Any]]:
        return [cap for cap in self.last.get(key) or ()
                if isinstance(cap, dict)]


def end(process: subprocess.Popen[bytes], reason: str) -> None:
    """Ask the product to end and wait until it has.

    :raises DriverError: it ended badly or not at all.
    """
    early = process.poll()
    deadline_s = time.monotonic() + END_S
    try:
        while True:
            process.terminate()
            try:
                process.wait(AGAIN_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline_s:
                    raise
    except subprocess.TimeoutExpired as exc:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)     # not if it is frozen, for instance
        raise errors.DriverError(
            f'scavenger-standalone does not end within {END_S:g} s of '
            f'SIGTERM{reason}') from exc
    if early is not None or process.returncode not in (0, -15):
        raise errors.DriverError(
            'scavenger-standalone ended with '
            f'{process.returncode}{reason}')


class Agent:
    """The product beside a stage.

    :param text: its configuration
    :raises DriverError: it cannot be started.
    """

    def __init__(self, stage: Stage, text: str) -> None:
        self._stage = stage
        self.status = Status(stage.directory)
        self._mode, self._sent_s = '', 0.0
        self._process = stage.launch(
            *command(stage.directory, text), log='agent',
            at_end=signal.SIGTERM)

    def check(self) -> None:
        """Check that it runs, and send the last mode again if it is not set.

        :raises DriverError: it ended.
        """
        if self._process.poll() is not None:
            raise errors.DriverError(
                f'scavenger-standalone ended with {self._process.returncode}'
                + self._reason())
        controllers = self.status.last.get('controllers') or {}
        mode = (controllers.get('attribution') or {}).get('mode')
        if (self._mode not in ('', mode)
                and time.monotonic() > self._sent_s + AGAIN_S):
            self._sent_s = time.monotonic()
            self._process.send_signal(signal.SIGHUP)

    def wait(self, interrupt: Interrupt) -> None:
        """Wait for its first status.

        :raises DriverError: there is none.
        :raises Interrupted: a signal asks to stop.
        """
        deadline_s = time.monotonic() + START_S
        while not self.status.refresh():
            self.check()
            if time.monotonic() > deadline_s:
                raise errors.DriverError(
                    'scavenger-standalone has no status within '
                    f'{START_S:g} s{self._reason()}')
            interrupt.wait_until(time.monotonic() + 0.05)

    def reload(self, text: str, mode: str) -> None:
        """Give it another configuration.

        :param mode: of attribution, in there
        """
        command(self._stage.directory, text)
        self._mode, self._sent_s = mode, time.monotonic()
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Ask it to end and wait until it has.

        :raises DriverError: it ended badly or not at all.
        """
        end(self._process, self._reason())

    def _reason(self) -> str:
        line = self._stage.last_line('agent')
        return f': {line}' if line else ''
