# SPDX-License-Identifier: Apache-2.0

"""A link of its own for the network SoI: two namespaces and a veth pair.

The remote end serves in one of them, the kernel asks from the other.
"""

from __future__ import annotations

from collections.abc import Iterable
import contextlib
import os
import pathlib
import subprocess

from scavenger_openstack import errors
from scavenger_openstack.ibench.host.cgroup import Cgroup
from scavenger_openstack.ibench.host.cgroup import is_alive
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench import run

NETNS = pathlib.Path('/run/netns')
PREFIX = 'scavenger-ibench-'
PORT = 7005
FAR = '10.99.0.2'
ANSWER_S = 60.0


class Link:
    """``near`` and ``far`` are namespaces; :meth:`remove` works always."""

    address = f'{FAR}:{PORT}'
    device = 'soi0'

    def __init__(self) -> None:
        self.near, self.far = (f'{PREFIX}{os.getpid()}-{end}'
                               for end in ('near', 'far'))
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def enter(self) -> tuple[str, ...]:
        """Words before a program that is to run at the near end."""
        return _enter(self.near)

    def make(self) -> None:
        """Make namespaces and devices, and set them up.

        :raises ConfigError: this host cannot.
        """
        try:
            for name in (self.near, self.far):
                _ip('netns', 'add', name)
            _ip('-n', self.near, 'link', 'add', self.device, 'type', 'veth',
                'peer', 'name', 'soi1', 'netns', self.far)
            for name, device, address in (
                    (self.near, self.device, '10.99.0.1'),
                    (self.far, 'soi1', FAR)):
                _ip('-n', name, 'address', 'add', f'{address}/24', 'dev',
                    device)
                _ip('-n', name, 'link', 'set', device, 'up')
        except errors.DriverError as exc:
            raise errors.ConfigError(
                f'{exc}; a link of its own needs network namespaces and '
                'veth, --address does without') from exc

    def serve(self, program: pathlib.Path, cgroup: Cgroup | None,
              interrupt: Interrupt, cpus: Iterable[int]
              ) -> None:
        """Start the remote end and wait until it listens.

        :param cpus: where it runs; none: where this process may
        :raises ConfigError: it cannot be started, or cannot listen.
        :raises Interrupted: a signal came.
        """
        self._server = run.start_process(
            [*_enter(self.far), str(program), 'serve',
             f'address={self.address}'], cgroup, cpus)
        run.wait_serving(self._server, interrupt)

    def remove(self) -> None:
        """End the remote end and remove the namespaces; gone is fine.

        :raises DriverError: one does not go.
        """
        if self._server is not None:
            run.end_process(self._server)
        for name in (self.near, self.far):
            _delete(name)


def _enter(name: str) -> tuple[str, ...]:
    return 'nsenter', f'--net={NETNS / name}'


def _ip(*words: str) -> None:
    """
    :raises DriverError: ip is not installed, fails, or does not answer.
    """
    command = 'ip', *words
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, start_new_session=True,
            timeout=ANSWER_S)
    except FileNotFoundError as exc:
        raise errors.DriverError('ip is not installed: install iproute2'
                                 ) from exc
    except subprocess.TimeoutExpired as exc:
        raise errors.DriverError(f'{" ".join(command)}: no answer in '
                                 f'{ANSWER_S:.0f} s') from exc
    if done.returncode:
        raise errors.DriverError(
            f'{" ".join(command)}: '
            f'{done.stderr.strip() or f"exit status {done.returncode}"}')


def _delete(name: str) -> None:
    if (NETNS / name).exists():
        _ip('netns', 'delete', name)


def remove_leftovers() -> None:
    """Remove namespaces of runs whose process is gone."""
    for path in NETNS.glob(PREFIX + '*-*'):
        if not is_alive(
                path.name.removeprefix(PREFIX).partition('-')[0]):
            # Another run may be at it, too.
            with contextlib.suppress(errors.DriverError):
                _delete(path.name)
