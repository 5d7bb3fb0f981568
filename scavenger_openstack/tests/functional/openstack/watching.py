# SPDX-License-Identifier: Apache-2.0

"""Programs of the tests' OpenStack with faults in them, or otherwise
configured; and how long our notification driver keeps a nova-compute."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import signal
import time
from typing import Protocol

import fixtures

from scavenger_openstack.tests.functional import blunt
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional.openstack import stack as stack_
from scavenger_openstack.tests.functional.openstack import watched_notifier
from scavenger_openstack.tests.functional.servers import rabbitmq

OURS = 'driver = scavenger\n'
SECTION = '[scavenger]\n'

WATCHED = 'scavenger_watched'
NONE = 'noop'
"""Notification drivers: ours with a clock around it, and none."""

ENDED = 'instance.create.end'

ENTRY_POINTS = f"""
[oslo.messaging.notify.drivers]
{WATCHED} = {watched_notifier.__name__}:{watched_notifier.Driver.__name__}
"""


class Server(Protocol):
    """A broker, or a program of ours."""

    def kill(self) -> None: ...

    def begin(self) -> None: ...


class Watched(fixtures.Fixture):
    """nova-compute of one host, started again with another driver.

    :param driver: :data:`WATCHED` or :data:`NONE`
    :param options: more of section ``[scavenger]`` of its ``nova.conf``
    """

    def __init__(self, stack: stack_.Stack, host: str, *,
                 driver: str = WATCHED, options: str = '') -> None:
        super().__init__()
        self._stack = stack
        self._host = host
        self._driver = driver
        self._options = options

    def _setUp(self) -> None:
        self._directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        plugin = self._directory / 'watched-0.dist-info'
        plugin.mkdir()
        (plugin / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: watched\nVersion: 0\n')
        (plugin / 'entry_points.txt').write_text(ENTRY_POINTS)
        service = self._stack.services[self._host]
        file = self._stack.configuration(self._host)
        text, variables = file.read_text(), service.variables
        self.addCleanup(self._stack.restart_compute, self._host)
        self.addCleanup(file.write_text, text)
        self.addCleanup(setattr, service, 'variables', variables)
        assert OURS in text and SECTION in text
        file.write_text(text.replace(OURS, f'driver = {self._driver}\n')
                        .replace(SECTION, f'{SECTION}{self._options}\n'))
        service.variables = {
            **variables, watched_notifier.VARIABLE: str(self._directory),
            'PYTHONPATH': f'{variables["PYTHONPATH"]}:{self._directory}'}
        self._stack.restart_compute(self._host)

    def boot(self, instance: str) -> list[watched_notifier.Call]:
        """Those of a boot, once it has ended; none before."""
        path = self._directory / watched_notifier.CALLS
        if not path.exists():
            return []
        found = [watched_notifier.Call(*json.loads(line))
                 for line in path.read_text().splitlines()]
        found = [call for call in found if call.instance == instance]
        return found if ENDED in {call.event for call in found} else []

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Our code raises within this."""
        path = self._directory / watched_notifier.RAISE
        path.touch()
        try:
            yield
        finally:
            path.unlink()


@contextlib.contextmanager
def changed(old: str, new: str, said: str, *programs: product.Program,
            variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Programs of ours run with another line in their files.

    :param said: what they log once they work
    :param variables: more of their environment
    """
    before = [(one, one.file.read_text(), one.service.variables)
              for one in programs]
    try:
        for program, text, has in before:
            assert old in text, text
            program.file.write_text(text.replace(old, new))
            program.service.variables = {**has, **(variables or {})}
        restart(said, *(one.service for one in programs))
        yield
    finally:
        for program, text, has in before:
            program.file.write_text(text)
            program.service.variables = has
        restart(said, *(one.service for one in programs))


def not_reconciling(stack: stack_.Stack
                    ) -> contextlib.AbstractContextManager[None]:
    """The conductor does not read from Nova, so that only notifications tell
    it of instances."""
    return changed(
        f'[nova]\n{product.RECONCILES}', f'[nova]\n{product.RECONCILES_NOT}',
        product.TAKEN, stack.conductor)


BLUNTLY = f'scavenger, {blunt.NAME}'
"""Controllers of an agent with the blunt detector."""


@contextlib.contextmanager
def blunt_detector(stack: stack_.Stack, directory: pathlib.Path
                   ) -> Iterator[None]:
    """The agent of the first host names background work at once.

    A shipped detector needs minutes, and CPUs to spare, before it does.  The
    others have none: their hosts share these CPUs, so that one finds what
    disturbs there, rightly, and then neither host is the better.

    :param directory: where the detector's entry point is made
    """
    variables = {'PYTHONPATH': f'{blunt.plugin(directory)}:{packages.TOP}'}
    try:
        with contextlib.ExitStack() as agents:
            for agent, controllers in zip(stack.agents(), (
                    BLUNTLY, *['scavenger'] * (len(stack.agents()) - 1)),
                    strict=True):
                agents.enter_context(changed(
                    '[agent]\n', f'[agent]\ncontrollers = {controllers}\n',
                    'started: ', agent, variables=variables))
            stack.agent_began()
            stack.wait_for_headroom()
            yield
    finally:
        stack.agent_began()


def restart(said: str, *programs: services.Service) -> None:
    """Start programs that run or not, and wait until they log something."""
    for one in programs:
        one.stop()
    began = [one.log.stat().st_size if one.log.exists() else 0
             for one in programs]
    for one in programs:
        one.launch()
    for one, at in zip(programs, began, strict=True):
        one.wait()
        deadline = time.monotonic() + one.start_s
        while said not in since(one, at):
            if not one.running or time.monotonic() > deadline:
                raise RuntimeError(f'{one.kind} does not come up: '
                                   + since(one, at)[-services.TAIL:])
            time.sleep(services.AGAIN_S)


def restart_with(service: services.Service, command: Sequence[str]) -> None:
    """Start a program that runs by another command."""
    service.stop()
    service.command = list(command)
    service.begin()


def since(service: services.Service, began: int) -> str:
    """What a program has logged since its log was that long."""
    with open(service.log, errors='replace') as log:
        log.seek(began)
        return log.read()


@contextlib.contextmanager
def frozen(broker: rabbitmq.RabbitMq) -> Iterator[None]:
    """A broker accepts connections and never answers."""
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


@contextlib.contextmanager
def down(server: Server) -> Iterator[None]:
    """A program does not run."""
    server.kill()
    try:
        yield
    finally:
        server.begin()


@contextlib.contextmanager
def hanging(service: services.Service) -> Iterator[None]:
    """A program accepts connections and never answers."""
    for group in service.pids:
        os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        for group in service.pids:
            os.killpg(group, signal.SIGCONT)
