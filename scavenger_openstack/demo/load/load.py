# SPDX-License-Identifier: Apache-2.0

"""What the demo runs: fixed schedules, C programs, their records.

A schedule depends on the seed, the round and the size of the host, never
on the phase: all phases of a round see the same requests with the same
work, the same steps of memory and the same files at the same moments.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
import pathlib
import random
import subprocess
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.ibench import build as build_

SOURCES = pathlib.Path(__file__).parent
PROGRAMS = ('launch', 'service', 'store', 'hog', 'hoard', 'network',
            'lookup', 'scan', 'outside')

REQUESTS_PER_S_AND_CPU = 52.5
WORK_MS = (2.0, 6.0)
"""A request is as long as a tick of the usual kernel (4 ms at 250 Hz).

A choice, and it favours the agent a little: what the kernel does at ticks
only is felt less by longer requests.  The P99 beside the batch work against
that of alone was 1.06 (1.03 to 1.09, 24 pairs of turns) with requests of 1
to 3 ms, and 1.04 (1.01 to 1.09, 14 pairs) with these: the intervals overlap.
"""
BURST_SHARE = 0.4
"""Share of the requests that come in bursts, of one per thread."""
THREADS_PER_CPU = 4
HOG_THREADS_PER_CPU = 3

BASE_MIB = 320
STEP_MIB = (90, 110)
STEPS_UP = 4
STEP_EVERY_S = 2.2
STORE_MIB_PER_S = 200.0
QUIET_S = 20.0

FILE_BYTES = 3_500_000
FILE_BYTES_PER_S = 2_000_000
FILE_EVERY_S = 2.0
FLOWS = 16

UNIT_ITERATIONS = 100_000
CALIBRATE_S = 60.0


class Step(NamedTuple):
    """One change of the service's memory, as :file:`store.c` records it."""

    due_s: float
    begun_s: float
    took_s: float
    change_mib: float
    refused_before: float
    refused_after: float


class File(NamedTuple):
    """One file that was sent, as :file:`network.c` records it."""

    due_s: float
    begun_s: float
    took_s: float


def arrivals(*, seed: str, seconds: float, warm_up_s: float,
             cpus: int) -> list[tuple[float, float]]:
    """(moment in s, work in ms) of each request, in order.

    Poisson, a part of it in bursts.  What comes before 0 is warm-up and
    does not change what comes after.
    """
    size = THREADS_PER_CPU * cpus
    rate = REQUESTS_PER_S_AND_CPU * cpus
    found = []
    for name, begin_s, end_s in (('warm-up', -warm_up_s, 0.0),
                                 ('measured', 0.0, seconds)):
        for kind, per_s, burst in (
                ('single', rate * (1 - BURST_SHARE), 1),
                ('burst', rate * BURST_SHARE / size, size)):
            rng = random.Random(f'{seed} {name} {kind}')
            at_s = begin_s
            while (at_s := at_s + rng.expovariate(per_s)) < end_s:
                found += [(at_s, rng.uniform(*WORK_MS))
                          for _ in range(burst)]
    return sorted(found)


def memory_steps(*, seed: str, seconds: float,
                 warm_up_s: float) -> list[tuple[float, float]]:
    """(moment in s, level in MiB): quiet, stairs up, back down, quiet.

    In a short phase fewer stairs, so that half of it is quiet: what the
    regulator gives then, and a fixed split does not, has to be seen.
    """
    stairs = max(1, min(STEPS_UP, int(seconds / 2 / STEP_EVERY_S)))
    rng = random.Random(f'{seed} memory')
    found = [(-warm_up_s, float(BASE_MIB))]
    at_s = min(2.0, seconds / 4)
    while at_s + min(1.5, seconds / 4) < seconds:
        level = float(BASE_MIB)
        for _ in range(stairs):
            level += rng.randint(*STEP_MIB)
            found.append((at_s, level))
            at_s += STEP_EVERY_S + rng.uniform(-0.2, 0.2)
        found.append((at_s, float(BASE_MIB)))
        at_s += QUIET_S + rng.uniform(-0.5, 0.5)
    return [(moment, level) for moment, level in found if moment < seconds]


def file_starts(*, seed: str, seconds: float,
                warm_up_s: float) -> list[float]:
    """When each file is due, in s."""
    rng = random.Random(f'{seed} files')
    count = int((seconds + warm_up_s) / FILE_EVERY_S) + 1
    return [seconds - (i + 1) * FILE_EVERY_S + rng.uniform(0, 0.2)
            for i in range(count)][::-1]


def write_doubles(path: pathlib.Path, values: Sequence[float]) -> None:
    path.write_bytes(array.array('d', values).tobytes())


def read_doubles(path: pathlib.Path) -> list[float]:
    """A record; empty while there is none."""
    found = array.array('d')
    if path.exists():
        found.frombytes(path.read_bytes())
    return found.tolist()


def read_integers(path: pathlib.Path) -> list[int]:
    """A file of counters; empty while there is none."""
    found = array.array('Q')
    if path.exists():
        found.frombytes(path.read_bytes())
    return found.tolist()


def read_steps(path: pathlib.Path, refused: float = 0.0) -> list[Step]:
    """The steps that were begun; ``took_s`` is 0 while one is under way.

    :param refused: how often the host has refused a page until now, which
        a step that is under way cannot have recorded yet
    """
    values = read_doubles(path)
    rows = zip(*[iter(values)] * len(Step._fields), strict=True)
    return [step if step.took_s else step._replace(refused_after=max(
                refused, step.refused_before))
            for step in map(Step._make, rows) if step.change_mib]


def read_files(path: pathlib.Path) -> list[File]:
    """The files that were begun; ``took_s`` is 0 until one has arrived."""
    values = read_doubles(path)
    rows = zip(*[iter(values)] * len(File._fields), strict=True)
    return [file for file in map(File._make, rows) if file.due_s]


def build(directory: pathlib.Path) -> None:
    """Compile the programs into ``directory``.

    :raises ConfigError: there is no compiler.
    :raises DriverError: it fails.
    """
    for program in PROGRAMS:
        build_.compile_c([SOURCES / f'{program}.c'], directory / program)


def calibrate(directory: pathlib.Path) -> float:
    """How many iterations of work a CPU of this host does per ms.

    Measured once per demo, so that a request is the same work in every
    phase.

    :raises DriverError: it ends without a number, or not at all.
    """
    command = [str(directory / 'service'), 'calibrate']
    try:
        return float(subprocess.run(
            command, capture_output=True, text=True, check=True,
            start_new_session=True, timeout=CALIBRATE_S).stdout)
    except (subprocess.SubprocessError, ValueError) as exc:
        raise errors.DriverError(f'{" ".join(command)}: {exc}') from exc
