# SPDX-License-Identifier: Apache-2.0



"""The second act: who did it?

Two services, one on the CPU and one on a disk, beside three batch jobs that
work and rest: one takes the CPUs, one the disk, and one disturbs nothing.
The product's detector sees only what it always sees.  It has to name the
right two, limit them while they disturb, and leave the third alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.decision import rates as rates_
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import product
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.recording import replay
from scavenger_openstack import text

SERVICE, LOOKUP = '/foreground/service', '/foreground/lookup'
CRUNCH, SCAN = '/background/crunch', '/background/scan'
STEADY = '/background/steady'
GROUPS = ('', '/foreground', SERVICE, LOOKUP,
          '/background', CRUNCH, SCAN, STEADY)

QUIET_S = 40.0
"""Before the first job disturbs."""

IRREGULAR = (0.4, 1.6)
"""Bounds of the times of a job, as parts of their mean."""

LAUNCH_S = 2.0
EVERY_S = 0.2
OTHERS_S = 10.0
"""Between two looks at what else runs on the machine."""
DRAIN_S = 12.0
"""After the last disturbance, for the limits to be removed."""

SETTLE_S = 4.0
"""After a cap is set, until it is judged: two samples."""

BUSY = 2
"""Times the service's load per CPU in the first act: ``run_delay`` of a
workload that uses less than a quarter of a CPU is not looked at."""

CPU_TIME = '0'
"""The service's requests are CPU time: a CPU that is now slow and now fast
must not decide how much it uses."""

LOOKUPS_PER_S = 150.0
LOOKUP_THREADS = 8
SCAN_THREADS = 8
SAMPLE_S = 2.0

CONFIG = """\
[agent]
interval_s = 1
controllers = attribution
[libvirt]
uri =
[cgroups]
background_parents = {name}/background
foreground_parents = {name}/foreground
memory_root = {name}
io_devices = {device}
[attribution]
mode = enforce
sample_s = {sample_s:g}
"""


class Job(NamedTuple):
    """Batch work that works for about ``on_s`` and rests for ``off_s``.

    ``victim`` is the service that suffers from it, by the cause ``signal``,
    for those that disturb.
    """

    group: str
    on_s: float
    off_s: float
    offset_s: float
    victim: str = ''
    signal: str = ''
    cause: str = ''

    def works(self, at_s: float, end_s: float) -> bool:
        """Whether it does, ``at_s`` after the start."""
        # Irregular: a shifted periodic job would fit as well as the real
        # one, and be no evidence.
        rng = random.Random(self.group)
        time_s = QUIET_S + self.offset_s if self.victim else 0.0
        while time_s <= at_s < end_s:
            rest_s = time_s + self.on_s * rng.uniform(*IRREGULAR)
            if at_s < rest_s:
                return True
            time_s = rest_s + self.off_s * rng.uniform(*IRREGULAR)
        return False


JOBS = (Job(CRUNCH, 14.0, 11.0, 0.0, SERVICE, 'run_delay', 'core'),
        Job(SCAN, 17.0, 15.0, 5.0, LOOKUP, 'io_wait', 'disk'),
        Job(STEADY, 9.0, 8.0, 0.0))


class Who:
    """Plays the act on a stage made with :data:`GROUPS`.

    :param seconds: from the first disturbance to the last
    :param more_config: lines for the configuration of the agent
    """

    def __init__(self, stage: stage_.Stage,
                 interrupt: interrupt_.Interrupt, *, seconds: float,
                 seed: str, more_config: str = '') -> None:
        self._stage = stage
        self._interrupt = interrupt
        self._end_s = QUIET_S + seconds
        self._seed = seed
        self._more_config = more_config
        self._agent = product.Agent(stage, interrupt)
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self._programs: dict[str, tuple[str, ...]] = {}
        self._looks: list[dict[str, Any]] = []
        self._others: list[dict[str, Any]] = []

    def play(self) -> dict[str, Any]:
        """Play it; what :mod:`scavenger_openstack.demo.who.result` takes.

        :raises Interrupted: a signal asks to stop.
        :raises DriverError: a program failed before the first look; what
            fails later is in the record, as ``problem``.
        """
        stage = self._stage
        stage.accounting.switch_on()
        stage.disk.make()
        self._divide()
        before = stage.tree.knobs()
        status = self._agent.start(self._config(), '--record',
                                   stage.file('recording'))
        # Everybody after the accounting, so that all their waits count.
        start_s = time.monotonic() + LAUNCH_S
        self._launch(start_s)
        problem = ''
        try:
            self._run(start_s, status)
            stage.end()
            self.stop()
        except (errors.DriverError, OSError) as exc:
            if not self._looks:
                raise
            problem = str(exc)
        finally:
            text.over(sys.stderr)
        return {
            'problem': problem, 'others': self._others,
            'seconds': self._end_s, 'sample_s': SAMPLE_S,
            'cpus': len(stage.cpus), 'looks': self._looks,
            'latencies': {
                SERVICE: self._latencies('arrivals', 'service.out'),
                LOOKUP: self._latencies('lookups', 'lookup.out')},
            'signals': self._signals(start_s, problem),
            'knobs_left': stage.tree.changed(before)}

    def _config(self) -> str:
        stage = self._stage
        return CONFIG.format(
            name=stage.tree.name, device=stage.disk.device,
            sample_s=SAMPLE_S) + self._more_config

    def start_again(self) -> None:
        """Start the agent again, with what it knows.

        :raises DriverError: it does not start.
        :raises Interrupted: a signal asks to stop.
        """
        self._agent.start(self._config(), reset=False)

    def play_on(self) -> None:
        """Play the act again and again, and look at nothing.

        :raises Interrupted: a signal asks to stop.
        :raises DriverError: a program failed.
        """
        while True:
            self._jobs = {}
            start_s = time.monotonic() + LAUNCH_S
            self._launch(start_s)
            working: dict[str, bool] = {}
            while (at_s := time.monotonic() - start_s) < self._end_s:
                self._work(at_s, working)
                self._interrupt.wait_until(time.monotonic() + EVERY_S)
            self._stage.end()

    def stop(self) -> None:
        """End the agent.

        :raises DriverError: it did not end as it should.
        """
        self._agent.stop()

    def _divide(self) -> None:
        """What shares what: the CPUs are divided between the two pairs, as
        between VMs that are pinned, so that each has one antagonist."""
        stage = self._stage
        half = len(stage.cpus) // 2
        for groups, cpus in (((SERVICE, CRUNCH, STEADY), stage.cpus[:half]),
                             ((LOOKUP, SCAN), stage.cpus[half:])):
            for group in groups:
                stage.tree.set_cpus(group, ','.join(map(str, cpus)))
        # VMs of one size: the service is not to be starved, but to wait.
        stage.tree.set_cpu_weight('/background', 1)
        # A fiftieth of a CPU, whatever it wants, in short pieces: it disturbs
        # nothing.
        stage.tree.set_cpu_quota(STEADY, 0.02)

    def _launch(self, start_s: float) -> None:
        stage, file = self._stage, self._stage.file
        total_s = self._end_s
        cpus = BUSY * (len(stage.cpus) // 2)
        load.write_doubles(stage.directory / 'arrivals', [
            value for pair in load.arrivals(
                seed=self._seed, seconds=total_s, warm_up_s=0.0, cpus=cpus)
            for value in pair])
        load.write_doubles(stage.directory / 'lookups',
                           lookups(self._seed, total_s))
        start = f'{start_s:.9f}'
        stage.launch('service', file('arrivals'), file('service.out'),
                     str(load.THREADS_PER_CPU * cpus), start,
                     CPU_TIME, below=SERVICE)
        stage.launch('lookup', stage.disk.path, file('lookups'),
                     file('lookup.out'), str(LOOKUP_THREADS), start,
                     below=LOOKUP)
        threads = load.HOG_THREADS_PER_CPU * (len(stage.cpus) // 2)
        self._programs = {
            CRUNCH: ('hog', file('crunch.out'), str(threads)),
            SCAN: ('scan', stage.disk.path, file('scan.out'),
                   str(SCAN_THREADS)),
            STEADY: ('hog', file('steady.out'), '1')}

    def _run(self, start_s: float, status: product.Status) -> None:
        looks = self._looks
        before = self._stage.look()
        working: dict[str, bool] = {}
        next_s = time.monotonic()
        while True:
            at_s = time.monotonic() - start_s
            self._work(at_s, working)
            status.look()
            looks.append(self._look(at_s, status, working))
            done = at_s >= self._end_s + DRAIN_S
            if done or time.monotonic() >= before.at_s + OTHERS_S:
                now = self._stage.look()
                self._others.append(self._stage.between(before, now))
                before = now
            if done:
                return
            _show(at_s, self._end_s + DRAIN_S, looks[-1])
            next_s += EVERY_S
            self._interrupt.wait_until(next_s)

    def _work(self, at_s: float, working: dict[str, bool]) -> None:
        """Let each job work, or have it rest, as it is time to."""
        for job in JOBS:
            works = job.works(at_s, self._end_s)
            if working.get(job.group) != works:
                working[job.group] = works
                self._send(job.group, works)

    def _send(self, group: str, works: bool) -> None:
        process = self._jobs.get(group)
        if process is None:
            # Only once it works: one that is stopped before it is in its
            # cgroup would not be found.
            if works:
                self._jobs[group] = self._stage.launch(
                    *self._programs[group], below=group)
            return
        if process.poll() is not None:
            raise errors.DriverError(
                f'batch work {process.args!r} ended with '
                f'{process.returncode}')
        os.kill(process.pid, signal.SIGCONT if works else signal.SIGSTOP)

    def _look(self, at_s: float, status: product.Status,
              working: Mapping[str, bool]) -> dict[str, Any]:
        name, directory = self._stage.tree.name, self._stage.directory
        return {
            'at_s': at_s, 'working': dict(working),
            'caps': {str(cap['workload']).removeprefix(name): cap['value']
                     for cap in status.caps()},
            'incidents': [
                {'victim': one['victim'].removeprefix(name),
                 'signal': one['signal'], 'cause': one['cause'],
                 'threshold': one['threshold'],
                 'outcome': one['outcome'],
                 'antagonists': [who.removeprefix(name)
                                 for who in one.get('antagonists', ())]}
                for one in status.last.get('incidents') or ()],
            'work': {group: sum(load.read_integers(directory / file))
                     for group, file in ((CRUNCH, 'crunch.out'),
                                         (SCAN, 'scan.out'),
                                         (STEADY, 'steady.out'))}}

    def _latencies(self, due: str, out: str) -> list[tuple[float, float]]:
        """(due, latency) in s of all that were served."""
        directory = self._stage.directory
        return [(at_s, latency_s) for at_s, latency_s in zip(
            load.read_doubles(directory / due)[::2],
            load.read_doubles(directory / out), strict=False) if latency_s]

    def _signals(self, start_s: float, problem: str
                 ) -> dict[str, list[dict[str, Any]]]:
        """What the agent saw of each workload, from its own recording;
        nothing after a problem, which may have broken the recording off."""
        if problem:
            return {}
        offset_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        name = self._stage.tree.name
        found: dict[str, list[dict[str, Any]]] = {}
        previous = None
        for turn in replay.read(pathlib.Path(
                self._stage.file('recording'))):
            if turn.sample is None:
                continue
            rates = rates_.rates(previous, turn.sample)
            previous = turn.sample
            for one in rates.workloads:
                found.setdefault(
                    one.workload.id.removeprefix(name), []).append({
                        'at_s': rates.time_s - offset_s - start_s,
                        'run_delay': one.run_delay,
                        'io_wait': one.io_wait_s_per_op,
                        'cores': one.cpu_cores,
                        'io_bytes_per_s': one.io_bytes_per_s})
        return found


def lookups(seed: str, seconds: float) -> list[float]:
    """Pairs of (due in s, place 0..1), a Poisson process."""
    rng = random.Random(f'{seed} lookups')
    found, at_s = [], 0.0
    while (at_s := at_s + rng.expovariate(LOOKUPS_PER_S)) < seconds:
        found += [at_s, rng.random()]
    return found


def _show(at_s: float, total_s: float, look: Mapping[str, Any]) -> None:
    """What happens now."""
    def short(groups: Iterable[str]) -> str:
        return ', '.join(group.rsplit('/', 1)[-1] for group in groups) \
            or 'none'
    works = short(group for group, on in look['working'].items() if on)
    named = short(sorted({group for one in look['incidents']
                          for group in one['antagonists']}))
    text.over(sys.stderr, (
        f'{max(0.0, total_s - at_s):4.0f} s left   works: {works}   '
        f'named: {named}   limited: {short(look["caps"])}'))
