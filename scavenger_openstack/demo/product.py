# SPDX-License-Identifier: Apache-2.0

"""The product, as the demo meets it: a process and its status file."""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_

INTERVAL_S = 1.0
MEMORY_WINDOW_S = 5
NETWORK_WINDOW_S = 5
START_S = 120.0
END_S = 30.0

CONFIG = """\
[DEFAULT]
debug = false
[agent]
interval_s = {interval_s:g}
controllers = scavenger
[libvirt]
uri =
[cgroups]
background_parents = {background}
foreground_parents = {foreground}
{more_cgroups}[network]
{network}[scavenger]
mode = {mode}
memory_window_s = {memory_window_s}
network_window_s = {network_window_s}
"""


def config(*, background: str, foreground: str, mode: str,
           memory_root: str = '', killable: str = '',
           links: str = '', interfaces: str = '') -> str:
    """The agent's configuration file, with the demo's short windows.

    The VMs of the host are none of the demo's business.
    """
    return CONFIG.format(
        background=background, foreground=foreground, mode=mode,
        interval_s=INTERVAL_S, memory_window_s=MEMORY_WINDOW_S,
        network_window_s=NETWORK_WINDOW_S,
        more_cgroups=''.join(
            f'{name} = {value}\n' for name, value in (
                ('killable_parents', killable),
                ('memory_root', memory_root)) if value),
        network=''.join(f'{name} = {value}\n' for name, value in (
            ('links', links), ('interfaces', interfaces)) if value))


def config_of(stage: stage_.Stage) -> str:
    """What the demo's own stage asks of the agent."""
    name, uplink = stage.tree.name, stage.uplink
    return config(
        background=f'{name}/background', foreground=f'{name}/foreground',
        mode='enforce', memory_root=name, killable=f'{name}/background',
        links=f'{uplink.link}={uplink.bytes_per_s:.0f}',
        interfaces=f'{name}{stage_.NETWORK}={uplink.background}')


def command(directory: pathlib.Path, text: str) -> list[str]:
    """Write the configuration; return how to start the product on it.

    It has no control plane, unless the text says so.
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
        self._seen: int | None = None
        self.last: dict[str, Any] = {}

    def look(self) -> bool:
        """Read it; false when it is missing or was read already."""
        try:
            inode = self._path.stat().st_ino
            if inode == self._seen:
                return False
            document = json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return False
        self._seen = inode
        if not isinstance(document, dict):
            return False
        self.last = document
        return True

    def facts(self) -> Mapping[str, Any]:
        controllers = self.last.get('controllers') or {}
        return (controllers.get('scavenger') or {}).get('facts') or {}

    def caps(self, key: str = 'caps') -> list[Mapping[str, Any]]:
        return [cap for cap in self.last.get(key) or ()
                if isinstance(cap, dict)]

    def counter(self, name: str) -> int:
        return int((self.last.get('counters') or {}).get(name) or 0)


def end(process: subprocess.Popen[bytes], what: str) -> None:
    """Ask the product to end and wait until it has.

    :raises DriverError: it ended badly or not at all.
    """
    early = process.poll()
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired as exc:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)     # not if it is frozen, for instance
        raise errors.DriverError(
            f'scavenger-standalone does not end within {END_S:g} s of '
            f'SIGTERM{what}') from exc
    if early is not None or process.returncode not in (0, -15):
        raise errors.DriverError(
            'scavenger-standalone ended with '
            f'{process.returncode}{what}')


class Agent:
    """The product beside a stage: one process at a time."""

    def __init__(self, stage: stage_.Stage,
                 interrupt: interrupt_.Interrupt) -> None:
        self._stage = stage
        self._interrupt = interrupt
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, text: str, *more: str, reset: bool = True) -> Status:
        """Start it on a configuration and wait until it says that it turns.

        :param more: arguments
        :param reset: without the state of one before
        :raises DriverError: it does not start.
        :raises Interrupted: a signal asks to stop.
        """
        directory = self._stage.directory
        if reset:
            shutil.rmtree(directory / 'state', ignore_errors=True)
        status = Status(directory)
        self._process = self._stage.launch_outside(
            *command(directory, text), *more, log='agent')
        (directory / 'agent.pid').write_text(str(self._process.pid))
        deadline_s = time.monotonic() + START_S
        while not status.look():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline_s:
                raise errors.DriverError(
                    'scavenger-standalone '
                    + (f'does not start within {START_S:g} s'
                       if ended is None else f'ended with {ended}')
                    + (': ' + self._stage.said('agent')).rstrip(': '))
            self._interrupt.wait_until(time.monotonic() + 0.05)
        return status

    def stop(self) -> None:
        """Ask it to end, if it was started, and wait until it has.

        :raises DriverError: it ended badly or not at all.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        said = self._stage.said('agent')
        end(process, f': {said}' if said else '')
