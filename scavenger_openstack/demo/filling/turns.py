# SPDX-License-Identifier: Apache-2.0


"""The service in short turns: alone, beside the batch work, and so on.

What the verdict on latency rests on.  All programs and the agent run all the
time; in a turn *alone* the batch work is stopped (SIGSTOP), so that a turn
needs no warm-up.  Both turns of a pair have the same requests, and follow
each other within seconds; every second pair is played the other way round.
The first quarter second of a turn belongs to the turn before and does not
count.  A pair counts only if the batch work was stopped and continued within
that time: on a machine that is too busy the demo itself may be late.
The agent runs in both: its own CPU time is in the longer phases.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence
import pathlib
import subprocess
import time
from typing import Any

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import play
from scavenger_openstack.demo.load import batch as batch_
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import progress as progress_
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_

TURN_S = progress_.PAIR_S / 2
SKIP_S = 0.25
STILL_CPUS = 0.05
"""What batch work that stands still may seem to use, in CPUs."""
GIVE_UP = 6
"""Disturbed pairs in a row after which the machine is not going to be
quiet."""
ALONE, BESIDE = 'alone', 'scavenger'


def undisturbed(pairs: Sequence[dict[str, Any]]) -> list[interval.Pair]:
    """What counts, as :func:`interval.p99_ratio` takes it."""
    return [interval.Pair(pair[ALONE]['latencies'],
                          pair[BESIDE]['latencies'])
            for pair in pairs if not pair['disturbed']]


def decidable(pairs: Sequence[dict[str, Any]]) -> bool:
    """Whether it is time for a decision: that takes the latencies."""
    more = sum(not pair['disturbed'] for pair in pairs) - interval.LEAST
    return (not pairs[-1]['disturbed'] and more >= 0
            and more % interval.EVERY == 0)


def finished(pairs: Sequence[dict[str, Any]], limit: float) -> bool:
    """Whether more pairs would not tell more."""
    if len(pairs) >= GIVE_UP and all(pair['disturbed']
                                     for pair in pairs[-GIVE_UP:]):
        return True
    if not decidable(pairs):
        return False
    found = interval.p99_ratio(undisturbed(pairs))
    return found is not None and found.against(limit) != figures.INCONCLUSIVE


def judged(name: str, turn: dict[str, Any]) -> dict[str, Any]:
    """The other load of a turn, which also says whether the batch work did
    in it what it was to do."""
    late: dict[str, float] = {}
    if turn['late_s'] > SKIP_S:
        late['late_s'] = turn['late_s']
    if name == ALONE and turn['background_cpu'] > STILL_CPUS:
        late['batch_cpus'] = turn['background_cpu']
    return {**turn['others'], **late,
            'disturbed': turn['others']['disturbed'] or bool(late)}


class Turns:
    """Plays pairs of turns on a stage.

    :param seed: makes the requests
    """

    def __init__(self, stage: stage_.Stage, playing: play.Play,
                 interrupt: interrupt_.Interrupt,
                 progress: progress_.Progress, seed: str) -> None:
        self._stage = stage
        self._play = playing
        self._interrupt = interrupt
        self._progress = progress
        self._seed = seed
        self._requests: list[tuple[float, float]] = []
        self.pairs: list[dict[str, Any]] = []
        self.knobs_left: list[str] = []

    def play(self, *, most: int, until_s: float, limit: float) -> None:
        """Add pairs to :attr:`pairs` until they tell on which side of
        ``limit`` the ratio of the P99s is.

        :param most: pairs at most
        :param until_s: moment after which none begins
        :raises Interrupted: a signal came.
        :raises DriverError: a program failed.
        """
        before = self._play.knobs()
        self._progress.turns(most)
        self._schedules(most)
        self._play.start_agent()
        start_s = time.monotonic() + play.LAUNCH_S + phases.LEARN_S
        service = self._play.launch_foreground(start_s)
        self._play.wait_for_base()
        batch = batch_.Batch(self._stage)
        batch.launch()
        while time.monotonic() < start_s - 0.2:
            self._interrupt.wait_until(time.monotonic() + 0.1)
            batch.keep()
        try:
            self._pairs(most, until_s, start_s, limit, service, batch)
        finally:
            if self.pairs:
                self._latencies(start_s)
        self._stage.end()
        self._play.stop()
        self.knobs_left = self._play.compare(before)

    def _pairs(self, most: int, until_s: float, start_s: float, limit: float,
               service: subprocess.Popen[bytes],
               batch: batch_.Batch) -> None:
        for number in range(most):
            begin_s = start_s + 2 * number * TURN_S
            if begin_s + 2 * TURN_S > until_s:
                break
            if (self.pairs and decidable(self.pairs)
                    and time.monotonic() > begin_s + SKIP_S):
                continue    # on a large machine a decision takes seconds
            pair: dict[str, Any] = {'pair': number}
            names = ((ALONE, BESIDE) if len(self.pairs) % 2 == 0 else
                     (BESIDE, ALONE))
            for i, name in enumerate(names):
                pair[name] = self._turn(name, begin_s + i * TURN_S, start_s,
                                        service, batch)
            if service.poll():
                raise errors.DriverError(
                    f'the service ended with {service.returncode}: '
                    f'{self._stage.said("service")}')
            pair['disturbed'] = any(pair[name]['others']['disturbed']
                                    for name in names)
            self.pairs.append(pair)
            if decidable(self.pairs):
                self._latencies(start_s)
            if finished(self.pairs, limit):
                break

    def _schedules(self, most: int) -> None:
        directory, cpus = self._stage.directory, len(self._stage.cpus)
        for record in directory.glob('*.out'):
            record.unlink()
        found = [(at_s - phases.LEARN_S, work_ms) for at_s, work_ms
                 in load.arrivals(seed=f'{self._seed} turns',
                                  seconds=phases.LEARN_S, warm_up_s=0.0,
                                  cpus=cpus)]
        for turn in range(2 * most):
            found += [(turn * TURN_S + at_s, work_ms) for at_s, work_ms
                      in load.arrivals(seed=f'{self._seed} {turn // 2}',
                                       seconds=TURN_S, warm_up_s=0.0,
                                       cpus=cpus)]
        self._requests = found
        load.write_doubles(directory / 'arrivals',
                           [value for pair in found for value in pair])
        load.write_doubles(directory / 'steps',
                           [-phases.LEARN_S, load.BASE_MIB])
        load.write_doubles(directory / 'starts', load.file_starts(
            seed=self._seed, seconds=2 * most * TURN_S,
            warm_up_s=phases.LEARN_S))

    def _turn(self, name: str, begin_s: float, start_s: float,
              service: subprocess.Popen[bytes],
              batch: batch_.Batch) -> dict[str, Any]:
        self._progress.turn(len(self.pairs), name)
        self._interrupt.wait_until(begin_s)
        batch.stop() if name == ALONE else batch.go_on()
        late_s = time.monotonic() - begin_s
        self._interrupt.wait_until(begin_s + SKIP_S)
        first, waited = self._stage.look(), run_delay(service.pid)
        units = self._units()
        end_s = begin_s + TURN_S
        while time.monotonic() < end_s - 0.05:
            self._interrupt.wait_until(min(end_s - 0.05,
                                           time.monotonic() + 0.1))
            if name == BESIDE:
                batch.keep()
        last, delay = self._stage.look(), run_delay(service.pid)
        ran_s = delay[0] - waited[0]
        turn = {
            'begin_s': begin_s - start_s, 'late_s': late_s,
            'run_delay': (delay[1] - waited[1]) / ran_s if ran_s else None,
            'background_cpu': ((self._units() - units)
                               / self._play.units_per_cpu_s
                               / (last.at_s - first.at_s)),
            'others': self._stage.between(first, last)}
        return {**turn, 'others': judged(name, turn)}

    def _units(self) -> int:
        return sum(load.read_integers(self._stage.directory / 'hog.out'))

    def _latencies(self, start_s: float) -> None:
        """Give each turn its latencies."""
        turns = latencies(
            [due_s for due_s, _ in self._requests],
            load.read_doubles(self._stage.directory / 'service.out'),
            {round(pair[BESIDE]['begin_s'] / TURN_S) for pair in self.pairs},
            time.monotonic() - start_s)
        for pair in self.pairs:
            for name in (ALONE, BESIDE):
                pair[name]['latencies'] = turns.get(
                    round(pair[name]['begin_s'] / TURN_S), [])


def latencies(due: Sequence[float], found: Sequence[float],
              beside: Container[int],
              now_s: float) -> dict[int, list[float]]:
    """Turn -> latencies in s; what still waits has waited until now.

    A request that comes while one still waits that came beside the batch
    work waits for that: as one of a turn alone it does not count.

    :param due: when each request comes, in order, in s
    :param found: the latency of each, 0 while it waits
    :param beside: the turns beside the batch work
    """
    turns: dict[int, list[float]] = {}
    served_s = 0.0
    for due_s, latency_s in zip(due, found, strict=False):
        if due_s >= now_s:
            break
        latency_s = latency_s or now_s - due_s
        turn, at_s = divmod(due_s, TURN_S)
        if turn in beside:
            served_s = max(served_s, due_s + latency_s)
        elif due_s < served_s:
            continue
        if at_s >= SKIP_S:
            turns.setdefault(int(turn), []).append(latency_s)
    return turns


def run_delay(pid: int) -> tuple[float, float]:
    """CPU time that all threads of a process used, and the time that they
    waited for a CPU, in s; as the kernel counts it."""
    ran_ns = waited_ns = 0
    for task in pathlib.Path(f'/proc/{pid}/task').glob('*/schedstat'):
        try:
            ran, waited, _ = task.read_text().split()
        except OSError:
            continue   # a thread that ended
        ran_ns += int(ran)
        waited_ns += int(waited)
    return ran_ns / 1e9, waited_ns / 1e9
