# SPDX-License-Identifier: Apache-2.0

"""One phase from its first process to its last, and all rounds of them."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import subprocess
import time
from typing import Any

from scavenger_openstack.demo.filling import measure
from scavenger_openstack.demo.filling import phases as phases_
from scavenger_openstack.demo.filling import result
from scavenger_openstack.demo.load import batch as batch_
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import others
from scavenger_openstack.demo import product
from scavenger_openstack.demo import progress as progress_
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.demo.stage import uplink
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_

LAUNCH_S = 0.2
DRAIN_S = 3.0
BASE_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for on the command line."""

    names: Sequence[str]
    rounds: int
    seconds: float
    seed: str
    repeats: int = 0
    """Disturbed phases that are played again, in all."""


class Play:
    """Plays phases on a stage."""

    def __init__(self, stage: stage_.Stage, settings: Settings,
                 iterations_per_ms: float, interrupt: interrupt_.Interrupt,
                 progress: progress_.Progress) -> None:
        self._stage = stage
        self._settings = settings
        self._iterations_per_ms = iterations_per_ms
        self._interrupt = interrupt
        self._progress = progress
        self._agent = product.Agent(stage, interrupt)
        self._requests: list[tuple[float, float]] = []
        self._repeats = settings.repeats
        self.records: list[dict[str, Any]] = []
        self.rounds = 0

    def round(self, names: Sequence[str]) -> None:
        """Play one round; :attr:`records` grows by what
        :func:`result.summary` takes.

        :raises Interrupted: a signal asks to stop.
        :raises DriverError: a phase could not be played.
        """
        number = self.rounds
        for name in phases_.order(list(names), number):
            phase = phases_.PHASES[name]
            self._progress.begin(number, phase, self._settings.seconds)
            self.records.append(self.phase(phase, number))
            if self.records[-1]['others']['disturbed'] and self._repeats:
                self._repeats -= 1
                self._progress.again(
                    others.said([self.records[-1]['others']]))
                self._settle(self.phase(phase, number))
        self.rounds += 1

    def _settle(self, again: dict[str, Any]) -> None:
        """Keep the quieter one of the last two."""
        first = self.records[-1]
        kept = min(first, again, key=lambda one: float(
            one['others']['other_cpus'] + one['others']['stolen_cpus']))
        kept['knobs_left'] = first['knobs_left'] + again['knobs_left']
        self.records[-1] = kept

    def phase(self, phase: phases_.Phase, number: int) -> dict[str, Any]:
        """Play one phase and return what was recorded.

        :raises Interrupted: a signal asks to stop.
        :raises DriverError: a program failed, or a knob was left changed.
        """
        before = self.knobs()
        phase.begin(self._stage)
        self._schedules(phase, number)
        # first, since on a slow machine it takes long to start
        status = self.start_agent() if phase.agent else None
        start_s = time.monotonic() + LAUNCH_S + phase.warm_up_s
        service = self.launch_foreground(start_s)
        self.wait_for_base()
        batch = batch_.Batch(self._stage)
        if phase.batch:
            batch.launch()
        watch = measure.Watch(self._stage, start_s,
                              self._iterations_per_ms, status)
        end_s = start_s + self._settings.seconds
        self._stage.launch_outside(
            str(self._stage.programs / 'outside'),
            self._stage.file('outside.out'), f'{start_s:.9f}',
            f'{end_s:.9f}', log='outside')
        quiet = self._run(watch, start_s, end_s, batch)
        self._drain(service, end_s)
        record = self._record(phase, number, watch, batch.kills,
                              time.monotonic() - start_s, quiet)
        self._stage.end()
        self._agent.stop()
        phase.end(self._stage)
        record['knobs_left'] = self.compare(before)
        return record

    @property
    def units_per_cpu_s(self) -> float:
        """Units of the CPU hog's work that a CPU does in a second."""
        return self._iterations_per_ms * 1000 / load.UNIT_ITERATIONS

    def start_agent(self) -> product.Status:
        """Start the agent on the stage; see :meth:`product.Agent.start`."""
        return self._agent.start(product.config_of(self._stage))

    def knobs(self) -> tuple[dict[str, str], str]:
        """What :meth:`compare` compares with."""
        return self._stage.tree.knobs(), self._stage.uplink.qdiscs()

    def stop(self) -> None:
        """End the agent, when a phase was broken off.

        :raises DriverError: it did not end as it should.
        """
        self._agent.stop()

    def _run(self, watch: measure.Watch, start_s: float, end_s: float,
             batch: batch_.Batch) -> dict[str, Any]:
        """Watch until the phase ends; the other load meanwhile."""
        next_s = start_s
        first = None
        while True:
            while (now := time.monotonic()) < min(next_s, end_s):
                self._interrupt.wait_until(min(now + 0.1, next_s, end_s))
                batch.keep()
                self._progress.show(time.monotonic() - start_s)
            first = first or self._stage.look()
            watch.look()
            if time.monotonic() >= end_s:
                return self._stage.between(first, self._stage.look())
            next_s += measure.EVERY_S

    def _drain(self, service: subprocess.Popen[bytes],
               end_s: float) -> None:
        """Wait for the requests that are late, first beside the batch."""
        while service.poll() is None:
            self._interrupt.wait_until(time.monotonic() + 0.05)
            if time.monotonic() > end_s + DRAIN_S:
                return
        if service.returncode:
            raise errors.DriverError(
                f'the service ended with {service.returncode}: '
                f'{self._stage.said("service")}')

    def _schedules(self, phase: phases_.Phase, number: int) -> None:
        directory = self._stage.directory
        for record in directory.glob('*.out'):
            record.unlink()
        seed = f'{self._settings.seed} {number}'
        seconds, warm_up_s = self._settings.seconds, phase.warm_up_s
        requests = load.arrivals(seed=seed, seconds=seconds,
                                 warm_up_s=warm_up_s,
                                 cpus=len(self._stage.cpus))
        self._requests = requests
        load.write_doubles(directory / 'arrivals',
                           [value for pair in requests for value in pair])
        steps = load.memory_steps(seed=seed, seconds=seconds,
                                  warm_up_s=warm_up_s)
        load.write_doubles(directory / 'steps',
                           [value for pair in steps for value in pair])
        load.write_doubles(directory / 'starts', load.file_starts(
            seed=seed, seconds=seconds, warm_up_s=warm_up_s))

    def launch_foreground(self, start_s: float) -> subprocess.Popen[bytes]:
        stage, spare = self._stage, stage_.OOM_SPARE
        start = f'{start_s:.9f}'
        file = stage.file
        stage.launch('network', 'sink', str(uplink.PORT), file('sink.out'),
                     below=stage_.OUTSIDE, role='sink', out_of_memory=spare)
        stage.launch('store', file('steps'), file('store.out'), start,
                     *stage.tree.refusals_file(),
                     below=stage_.SERVICE, out_of_memory=spare)
        stage.launch('network', 'files', file('starts'), file('files.out'),
                     start, uplink.SINK_ADDRESS, str(uplink.PORT),
                     str(load.FILE_BYTES), str(load.FILE_BYTES_PER_S),
                     below=stage_.TRANSFER, role='fg', out_of_memory=spare)
        return stage.launch(
            'service', file('arrivals'), file('service.out'),
            str(load.THREADS_PER_CPU * len(stage.cpus)), start,
            f'{self._iterations_per_ms:.0f}',
            below=stage_.SERVICE, role='fg', out_of_memory=spare)

    def wait_for_base(self) -> None:
        """Let the service have its memory before batch work starts."""
        deadline_s = time.monotonic() + BASE_S
        while time.monotonic() < deadline_s:
            steps = load.read_steps(self._stage.directory / 'store.out')
            if steps and steps[0].took_s:
                return
            self._interrupt.wait_until(time.monotonic() + 0.05)

    def _record(self, phase: phases_.Phase, number: int,
                watch: measure.Watch, kills: int, now_s: float,
                other: dict[str, Any]) -> dict[str, Any]:
        directory = self._stage.directory
        latencies = load.read_doubles(directory / 'service.out')
        refused = float(self._stage.tree.refusals())
        return result.record(
            phase=phase.name, number=number,
            requests=[(at_s, latency_s or now_s - at_s)
                      for (at_s, _), latency_s
                      in zip(self._requests, latencies, strict=False)
                      if at_s >= 0],
            unserved=sum(1 for latency in latencies if not latency),
            steps=load.read_steps(directory / 'store.out', refused),
            files=load.read_files(directory / 'files.out'),
            samples=watch.samples, caps_set=watch.caps_set,
            kills=kills, cpus=len(self._stage.cpus), other=other,
            outside_late_s=load.read_doubles(directory / 'outside.out'),
            memory_bytes=self._stage.memory_bytes)

    def compare(self, before: tuple[dict[str, str], str]) -> list[str]:
        """Knobs that do not read as before the phase."""
        knobs, qdiscs = before
        changed = self._stage.tree.changed(knobs)
        after = self._stage.uplink.qdiscs()
        if after != qdiscs:
            changed.append(f'{self._stage.uplink.background}: was '
                           f'{qdiscs!r}, is {after!r}')
        return changed
