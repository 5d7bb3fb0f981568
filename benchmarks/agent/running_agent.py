# SPDX-License-Identifier: Apache-2.0


"""A real agent as the benchmarks on guests run it: a process, its status."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import os
import pathlib
import signal
import subprocess
import sys
import time
from types import FrameType
from types import TracebackType

from scavenger_openstack.demo import product
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import domain_console
from scavenger_openstack.tests.functional import domain_image
from scavenger_openstack.tests.functional import hypervisor

START_S = 30.0

LIBVIRT = """\
[libvirt]
uri = {uri}
run_dir = {run_dir}
"""


def libvirt_section(host: hypervisor.Hypervisor) -> str:
    """What tells the agent of a hypervisor of the benches."""
    return LIBVIRT.format(uri=host.uri, run_dir=host.run_dir)


def guarded(work: Callable[[], int]) -> int:
    """Do the work of a benchmark with guests; the exit code.

    Ctrl-C ends it, and what it made, once: a second one does not keep it
    from clearing away.
    """
    if why := hypervisor.unavailable():
        print(why, file=sys.stderr)
        return 2
    stopped: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not stopped:
            stopped.append(number)
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        domain_image.image()
        return work()
    except BaseException as exc:
        # A fixture that was broken off may raise something else.
        if stopped:
            say('stopped; all is as before')
            return 130
        if isinstance(exc, (errors.ScavengerError, hypervisor.Unavailable,
                            hypervisor.HypervisorError,
                            domain_console.ConsoleError,
                            domain_image.Unavailable)):
            say(str(exc))
            return 1
        raise


class Agent:
    """scavenger-standalone, from when it turns until it has ended.

    It ends, and removes its limits, also when the benchmark is killed.

    :param directory: for its configuration, its state and its log
    :param text: the configuration
    :param words: more for its command line
    :param program: what to run in the place of scavenger-standalone
    :param cpu: the only CPU that it may use
    :raises DriverError: it does not start, or ends badly.
    """

    def __init__(self, directory: pathlib.Path, text: str, *words: str,
                 program: Sequence[str] = (), cpu: int | None = None
                 ) -> None:
        command = product.command(directory, text)
        if program:
            command[1:4] = program
        self._command = [
            'setpriv', '--pdeathsig', 'TERM',
            *(() if cpu is None else ('taskset', '-c', str(cpu))),
            *command, *words]
        self._log = directory / 'agent.log'
        self.status = product.Status(directory)

    def __enter__(self) -> Agent:
        with self._log.open('wb') as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + START_S
            while not self.status.refresh():
                if (self._process.poll() is not None
                        or time.monotonic() > deadline):
                    raise errors.DriverError(
                        f'the agent does not start: {self.said()}')
                time.sleep(0.05)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            product.end(self._process, '')
        except errors.DriverError as exc:
            if kind is None:
                raise errors.DriverError(f'{exc}: {self.said()}') from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> bool:
        """Read its status; false when that is as it was.

        :raises DriverError: it has ended.
        """
        if self._process.poll() is not None:
            raise errors.DriverError(f'the agent has ended: {self.said()}')
        return self.status.refresh()

    def said(self) -> str:
        """The last of its log."""
        text = self._log.read_text(errors='replace').strip()
        return text[-2000:] or 'it says nothing'

    def log(self) -> str:
        return self._log.read_text(errors='replace')


def wait_until(when_s: float, what: str, agent: Agent | None = None) -> None:
    """Sleep until CLOCK_MONOTONIC ``when_s``; say how long it will be."""
    while (left_s := when_s - time.monotonic()) > 0:
        show(f'{what}, {left_s:.0f} s left')
        if agent is not None:
            agent.look()
        time.sleep(min(left_s, 0.5))
    show('')


def show(text: str) -> None:
    """One line that is written over, where people look."""
    try:
        width = os.get_terminal_size(2).columns
    except OSError:
        return
    os.write(2, f'\r\033[K{text[:width - 1]}'.encode())


def say(text: str) -> None:
    """A line that stays."""
    show('')
    print(text, file=sys.stderr, flush=True)
