# SPDX-License-Identifier: Apache-2.0

"""Where a service runs beside an SoI: CPUs, a link, a disk, a client.

Service and SoI are at one end of a link with a rate, client and remote end
of the network SoI at the other.  The client runs before all else on its CPU:
it stands for other hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import time
from typing import Any
from typing import NamedTuple

from applications import ADDRESS
from applications import Application
from applications import DIGITS

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import cgroup as cgroup_
from scavenger_openstack.ibench.host import link as link_
from scavenger_openstack.ibench.host import scratch
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench.profile import workload
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import meters
from scavenger_openstack.tests.functional import namespaces

LINK_BYTES_PER_S = 125_000_000
START_S = 30.0
WARM_S = 0.5
TURN_S = 0.05
CLIENT = pathlib.Path(__file__).parent / 'client.c'


@dataclasses.dataclass(frozen=True)
class Stage:
    """``service_cpu`` is that of the service, and of an SoI of a core;
    ``other_cpu`` that of all other SoIs and of the client."""

    host: run.Host
    link_host: run.Host
    link: link_.Link
    directory: pathlib.Path
    client: pathlib.Path
    service_cpu: int
    other_cpu: int

    def plan(self, soi: catalogue.Soi) -> arguments.Start:
        """Return how an SoI is started beside a service.

        :raises ConfigError: it cannot be here.
        """
        core = soi.kind == catalogue.Kind.RATE
        cpu = self.service_cpu if core else self.other_cpu
        return arguments.plan_start(soi, arguments.Surroundings(
            geometry=geometry.read_geometry(cpu, {}),
            memory=geometry.read_memory(None), cpus=(cpu,),
            path=str(self.directory), address=self.link.address))

    def host_of(self, soi: catalogue.Soi) -> run.Host:
        return (self.link_host if soi.name == 'network_bandwidth'
                else self.host)

    @property
    def far(self) -> tuple[str, ...]:
        """Words before a program at the other end of the link."""
        return 'nsenter', f'--net={link_.NETNS / self.link.far}'


@contextlib.contextmanager
def opened(interrupt: interrupt_.Interrupt,
           link_bytes_per_s: float = LINK_BYTES_PER_S, *,
           parent: str = '/', alone: bool = True) -> Iterator[Stage]:
    """Make cgroup, link and scratch; all is removed at the end.

    :param parent: the cgroup below which theirs is made
    :param alone: no other ``scavenger-ibench`` may run on this host; False
        where one is to be run meanwhile, which locks that out itself
    :raises ConfigError: it cannot be here: root and two CPUs are needed.
    """
    if os.geteuid() != 0:
        raise errors.ConfigError('run it as root: it makes a cgroup, and '
                                 'network namespaces with a link')
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise errors.ConfigError('two CPUs are needed: for the service, and '
                                 'for what is beside it')
    with contextlib.ExitStack() as stack:
        if alone:
            host, _ = stack.enter_context(session.opened(
                interrupt=interrupt, parent=parent, alone=True, favour=True))
        else:
            cgroup = cgroup_.Cgroup(parent)
            stack.callback(cgroup.remove)
            cgroup.make()
            host = run.Host(build.build(), interrupt, cgroup)
        directory = stack.enter_context(scratch.made())
        directory.chmod(0o755)
        client = directory / 'client'
        build.compile_c([CLIENT], client)
        # The remote end is no part of what is profiled by its cgroup.
        link_host, link = stack.enter_context(session.linked(
            host if alone else host._replace(cgroup=None), cpus[1:2]))
        set_rate(link, link_bytes_per_s)
        yield Stage(host, link_host, link, directory, client, cpus[0],
                    cpus[1])


def set_rate(link: link_.Link, bytes_per_s: float) -> None:
    """Let the near end send at most so much.

    :raises CalledProcessError: tc refuses.
    """
    namespaces.run(
        'tc', '-n', link.near, 'qdisc', 'replace', 'dev', link.device,
        'root', 'tbf', 'rate', f'{8 * bytes_per_s:.0f}bit', 'burst', '128kb',
        'latency', '50ms')


class Use(NamedTuple):
    """What a service has used until now; memory is that of now, without
    what processes share."""

    cpu_s: float
    waited_s: float
    storage_bytes: float
    resident_bytes: float


class Service:
    """A service that runs, with all of its processes."""

    def __init__(self, application: Application,
                 process: subprocess.Popen[bytes]) -> None:
        self.application = application
        self.process = process

    def read_use(self) -> Use:
        """Read what its processes have used."""
        pids = workload.of_group(self.application.name,
                                 self.process.pid).processes()
        times = workload.read_times(workload.threads_of(pids),
                                    disks=False).values()
        storage = pages = 0
        for pid in pids:
            with contextlib.suppress(FileNotFoundError,
                                     ProcessLookupError):
                storage += meters.storage_bytes(pid)
                fields = pathlib.Path(f'/proc/{pid}/statm').read_text(
                    ).split()
                pages += int(fields[1]) - int(fields[2])
        return Use(sum(each.ran for each in times) / workload.NS_PER_S,
                   sum(each.cpu_wait for each in times) / workload.NS_PER_S,
                   storage, pages * os.sysconf('SC_PAGE_SIZE'))


@contextlib.contextmanager
def serving(stage: Stage, application: Application,
            cpus: Sequence[int] | None = None) -> Iterator[Service]:
    """Run a service with its data.

    :raises ConfigError: it does not start.
    """
    directory = stage.directory / application.name
    directory.mkdir()
    directory.chmod(0o755)
    command = application.prepare(directory, application.port)
    process = run.start_process(
        [*stage.link.enter, *command], stage.host.cgroup,
        cpus or (stage.service_cpu,))
    try:
        _wait_listening(stage, application, process)
        if application.fill is not None:
            with namespaces.socket_in(stage.link.far) as connection:
                connection.connect((ADDRESS, application.port))
                application.fill(connection)
        yield Service(application, process)
    finally:
        if application.name == 'postgresql' and process.poll() is None:
            process.send_signal(signal.SIGINT)  # connections may be open
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(run.END_S)
        run.end_process(process)
        subprocess.run(['rm', '-rf', str(directory)], check=True)


def _wait_listening(stage: Stage, application: Application,
                    process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_S
    while True:
        stage.host.interrupt.check()
        if process.poll() is not None:
            assert process.stderr is not None
            raise errors.ConfigError(
                f'{application.name} ended: '
                + process.stderr.read().decode()[-300:])
        with namespaces.socket_in(stage.link.far) as connection, \
                contextlib.suppress(OSError):
            connection.settimeout(1)
            connection.connect((ADDRESS, application.port))
            return
        if time.monotonic() > until_s:
            raise errors.ConfigError(f'{application.name} does not listen '
                                     f'after {START_S:g} s')
        time.sleep(0.1)


class Reading(NamedTuple):
    """What a client and the kernel of the host saw of a service.

    :ivar answers: the client's report
    :ivar seconds: between the two readings of what was used
    :ivar reached_percent: the rate of the SoI beside, of that alone
    """

    answers: dict[str, Any]
    seconds: float
    cpu_s: float
    waited_s: float
    storage_bytes: float
    resident_bytes: float
    reached_percent: float | None

    @property
    def throughput_per_s(self) -> float:
        return float(self.answers['answered'] / self.answers['seconds'])

    @property
    def goodput(self) -> float:
        """The share of requests that were answered within the target."""
        return float(self.answers['within'] / self.answers['requests'])


def client_command(stage: Stage, application: Application, *,
                   seconds: float, target_s: float, rate_share: float = 1.0,
                   endless: bool = False) -> list[str]:
    """Return the command of the client of a service; it runs before all
    else on its CPU."""
    words = {
        'rate': application.rate_per_s * rate_share, 'seconds': seconds,
        'warm_s': 0 if endless else WARM_S, 'endless': int(endless),
        'connections': application.connections, 'target_s': target_s,
        'keys': application.keys, 'at': application.at, 'digits': DIGITS,
        'request': application.request.hex()}
    if application.hello:
        words['hello'] = application.hello.hex()
    return ['chrt', '--fifo', '1', *stage.far, str(stage.client), ADDRESS,
            str(application.port),
            *(f'{key}={value}' for key, value in words.items())]


class _Client:
    """The client as a process, and what it reported."""

    def __init__(self, stage: Stage, service: Service, seconds: float,
                 target_s: float, rate_share: float) -> None:
        self._service = service
        self.process = run.start_process(
            client_command(stage, service.application, seconds=seconds,
                           target_s=target_s, rate_share=rate_share),
            None, (stage.other_cpu,))
        self._before: tuple[float, Use] | None = None
        self.after: tuple[float, Use] | None = None
        self.answers: dict[str, Any] = {}

    def read(self) -> bool:
        """Read what it printed; whether it is done.

        :raises DriverError: it failed.
        """
        stdout, stderr = self.process.stdout, self.process.stderr
        assert stdout is not None and stderr is not None
        while select.select([stdout], [], [], 0)[0]:
            line = stdout.readline()
            now = time.monotonic(), self._service.read_use()
            if not line:
                raise errors.DriverError(
                    f'{self._service.application.name}: '
                    + stderr.read().decode().strip()[-300:])
            if self._before is None:
                self._before = now
            else:
                self.after, self.answers = now, json.loads(line)
                return True
        return False

    def reading(self, reached_percent: float | None) -> Reading:
        assert self._before is not None and self.after is not None
        (begin_s, before), (end_s, after) = self._before, self.after
        return Reading(
            self.answers, end_s - begin_s, after.cpu_s - before.cpu_s,
            after.waited_s - before.waited_s,
            after.storage_bytes - before.storage_bytes,
            after.resident_bytes, reached_percent)


def read_beside(stage: Stage, service: Service, start: arguments.Start,
                calibrated: run.Event, percent: float, *, seconds: float,
                target_s: float, rate_share: float = 1.0) -> Reading:
    """Use a service while an SoI holds an intensity.

    :raises ConfigError: the SoI cannot be here.
    :raises DriverError: SoI or client fails.
    :raises Interrupted: a signal came.
    """
    clients: list[_Client] = []

    def follow(kernels: Sequence[run.Kernel]) -> bool:
        if not clients and kernels[0].result.levels:
            clients.append(_Client(stage, service, seconds, target_s,
                                   rate_share))
        return bool(clients) and clients[0].read()

    try:
        result, = run.play(stage.host_of(start.soi), [(start, run.level_words(
            [arguments.Level(percent, run.ENDLESS_S)],
            chunk_s=calibrated['chunk_s']))], on_turn=follow, turn_s=TURN_S)
    finally:
        for client in clients:
            run.end_process(client.process)
    level = result.levels[-1]
    alone = calibrated['operations_per_s']
    return clients[0].reading(
        100 * level['operations'] / level['seconds'] / alone
        if alone and level['seconds'] else None)


def read_alone(stage: Stage, service: Service, *, seconds: float,
               target_s: float, rate_share: float = 1.0) -> Reading:
    """Use a service without anything beside.

    :raises DriverError: the client fails.
    :raises Interrupted: a signal came.
    """
    client = _Client(stage, service, seconds, target_s, rate_share)
    try:
        while not client.read():
            stage.host.interrupt.check()
            time.sleep(TURN_S)
        return client.reading(None)
    finally:
        run.end_process(client.process)
