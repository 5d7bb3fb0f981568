# SPDX-License-Identifier: Apache-2.0

"""The programs of OpenStack, each with a directory and a log of its own."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import signal
import socket
import time
import urllib.error
import urllib.request

from scavenger_openstack.tests.functional.openstack.configuration import Site
from scavenger_openstack.tests.functional.servers import process

SERVE = pathlib.Path(__file__).with_name('serve.py')

APPLICATIONS = {'keystone': ('keystone.wsgi.api', '/v3'),
                'placement': ('placement.wsgi.api', '/'),
                'glance': ('glance.wsgi.api', '/versions'),
                'nova': ('nova.wsgi.osapi_compute', '/')}
"""Service -> its WSGI module, and what answers without credentials."""

ANSWER_S = 30.0
AGAIN_S = 0.1
TAIL = 4000

Ready = Callable[[], bool]


def at_once() -> bool:
    """Of a program that shows in another way that it works."""
    return True


class Service(process.Server):
    """One program, as root, with the processes that it forks.

    ``variables`` are its environment, besides the usual.
    """

    user = None
    start_s = 300.0

    def __init__(self, name: str, command: Sequence[str],
                 environment: Mapping[str, str],
                 ready: Ready) -> None:
        super().__init__(name)
        self.command = list(command)
        self.variables = dict(environment)
        self._is_ready = ready

    @property
    def log(self) -> pathlib.Path:
        """What the program has written."""
        return self.directory / f'{pathlib.Path(self.command[0]).name}.log'

    @property
    def running(self) -> bool:
        return bool(self._processes) and self._processes[0].poll() is None

    def begin(self) -> None:
        """Start it, the first time or again, and wait until it is ready."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it, and let others start meanwhile."""
        self.start(self.command, at_once, self.variables)

    def wait(self) -> None:
        """Return when it is ready.

        :raises RuntimeError: it ended, or is not ready in time; with its
            last lines.
        """
        deadline = time.monotonic() + self.start_s
        while not self._is_ready():
            if not self.running or time.monotonic() > deadline:
                text = self.log.read_text(errors='replace')
                raise RuntimeError(f'{self.kind} does not come up: '
                                   f'{text[-TAIL:]}')
            time.sleep(AGAIN_S)

    def stop(self, end: signal.Signals = signal.SIGTERM) -> None:
        """End it; what it has forked does not outlive it."""
        groups = self.pids
        super().stop(end)
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def application(site: Site, name: str, plugins: pathlib.Path) -> Service:
    """One of :data:`APPLICATIONS`, behind HTTP."""
    module, path = APPLICATIONS[name]
    port = site.ports[name]
    return Service(
        name, [str(site.environment / 'bin/python'), '-P', str(SERVE),
               module, str(port)],
        {f'OS_{name.upper()}_CONFIG_DIR': str(site.directory(name)),
         **environment(site, plugins)},
        lambda: answers(f'{site.url(name)}{path}', port))


def daemon(site: Site, name: str, configuration: pathlib.Path,
           plugins: pathlib.Path, ready: Ready = at_once) -> Service:
    """A program of Nova without a port, such as ``nova-scheduler``."""
    return Service(
        name, [str(site.environment / 'bin' / name), '--config-file',
               str(configuration)], environment(site, plugins), ready)


def environment(site: Site, plugins: pathlib.Path) -> dict[str, str]:
    """Variables of every program; ours is found in ``plugins``."""
    return {'PATH': f'{site.environment}/bin:/usr/sbin:/usr/bin:/sbin:/bin',
            'PYTHONPATH': str(plugins), 'PYTHONDONTWRITEBYTECODE': '1'}


def answers(url: str, port: int) -> bool:
    """Whether something there speaks HTTP, and has no fault."""
    if not process.answers(socket.AF_INET, ('127.0.0.1', port)):
        return False        # an application is imported first
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S):
            return True
    except urllib.error.HTTPError as exc:
        return exc.code < 500
    except OSError:
        return False
